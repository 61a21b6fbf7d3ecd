"""The command `danlu`: parse the arguments, run the command, exit with the right code."""

from __future__ import annotations

import os
import sys

from danlu.cli import render
from danlu.errors import DanluError

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Sequence
    from typing import Any

BROKEN_PIPE = 141
INTERRUPTED = 130


def main(argv: Sequence[str] | None = None) -> int:
    """Run a command; returns its exit code."""
    if "_ARGCOMPLETE" in os.environ:
        from danlu.cli.commands.completion import complete

        complete()
    try:
        return _main(sys.argv[1:] if argv is None else argv)
    except DanluError as problem:
        render.error(problem)
        return problem.exit_code
    except KeyboardInterrupt:
        return INTERRUPTED
    except BrokenPipeError:
        return BROKEN_PIPE
    except Exception as error:  # noqa: BLE001 - people get a sentence and not a traceback
        if os.environ.get("DANLU_DEBUG"):
            render.trace()
        where = "this is a fault in danlu, or of the machine; set DANLU_DEBUG=1 to see where"
        render.error(DanluError(f"{type(error).__name__}: {error}", where))
        return 1


def _main(argv: Sequence[str]) -> int:
    if not argv or argv[0] in ("--help", "-h", "help"):
        from danlu.cli.grammar.help import render_overview

        if len(argv) == 2 and argv[0] == "help":
            return _main([argv[1], "--help"])
        render.out(render_overview(render.painted))
        return 0
    if argv[0] == "--version":
        argv = ["version"]
    from danlu.cli.grammar import parse_fast

    parsed = parse_fast.parse(argv)
    if parsed is None:
        from danlu.cli.grammar import parse_full

        try:
            parsed = parse_full.parse(argv)
        except parse_full.HelpAsked as asked:
            render.out(str(asked).rstrip())
            return 0
    command, values = parsed
    if values["color"]:
        render.set_color(str(values["color"]))
    module, _, function = command.handler.partition(":")
    handler: Callable[[dict[str, Any]], int] = getattr(
        __import__(f"danlu.cli.commands.{module}", fromlist=[function]), function
    )
    return handler(values)


if __name__ == "__main__":
    sys.exit(main())
