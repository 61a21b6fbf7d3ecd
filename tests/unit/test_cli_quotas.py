"""What people read about quotas, usage and boosts."""

import csv
import io
from typing import Any

import pytest

from danlu.cli.text import epoch
from danlu.cli.views.quotas import render_boosts, render_quotas, render_quotas_csv, render_usage, render_usage_csv

NOW = epoch("2026-11-15T12:00:00Z")
NOTHING = {"gpus": 0, "shards": 0, "cpus": 0, "memory_mib": 0, "jobs": 0}
NO_LIMITS = dict.fromkeys(("gpus", "shards", "cpus", "memory_mib", "jobs", "gpu_hours"))


def a_quota(**fields: Any) -> dict[str, Any]:
    return {
        "holder": "team:nlp", "written": "", "limits": NO_LIMITS, "period": "month", "borrow": False, "held": NOTHING,
        "waiting": NOTHING, "spent_gpu_hours": 0.0, "period_began_at": "2026-11-01T00:00:00Z", "holders": [],
    } | fields  # fmt: skip


def test_a_quota_is_what_is_held_of_the_limit() -> None:
    text = render_quotas(
        [
            a_quota(
                limits=NO_LIMITS | {"gpus": 8, "memory_mib": 256 * 1024, "gpu_hours": 500},
                held={"gpus": 6.5, "shards": 32, "cpus": 12, "memory_mib": 1024, "jobs": 4},
                waiting=NOTHING | {"jobs": 2, "gpus": 3},
                spent_gpu_hours=120.25,
                borrow=True,
            )
        ],
        NOW,
        None,
    )
    row = text.splitlines()[1].split("  ")
    cells = [cell.strip() for cell in row if cell.strip()]
    assert cells == ["team:nlp", "6.5/8", "32", "12", "1G/256G", "4", "120.2/500 a month", "yes", "2 jobs, 3 GPUs"]


def test_who_holds_the_cards_until_when_each_once() -> None:
    holder = {"id": "k3fz82aw", "user": "li", "team": "nlp", "node": "n1", "gpus": [2], "shards": 16, "ends_at": None}
    whole = holder | {"id": "m2xw", "gpus": [0, 1], "shards": 0, "ends_at": "2026-11-15T13:00:00Z"}
    idle = holder | {"id": "cpus", "gpus": [], "shards": 0}
    text = render_quotas(
        [a_quota(holder="user:li", holders=[holder]), a_quota(holders=[whole, holder, idle])], NOW, None
    )
    assert "n1, 16 shards of GPU 2  no time limit" in text
    assert "n1, GPU 0,1" in text
    assert "(in 1h)" in text
    assert text.count("k3fz82aw") == 1
    assert "cpus" not in text


LINE = {
    "name": "li", "runs": 3, "running": 1, "gpu_hours": 2.5, "asked_gpu_hours": 10.0, "cpu_hours": 4.0,
    "mean_wait_s": 90.0, "longest_wait_s": 7200.0,
}  # fmt: skip


def a_usage(*names: str) -> dict[str, Any]:
    return {"by": "user", "items": [LINE | {"name": name} for name in names], "total": LINE | {"name": "total"}}


def test_usage_is_a_table_with_a_total() -> None:
    lines = render_usage(a_usage("li", ""), None).splitlines()
    assert lines[0].split()[0] == "USER"
    assert lines[1].split() == ["li", "3", "1", "2.5", "10.0", "4.0", "1m30s", "2h"]
    assert lines[2].startswith("(none)")
    assert lines[3].startswith("total")
    assert len(render_usage(a_usage("li"), None).splitlines()) == 2


@pytest.mark.parametrize("name", ["=1+1", "+1", "-1", "@SUM(A1)", "\t=1", "\r=1", "\n=1", "\r\n=1", "\udcff"])
def test_names_are_no_formulas_to_a_spreadsheet(name: str) -> None:
    text = render_usage_csv(a_usage(name))
    rows = list(csv.reader(io.StringIO(text)))
    assert len(rows) == 2
    assert rows[1][0][0] in "'\\"
    assert text.encode()


def test_quotas_as_csv_have_held_limit_and_waiting_of_each_thing() -> None:
    limits = NO_LIMITS | {"gpus": 8, "gpu_hours": 500}
    quota = a_quota(limits=limits, held=NOTHING | {"gpus": 6.5}, waiting=NOTHING | {"gpus": 3}, borrow=True)
    row, bare = csv.DictReader(io.StringIO(render_quotas_csv([quota, a_quota(holder="user:li")])))
    assert (row["holder"], row["gpus"], row["gpus_limit"], row["gpus_waiting"]) == ("team:nlp", "6.5", "8", "3")
    assert (row["cpus_limit"], row["gpu_hours"], row["gpu_hours_limit"], row["period"]) == ("", "0.0", "500", "month")
    assert (row["borrow"], bare["borrow"], bare["gpus_limit"], bare["period"]) == ("yes", "no", "", "")


def test_csv_has_a_header_and_quotes_what_needs_it() -> None:
    text = render_usage_csv(a_usage("li", 'o"brien, x'))
    assert text.splitlines()[0] == "user,runs,running,gpu_hours,asked_gpu_hours,cpu_hours,mean_wait_s,longest_wait_s"
    rows = list(csv.DictReader(io.StringIO(text)))
    assert [row["user"] for row in rows] == ["li", 'o"brien, x']
    assert float(rows[0]["gpu_hours"]) == 2.5


def test_a_why_cannot_move_the_cursor() -> None:
    boost = {"id": "b1", "user": "li", "team": "nlp", "by": "prof", "why": "a\x1b[2Jb", "until": "2026-11-16T12:00:00Z"}
    text = render_boosts([boost], NOW, None)
    assert "\x1b" not in text
    assert "(in 1d)" in text
