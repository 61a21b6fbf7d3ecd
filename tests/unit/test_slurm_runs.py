"""What is known of runs on Slurm, kept in real folders. There is no Slurm here: what it lists is said by the tests."""

import asyncio
from pathlib import Path

from danlu.engines.base import Observation, RunState
from danlu.engines.slurm_commands import Commands
from danlu.engines.slurm_folders import Folders, Record
from danlu.engines.slurm_look import Look
from danlu.engines.slurm_runs import Runs


def test_an_end_that_cannot_be_written_down_is_told_later(tmp_path: Path) -> None:
    folders = Folders(str(tmp_path))
    folders.open()
    runs = Runs(folders, Look(Commands()))
    runs.load([Record("a.1", uid=0, at=0.0, tokens=["t"], number=7)])
    runs.seen["a.1"] = Observation(RunState.RUNNING)
    run = tmp_path / "runs" / "a.1"
    run.mkdir()
    (run / "began").write_text("token=t\nrestart=0\njob=7\nnode=n1\nstarted=1000\n")
    (run / "exit").write_text("token=t\nrestart=0\nending=exited\ncode=3\nstarted=1000\nended=2000\nnode=n1\n")
    records = tmp_path / "records"
    records.rmdir()  # the disk does not take it
    assert not asyncio.run(runs.glance())
    assert runs.seen["a.1"].state is RunState.RUNNING
    records.mkdir()
    assert asyncio.run(runs.glance())
    assert (runs.seen["a.1"].state, runs.seen["a.1"].exit_code) == (RunState.ENDED, 3)
    assert (records / "a.1.json").exists()
