"""`danlu simulate` as people run it, and the figures that it prints."""

import csv
import json
import os
import pty
import signal
import subprocess
import sys
import time
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest

from danlu.config.cluster import nodes_of, queues_of
from danlu.config.settings import load_settings
from danlu.domain.charge import Charge
from danlu.domain.quota import Period, Quota
from danlu.domain.resources import Ask
from danlu.state.usage import Tally
from danlu.tools.simulate.generate import Place, generate_trace
from danlu.tools.simulate.metrics import Report, jain, report_of, spread
from danlu.tools.simulate.past_use import Past
from danlu.tools.simulate.people import read_people
from danlu.tools.simulate.replay import Fate, Policy, Replay, TraceJob
from danlu.tools.simulate.tables import render_report, render_seconds
from tests.builders import node

ROOT = Path(__file__).parents[2]
BEGIN = datetime(2024, 1, 1, tzinfo=UTC)
CONFIG = '[[nodes]]\nname = "n[1-2]"\ncpus = 16\nmemory = "64G"\ngpus = "4xRTX3090"\n'
TRACE = """submit,user,team,gpus,duration,time
0,li,nlp,4,3600,2h
0,wang,cv,4,3600,2h
60,li,nlp,8,60,
60,li,nlp,4,1800,1h
"""


@pytest.fixture
def place(tmp_path: Path) -> Path:
    (tmp_path / "danlu.toml").write_text(CONFIG)
    (tmp_path / "trace.csv").write_text(TRACE)
    return tmp_path


def danlu(place: Path, *words: str) -> subprocess.CompletedProcess[str]:
    environ = {name: value for name, value in os.environ.items() if not name.startswith("DANLU_")}
    argv = [sys.executable, "-m", "danlu.cli.main", "simulate", *words]
    return subprocess.run(argv, cwd=place, env=environ, capture_output=True, text=True, timeout=120, check=False)


def report_for(*jobs: TraceJob, cards: int = 2, **policy: Any) -> Report:
    replay = Replay(jobs, Policy((node(gpus=cards),), **policy), BEGIN)
    for _ in replay.moments():
        pass
    return report_of(replay)


def test_the_tables(place: Path) -> None:
    done = danlu(place, "trace.csv", "--config", "danlu.toml")
    assert done.returncode == 0, done.stderr
    lines = done.stdout.splitlines()
    assert all(len(line) <= 100 for line in lines)
    assert lines[0].startswith("4 jobs in 1h30m on 8 GPUs: 3 ended (0 at their limit), 1 never fit")
    assert "  line 4, li: asks for 8 GPUs, the largest node has 4" in lines
    nlp = next(line for line in lines if line.startswith("team nlp"))
    assert nlp.split()[2:8] == ["3", "29m", "29m", "53m", "58m", "59m"]  # one waits not at all, one for 59 minutes


def test_the_same_as_data_twice_byte_by_byte(place: Path) -> None:
    first, second = (danlu(place, "trace.csv", "--config", "danlu.toml", "--json") for _ in range(2))
    assert first.stdout == second.stdout
    data = json.loads(first.stdout)
    assert data["in_all"]["gpu_hours"] == pytest.approx(10.0)
    assert [team["name"] for team in data["teams"]] == ["cv", "nlp"]
    assert data["teams"][0]["share"] == pytest.approx(0.4)
    assert data["never"] == [
        {"line": 4, "user": "li", "team": "nlp", "code": "never_fits", "why": "asks for 8 GPUs, the largest node has 4"}
    ]


def test_a_line_for_each_job(place: Path) -> None:
    done = danlu(place, "trace.csv", "--config", "danlu.toml", "--jobs-csv", "jobs.csv")
    assert done.returncode == 0, done.stderr
    with open(place / "jobs.csv") as file:
        rows = list(csv.DictReader(file))
    assert [(row["line"], row["start"], row["end"], row["waited"], row["fate"]) for row in rows] == [
        ("2", "0", "3600", "0", "done"),
        ("3", "0", "3600", "0", "done"),
        ("4", "", "", "", "never"),
        ("5", "3600", "5400", "3540", "done"),
    ]


