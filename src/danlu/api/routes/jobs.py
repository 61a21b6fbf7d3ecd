"""Routes of jobs: submit, list, show, stop, clone, wait, why, remove."""

from collections import Counter
from collections.abc import Sequence
from datetime import UTC, datetime
from typing import Annotated

from fastapi import APIRouter, Header, Query, Request
from starlette.responses import Response

from danlu.actions.installation import Installation
from danlu.actions.jobs import submit as submit_actions
from danlu.actions.jobs import views
from danlu.actions.jobs import why as reasons
from danlu.api.answers import (
    DryRun,
    JobPage,
    Removed,
    ShownArray,
    ShownJob,
    Stopped,
    Submitted,
    Waited,
    WhyOut,
)
from danlu.api.auth import TheActor, TheDesk
from danlu.api.bodies import (
    MOST_BODY,
    ChangesIn,
    Json,
    StopIn,
    changes_in,
    counts_out,
    dry_run_out,
    job_out,
    past_run_out,
    read_body,
    request_in,
    schema_of,
    why_out,
)
from danlu.api.document import Frames
from danlu.api.fields import Cursor
from danlu.api.routes.streams import framed
from danlu.domain.job import ACTIVE, ENDED, Job, JobState
from danlu.domain.people import Actor
from danlu.errors import Invalid
from danlu.store.protocol import JobFilter

router = APIRouter(default_response_class=Json)

SHOWN_AT_SUBMIT = 10
SHOWN_OF_ARRAY = 100
MAX_WAIT_S = 3600.0
Key = Annotated[str, Header(alias="Idempotency-Key", max_length=100)]


NOT_SUBMITTED = {
    "model": DryRun,
    "description": "With `dry_run`, what would happen; with `follow`, the life of the job",
    "content": {Frames.media_type: {"schema": {"type": "string"}}},
}


@router.post(
    "/jobs",
    status_code=201,
    response_model=Submitted,
    responses={200: NOT_SUBMITTED},
    openapi_extra=schema_of(ChangesIn),
)
async def submit(
    desk: TheDesk,
    actor: TheActor,
    request: Request,
    follow: bool = False,
    dry_run: bool = False,
    idempotency_key: Key = "",
) -> Response:
    wanted = request_in(await read_body(ChangesIn, request, most=MOST_BODY))
    now = datetime.now(UTC)
    if dry_run:
        return Json(dry_run_out(await reasons.dry_run(desk.cache, desk.outlook, desk.rules, actor, wanted, now=now)))
    if follow and wanted.array:
        raise Invalid("one follows a single job, not an array", "submit it, then `danlu wait`")
    stored = await submit_actions.submit(desk.cache, desk.rules, actor, wanted, key=idempotency_key, now=now)
    if follow:
        return framed(desk, request, actor, stored[0])
    return _submitted(desk, actor, stored)


@router.post("/jobs/{ref}/clone", status_code=201, response_model=Submitted, openapi_extra=schema_of(ChangesIn))
async def clone(desk: TheDesk, actor: TheActor, ref: str, request: Request, idempotency_key: Key = "") -> Response:
    changes = changes_in(await read_body(ChangesIn, request, most=MOST_BODY))
    now = datetime.now(UTC)
    stored = await submit_actions.clone(desk.cache, desk.rules, actor, ref, changes, key=idempotency_key, now=now)
    return _submitted(desk, actor, stored)


def _submitted(desk: Installation, actor: Actor, stored: Sequence[Job]) -> Response:
    shown = [job_out(desk.view(actor, job)) for job in stored[:SHOWN_AT_SUBMIT]]
    return Json({"id": stored[0].group, "jobs": shown, "count": len(stored)}, status_code=201)


