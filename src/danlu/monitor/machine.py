"""This machine as a node: its cores, memory and cards (from NVML if a driver is loaded, or fake)."""

import logging
import os
import re
import socket

from danlu.domain.resources import SHARDS_PER_GPU, Gpu, Node, model_fits
from danlu.errors import Invalid

log = logging.getLogger(__name__)

# Without any of these no NVIDIA driver is loaded, and loading the library would waste memory.
DRIVER_SIGNS = ("/dev/nvidiactl", "/proc/driver/nvidia", "/dev/dxg")


def parse_fake_gpus(text: str, *, shards: int = SHARDS_PER_GPU) -> tuple[Gpu, ...]:
    """`4xRTX3090,2xGTX1080Ti` -> six fake cards."""
    gpus: list[Gpu] = []
    for part in text.split(","):
        match = re.fullmatch(r"\s*(?:(\d{1,3})\s*x\s*)?([A-Za-z0-9][\w .-]{0,60}?)\s*", part)
        # After a count, a model may be a number, as in 4x3090; without a count, a number would be ambiguous.
        count_only = r"\d{0,2}x?" if match and match[1] else r"\d*\s*x?"
        if not match or match[1] == "0" or re.fullmatch(count_only, match[2]):
            raise Invalid(
                f"cards are written as 4xRTX3090,2xGTX1080Ti, not `{text}`",
                "a number, an x and a model, separated by commas",
            )
        memory_mib = _pretend_memory_gib(match[2]) * 1024
        for _ in range(int(match[1] or 1)):
            gpus.append(Gpu(len(gpus), match[2], uuid=f"FAKE-{len(gpus)}", memory_mib=memory_mib, shards=shards))
    return tuple(gpus)


# Memory of well-known cards; other fake cards have as much as a 3090.
_MEMORY_GIB = {
    "1080ti": 11, "2080ti": 11, "3090": 24, "4090": 24, "a10": 24, "a30": 24, "a40": 48, "a100": 80, "a800": 80,
    "h100": 80, "h800": 80, "h200": 141, "k80": 12, "l4": 24, "l40": 48, "p4": 8, "p40": 24, "p100": 16, "rtx4000": 8,
    "rtx5000": 16, "rtx6000": 24, "t4": 16, "titanrtx": 24, "titanxp": 12, "v100": 32,
}  # fmt: skip


def _pretend_memory_gib(model: str) -> int:
    return next((gib for known, gib in _MEMORY_GIB.items() if model_fits(model, known)), 24)


def read_gpus(*, shards: int = SHARDS_PER_GPU, signs: tuple[str, ...] = DRIVER_SIGNS) -> tuple[Gpu, ...]:
    """The real cards of this machine. If the driver does not answer, a warning is logged and there are no cards."""
    if not any(os.path.exists(sign) for sign in signs):
        return ()
    import pynvml

    try:
        pynvml.nvmlInit()
    except pynvml.NVMLError as error:
        log.warning("the NVIDIA driver does not answer, so there are no cards: %s", error)
        return ()
    try:
        return tuple(_gpu(index, shards) for index in range(pynvml.nvmlDeviceGetCount()))
    except pynvml.NVMLError as error:
        log.warning("the NVIDIA driver stopped answering, so there are no cards: %s", error)
        return ()
    finally:
        pynvml.nvmlShutdown()


def read_node(
    *, name: str = "", fake_gpus: str = "", shards_per_gpu: int = SHARDS_PER_GPU, cpus: int = 0, memory_mib: int = 0
) -> Node:
    """This machine as a node. Configured values override the hardware."""
    gpus = parse_fake_gpus(fake_gpus, shards=shards_per_gpu) if fake_gpus else read_gpus(shards=shards_per_gpu)
    return Node(
        name=name or socket.gethostname().split(".")[0] or "localhost",
        cpus=cpus or len(os.sched_getaffinity(0)),
        memory_mib=memory_mib or os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES") // (1024 * 1024),
        gpus=gpus,
    )


def _gpu(index: int, shards: int) -> Gpu:
    import pynvml

    handle = pynvml.nvmlDeviceGetHandleByIndex(index)
    name = pynvml.nvmlDeviceGetName(handle)
    uuid = pynvml.nvmlDeviceGetUUID(handle)
    return Gpu(
        index=index,
        model=name.decode() if isinstance(name, bytes) else name,
        uuid=uuid.decode() if isinstance(uuid, bytes) else uuid,
        memory_mib=pynvml.nvmlDeviceGetMemoryInfo(handle).total // (1024 * 1024),
        shards=shards,
    )
