"""The script of the small job on a node, and its parsed output. Pure."""

import re
import shlex
from collections.abc import Sequence

from danlu.tools.doctor.facts import Probe, Said
from danlu.tools.doctor.judge.reach import error_words

ROOM_WITHIN_S = 10  # how long to wait for a full node

# `: <FILE` only opens a device. The script answers with a folder, because a link could redirect a file.
_PROBE = """\
say() { printf 'doctor %s %s\\n' "$1" "$2"; }
say clock "$(date +%s.%N)"
say uid "$(id -u)"
say word "$(cat "$1/word" 2>&1)"
mkdir "$1/$2" 2>/dev/null
for name in @PEOPLE@; do say person "$(id -u "$name" 2>/dev/null):$name"; done
for name in @NAMES@; do getent hosts "$name" >/dev/null || say unknown "$name"; done
cards=(@CARDS@)
[ ${#cards[@]} -gt 0 ] || cards=(/dev/nvidia[0-9]*)
for card in "${cards[@]}"; do
    [ -e "$card" ] || continue
    case $( { : <"$card"; } 2>&1 ) in
        *"not permitted"*) say shut "$card" ;;
        *"ermission denied"*) ;;
        *) say open "$card" ;;
    esac
done
say shm "$(df -Pk /dev/shm 2>/dev/null | awk 'NR == 2 { print int($2 / 1024) }')"
"""


def render_probe(people: Sequence[str], names: Sequence[str], cards: Sequence[str]) -> str:
    parts = {"@PEOPLE@": people, "@NAMES@": names, "@CARDS@": cards}
    script = _PROBE
    for mark, words in parts.items():
        script = script.replace(mark, shlex.join(words))
    return script


def parse_probe(node: str, said: Said, asked_at: float, answered_at: float, token: str) -> Probe:
    """Parse the output of the job."""
    facts = re.findall(r"(?m)^doctor (\S+) (.*)$", said.out)
    told = dict(facts)
    if "uid" not in told:
        return Probe(node, trouble=_why_not(said), took_s=said.took_s)
    people = (value.partition(":") for name, value in facts if name == "person")
    clock = re.fullmatch(r"\d+\.\d+", told.get("clock", ""))
    return Probe(
        node,
        took_s=said.took_s,
        asked_at=asked_at,
        answered_at=answered_at,
        clock=float(clock[0]) if clock else None,
        uid=_whole(told["uid"]),
        sees_file=told.get("word") == token,
        users={name: _whole(uid) for uid, _, name in people},
        unknown_names=tuple(value for name, value in facts if name == "unknown"),
        open_cards=tuple(value for name, value in facts if name == "open"),
        shut_cards=tuple(value for name, value in facts if name == "shut"),
        shm_mib=_whole(told.get("shm", "")),
    )


def _why_not(said: Said) -> str:
    words = error_words(said.err)
    if "busy" in words or "Unable to allocate resources: Requested nodes are busy" in said.err:
        return f"no room there within {ROOM_WITHIN_S} s"
    if said.is_late:
        return f"no answer within {said.took_s:.0f} s" + (f" ({words})" if words else "")
    return words or f"srun ended with {said.code}"


def _whole(text: str) -> int | None:
    return int(text) if text.isdecimal() else None
