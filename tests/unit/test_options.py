"""One table of job options. Each door and each layer has every option, and a value survives the way through them."""

import ast
import inspect
from dataclasses import fields, replace
from typing import Any

import pytest

from danlu.api.bodies import ChangesIn, changes_in, request_in
from danlu.cli.grammar.jobs import ASK
from danlu.cli.input.job_file import parse_job
from danlu.cli.input.options import asked
from danlu.client import job_body
from danlu.domain.options import LIST, NAMES, OPTIONS, PAIRS, SWITCH, JobOption
from danlu.domain.request import JobRequest, request_of, spec_of

# A value of each option that is not its default, as people write it.
WRITTEN: dict[str, Any] = {
    "gpus": "RTX3090:2", "shards": 0, "cpus": 3, "mem": "2048", "shm": "512", "nodes": 2, "time": "90s",
    "name": "trial", "priority": 7, "queue": "train", "team": "nlp", "preemptible": True, "interactive": True,
    "env": {"A": "1"}, "label": {"B": "2"}, "workdir": "/srv", "array": "1-3", "after": ["k3fz"], "retries": 2,
    "signal": "USR1@60",
}  # fmt: skip
# What a client sends besides the options that people write.
BESIDES = {"command", "snapshot", "umask", "environ"}


def test_the_table_and_the_request_have_the_same_options() -> None:
    assert {field.name for field in fields(JobRequest)} == {*NAMES, *BESIDES}
    assert set(WRITTEN) == set(NAMES), "give the new option a value in this test"


def test_a_body_takes_every_option() -> None:
    assert set(ChangesIn.model_fields) == {*NAMES, *BESIDES}
    sent = ChangesIn.model_validate({"command": ["true"], **WRITTEN})
    assert changes_in(sent).keys() == {"command", *NAMES}
    assert request_in(sent).time == "90s"


def test_the_typed_client_names_every_option() -> None:
    tree = ast.parse(inspect.getsource(job_body))
    typed = next(node for node in ast.walk(tree) if isinstance(node, ast.ClassDef) and node.name == "Options")
    named = {
        node.target.id for node in typed.body if isinstance(node, ast.AnnAssign) and isinstance(node.target, ast.Name)
    }
    assert named == set(job_body.NAMES)


@pytest.mark.parametrize("option", OPTIONS, ids=lambda option: option.name)
def test_a_value_reaches_the_spec_and_a_clone(option: JobOption) -> None:
    given = WRITTEN[option.name]
    if option.name == "shards":
        given = 16
    change: Any = {option.name: tuple(given) if isinstance(given, list) else given}
    plain = JobRequest(command=("true",), time="1h")
    spec, _ = spec_of(replace(plain, **change))
    if option.kind == LIST:  # dependencies are looked up by their ids, and a clone does not repeat them
        return
    assert spec != spec_of(plain)[0], "the spec does not have it"
    assert spec_of(request_of(spec))[0] == spec, "a clone loses it"


@pytest.mark.parametrize("option", OPTIONS, ids=lambda option: option.name)
def test_the_command_line_and_job_files_take_it(option: JobOption) -> None:
    given = WRITTEN[option.name]
    values: dict[str, Any] = {written.key: None for written in ASK} | {"words": [], "rest": ["true"], "file": None}
    values[option.name] = [f"{name}={value}" for name, value in given.items()] if option.kind == PAIRS else given
    found: dict[str, object] = dict(asked(values)[1])
    assert found == ({option.name: given} if given != 0 else {option.name: 0})
    line = "\n".join(f"  {name}: {value}" for name, value in given.items()) if option.kind == PAIRS else str(given)
    if option.kind == LIST:
        line = f"[{', '.join(given)}]"
    text = f"command: 'true'\n{option.name}:{chr(10) if option.kind == PAIRS else ' '}{line}\n"
    _, options = parse_job(text.encode(), "job.yaml")
    wanted = str(given) if isinstance(given, int) and option.kind not in (SWITCH, "count") else given
    assert options == {option.name: wanted}
