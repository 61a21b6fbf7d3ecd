"""Routes that stream: logs as raw bytes, and the framed follow that carries log, states and the exit code."""

import contextlib
import json
import struct
from collections.abc import AsyncIterator

from fastapi import APIRouter
from starlette.requests import HTTPConnection, Request
from starlette.responses import PlainTextResponse, Response, StreamingResponse

from danlu.actions.installation import Installation
from danlu.actions.jobs.logs import Followed, JobSeen, LogBytes, check_reader, find_log, follow_to_end, read_log
from danlu.api.auth import TheActor, TheDesk, Welcome
from danlu.api.bodies import job_out
from danlu.api.document import Frames
from danlu.domain.job import Job
from danlu.domain.people import Actor

router = APIRouter()

MOST = 2**62  # no file has more bytes or lines


def frame(kind: bytes, payload: bytes = b"") -> bytes:
    return kind + struct.pack(">I", len(payload)) + payload


def framed(
    desk: Installation, connection: HTTPConnection, actor: Actor, job: Job, *, offset: int = 0, tail: int | None = None
) -> Response:
    """Stream the log, states and exit code of a job from now on, as frames."""

    async def frames() -> AsyncIterator[bytes]:
        async for event in _seen(desk, connection, job, offset, tail):
            if isinstance(event, LogBytes):
                yield frame(b"L", event.data)
            elif isinstance(event, JobSeen):
                shown = {**job_out(desk.view(actor, event.job)), "log_offset": event.offset}
                yield frame(b"E" if event.job.state.is_ended else b"J", json.dumps(shown).encode("ascii"))
            else:
                yield frame(b"B")

    return StreamingResponse(frames(), media_type=Frames.media_type)


@router.get("/jobs/{ref}/follow", response_class=Frames)
async def follow_job(
    desk: TheDesk, actor: TheActor, request: Request, ref: str, offset: int = 0, tail: int | None = None
) -> Response:
    job, _ = await find_log(desk.cache, desk.engine, actor, ref, None)
    return framed(desk, request, actor, job, offset=_inside(offset), tail=_tail(tail))


@router.get("/jobs/{ref}/logs", response_class=PlainTextResponse)
async def logs(
    desk: TheDesk,
    actor: TheActor,
    request: Request,
    ref: str,
    follow: bool = False,
    tail: int | None = None,
    offset: int = 0,
    attempt: int | None = None,
) -> Response:
    job, log = await find_log(desk.cache, desk.engine, actor, ref, attempt)
    if follow and attempt in (None, job.attempt):
        followed = _followed(desk, request, job, _inside(offset), _tail(tail))
        return StreamingResponse(followed, media_type="text/plain")
    length, data = await read_log(log, tail=_tail(tail), offset=_inside(offset))
    return StreamingResponse(data, media_type="text/plain", headers={"Content-Length": str(length)})


async def _followed(
    desk: Installation, connection: HTTPConnection, job: Job, offset: int, tail: int | None
) -> AsyncIterator[bytes]:
    async for event in _seen(desk, connection, job, offset, tail):
        if isinstance(event, LogBytes):
            yield event.data


async def _seen(
    desk: Installation, connection: HTTPConnection, job: Job, offset: int, tail: int | None
) -> AsyncIterator[Followed]:
    """The events of a job, as long as the reader has the right to read the job."""
    welcome = Welcome(desk, connection, lambda actor: check_reader(actor, job))
    followed = follow_to_end(desk.cache, desk.engine, job, offset=offset, tail=tail)
    async with contextlib.aclosing(followed):
        async for event in followed:
            if not await welcome.lasts():
                return
            yield event


def _inside(offset: int) -> int:
    return max(0, min(offset, MOST))


def _tail(lines: int | None) -> int | None:
    return None if lines is None else max(0, min(lines, MOST))
