"""A server raises its own limit of open files; what it starts has the one from before."""

import subprocess
import sys

import pytest

PROGRAM = """
import resource, subprocess, sys
from danlu.unix import descriptors
hard = resource.getrlimit(resource.RLIMIT_NOFILE)[1]
resource.setrlimit(resource.RLIMIT_NOFILE, (100, hard))
descriptors.raise_limit()
assert descriptors.limit() == hard
program, words = descriptors.with_usual_limit("/bin/sh", [sys.argv[1], "-c", "ulimit -Sn; ulimit -Hn"])
said = subprocess.run(words, executable=program, capture_output=True, text=True, check=True).stdout
assert said.split() == ["100", "unlimited" if hard == resource.RLIM_INFINITY else str(hard)], said
missing = descriptors.with_usual_limit("/nowhere/squeue", ["/nowhere/squeue"])
assert missing == ("/nowhere/squeue", ["/nowhere/squeue"])
"""


@pytest.mark.parametrize("name", ["/bin/sh", "danlu-step"])
def test_children_have_the_limit_of_before(name: str) -> None:
    done = subprocess.run([sys.executable, "-c", PROGRAM, name], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
