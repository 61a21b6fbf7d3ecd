"""Paths of the files of a job, below the folder for files."""

import contextlib
import os

from danlu.domain.job import Job
from danlu.provision.snapshots import SnapshotShelf, shelf_in
from danlu.unix.become import Trash, trash_in


def run_folder_of(files_dir: str, run_id: str) -> str:
    """The working folder of a run with a snapshot, which also keeps the output files."""
    return os.path.join(files_dir, "work", run_id)


def shelf_of(files_dir: str, user: str) -> SnapshotShelf:
    return shelf_in(os.path.join(files_dir, "snapshots", user.encode("utf-8", "surrogateescape").hex()))


def shelves(files_dir: str) -> list[SnapshotShelf]:
    """The shelves of all people with snapshots."""
    folder = os.path.join(files_dir, "snapshots")
    try:
        return [shelf_in(os.path.join(folder, name)) for name in os.listdir(folder)]
    except FileNotFoundError:
        return []


def trash_of(files_dir: str) -> Trash:
    """The trash for run folders that are no longer needed."""
    return trash_in(os.path.join(files_dir, "work"))


def remove_run_folders(files_dir: str, job: Job) -> None:
    """Delete the run folders of all attempts of a removed job. The content of the folders is deleted later, in the
    background: the owner of the content could delay the deletion."""
    for attempt in range(1, job.attempt + 1):
        run_id = f"{job.id}.{attempt}"
        folder = run_folder_of(files_dir, run_id)
        for path in (folder, f"{folder}.making"):
            with contextlib.suppress(OSError):
                trash_of(files_dir).take(path)
    trash_of(files_dir).empty()