@router.get("/jobs", response_model=JobPage)
async def list_jobs(
    desk: TheDesk,
    actor: TheActor,
    state: Annotated[list[str] | None, Query()] = None,
    user: str = "",
    name: str = "",
    label: str = "",
    array: str = "",
    team: str = "",
    queue: str = "",
    limit: int = 50,
    before: Cursor = None,
    collapse: bool = False,
) -> Response:
    key, equals, value = label.partition("=")
    if label and not equals:
        raise Invalid(f"`label` takes NAME=VALUE, not `{label}`")
    wanted = JobFilter(
        states=read_states(state or []),
        user=actor.name if user == "me" else user,
        name=name,
        label=(key, value) if label else None,
        array_id=array,
        team=team,
        queue=queue,
    )
    if collapse:
        lines, cursor = await views.list_lines(desk.cache, actor, wanted, limit=max(1, limit), before=before)
        items = [
            job_out(desk.view(actor, line.job)) | {"tasks": counts_out(line.tasks) if line.tasks else None}
            for line in lines
        ]
        return Json({"items": items, "next": cursor, "trouble": desk.trouble_text})
    page = await views.list_jobs(desk.cache, actor, wanted, limit=limit, before=before)
    items = [job_out(desk.view(actor, job)) for job in page.jobs]
    return Json({"items": items, "next": page.next_before, "trouble": desk.trouble_text})


def read_states(names: Sequence[str]) -> frozenset[JobState]:
    states: set[JobState] = set()
    for name in names:
        if name.casefold() == "active":
            states |= ACTIVE
        elif name.casefold() == "ended":
            states |= ENDED
        elif name.upper() in JobState.__members__:
            states.add(JobState[name.upper()])
        else:
            known = ", ".join(s.lower() for s in JobState)
            raise Invalid(f"no state `{name}`", f"one of: active, ended, {known}")
    return frozenset(states)


@router.get("/jobs/{ref}", response_model=ShownJob | ShownArray)
async def show(desk: TheDesk, actor: TheActor, ref: str) -> Response:
    found = await views.show_job(desk.cache, actor, ref)
    first = found[0]
    if len(found) > 1 or (first.array_id and first.array_id == ref):
        return Json(
            {
                "id": first.array_id,
                "array": True,
                "count": len(found),
                "states": _states(found),
                "items": [job_out(desk.view(actor, job)) for job in found[:SHOWN_OF_ARRAY]],
            }
        )
    more = await views.job_details(desk.cache, desk.rules.files_dir, actor, first)
    runs = [past_run_out(one) for one in more.runs]
    details = {"runs": runs, "run_folder": more.run_folder or None, "engine_id": more.engine_id or None}
    return Json(job_out(desk.view(actor, first), whole=True) | details)


@router.delete("/jobs/{ref}", response_model=Removed)
async def remove(desk: TheDesk, actor: TheActor, ref: str) -> Response:
    now = datetime.now(UTC)
    gone = await submit_actions.remove(desk.cache, desk.engine, desk.rules, actor, ref, now=now)
    return Json({"removed": len(gone)})


@router.post("/jobs/{ref}/stop", response_model=Stopped, openapi_extra=schema_of(StopIn))
async def stop(desk: TheDesk, actor: TheActor, ref: str, request: Request) -> Response:
    wanted = await read_body(StopIn, request)
    how = "kill" if wanted.kill else "now" if wanted.now else ""
    grace, now = desk.outlook.standing.grace, datetime.now(UTC)
    stopped = await submit_actions.stop(desk.cache, desk.engine, actor, ref, how=how, grace=grace, now=now)
    shown = [job_out(desk.view(actor, job)) for job in stopped[:SHOWN_OF_ARRAY]]
    return Json({"items": shown, "count": len(stopped)})


@router.get("/jobs/{ref}/why", response_model=WhyOut)
async def why(desk: TheDesk, actor: TheActor, ref: str) -> Response:
    teams_of, now = desk.roster.memberships, datetime.now(UTC)
    answer = await reasons.why(desk.cache, desk.outlook, desk.rules, teams_of, desk.trouble, actor, ref, now=now)
    return Json(why_out(answer))


@router.get("/jobs/{ref}/wait", response_model=Waited)
async def wait(desk: TheDesk, actor: TheActor, ref: str, timeout: float = MAX_WAIT_S) -> Response:
    found = await submit_actions.wait(desk.cache, actor, ref, timeout_s=max(0.0, min(timeout, MAX_WAIT_S)))
    unlucky = [job for job in found if job.state is not JobState.SUCCEEDED]
    shown = (unlucky + [job for job in found if job.state is JobState.SUCCEEDED])[:SHOWN_OF_ARRAY]
    done = all(job.state.is_ended for job in found)
    items = [job_out(desk.view(actor, job)) for job in shown]
    return Json({"done": done, "items": items, "count": len(found), "states": _states(found)})


def _states(found: Sequence[Job]) -> dict[str, int]:
    return counts_out(Counter(job.state for job in found))
