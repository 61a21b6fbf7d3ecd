"""A batch script as a command: a copy of its text travels with the job and finds the variables that Slurm sets."""

from __future__ import annotations

from danlu.errors import Invalid

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

# Linux takes at most 128 KiB for one word of a command.
PIECE_BYTES = 120_000
LONGEST_BYTES = 1_500_000
_NAME = "slurm_script"

# The job's own copy is open as descriptor 9 and has no name, so nothing is left to clean up; `$0` can be read and
# submitted again. Where a real Slurm runs the job, its own variables stay.
_PREAMBLE = """\
# variables of Slurm, then the script
if [ -z "${SLURM_JOB_ID-}" ]; then
%s
fi
danlu_copy=$(mktemp 2>/dev/null || mktemp -p /tmp) || exit 1
danlu_pieces=$1; shift
while [ "$danlu_pieces" -gt 0 ]; do
  printf %%s "$1"; shift; danlu_pieces=$((danlu_pieces - 1))
done > "$danlu_copy" && exec 9< "$danlu_copy" && rm -f "$danlu_copy" || exit 1
unset danlu_copy danlu_pieces
exec %s /proc/self/fd/9 "$@"
"""

# Variables of every job; their values are known when it starts.
_ALWAYS = {
    "SLURM_JOB_ID": "$DANLU_JOB_NUMBER", "SLURM_JOBID": "$DANLU_JOB_NUMBER", "SLURM_JOB_USER": "$DANLU_USER",
    "SLURM_JOB_PARTITION": "$DANLU_QUEUE", "SLURM_JOB_ACCOUNT": "$DANLU_TEAM", "SLURM_CLUSTER_NAME": "danlu",
    "SLURM_JOB_NODELIST": "$DANLU_NODE", "SLURM_NODELIST": "$DANLU_NODE", "SLURMD_NODENAME": "$DANLU_NODE",
    "SLURM_JOB_NUM_NODES": "1", "SLURM_NNODES": "1", "SLURM_NODEID": "0", "SLURM_PROCID": "0", "SLURM_LOCALID": "0",
    "SLURM_GTIDS": "0", "SLURM_CPUS_ON_NODE": "$DANLU_CPUS", "SLURM_JOB_CPUS_PER_NODE": "$DANLU_CPUS",
    "SLURM_JOB_UID": "$(id -u)", "SLURM_JOB_GID": "$(id -g)", "SLURM_TASK_PID": "$$", "ENVIRONMENT": "BATCH",
}  # fmt: skip
_OF_ARRAYS = {"SLURM_ARRAY_JOB_ID": "$DANLU_ARRAY_NUMBER", "SLURM_ARRAY_TASK_ID": "$DANLU_ARRAY_INDEX"}
_WITH_CARDS = {"SLURM_JOB_GPUS": "$CUDA_VISIBLE_DEVICES", "SLURM_GPUS_ON_NODE": "$DANLU_GPUS"}


def is_script(data: bytes) -> bool:
    """Whether a file is a batch script rather than a job file."""
    return data.startswith((b"#!", b"#SBATCH")) or b"\n#SBATCH" in data[: 1 << 16]


def checked_text(data: bytes, notes: list[str]) -> str:
    """The text of a script, or the sentence that `sbatch` would say."""
    if not data:
        raise Invalid("Batch script is empty!")
    if not data.strip():
        raise Invalid("Batch script contains only whitespace!")
    if not data.startswith(b"#!"):
        raise Invalid(
            "This does not look like a batch script. The first line must start with #! followed by the path to an "
            "interpreter.",
            "for instance: #!/bin/sh",
        )
    if b"\0" in data:
        line = data[: data.index(b"\0")].count(b"\n") + 1
        raise Invalid(f"line {line}: the script contains a NULL character")
    if len(data) > LONGEST_BYTES:
        raise Invalid(f"the script has {len(data):,} bytes; at most {LONGEST_BYTES:,} fit", "put data into files")
    if b"\r\n" in data:
        data = data.replace(b"\r\n", b"\n")
        notes.append("the script has Windows line ends (\\r\\n): they were converted")
    return data.decode("utf-8", "surrogateescape")


def wrapped(command: str) -> str:
    return f"#!/bin/sh\n# This script was created by sbatch --wrap.\n\n{command}\n"


def command_of(
    text: str, arguments: Iterable[str], variables: Mapping[str, str], *, is_array: bool, has_cards: bool
) -> list[str]:
    """The command that runs this text with the interpreter of its first line, as the kernel would."""
    interpreter, _, argument = text.partition("\n")[0][2:].strip(" \t").partition(" ")
    if not interpreter:
        raise Invalid("line 1: no interpreter follows #!", "for instance: #!/bin/sh")
    run = " ".join(_quoted(word) for word in (interpreter, argument.strip(" \t")) if word)
    known_at_start = {**_ALWAYS, **(_OF_ARRAYS if is_array else {}), **(_WITH_CARDS if has_cards else {})}
    lines = [f'export {name}="{value}"' for name, value in known_at_start.items()]
    lines += [f"export {name}={_quoted(value)}" for name, value in variables.items()]
    lines.append('[ "$DANLU_ATTEMPT" -le 1 ] || export SLURM_RESTART_COUNT=$((DANLU_ATTEMPT - 1))')
    pieces = _pieces(text)
    return ["/bin/sh", "-c", _PREAMBLE % ("\n".join(lines), run), _NAME, str(len(pieces)), *pieces, *arguments]


def text_of(command: list[str]) -> str:
    """The script inside such a command; empty for other commands."""
    if len(command) < 6 or command[3] != _NAME or not command[4].isdigit():
        return ""
    return "".join(command[5 : 5 + int(command[4])])


def sets_cards(text: str) -> int:
    """The line that chooses cards by itself, or 0."""
    for number, line in enumerate(text.split("\n"), start=1):
        word = line.strip().removeprefix("export ").lstrip()
        if word.startswith("CUDA_VISIBLE_DEVICES=") and word[21:22].strip("\"'").isdigit():
            return number
    return 0


def _pieces(text: str) -> list[str]:
    if len(text) * 4 <= PIECE_BYTES:
        return [text]
    size = PIECE_BYTES // 4
    return [text[at : at + size] for at in range(0, len(text), size)]


def _quoted(word: str) -> str:
    return "'" + word.replace("'", "'\\''") + "'"