def test_an_invented_trace_goes_through(place: Path) -> None:
    made = danlu(place, "--make-trace", "200", "--seed", "3", "--config", "danlu.toml", "--load", "95")
    assert made.returncode == 0, made.stderr
    (place / "made.csv").write_text(made.stdout)
    (place / "people.toml").write_text('[quotas]\n"team:nlp" = "gpus=4 borrow=yes"\n"team:hci" = "gpus=1"\n')
    done = danlu(place, "made.csv", "--config", "danlu.toml", "--people", "people.toml", "--step", "30s", "--json")
    assert done.returncode == 0, done.stderr
    assert "note: team:hci has a quota but no job in the trace" in done.stderr
    data = json.loads(done.stdout)
    assert (data["in_all"]["jobs"], data["unfinished"], data["is_complete"]) == (200, 0, True)
    assert data["in_all"]["ended"] + data["in_all"]["never"] == 200


REFUSED = {
    (): "`danlu simulate` needs a trace",
    ("trace.csv",): "`danlu simulate` needs `--config`",
    ("trace.csv", "--config", "none.toml"): "cannot read the configuration none.toml",
    ("none.csv", "--config", "danlu.toml"): "cannot read the trace none.csv",
    ("trace.csv", "--config", "danlu.toml", "--step", "soon"): "--step takes a duration",
    ("trace.csv", "--config", "danlu.toml", "--people", "none.toml"): "cannot read none.toml",
    ("trace.csv", "--config", "danlu.toml", "--people", "danlu.toml"): "unknown section: `nodes`",
    ("trace.csv", "--config", "danlu.toml", "--jobs-csv", "no/where.csv"): "cannot write no/where.csv",
    ("trace.csv", "--make-trace", "5"): "`--make-trace` takes a number of jobs, and no trace",
    ("--make-trace", "5", "--load", "0"): "--load takes percent",
}


@pytest.mark.parametrize("words", REFUSED, ids=" ".join)
def test_wrong_usage_is_said(place: Path, words: tuple[str, ...]) -> None:
    done = danlu(place, *words)
    assert done.returncode == 2
    assert REFUSED[words] in done.stderr
    assert done.stdout == ""


def test_control_c_ends_it_with_the_figures_so_far(place: Path) -> None:
    """On a terminal, so that its progress shows when it is at work."""
    rows = "".join(f"{n // 3},u{n % 7},t{n % 3},{1 + n % 4},{100 + n % 777},1d\n" for n in range(60_000))
    (place / "long.csv").write_text("submit,user,team,gpus,duration,time\n" + rows)
    main, side = pty.openpty()
    argv = [sys.executable, "-m", "danlu.tools.simulate.main", "long.csv", "--config", "danlu.toml", "--json"]
    with subprocess.Popen(argv, cwd=place, stdout=subprocess.PIPE, stderr=side, text=True) as process:
        os.close(side)
        seen, until = b"", time.monotonic() + 100
        while b"Ctrl-C" not in seen and time.monotonic() < until:
            seen += os.read(main, 4096)
        process.send_signal(signal.SIGINT)
        out, _ = process.communicate(timeout=100)
    os.close(main)
    assert process.returncode == 130
    data = json.loads(out)
    assert not data["is_complete"]
    assert 0 < data["unfinished"] <= 60_000


# Figures.


def job(key: int, submit: float, lasts: float, gpus: int = 1, team: str = "nlp", **fields: Any) -> TraceJob:
    return TraceJob(str(key), submit, lasts, Ask(gpus=gpus), f"{team}1", team, **fields)


def test_waiting_use_and_fairness() -> None:
    report = report_for(job(1, 0, 100, 2), job(2, 0, 100, 1, "cv"), job(3, 1000, 100, 1, "cv"))
    nlp, cv = report.teams[1], report.teams[0]
    assert cv.waited_s is not None
    assert (cv.waited_s.mean, cv.waited_s.median, cv.waited_s.max) == (50, 50, 100)
    assert cv.slowdown is not None
    assert cv.slowdown.mean == 1.5
    assert report.busy_s == 300
    assert report.in_all.utilisation == pytest.approx(400 / 600)
    assert [nlp.gpu_hours, cv.gpu_hours] == pytest.approx([200 / 3600, 200 / 3600])
    assert report.fairness_use == pytest.approx(1.0)
    assert report.fairness_slowdown == pytest.approx(2.5**2 / (2 * (1 + 2.25)))


