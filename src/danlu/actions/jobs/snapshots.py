"""Code sent ahead of a job: first the list of files, then the missing files."""

import asyncio
import tempfile
from collections.abc import AsyncIterator, Sequence

from danlu.actions.jobs.submit import Rules
from danlu.domain.people import Actor, demand
from danlu.errors import Invalid
from danlu.provision.paths import shelf_of
from danlu.provision.snapshots import SnapshotFile, check_manifest

IN_MEMORY = 1024 * 1024


def check_sender(actor: Actor) -> None:
    """Refuse an actor without the right to send code, before receiving the code."""
    demand(actor, "job.submit", actor.name, "a new snapshot")


async def announce(rules: Rules, actor: Actor, files: Sequence[SnapshotFile]) -> tuple[str, list[str]]:
    """The id of the snapshot, and the digests of the missing files."""
    check_sender(actor)

    def add() -> tuple[str, list[str]]:
        check_manifest(files, limit_bytes=rules.snapshot_limit_bytes)
        return shelf_of(rules.files_dir, actor.name).add(files, most_bytes=rules.shelf_limit_bytes)

    return await asyncio.to_thread(add)


async def receive(rules: Rules, actor: Actor, sha256: str, chunks: AsyncIterator[bytes]) -> None:
    """Store a file of a snapshot under its announced digest."""
    check_sender(actor)
    size = 0
    with tempfile.SpooledTemporaryFile(max_size=IN_MEMORY) as received:
        async for chunk in chunks:
            size += len(chunk)
            if size > rules.snapshot_limit_bytes:
                raise Invalid("this file alone is larger than a snapshot may be", "keep data out with .gitignore")
            received.write(chunk)
        received.seek(0)
        shelf = shelf_of(rules.files_dir, actor.name)
        parts, most = iter(lambda: received.read(IN_MEMORY), b""), rules.shelf_limit_bytes
        await asyncio.to_thread(shelf.put_blob, sha256, parts, size=size, most_bytes=most)
