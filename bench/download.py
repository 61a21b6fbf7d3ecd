"""A long log, fetched whole: by a client that only reads, and by `danlu logs`."""

import time
from functools import partial
from statistics import median

from bench.figures import Figure, spread
from bench.place import DANLU, Home
from bench.timing import round_robin, whole_run
from bench.wire import Wire

AT_LEAST_GB_S = 0.3
LINE = "epoch 12 step 34567 loss 0.12345 accuracy 0.98765 lr 0.001 images/s 1234.5"


def measure(quick: bool) -> list[Figure]:
    size = 100_000_000 if quick else 1_000_000_000
    with Home().up() as home, Wire(home.socket) as wire:
        job_id = wire.submit(["sh", "-c", f"yes '{LINE}' | head -c {size}"])
        wire.wait(job_id)
        samples = round_robin(
            {
                "API, raw client": partial(fetch, wire, job_id, size),
                "danlu logs > /dev/null": partial(whole_run, [DANLU, "logs", job_id], home.environ, home.folder),
            },
            2 if quick else 7,
        )
    return [
        Figure(
            f"{size / 1e9:.1g} GB log, {name}",
            size / 1e9 / median(found),
            "GB/s",
            at_least=AT_LEAST_GB_S,
            note=spread(found, scale=1, unit="s"),
        )
        for name, found in samples.items()
    ]


def fetch(wire: Wire, job_id: str, size: int) -> float:
    begin = time.perf_counter()
    fields, data = wire.open("GET", f"/jobs/{job_id}/logs")
    left, buffer = int(fields["content-length"]) - len(data), bytearray(1 << 20)
    if int(fields["content-length"]) != size:
        raise RuntimeError(f"the log has {fields['content-length']} bytes, not {size}")
    while left:
        got = wire.sock.recv_into(buffer)
        if not got:
            raise RuntimeError("the server closed the connection")
        left -= got
    return time.perf_counter() - begin
