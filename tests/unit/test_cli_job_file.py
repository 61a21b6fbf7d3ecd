"""Job files: the names of the options, values as they are written."""

import pytest

from danlu.cli.input.job_file import parse_job, read_job_file
from danlu.errors import Invalid


def test_a_file_has_the_names_of_the_options() -> None:
    text = b"""
command: [python, train.py, --lr, 1e-3]
gpus: RTX3090:1
time: 1:30:00
cpus: 4
nodes: 2
env: {SEED: 1, ON: yes}
label: [exp=a]
after: k3fz82aw
snapshot: true
no-inherit-env: yes
name:
"""
    command, options = parse_job(text, "job.yaml")
    assert command == ["python", "train.py", "--lr", "1e-3"]
    assert options == {
        "gpus": "RTX3090:1",
        "time": "1:30:00",
        "cpus": 4,
        "nodes": 2,
        "env": {"SEED": "1", "ON": "yes"},
        "label": {"exp": "a"},
        "after": ["k3fz82aw"],
        "snapshot": True,
        "inherit_env": False,
    }


def test_a_text_is_a_line_for_the_shell() -> None:
    assert parse_job(b"command: echo a | wc", "f")[0] == ["/bin/sh", "-c", "echo a | wc"]


@pytest.mark.parametrize(
    ("text", "says", "hint"),
    [
        (b"comand: x", "`f` has an unknown name `comand`", "did you mean `command`?"),
        (b"gpu: 1", "`f` has an unknown name `gpu`", "did you mean `gpus`?"),
        (b"cpus: many", "`f`: `cpus` takes a whole number of 0 or more, not `many`", ""),
        (b"gpus: 1\ngpus: 2", "`f` has `gpus` twice (line 2)", "keep one"),
        (b"- a\n- b", "`f` is not a job file", "name: value"),
        (b"", "`f` is not a job file", "name: value"),
        (b"a: [", "`f` is not YAML", "name: value"),
        (b"\xff\xfe\xff", "`f` is not YAML", ""),
        (b"command: {a: b}", "`f`: `command` takes a line", ""),
        (b"gpus: [1]", "`f`: `gpus` takes one value", ""),
        (b"env: x", "`f`: `env` takes", ""),
        (b"snapshot: maybe", "`f`: `snapshot` takes true or false, not `maybe`", ""),
    ],
)
def test_what_is_wrong_is_said_by_name(text: bytes, says: str, hint: str) -> None:
    with pytest.raises(Invalid) as refused:
        parse_job(text, "f")
    assert refused.value.text.startswith(says)
    assert hint in refused.value.hint


def test_a_missing_file_is_said_with_the_way_to_give_a_command() -> None:
    with pytest.raises(Invalid, match="cannot read the job file `train`: No such file") as refused:
        read_job_file("train")
    assert "after `--`" in refused.value.hint
