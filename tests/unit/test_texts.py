"""Texts made to be expensive, endless or impossible: every reader of what people write refuses them at once."""

import inspect
from collections.abc import Callable
from typing import Any

import pytest

from danlu.domain import parsing, quota
from danlu.domain.job import LONGEST_REASON, Reason
from danlu.domain.request import LONGEST, REQUEST_NAMES, JobRequest, check_request
from danlu.domain.texts import LONGEST_ARRAY, LONGEST_WRITTEN, MOST_AFTER
from danlu.engines.local.keeper.spawn import shown
from danlu.errors import Invalid, TooBig
from tests.builders import NOW

PARSERS = {
    name: function
    for module in (parsing, quota)
    for name, function in inspect.getmembers(module, inspect.isfunction)
    if name.startswith("parse_") and function.__module__ == module.__name__
}
LONG = (
    "1" * 100_000,
    "1-50000," * 10_000 + "1",
    "a" * 20_000 + ":x:1",
    "1h " * 10_000 + "!",
    "USR1@" + "1" * 50_000,
    "gpus=" + "8" * 50_000,
    "team:" + "x" * 50_000,
    "2026-07-01 " + " " * 50_000,
    "\ud800" * 50_000,
)
TAKES_LISTS = {"parse_pairs": tuple, "parse_quota": list}


def reader(name: str) -> Callable[[str], Any]:
    function = PARSERS[name]
    others: dict[str, Any] = {"what": "--x", "now": NOW}
    given = {key: value for key, value in others.items() if key in inspect.signature(function).parameters}
    as_list = TAKES_LISTS.get(name)
    return lambda text: function(as_list([text]) if as_list else text, **given)


def test_the_readers_are_found() -> None:
    assert {"parse_array", "parse_gpus", "parse_duration", "parse_dependency", "parse_holder"} <= set(PARSERS)


@pytest.mark.parametrize("name", sorted(PARSERS))
@pytest.mark.parametrize("text", LONG, ids=lambda text: ascii(text[:12]))
def test_a_text_that_is_too_long_is_refused_before_it_is_read(name: str, text: str) -> None:
    """The refusal is short as well: it goes into answers and logs."""
    if name == "parse_pairs":
        text = text.replace("=", "")  # values may be long: a variable is
    with pytest.raises(Invalid) as refused:
        reader(name)(text)
    assert len(refused.value.text) < 400


@pytest.mark.parametrize("name", sorted(set(PARSERS) - {"parse_pairs", "parse_quota", "parse_holder"}))
def test_the_refusal_of_a_long_text_says_how_long_it_may_be(name: str) -> None:
    with pytest.raises(Invalid, match=r"100,000 characters, at most [\d,]+ are possible"):
        reader(name)("1" * 100_000)


def test_the_tasks_of_an_array_are_counted_before_they_are_made() -> None:
    text = "1-50000," * 200 + "1"
    assert len(text) < LONGEST_ARRAY
    with pytest.raises(Invalid, match="more than 50,000 tasks"):
        parsing.parse_array(text)


def test_long_arrays_that_people_write_are_read() -> None:
    failed = [str(index) for index in range(1000, 1300)]
    assert len(parsing.parse_array(",".join(failed)).indices) == 300


def test_a_reason_that_quotes_a_person_stays_short() -> None:
    assert len(Reason("not_started", f"command not found: {'x' * 10**6}").text) == LONGEST_REASON
    assert Reason("exited", "ended with exit code 1").text == "ended with exit code 1"
    assert len(shown("x" * 10**6)) < 300


def wanted(**given: Any) -> JobRequest:
    return JobRequest(**{"command": ("true",), **given})


TEXTS = [
    name
    for name in REQUEST_NAMES
    if isinstance(getattr(wanted(), name), str | int) and name not in ("preemptible", "interactive")
]


@pytest.mark.parametrize("name", TEXTS)
def test_each_text_of_a_job_has_a_limit_that_the_refusal_names(name: str) -> None:
    most = LONGEST.get(name, LONGEST_WRITTEN)
    with pytest.raises(Invalid, match=f"--{name} has {most + 1:,} characters, at most {most:,} are possible"):
        check_request(wanted(**{name: "x" * (most + 1)}))
    check_request(wanted(**{name: "x" * most}))


@pytest.mark.parametrize("letter", ["\ud800", "\0"])
@pytest.mark.parametrize(
    "given",
    [
        lambda bad: {"command": (f"a{bad}",)},
        lambda bad: {"command": ("echo", bad)},
        lambda bad: {"workdir": f"/{bad}"},
        lambda bad: {"name": bad},
        lambda bad: {"env": {"A": bad}},
        lambda bad: {"env": {bad: "1"}},
        lambda bad: {"label": {"a": bad}},
        lambda bad: {"environ": {"A": bad}},
        lambda bad: {"environ": {bad: "1"}},
        lambda bad: {"queue": bad},
        lambda bad: {"after": (bad,)},
        lambda bad: {"array": bad},
    ],
)
def test_what_no_system_can_name_is_refused(given: Callable[[str], dict[str, Any]], letter: str) -> None:
    with pytest.raises(Invalid):
        check_request(wanted(**given(letter)))


def test_bytes_that_are_no_text_stay_possible() -> None:
    odd = b"\xff\xe9".decode("utf-8", "surrogateescape")
    check_request(wanted(command=("echo", odd), workdir=f"/{odd}", name=odd, env={"A": odd}, environ={odd: odd}))


@pytest.mark.parametrize(
    "given",
    [
        {"command": ("echo", "x" * (3 << 20))},
        {"command": ("echo", *[""] * 1_000_000)},
        {"env": {"A": "x" * (3 << 20)}},
        {"environ": {f"A{number}": "x" * 1000 for number in range(3000)}},
        {"label": {"a": "x" * 20_000}},
        {"after": tuple(f"b{number}" for number in range(MOST_AFTER + 1))},
    ],
)
def test_what_no_system_passes_on_is_refused_at_once(given: dict[str, Any]) -> None:
    with pytest.raises(TooBig):
        check_request(wanted(**given))


@pytest.mark.parametrize("names", [{"": "x"}, {"A=B": "x"}])
def test_a_variable_that_no_program_could_read_is_refused(names: dict[str, str]) -> None:
    with pytest.raises(Invalid):
        check_request(wanted(environ=names))


def test_a_command_as_long_as_the_kernel_passes_is_taken() -> None:
    check_request(wanted(command=("echo", *["x" * 1000] * 1500), environ={f"A{n}": "x" * 100 for n in range(1000)}))
