"""Limits of the texts that people send. Parsers check a text here before parsing."""

from collections.abc import Sequence

from danlu.errors import Invalid, TooBig

LONGEST_WRITTEN = 100  # a single value: `RTX3090:2`, `1-12:00:00`, the name of a queue
LONGEST_NAME = 200
LONGEST_TEXT = 1_024  # a line about something; a password
LONGEST_ARRAY = 2_000  # the job lists of all users show the array
LONGEST_PATH = 4_095  # the longest path that Linux opens
LONGEST_START = 2 << 20  # bytes of a command and its variables: the limit of Linux with the usual stack size
LONGEST_LABELS = 4 << 10  # all labels of a job together: the job lists of all users show the labels
MOST_AFTER = 100  # dependencies of one job


def trouble_with(text: str, most: int | None = None) -> str:
    """Why the system cannot take this text; empty if the text is fine."""
    if most is not None and len(text) > most:
        return f"has {len(text):,} characters, at most {most:,} are possible"
    if "\0" in text:
        return "must not contain a NUL character"
    try:
        # Bytes outside UTF-8 are encoded as U+DC80 to U+DCFF. Other lone surrogates have no meaning.
        text.encode("utf-8", "surrogateescape")
    except UnicodeEncodeError as error:
        return f"contains U+{ord(text[error.start]):04X}, half of a character: no system can pass it on"
    return ""


def check_text(text: str, what: str, most: int | None = None) -> str:
    """Return the text if it is short enough and can be passed to the operating system."""
    if trouble := trouble_with(text, most):
        raise Invalid(f"{what} {trouble}")
    return text


def check_start(words: Sequence[str], variables: Sequence[str] = ()) -> None:
    """Refuse a command and its variables (`NAME=VALUE`) that the kernel would not pass to a program."""
    check_text("".join(words), "the command")
    for text in variables:
        check_text(text, f"the variable `{text.partition('=')[0][:40]}`")
    # Each text needs a terminating NUL and a pointer besides its bytes.
    size = sum(len(text.encode("utf-8", "surrogateescape")) + 9 for text in (*words, *variables))
    if size > LONGEST_START:
        raise TooBig(
            f"the command and its variables have {size:,} bytes, the system passes at most {LONGEST_START:,}",
            "put long lists into a file, and name that",
        )
