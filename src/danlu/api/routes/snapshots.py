"""Routes of code snapshots: announce the files, then send the missing files."""

import asyncio

from fastapi import APIRouter, Request
from starlette.responses import Response

from danlu.actions.jobs import snapshots
from danlu.api.answers import Announced
from danlu.api.auth import TheActor, TheDesk
from danlu.api.bodies import MOST_LISTED, Json, SnapshotIn, read_body, schema_of
from danlu.api.document import body_as
from danlu.errors import Invalid
from danlu.provision.snapshots import SnapshotFile

router = APIRouter(default_response_class=Json)


@router.post("/snapshots", response_model=Announced, openapi_extra=schema_of(SnapshotIn))
async def announce(desk: TheDesk, actor: TheActor, request: Request) -> Response:
    snapshots.check_sender(actor)
    entries = (await read_body(SnapshotIn, request, most=MOST_LISTED)).files
    # In a thread: the server answers other requests while parsing a long list.
    files = await asyncio.to_thread(lambda: [_file(entry) for entry in entries])
    snapshot_id, missing = await snapshots.announce(desk.rules, actor, files)
    return Json({"id": snapshot_id, "missing": missing})


@router.put("/blobs/{sha256}", status_code=204, openapi_extra=body_as("application/octet-stream"))
async def put_blob(desk: TheDesk, actor: TheActor, sha256: str, request: Request) -> Response:
    await snapshots.receive(desk.rules, actor, sha256, request.stream())
    return Response(status_code=204)


def _file(entry: object) -> SnapshotFile:
    match entry:
        case [str(path), int(mode), int(size), str(sha256)]:
            return SnapshotFile(path, mode, size, sha256)
    raise Invalid("a file of a snapshot is [path, mode, size, sha256]")
