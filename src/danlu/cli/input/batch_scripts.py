"""Batch scripts from files, read at submission, with the queue and the team of their options."""

from __future__ import annotations

import os
import sys

from danlu.client.job_body import working_folder
from danlu.compat import batch_script, sbatch
from danlu.errors import Invalid

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Sequence

    from danlu.client import Client
    from danlu.compat.getopt import Given
    from danlu.compat.sbatch import Request


def read_file(path: str) -> bytes:
    """The bytes of a script. Like `sbatch`, search the PATH for a bare name."""
    if "/" not in path and not os.path.exists(path):
        import shutil

        path = shutil.which(path) or path
    try:
        with open(path, "rb") as file:
            return file.read(batch_script.LONGEST_BYTES * 4)
    except OSError as error:
        raise Invalid(f"Unable to open file {path}: {error.strerror}") from None


def read_stdin() -> bytes:
    return sys.stdin.buffer.read(batch_script.LONGEST_BYTES * 4)


def request_of(data: bytes, given: Sequence[Given], arguments: Sequence[str], *, name: str) -> Request:
    # Inside a job, the variables of this job must not reach the new job.
    for stale in [key for key in os.environ if key.startswith(("SLURM_", "SLURMD_")) and key != "SLURM_CONF"]:
        del os.environ[stale]
    return sbatch.read_script(data, given, arguments, os.environ, name=name, folder=working_folder())


def settle(client: Client, request: Request) -> None:
    """Choose the team, and one queue of several. Name and drop unknown queues and teams."""
    if request.queues:
        names = [str(queue["name"]) for queue in client.queues()]
        known = [name for name in request.queues if name in names]
        written = ",".join(request.queues)
        if not names:
            request.notes.append(f"`--partition={written}` has no effect: this server has no queues")
        else:
            request.options["queue"] = (known or request.queues)[0]
            if len(request.queues) > 1:
                request.notes.append(f"of `--partition={written}`, `{request.options['queue']}` is used")
    if request.account:
        teams = [str(team["team"]) for team in client.whoami()["teams"]]
        if request.account in teams:
            request.options["team"] = request.account
        else:
            request.notes.append(f"`--account={request.account}` has no effect: you are in no team of this name")
