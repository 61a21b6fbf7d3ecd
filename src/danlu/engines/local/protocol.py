"""The messages between server and keeper: JSON, one message per line, over a private Unix socket.

    server → keeper   hello, start, stop, forget, quit; or, on a separate connection, exec
    keeper → server   hello (with every known run), done (an answer), runs (the changes), replaced

`hello` and `quit` keep their shape in every version: a server needs both to make an older keeper leave."""

import json
from typing import Any

PROTOCOL = 1

# Marks in a run's environment: they identify the processes of a run when all other information is lost.
RUN_MARK = "DANLU_RUN_ID"
KEEPER_MARK = "DANLU_KEEPER"

# Surrogates stand for bytes outside UTF-8; written as \udcXX, surrogates pass through JSON unharmed.
_encode = json.JSONEncoder(ensure_ascii=True, check_circular=False, separators=(",", ":")).encode


def render_line(message: Any) -> bytes:
    return _encode(message).encode("ascii") + b"\n"


def parse_line(line: bytes | bytearray) -> Any:
    return json.loads(line)


def render_handle(boot: str, run_id: str) -> str:
    return f"local:{boot}:{run_id}"


def parse_handle(handle: str) -> tuple[str, str]:
    """(boot id, run id); two empty texts for a handle of another engine."""
    kind, _, rest = handle.partition(":")
    boot, _, run_id = rest.partition(":")
    return (boot, run_id) if kind == "local" and run_id else ("", "")


def boot_id() -> str:
    with open("/proc/sys/kernel/random/boot_id") as file:
        return file.read().strip()
