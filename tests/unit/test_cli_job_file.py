"""Job files: the names of the options, values as they are written."""

import pytest

from danlu.cli.input.job_file import MOST_FILE, parse_job, read_file
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
        read_file("train")
    assert "after `--`" in refused.value.hint


def laughs(depth: int, leaf: str = "ha") -> bytes:
    """Each line names the one before it ten times."""
    lines = [f"a0: &a0 {leaf}"]
    lines += [f"a{n}: &a{n} [{', '.join([f'*a{n - 1}'] * 10)}]" for n in range(1, depth)]
    return "\n".join([*lines, f"command: *a{depth - 1}"]).encode()


@pytest.mark.parametrize(
    "text",
    [
        laughs(30),
        laughs(4, leaf="x" * 10_000),
        b"command: &a [*a, *a]",
        b"env: &a {A: *a}",
        b"command: " + b"[" * 100_000,
        b"command: " + b"[" * 300 + b"]" * 300,
        b"? " * 5_000,
        b"x" * (MOST_FILE + 1),
        laughs(12) + b"\n? *a11\n: 1",
        b"? &a [*a]\n: 1",
        b"x" * 500 + b": 1",
        b"'" + b"x" * 100_000 + b"': 1",
        b"cpus: " + b"1" * 100_000,
        b"snapshot: " + b"y" * 100_000,
    ],
    ids=[
        "laughs",
        "long laughs",
        "itself",
        "itself in a mapping",
        "open",
        "deep",
        "questions",
        "long",
        "name",
        "name of itself",
        "long name",
        "longer name",
        "count",
        "switch",
    ],
)
def test_a_file_that_would_never_be_read_to_its_end_is_refused(text: bytes) -> None:
    with pytest.raises(Invalid) as refused:
        parse_job(text, "f")
    assert len(refused.value.text) < 300


def test_values_may_be_named_again() -> None:
    command, options = parse_job(b"env: &e {A: 1, B: 2}\nlabel: *e\ncommand: [echo, &w hello, *w]", "f")
    assert command == ["echo", "hello", "hello"]
    assert options["env"] == options["label"] == {"A": "1", "B": "2"}


def test_an_endless_file_is_not_read_to_its_end() -> None:
    with pytest.raises(Invalid, match="has more than"):
        parse_job(read_file("/dev/zero"), "f")
