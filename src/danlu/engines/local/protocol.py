"""The words that the server and the keeper exchange: JSON, one message a line, over a private Unix socket.

    server → keeper   hello, start, stop, forget, quit; or, on a connection of its own, exec
    keeper → server   hello (with every run it knows), done (an answer), runs (what changed), replaced

`hello` and `quit` keep their shape in every version: by them a server tells an older keeper to make room."""

import json
from typing import Any

PROTOCOL = 1

# Marks in a run's environment: by them its processes are known again when all else is lost.
RUN_MARK = "DANLU_RUN_ID"
KEEPER_MARK = "DANLU_KEEPER"

# Surrogates stand for bytes that are not UTF-8; as \udcXX they pass through JSON unharmed.
_encode = json.JSONEncoder(ensure_ascii=True, check_circular=False, separators=(",", ":")).encode


def render_line(message: Any) -> bytes:
    return _encode(message).encode("ascii") + b"\n"


def parse_line(line: bytes | bytearray) -> Any:
    return json.loads(line)


def render_handle(boot: str, run_id: str) -> str:
    return f"local:{boot}:{run_id}"


def parse_handle(handle: str) -> tuple[str, str]:
    """(boot id, run id); two empty texts if this is no handle of ours."""
    kind, _, rest = handle.partition(":")
    boot, _, run_id = rest.partition(":")
    return (boot, run_id) if kind == "local" and run_id else ("", "")


def boot_id() -> str:
    with open("/proc/sys/kernel/random/boot_id") as file:
        return file.read().strip()
