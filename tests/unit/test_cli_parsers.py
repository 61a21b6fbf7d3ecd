"""Both parsers are made from one table, and agree wherever the fast one answers."""

import shlex

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from danlu.cli.grammar import parse_fast, parse_full
from danlu.cli.grammar.help import render_overview
from danlu.cli.grammar.model import GLOBAL
from danlu.cli.grammar.table import BY_NAME, COMMANDS, FAMILIES, family
from danlu.errors import Invalid


def slowly(argv: list[str]) -> tuple[str, dict[str, object]] | str:
    try:
        command, values = parse_full.parse(argv)
    except Invalid as refused:
        return f"refused: {refused.text}"
    except parse_full.HelpAsked:
        return "help"
    return command.name, values


def names_of(command: str) -> list[str]:
    return [name for option in BY_NAME[command].options + GLOBAL for name in option.names]


@st.composite
def command_lines(draw: st.DrawFn) -> list[str]:
    """Words that people type, well-formed or not."""
    command = draw(st.sampled_from(sorted(BY_NAME)))
    value = st.sampled_from(
        ["1", "2", "x", "", "-", "-1", "a b", "K=V", "@", "@~1", "auto", "never", "09", "--", "-x y", "é"]
    )
    option = st.sampled_from(names_of(command))
    word = st.one_of(
        value.map(lambda text: [text]),
        st.tuples(option, value).map(list),
        st.tuples(option, value).map(lambda pair: [f"{pair[0]}={pair[1]}"]),
        option.map(lambda name: [name]),
        st.sampled_from(["--nothing", "--gp", "-qd", "-n5", "-h", "--help", "--js"]).map(lambda text: [text]),
    )
    before = draw(st.sampled_from([[], ["--color", "never"], ["--server=unix:///x"], ["--json"]]))
    parts = [part for group in draw(st.lists(word, max_size=5)) for part in group]
    rest = draw(st.sampled_from([[], ["--", "echo", "--gpus", "1"], ["--"]]))
    return before + command.split() + parts + rest


@settings(max_examples=1500, deadline=None)
@given(command_lines())
def test_the_parsers_agree_wherever_the_fast_one_answers(argv: list[str]) -> None:
    found = parse_fast.parse(argv)
    if found is not None:
        assert slowly(argv) == (found[0].name, found[1])


@pytest.mark.parametrize("command", COMMANDS, ids=lambda command: command.name)
def test_every_option_alone_is_read_by_the_fast_parser_and_the_same_by_the_slow_one(command: object) -> None:
    assert isinstance(command, type(COMMANDS[0]))
    words = ["x"] * command.words_min
    rest = ["--", "echo", "-n", "--gpus"] if command.rest == "needed" else []
    for option in command.options + GLOBAL:
        for name in option.names:
            value = [] if option.kind == "flag" else [option.choices[0] if option.choices else "7"]
            argv = [*command.name.split(), *words, name, *value, *rest]
            found = parse_fast.parse(argv)
            assert found is not None, argv
            assert slowly(argv) == (found[0].name, found[1])
            wanted = True if not value else 7 if option.kind == "count" else value[0]
            assert found[1][option.key] == ([wanted] if option.many else wanted)


@pytest.mark.parametrize(
    "argv",
    [
        ["run", "--gpus", "1", "--env", "A=1", "--env=B=2", "-q", "--", "python", "train.py", "--gpus", "9"],
        ["submit", "job.yaml", "--priority=9"],
        ["ps", "-a", "--state", "FAILED", "--state", "LOST", "-n", "5"],
        ["--color", "never", "stop", "a", "--now", "b"],
        ["token", "create", "li", "--days", "30"],
    ],
)
def test_well_formed_commands_never_need_argparse(argv: list[str]) -> None:
    assert parse_fast.parse(argv) is not None


@pytest.mark.parametrize(
    ("argv", "text", "hint"),
    [
        (["run", "--gpu", "1", "--", "x"], "`danlu run` has no option `--gpu`", "did you mean `--gpus`?"),
        (["run", "--", *()], "there is no command after `--`", "for example `danlu run --gpus 1 -- python train.py`"),
        (["run", "python", "a.py"], "the command goes after `--`: `danlu run -- python a.py`", "for example"),
        (["run"], "`danlu run` needs a command", "for example"),
        (["pss"], "no command `pss`", "did you mean `danlu ps`?"),
        (["token", "made"], "no command `token made`", "`danlu token create`"),
        (["stop"], "`danlu stop` needs ID", "for example `danlu stop @`"),
        (["show", "a", "b"], "`danlu show` takes one ID, not 2", "for example `danlu show @`"),
        (["ps", "-n", "many"], "argument --limit/-n: takes a whole number of 0 or more, not `many`", "--help"),
        (["ps", "-n"], "argument --limit/-n: expected one argument", "--help"),
        (["ps", "--", "x"], "`danlu ps` takes no command after `--`", "for example"),
        (["--nothing", "ps"], "no option `--nothing` before the command", "danlu --help"),
        (["clone", "@", "python"], "`danlu clone` does not know what to do with `python`", "a command goes after `--`"),
    ],
)
def test_what_is_wrong_is_said_by_name_with_a_hint(argv: list[str], text: str, hint: str) -> None:
    assert parse_fast.parse(argv) is None
    with pytest.raises(Invalid) as refused:
        parse_full.parse(argv)
    assert refused.value.text == text
    assert hint in refused.value.hint


def test_every_command_has_help_with_its_options() -> None:
    for command in COMMANDS:
        with pytest.raises(parse_full.HelpAsked) as asked:
            parse_full.parse([*command.name.split(), "--help"])
        for option in command.options:
            assert option.names[0] in str(asked.value)
        assert command.examples, command.name
        for line in command.examples:
            assert line in str(asked.value)
            typed = shlex.split(line.partition(" > ")[0])
            assert typed[0] == "eval" or parse_fast.parse(typed[1:]) is not None, line


def test_the_overview_names_every_command() -> None:
    text = render_overview(lambda text, style: text)
    assert max(map(len, text.splitlines())) <= 80
    for command in COMMANDS:
        first, _, second = command.name.partition(" ")
        if first in FAMILIES:
            line = next(line for line in text.splitlines() if line.startswith(f"  {first} "))
            assert second in line.rpartition(": ")[2].split(", ")
        else:
            assert f"  {command.name} " in text


@pytest.mark.parametrize("word", FAMILIES)
def test_a_family_of_commands_has_help_of_its_own(word: str) -> None:
    with pytest.raises(parse_full.HelpAsked) as asked:
        parse_full.parse([word, "--help"])
    lines = str(asked.value).splitlines()
    assert max(map(len, lines)) <= 80
    for command in family(word):
        assert any(line.startswith(f"  {command.name} ") and command.help in line for line in lines)
    assert lines[lines.index("example:") + 1].startswith(f"  danlu {word} ")


def test_a_family_is_every_first_word_that_is_no_command() -> None:
    assert set(FAMILIES) == {command.name.split()[0] for command in COMMANDS} - set(BY_NAME)
