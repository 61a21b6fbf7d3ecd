"""Commands about jobs that send a request and print the answer: submit, ps, show, logs, stop, clone, wait, why, rm."""

from __future__ import annotations

from time import monotonic, time

from danlu.cli import render
from danlu.cli.input.options import asked, connect, say_trouble
from danlu.errors import DanluError, Invalid, Refused

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable
    from typing import Any

    from danlu.cli.input.options import Values
    from danlu.client import Client

PS_LIMIT = 20
NOT_IN_TIME = 124


def submit(values: Values) -> int:
    client = connect(values)
    command, options = asked(values, client)
    if not command:
        example = "for example `danlu submit -- python train.py` or `danlu submit job.yaml`"
        raise Invalid("`danlu submit` needs a command or a job file", example)
    body = client.body(command, options)
    if values["dry_run"]:
        return dry_run(client, body, values)
    return print_submitted(client.submit_body(body), values)


def clone(values: Values) -> int:
    command, options = asked(values)
    if values["dry_run"]:
        raise Invalid("`danlu clone` cannot be tried without submitting", "`danlu run --dry-run -- …` can")
    return print_submitted(connect(values).clone_body(values["words"][0], command, options), values)


def print_submitted(answer: dict[str, Any], values: Values) -> int:
    if values["json"]:
        render.as_json(answer)
        return 0
    render.out(answer["id"])
    if render.is_terminal(2):
        what = "job" if answer["count"] == 1 else f"{answer['count']} tasks"
        follow = (
            f"`danlu logs -f {answer['id']}` follows it" if answer["count"] == 1 else f"`danlu show {answer['id']}`"
        )
        render.say(f"{what} submitted; {follow}", "dim")
    return 0


def dry_run(client: Client, body: dict[str, Any], values: Values) -> int:
    plan = client.ask("POST", "/jobs?dry_run=true", body, again=True)
    if values["json"]:
        render.as_json(plan)
        return 0
    from danlu.cli.views.jobs import render_dry_run

    render.out(render_dry_run(plan, time()))
    return 0


def ps(values: Values) -> int:
    client = connect(values)
    # `--team` lists the jobs of all members, unless `--user` names a person.
    user = values["user"] or ("all" if values["team"] else "me")
    filters = {"user": user, **{name: values[name] for name in ("name", "label", "team", "queue")}}
    if not values["tasks"]:
        filters["collapse"] = "true"
    limit: int | None = values["limit"] if values["limit"] is not None else None if values["all"] else PS_LIMIT
    if values["all"] or values["state"] or values["before"]:
        page = _gathered(client, filters, values["state"], values["before"] or "", limit)
    else:
        page = _recent(client, filters, PS_LIMIT if limit is None else limit)
    page["trouble"] = client.trouble
    if values["all"]:
        from danlu.cli.commands.external import listed

        page["others"] = listed(client, values)
    if values["json"]:
        render.as_json(page)
        return 0
    _print_jobs(page, with_user=filters["user"] != "me")
    say_trouble(client)
    if page["next"] and render.is_terminal(2):
        render.say(f"older ones: `danlu ps --before {page['next']}`, or all with `-a`", "dim")
    return 0


def _print_jobs(page: dict[str, Any], *, with_user: bool) -> None:
    from danlu.cli.views.jobs import render_jobs

    jobs, others = page["items"], page.get("others")
    if jobs:
        render.out(render_jobs(jobs, time(), render.width(), render.painted, with_user=with_user))
    if others:
        from danlu.cli.commands.external import render_others

        title = f"{'' if not jobs else chr(10)}not through Danlu:"
        render.out(f"{title}\n{render_others(others, time(), render.width(), render.painted)}")
    if not jobs and not others and render.is_terminal(2):
        render.say("no jobs", "dim")


def _recent(client: Client, filters: dict[str, Any], limit: int) -> dict[str, Any]:
    """Every active job (up to the limit), filled up with the newest other jobs."""
    active = client.page(states=["active"], limit=limit, **filters)["items"]
    page = client.page(limit=limit, **filters)
    known = {_line_of(job) for job in active}
    others = [job for job in page["items"] if _line_of(job) not in known]
    kept = others[: max(limit - len(active), 0)]
    cursor = page.get("next")
    if len(kept) < len(others):
        cursor = others[len(kept)]["seq"] + 1
    return {"items": active + kept, "next": cursor}


def _line_of(job: dict[str, Any]) -> str:
    return str(job["array_id"] if job.get("tasks") else job["id"])


def _gathered(
    client: Client, filters: dict[str, Any], states: list[str], before: str, limit: int | None
) -> dict[str, Any]:
    items: list[dict[str, Any]] = []
    cursor: str | int | None = before
    while cursor is not None and (limit is None or len(items) < limit):
        most = 200 if limit is None else min(limit - len(items), 200)
        page = client.page(states=states, limit=most, before=cursor, **filters)
        items += page["items"]
        cursor = page.get("next")
    return {"items": items, "next": cursor or None}


