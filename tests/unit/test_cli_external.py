"""What people read about runs that did not come through Danlu."""

from typing import Any

from danlu.cli.commands.external import render_other, render_others, render_why_other
from danlu.cli.text import epoch

NOW = epoch("2026-11-15T12:00:00Z")
ASK = {"gpus": 1, "gpu_model": "a100", "shards": 0, "cpus": 4, "memory_mib": 8192, "nodes": 1}
RUNS: dict[str, Any] = {
    "id": "slurm:17", "user": "li", "name": "bert", "state": "RUNNING", "reason": None, "estimated_at": None,
    "ask": ASK, "tasks": 1, "queue": "gpu", "submitted_at": "2026-11-15T09:00:00Z",
    "started_at": "2026-11-15T10:00:00Z", "ends_at": "2026-11-15T14:10:00Z",
    "seats": [{"node": "n1", "gpus": [0], "shared_gpu": None, "shards": 0}],
}  # fmt: skip
WAITS = RUNS | {
    "id": "slurm:18_[4-9]", "state": "PENDING", "reason": {"code": "no_room", "text": "no cards are free"}, "tasks": 6,
    "started_at": None, "ends_at": None, "estimated_at": "2026-11-15T13:00:00Z", "seats": [],
}  # fmt: skip


def plain(text: str, style: str) -> str:
    return text


def test_the_table_says_whose_where_until_when_or_why() -> None:
    endless = RUNS | {"id": "slurm:19", "ends_at": None, "name": "a\x1b[2J\nb", "seats": []}
    head, *lines = render_others([RUNS, WAITS, endless], NOW, None, plain).splitlines()
    assert head.split() == ["ID", "USER", "NAME", "STATE", "QUEUE", "ASKS", "TIME", "UNTIL", "WHERE", "OR", "WHY"]
    assert " ".join(lines[0].split()) == "slurm:17 li bert RUNNING gpu a100:1 4 cpu 8G 2h in 2h10m n1, GPU 0"
    assert " ".join(lines[1].split()) == "slurm:18_[4-9] li bert PENDING gpu 6 x a100:1 4 cpu 8G 3h no cards are free"
    assert " ".join(lines[2].split()) == r"slurm:19 li a\x1b[2J\nb RUNNING gpu a100:1 4 cpu 8G 2h no time limit"


def test_one_of_them() -> None:
    shown = render_other(RUNS, NOW)
    assert "slurm:17  bert" in shown
    assert "it did not come through Danlu" in shown
    assert "n1, GPU 0" in shown
    assert "(in 2h10m)" in shown
    assert "no time limit" in render_other(RUNS | {"ends_at": None}, NOW)
    assert "\x1b" not in render_other(RUNS | {"name": "\x1b[2J"}, NOW)


def test_why() -> None:
    assert render_why_other(RUNS, NOW).startswith("slurm:17 runs on n1, GPU 0, until ")
    said = render_why_other(WAITS, NOW)
    assert said.startswith("slurm:18_[4-9] waits: no cards are free\n")
    assert said.splitlines()[1].startswith("estimate  ")
    assert said.endswith("(in 1h)")
    assert render_why_other(WAITS, NOW + 7200).endswith("\nestimate  at any moment")
    nothing = render_why_other(WAITS | {"reason": None, "estimated_at": None}, NOW)
    assert nothing == "slurm:18_[4-9] waits: no reason is known"
