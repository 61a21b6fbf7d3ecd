"""Routes that stream: logs as raw bytes, and the framed follow that carries log, states and the exit code."""

import json
import os
import struct
from collections.abc import AsyncIterator

from fastapi import APIRouter
from starlette.responses import Response, StreamingResponse

from danlu.actions.logs import JobSeen, LogBytes, find_log, first_offset, follow_to_end
from danlu.api.desk import Desk, TheActor, TheDesk, job_json
from danlu.domain.account import Actor
from danlu.domain.job import Job
from danlu.engines.logfiles import read_all

router = APIRouter()

FRAMED = "application/vnd.danlu.frames"


def frame(kind: bytes, payload: bytes = b"") -> bytes:
    return kind + struct.pack(">I", len(payload)) + payload


def framed(desk: Desk, actor: Actor, job: Job, *, offset: int = 0, tail: int | None = None) -> Response:
    """A job's life from now on, as frames."""

    async def frames() -> AsyncIterator[bytes]:
        async for event in follow_to_end(desk.book, desk.files, desk.state_dir, job, offset=offset, tail=tail):
            if isinstance(event, LogBytes):
                yield frame(b"L", event.data)
            elif isinstance(event, JobSeen):
                shown = {**job_json(desk, actor, event.job), "log_offset": event.offset}
                yield frame(b"E" if event.job.state.is_ended else b"J", json.dumps(shown).encode("ascii"))
            else:
                yield frame(b"B")

    return StreamingResponse(frames(), media_type=FRAMED)


@router.get("/jobs/{ref}/follow")
async def follow_job(desk: TheDesk, actor: TheActor, ref: str, offset: int = 0, tail: int | None = None) -> Response:
    job, _ = await find_log(desk.book, desk.state_dir, actor, ref, None)
    return framed(desk, actor, job, offset=max(0, offset), tail=tail)


@router.get("/jobs/{ref}/logs")
async def logs(
    desk: TheDesk,
    actor: TheActor,
    ref: str,
    follow: bool = False,
    tail: int | None = None,
    offset: int = 0,
    attempt: int | None = None,
) -> Response:
    job, path = await find_log(desk.book, desk.state_dir, actor, ref, attempt)
    if follow and attempt in (None, job.attempt):
        return StreamingResponse(_followed(desk, job, max(0, offset), tail), media_type="text/plain")
    if not os.path.exists(path):
        return Response(b"", media_type="text/plain")
    start = first_offset(path, tail=tail, offset=max(0, offset))
    length = max(0, os.path.getsize(path) - start)
    return StreamingResponse(
        read_all(path, start, length), media_type="text/plain", headers={"Content-Length": str(length)}
    )


async def _followed(desk: Desk, job: Job, offset: int, tail: int | None) -> AsyncIterator[bytes]:
    async for event in follow_to_end(desk.book, desk.files, desk.state_dir, job, offset=offset, tail=tail):
        if isinstance(event, LogBytes):
            yield event.data
