"""What the examples promise to those who copy them."""

import os
import subprocess
from pathlib import Path

from tests.pytorch import pytorch

TRAINING = Path(__file__).parents[2] / "examples" / "ddp" / "train.py"


def test_ranks_that_share_a_log_write_whole_lines(tmp_path: Path) -> None:
    reading, writing = os.pipe2(os.O_DIRECT)  # each read gives what one write gave
    as_in_a_job = os.environ | {"PYTHONUNBUFFERED": "1"}
    command = (pytorch() / "python", TRAINING, "--epochs", "2")
    with subprocess.Popen(command, stdout=writing, cwd=tmp_path, env=as_in_a_job):
        os.close(writing)
        said = list(iter(lambda: os.read(reading, 65536), b""))
        os.close(reading)
    assert [line.count(b"\n") for line in said] == [1, 1, 1, 1], said
    assert all(line.endswith(b"\n") for line in said)
