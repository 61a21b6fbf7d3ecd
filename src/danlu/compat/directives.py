"""The `#SBATCH` lines of a script, found as `sbatch` finds them."""

from __future__ import annotations

from danlu.errors import Invalid

_MARK = "#SBATCH"
_BLANKS = " \t\n\v\f\r"


def scan(text: str) -> list[tuple[str, str]]:
    """The words of all directives, each with its place. The first line with a command ends the search."""
    words: list[tuple[str, str]] = []
    for number, line in enumerate(text.split("\n"), start=1):
        if line.startswith(_MARK):
            words += [(word, f"line {number}") for word in _words(line[len(_MARK) :], number)]
        elif line.strip(_BLANKS) and not line.lstrip(_BLANKS).startswith("#"):
            break
    return words


def _words(line: str, number: int) -> list[str]:
    """Words between blanks; quotes keep blanks together, a backslash keeps any letter, `#` begins a comment."""
    words: list[str] = []
    at = 0
    while True:
        while at < len(line) and line[at] in _BLANKS:
            at += 1
        if at == len(line) or line[at] == "#":
            return words
        if line[at] == ":":
            raise Invalid(f"line {number}: unexpected `:`", "a directive has options only: `#SBATCH --time=60`")
        word, at = _word(line, at, number)
        words.append(word)


def _word(line: str, at: int, number: int) -> tuple[str, int]:
    letters: list[str] = []
    quote, is_kept = "", False
    while at < len(line) and (quote or is_kept or line[at] not in _BLANKS):
        letter = line[at]
        if is_kept:
            letters.append(letter)
            is_kept = False
        elif letter == "\\":
            is_kept = True
        elif quote:
            if letter == quote:
                quote = ""
            else:
                letters.append(letter)
        elif letter in "\"'":
            quote = letter
        elif letter == "#":
            break
        else:
            letters.append(letter)
        at += 1
    if quote:
        raise Invalid(f"line {number}: a {quote} is opened and not closed", "close the quote on the same line")
    return "".join(letters), at