def test_a_very_short_job_does_not_drown_the_slowdown() -> None:
    report = report_for(job(1, 0, 100), job(2, 0, 1), cards=1)
    assert report.in_all.slowdown is not None
    assert report.in_all.slowdown.max == pytest.approx(101 / 10)


def test_quotas_have_shares() -> None:
    report = report_for(
        job(1, 0, 10), job(2, 0, 10, team="cv"), quotas={"team:nlp": Quota(gpus=3), "team:cv": Quota(gpus=1)}
    )
    assert [(team.name, team.quota_gpus, team.quota_share) for team in report.teams] == [
        ("cv", 1, 0.25),
        ("nlp", 3, 0.75),
    ]
    assert [team.borrowed_gpu_hours for team in report.teams] == [0, 0]


def test_numbers_as_people_read_them() -> None:
    shown = [render_seconds(each) for each in (0, 59.4, 60, 599, 3599, 3600, 86399, 86400, 90061)]
    assert shown == ["0s", "59s", "1m00s", "9m59s", "59m", "1h00m", "23h59m", "1d00h", "1d01h"]


def test_an_interrupted_report_says_so() -> None:
    replay = Replay([job(1, 0, 100), job(2, 0, 100)], Policy((node(gpus=1),)), BEGIN)
    next(replay.moments())
    assert render_report(report_of(replay, is_complete=False)).startswith("INTERRUPTED: 2 jobs had not ended")


def test_spread_and_fairness_of_little() -> None:
    assert spread([]) is None
    one = spread([3.0])
    assert one is not None
    assert (one.mean, one.p99) == (3, 3)
    assert jain([1, 1, 1]) == pytest.approx(1)
    assert jain([1, 0, 0, 0]) == pytest.approx(0.25)
    assert jain([]) is None
    assert jain([0, 0]) is None


def test_use_fades_and_counts_in_periods_as_in_an_installation() -> None:
    quotas = {"team:nlp": Quota(gpu_hours=5, period=Period.DAY), "user:li": Quota(gpu_hours=9, period=Period.WEEK)}
    half_life = timedelta(hours=20)
    past, tally = Past(quotas, half_life, BEGIN), Tally(half_life, (), BEGIN)
    for number in range(30):
        start, end = number * 17_000.0, number * 17_000.0 + 13_000 + number * 100
        user = "li" if number % 3 else "wang"
        past.add(user, "nlp", 2.0, start, end)
        at = [BEGIN + timedelta(seconds=seconds) for seconds in (start, end)]
        tally.add(Charge(str(number), user, "nlp", "", at[0], at[0], at[1], 2, 0, 64, 1, 0))
        later = end + 5000
        assert past.use(later) == pytest.approx(tally.use(BEGIN + timedelta(seconds=later)))
        assert past.spent(later) == pytest.approx(tally.spent(quotas, BEGIN + timedelta(seconds=later)))


def test_the_example_of_people_is_read(tmp_path: Path) -> None:
    people = read_people(str(ROOT / "examples" / "people.toml"))
    assert people.teams_of("li") == ("nlp",)
    assert people.quotas["team:nlp"] == Quota(gpus=12, borrow=True)
    (boost,) = people.boosts_since(BEGIN)
    assert (boost.user, boost.from_s, boost.until_s) == ("zhang", 3 * 86400, 5 * 86400)


@pytest.mark.parametrize("path", sorted((ROOT / "examples" / "clusters").glob("*.toml")), ids=lambda path: path.stem)
def test_the_example_clusters_can_be_tried(path: Path) -> None:
    settings = load_settings(str(path), {})
    nodes = nodes_of(settings.nodes, shards_per_gpu=settings.engine.shards_per_gpu)
    queues = queues_of(settings.queues, nodes)
    jobs = list(generate_trace(60, 1, Place(nodes, queues)))
    replay = Replay(jobs, Policy(nodes, queues, shards_per_gpu=settings.engine.shards_per_gpu), BEGIN)
    for _ in replay.moments():
        pass
    assert {life.fate for life in replay.lives} <= {Fate.DONE, Fate.TIMED_OUT}
