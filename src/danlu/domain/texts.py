"""Limits of the texts that people send. A reader checks a text here before it looks inside."""

from collections.abc import Sequence

from danlu.errors import Invalid, TooBig

LONGEST_WRITTEN = 100  # one ask: `RTX3090:2`, `1-12:00:00`, the name of a queue
LONGEST_NAME = 200
LONGEST_TEXT = 1_024  # one line about something; a password
LONGEST_ARRAY = 2_000  # everybody's list of jobs shows it
LONGEST_PATH = 4_095  # what Linux opens
LONGEST_START = 2 << 20  # bytes of a command and its variables: what Linux takes, with a stack of the usual size
LONGEST_LABELS = 4 << 10  # all labels of a job together: everybody's list of jobs shows them
MOST_AFTER = 100  # dependencies of one job


def trouble_with(text: str, most: int | None = None) -> str:
    """Why nobody can take this text; empty if somebody can."""
    if most is not None and len(text) > most:
        return f"has {len(text):,} characters, at most {most:,} are possible"
    if "\0" in text:
        return "must not contain a NUL character"
    try:
        # Bytes that are not UTF-8 travel as U+DC80 to U+DCFF. Other halves of a pair stand for nothing.
        text.encode("utf-8", "surrogateescape")
    except UnicodeEncodeError as error:
        return f"contains U+{ord(text[error.start]):04X}, half of a character: no system can pass it on"
    return ""


def check_text(text: str, what: str, most: int | None = None) -> str:
    """The text, if it is short enough and can be passed to the operating system."""
    if trouble := trouble_with(text, most):
        raise Invalid(f"{what} {trouble}")
    return text


def check_start(words: Sequence[str], variables: Sequence[str] = ()) -> None:
    """Refuse a command and its variables (`NAME=VALUE`) that the kernel would not pass to a program."""
    check_text("".join(words), "the command")
    for text in variables:
        check_text(text, f"the variable `{text.partition('=')[0][:40]}`")
    # Each has an end and a pointer besides its bytes.
    size = sum(len(text.encode("utf-8", "surrogateescape")) + 9 for text in (*words, *variables))
    if size > LONGEST_START:
        raise TooBig(
            f"the command and its variables have {size:,} bytes, the system passes at most {LONGEST_START:,}",
            "put long lists into a file, and name that",
        )
