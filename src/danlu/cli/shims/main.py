"""One program with several names: a small file named `sbatch` calls `main("sbatch")`."""

from __future__ import annotations

import os
import sys

from danlu.cli import render
from danlu.errors import DanluError

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable

# Each name, and the function that does it.
COMMANDS = {
    "sbatch": "sbatch:sbatch", "squeue": "queue:squeue", "scancel": "queue:scancel", "sinfo": "queue:sinfo",
    "ilaunch": "launch:ilaunch", "zlaunch": "launch:zlaunch",
}  # fmt: skip


def main(name: str) -> int:
    try:
        module, _, function = COMMANDS[name].partition(":")
        command: Callable[[list[str]], int] = getattr(
            __import__(f"danlu.cli.shims.{module}", fromlist=[function]), function
        )
        return command(sys.argv[1:])
    except DanluError as problem:
        from danlu.cli.text import visible

        render.say(f"{name}: error: {visible(problem.text, lines=True)}")
        if problem.hint:
            render.say(f"{name}: hint: {visible(problem.hint, lines=True)}")
        return 1
    except KeyboardInterrupt:
        return 130
    except BrokenPipeError:
        return 141
    except Exception as error:  # noqa: BLE001 - whatever it is, people get a sentence and not a traceback
        if os.environ.get("DANLU_DEBUG"):
            render.trace()
        render.say(f"{name}: error: {type(error).__name__}: {error}; set DANLU_DEBUG=1 to see where")
        return 1


if __name__ == "__main__":
    word = sys.argv.pop(1)
    sys.exit(main(word))