def _of_job(ask: Callable[[], dict[str, Any]]) -> dict[str, Any] | None:
    """The server's answer about a job. None: an external run such as `slurm:17`."""
    try:
        return ask()
    except Refused as problem:
        if problem.code != "other":
            raise
        return None


def show(values: Values) -> int:
    client, ref = connect(values), values["words"][0]
    data = _of_job(lambda: client.job(ref).data)
    if data is None:
        from danlu.cli.commands import external

        return external.show(client, ref, values)
    if values["json"]:
        render.as_json(data)
        return 0
    from danlu.cli.views.jobs import render_array, render_job

    if data.get("array") is True:
        render.out(render_array(data, time(), render.width(), render.painted))
    else:
        render.out(render_job(data, time(), render.painted))
    return 0


def logs(values: Values) -> int:
    log = connect(values).logs(
        values["words"][0], follow=values["follow"], tail=values["tail"], attempt=values["attempt"]
    )
    for piece in log:
        render.raw(piece)
    return 0


def why(values: Values) -> int:
    client, ref = connect(values), values["words"][0]
    data = _of_job(lambda: client.why(ref))
    if data is None:
        from danlu.cli.commands import external

        return external.why(client, ref, values)
    if values["json"]:
        render.as_json(data)
        return 0
    from danlu.cli.views.jobs import render_why

    render.out(render_why(data, time()))
    return 0


def stop(values: Values) -> int:
    client = connect(values)
    stopped: list[dict[str, Any]] = []

    def stop_one(ref: str) -> None:
        answer = _of_job(lambda: client.stop_all(ref, now=values["now"], kill=values["kill"]))
        if answer is None:
            items = client.stop_other(ref)
            answer = {"items": items, "count": len(items)}
        stopped.append(answer)
        if not values["quiet"] and not values["json"]:
            for job in answer["items"][:10]:
                is_ended = job["state"] not in ("QUEUED", "STARTING", "PENDING", "RUNNING")
                render.out(f"{job['id']}  {job['state'] if is_ended else 'stopping'}")
            if answer["count"] > 10:
                render.out(f"{ref}  {answer['count']} jobs in all")

    code = each(values["words"], stop_one)
    if values["json"]:
        render.as_json({"items": [job for answer in stopped for job in answer["items"]]})
    return code


def remove(values: Values) -> int:
    client = connect(values)
    refs: list[str] = list(values["words"])
    if values["ended"]:
        refs += [job.id for job in client.jobs(state="ended")]
        if not refs:
            render.say("no ended jobs")
            return 0
        if not values["yes"] and not _is_sure(f"forget {len(refs)} ended jobs and their logs? [y/N] "):
            return 1
    elif not refs:
        raise Invalid("`danlu rm` needs ID or `--ended`", "for example `danlu rm @`")
    removed = [0]

    def remove_one(ref: str) -> None:
        removed[0] += client.remove(ref)

    code = each(refs, remove_one)
    if values["json"]:
        render.as_json({"removed": removed[0]})
    elif not values["quiet"] and (removed[0] or not code):
        render.out(f"forgot {removed[0]} job{'' if removed[0] == 1 else 's'}")
    return code


def _is_sure(text: str) -> bool:
    if not render.is_terminal(0):
        raise Invalid("this would be asked, and there is no terminal to ask on", "say it with `--yes`")
    return render.question(text) in ("y", "yes")


def wait(values: Values) -> int:
    client = connect(values)
    until = None if values["timeout"] is None else monotonic() + values["timeout"]
    items: list[dict[str, Any]] = []
    code = 0
    for ref in map(client.lasting, values["words"]):
        while True:
            left = 30.0 if until is None else max(min(until - monotonic(), 30.0), 0.0)
            answer = client.wait_once(ref, left)
            if answer["done"] or (until is not None and monotonic() >= until):
                break
        items += answer["items"]
        code = max(code, _wait_code(answer))
        if not values["quiet"] and not values["json"]:
            _tell_waited(ref, answer)
    if values["json"]:
        render.as_json({"items": items})
    return code


def _wait_code(answer: dict[str, Any]) -> int:
    if not answer["done"]:
        return NOT_IN_TIME
    return 0 if all(job["state"] == "SUCCEEDED" for job in answer["items"]) else 1


def _tell_waited(ref: str, answer: dict[str, Any]) -> None:
    from danlu.cli.views.jobs import render_states

    if answer["count"] != 1 or not answer["items"]:
        render.out(f"{ref}  {render_states(answer['states'])}")
        return
    job = answer["items"][0]
    code = "" if job.get("exit_code") is None else f"  exit code {job['exit_code']}"
    render.out(f"{job['id']}  {job['state']}{code}")


def each(refs: list[str], act: Callable[[str], None]) -> int:
    """Call `act` for each job, also after a failure. Returns the worst exit code."""
    worst = 0
    for ref in refs:
        try:
            act(ref)
        except DanluError as problem:
            render.error(problem)
            worst = max(worst, problem.exit_code)
    return worst
