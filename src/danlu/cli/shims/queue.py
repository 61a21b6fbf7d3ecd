"""`squeue`, `scancel`, `sinfo`: ask the server, show it as Slurm does."""

from __future__ import annotations

from time import localtime, strftime, time

from danlu.cli import render
from danlu.cli.text import epoch
from danlu.client import Client
from danlu.compat import scancel as scancel_words
from danlu.compat import sinfo as sinfo_words
from danlu.compat import squeue as squeue_words
from danlu.errors import DanluError, NotFound

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

PAGE = 1000


def squeue(words: list[str]) -> int:
    asked, other = squeue_words.read_words(words)
    if other & {"help", "usage", "version"}:
        return _told("squeue", "-u USER --me -j LIST -t STATES -p LIST -n NAMES -r -h -l --start -o FORMAT -O FIELDS")
    client = Client(start=True)
    jobs = _named(client, asked.jobs) if asked.jobs else _listed(client, asked)
    jobs = [job for job in jobs if squeue_words.is_selected(asked, job)]
    if asked.states is None:
        jobs = [job for job in jobs if job["ended_at"] is None]
    if asked.is_long:
        render.out(strftime("%a %b %d %H:%M:%S %Y"))
    numbers = _numbers(client, jobs) if any(column.letter == "E" for column in asked.layout[1]) else {}
    rows = squeue_words.rows_of(jobs, asked, numbers, time(), epoch, _local)
    for line in squeue_words.render_rows(rows, asked):
        render.out(line)
    return 0


def _named(client: Client, refs: list[str]) -> list[dict[str, Any]]:
    found: list[dict[str, Any]] = []
    for ref in [one for written in refs for one in scancel_words.refs_of(written)]:
        try:
            job = client.job(ref)
        except NotFound:
            raise DanluError("slurm_load_jobs error: Invalid job id specified") from None
        found += [task.data for task in job.tasks()] if job.is_array else [job.data]
    return found


def _numbers(client: Client, jobs: list[dict[str, Any]]) -> dict[str, str]:
    """The numbers of the jobs that these wait for, by id."""
    awaited = {one.rpartition(":")[0] for job in jobs if job["state"] == "QUEUED" for one in job["after"]}
    found = {}
    for ref in awaited:
        try:
            job = client.job(ref)
        except NotFound:
            continue
        found[ref] = job.data["items"][0]["number"].partition("_")[0] if job.is_array else job.data["number"]
    return found


def _listed(client: Client, asked: squeue_words.Asked | scancel_words.Asked) -> list[dict[str, Any]]:
    """Active jobs, all of them; of ended ones the newest."""
    users = asked.users or []
    user = "me" if asked.is_mine else users[0] if len(users) == 1 else "all"
    found: list[dict[str, Any]] = []
    cursor: Any = ""
    while cursor is not None:
        page = client.page(states=asked.states or ["active"], limit=PAGE, before=cursor, user=user)
        found += page["items"]
        cursor = page.get("next")
        if asked.states and page["items"] and page["items"][-1]["ended_at"]:
            break
    return found


def scancel(words: list[str]) -> int:
    asked, other = scancel_words.read_words(words)
    if other:
        return _told("scancel", "[-u USER] [--me] [-n NAME] [-t STATE] [-p PARTITION] [-s TERM|KILL] [JOB[_TASK]...]")
    client = Client(start=True)
    refs = list(asked.refs)
    if asked.selects:
        jobs = [job for job in _listed(client, asked) if squeue_words.is_selected(asked, job)]
        if refs:
            jobs = [job for job in jobs if {job["number"], job["number"].partition("_")[0]} & set(refs)]
        refs = [job["id"] for job in jobs]
    code = 0
    for ref in refs:
        try:
            client.stop_all(ref, now=True, kill=asked.kills)
        except NotFound:
            # Slurm says so only when asked to talk, and ends well.
            if asked.is_loud:
                render.say(f"scancel: error: Kill job error on job id {ref}: Invalid job id specified")
        except DanluError as problem:
            render.say(f"scancel: error: Kill job error on job id {ref}: {problem.text}")
            code = 1
    return code


def sinfo(words: list[str]) -> int:
    asked, other = sinfo_words.read_words(words)
    if other & {"help", "usage", "version"}:
        return _told("sinfo", "-s -N -l -h -a -p LIST -n NODES -t STATES -o FORMAT -O FIELDS")
    client = Client(start=True)
    lines = sinfo_words.render_sinfo(asked, client.nodes(), client.queues())
    if asked.is_long:
        render.out(strftime("%a %b %d %H:%M:%S %Y"))
    for line in lines:
        render.out(line)
    return 0


def _told(name: str, options: str) -> int:
    from danlu import __version__

    render.out(f"Usage: {name} {options}\ndanlu {__version__}; see docs/coming-from-slurm.md")
    return 0


def _local(moment: str) -> str:
    return strftime("%Y-%m-%dT%H:%M:%S", localtime(epoch(moment)))
