"""Routes of code snapshots: announce the files, then send what is missing."""

import asyncio
import tempfile

from fastapi import APIRouter, Request
from starlette.responses import Response

from danlu.actions.jobs import submit as submit_actions
from danlu.api.answers import Announced
from danlu.api.auth import TheActor, TheDesk
from danlu.api.bodies import MOST_LISTED, Json, SnapshotIn, read_body, schema_of
from danlu.api.document import body_as
from danlu.errors import Invalid
from danlu.provision.snapshots import SnapshotFile, check_manifest

router = APIRouter(default_response_class=Json)

IN_MEMORY = 1024 * 1024


@router.post("/snapshots", response_model=Announced, openapi_extra=schema_of(SnapshotIn))
async def announce(desk: TheDesk, actor: TheActor, request: Request) -> Response:
    shelf = submit_actions.shelf_for(desk.files_dir, actor)
    entries = (await read_body(SnapshotIn, request, most=MOST_LISTED)).files

    def add() -> tuple[str, list[str]]:
        files = [_file(entry) for entry in entries]
        check_manifest(files, limit_bytes=desk.snapshot_limit_bytes)
        return shelf.add(files, most_bytes=desk.shelf_limit_bytes)

    # Others are answered while a long list is read.
    snapshot_id, missing = await asyncio.to_thread(add)
    return Json({"id": snapshot_id, "missing": missing})


@router.put("/blobs/{sha256}", status_code=204, openapi_extra=body_as("application/octet-stream"))
async def put_blob(desk: TheDesk, actor: TheActor, sha256: str, request: Request) -> Response:
    shelf = submit_actions.shelf_for(desk.files_dir, actor)
    size = 0
    with tempfile.SpooledTemporaryFile(max_size=IN_MEMORY) as received:
        async for chunk in request.stream():
            size += len(chunk)
            if size > desk.snapshot_limit_bytes:
                raise Invalid("this file alone is larger than a snapshot may be", "keep data out with .gitignore")
            received.write(chunk)
        received.seek(0)
        chunks = iter(lambda: received.read(IN_MEMORY), b"")
        most = desk.shelf_limit_bytes
        await asyncio.to_thread(shelf.put_blob, sha256, chunks, size=size, most_bytes=most)
    return Response(status_code=204)


def _file(entry: object) -> SnapshotFile:
    match entry:
        case [str(path), int(mode), int(size), str(sha256)]:
            return SnapshotFile(path, mode, size, sha256)
    raise Invalid("a file of a snapshot is [path, mode, size, sha256]")
