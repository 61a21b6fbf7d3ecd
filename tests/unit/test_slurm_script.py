"""What Slurm is given for a run."""

import subprocess
from dataclasses import replace
from datetime import timedelta
from pathlib import Path

import pytest

from danlu.domain.job import RunId
from danlu.domain.parsing import Notice
from danlu.domain.resources import Ask
from danlu.engines.base import Ending, Handle, Launch
from danlu.engines.slurm.text.options import (
    ClusterTraits,
    limit_minutes,
    parse_begun,
    parse_comment,
    parse_ended,
    render_comment,
    render_env,
    render_options,
)
from danlu.engines.slurm.text.render import render_inside, render_rank, render_script

GOLDEN = Path(__file__).parents[1] / "golden" / "slurm" / "scripts"
LAUNCH = Launch(Handle("h"), RunId("a.1"), ("echo", "it's"), "/w", {}, None, "/l")
ON_TWO = replace(LAUNCH, ask=Ask(nodes=2))


def options(**particulars: object) -> list[str]:
    traits = ClusterTraits(has_accounts=True, models=("NVIDIA_GeForce_RTX_3090",))
    launch = Launch(Handle("h"), RunId("a.1"), ("/bin/echo",), "/w", {}, None, "/l", **particulars)  # type: ignore[arg-type]
    return render_options(launch, "danlu:i:a.1", "/shared/50%/log", traits)


def test_an_ask_becomes_options() -> None:
    found = options(ask=Ask(gpus=2, gpu_model="RTX3090", cpus=4, memory_mib=2048, nodes=2), queue="gpu", team="vision")
    assert {
        "--gres=gpu:NVIDIA_GeForce_RTX_3090:2", "--cpus-per-task=4", "--mem=2048M", "--nodes=2", "--partition=gpu",
        "--account=vision", "--job-name=echo", "--output=/shared/50%%/log",
    } <= set(found)  # fmt: skip
    assert "--gres=shard:16" in options(ask=Ask(shards=16))
    assert "--nice=40000" in options(priority=1)
    assert not [option for option in options(priority=9) if "nice" in option]


@pytest.mark.parametrize(
    ("limit_m", "grace_s", "longest_m", "minutes"),
    [(60, 30, None, 62), (60, 30, 60, 60), (60, 30, 61, 61), (90, 30, 60, 90), (0.01, 0, None, 2)],
)
def test_slurm_comes_after_the_script_where_the_queue_allows(
    limit_m: float, grace_s: int, longest_m: int | None, minutes: int
) -> None:
    longest = timedelta(minutes=longest_m) if longest_m else None
    assert limit_minutes(timedelta(minutes=limit_m), timedelta(seconds=grace_s), longest) == minutes


def test_the_environment_survives_a_shell() -> None:
    hard = {"A": 'it\'s "so"\n$HOME `x`', "BASH_FUNC_greet%%": "() {  echo hi $1\n}", "a.b": "1"}
    text, left_out = render_env({**hard, "SLURM_JOB_ID": "9", "CUDA_VISIBLE_DEVICES": "7"})
    assert left_out == ["a.b"]
    assert "SLURM" not in text
    assert "CUDA" not in text
    said = subprocess.run(
        ["bash", "-c", f"{text}\nprintf %s \"$A\"; bash -c 'greet you'"], capture_output=True, text=True
    )
    assert said.stdout == hard["A"] + "hi you\n"


def test_bash_reads_what_we_write() -> None:
    launches = (LAUNCH, ON_TWO)
    scripts = [render(launch) for launch in launches for render in (_script, _inside)]
    for text in (*scripts, render_rank("/f o'o")):
        assert subprocess.run(["bash", "-n"], input=text, capture_output=True, text=True).stderr == ""


def _script(launch: Launch) -> str:
    return render_script(launch, "/f o'o", "t")


def _inside(launch: Launch) -> str:
    return render_inside(launch, "/f o'o")


def test_scripts_are_rendered_as_before() -> None:
    """The files in the golden folder are whole scripts. A change of a `.sh` part changes them too, on purpose."""
    one = replace(
        LAUNCH,
        command=("echo", "it's", "$HOME"),
        time_limit=timedelta(hours=2),
        notice=Notice("USR1", timedelta(seconds=60)),
    )
    two = replace(one, ask=Ask(nodes=2, cpus=4))
    scripts = {
        "run-on-one-node": _script(one),
        "run-on-two-nodes": render_script(two, "/f o'o", "t", reaches_all=False),
        "inside": _inside(two),
        "rank": render_rank("/f o'o"),
    }
    for name, text in scripts.items():
        assert text == (GOLDEN / f"{name}.sh").read_text(), name


def test_only_a_run_on_several_nodes_is_begun_by_srun() -> None:
    assert "srun" not in _script(LAUNCH)
    assert "nodes=2\n" in _script(ON_TWO)
    assert '--nodes="$nodes" --ntasks="$nodes" --ntasks-per-node=1' in _script(ON_TWO)


def test_words_of_runs_are_read_with_suspicion() -> None:
    assert parse_comment(render_comment("1a2b", "a.1")) == ("1a2b", "a.1")
    assert parse_comment("danlu:1a2b:../x") is None
    assert parse_begun("token=t\nrestart=x\njob=1\n") is None
    assert parse_ended("ending=nonsense\nrestart=0\n") is None
    for count in ("", "²", "-1", "9" * 10, "9" * 5000):
        assert parse_begun(f"token=t\nrestart={count}\njob=5\n") is None
        assert parse_begun(f"token=t\nrestart=0\njob={count}\n") is None
        assert parse_ended(f"token=t\nrestart={count}\nending=exited\n") is None
    lie = parse_begun("token=t\nrestart=999999999\njob=5\n")
    assert lie
    assert lie.restart == 10_000
    ended = parse_ended("token=t\nrestart=1\nending=exited\ncode=3\nstarted=1794794729123\nended=1794794730123\n")
    assert ended is not None
    assert (ended.ending, ended.exit_code, ended.restart) == (Ending.EXITED, 3, 1)


@pytest.mark.parametrize(
    ("srun", "ending", "code", "by_slurm", "text"),
    [
        # Each rank says how it ended; one of them could not be heard; none was ever let in.
        ('echo "$1 ended 0 n1 0" >&2; echo "$1 ended 1 n2 4" >&2', "exited", 4, False, "rank 1 on n2"),
        ('echo "$1 told 0 n1" >&2; echo "$1 ended 0 n1 143" >&2; echo "$1 ended 1 n2 4" >&2', "exited", 4, False, "n2"),
        ('echo "$1 began 0 n1" >&2; echo "$1 ended 0 n1 1" >&2; exit 9', "exited", 1, True, "rank 0 on n1"),
        ("echo 'srun: error: Invalid account' >&2; exit 1", "not_started", None, False, "Invalid account"),
        # The first rank knows why; the other one was told to end meanwhile.
        (
            'for n in 0 1; do echo "$1 failed $n n 12$((7 - n)) no. $n\n$1 ended $n n 12$((7 - n))" >&2; done',
            "not_started",
            127,
            False,
            "no. 0",
        ),
    ],
)
def test_what_ranks_say_makes_the_end_of_a_run(
    tmp_path: Path, srun: str, ending: str, code: int | None, by_slurm: bool, text: str
) -> None:
    """With an `srun` that says what the real one passes on, in the order that matters."""
    programs = {"srun": f"set -- ${{DANLU_RANKS% *}}\n{srun}", "scontrol": "echo localhost"}
    for name, body in programs.items():
        (tmp_path / name).write_text(f"#!/bin/sh\n{body}\n")
        (tmp_path / name).chmod(0o755)
    folder = tmp_path / "run"
    folder.mkdir()
    script = render_script(ON_TWO, str(folder), "token")
    env = {"PATH": f"{tmp_path}:/usr/bin:/bin", "SLURM_JOB_ID": "17", "TMPDIR": str(tmp_path)}
    subprocess.run(["bash"], input=script, env=env, capture_output=True, text=True, timeout=60)
    ended = parse_ended((folder / "exit").read_text())
    assert ended is not None
    assert (ended.ending, ended.exit_code, ended.by_slurm) == (Ending(ending), code, by_slurm)
    assert text in ended.text
    assert not list(tmp_path.glob("tmp.*"))


@pytest.mark.parametrize(
    ("goes_on", "ending", "code"),
    [("exit 3", Ending.EXITED, 3), ("kill -TERM $$", Ending.EXITED, 143), ("exec sleep 9", Ending.TIMED_OUT, 143)],
)
def test_a_run_that_was_suspended_ends_as_any_other(tmp_path: Path, goes_on: str, ending: Ending, code: int) -> None:
    """Slurm suspends with the signal of a terminal, of which bash makes much if it keeps jobs."""
    command = ("sh", "-c", f"(sleep 0.2; kill -CONT $$) & kill -TSTP $$; sleep 0.2; {goes_on}")
    launch = replace(LAUNCH, command=command, workdir=str(tmp_path), time_limit=timedelta(seconds=2))
    assert _outcome(launch, tmp_path) == (ending, code)


UNSAID = "#!/bin/bash\n: > FOLDER/.failed.0\nkill -TERM $$\n"


def test_a_command_that_is_ended_before_it_can_say_why_it_failed_has_begun(tmp_path: Path) -> None:
    """Its file is there and empty: whoever ends it may come in between."""
    inside = UNSAID.replace("FOLDER", str(tmp_path))
    assert _outcome(replace(LAUNCH, workdir=str(tmp_path)), tmp_path, inside) == (Ending.EXITED, 143)
    env = {"PATH": "/usr/bin:/bin", "DANLU_RANKS": "token", "SLURM_PROCID": "0", "SLURMD_NODENAME": "n1"}
    words = ["bash", "-c", render_rank(str(tmp_path)), "rank", "command"]
    said = subprocess.run(words, env=env, capture_output=True, text=True, timeout=60, stdin=subprocess.DEVNULL).stderr
    assert said.split("\n") == ["token began 0 n1 ", "token ended 0 n1 143", ""]


def test_a_watch_that_is_ended_with_the_run_is_no_time_limit(tmp_path: Path) -> None:
    """Slurm ends all processes at once, some before others."""
    end_sleeps = "for one in $(pgrep -P $PPID); do pkill -TERM -x -P $one sleep && echo >> ended; done"
    command = ("sh", "-c", f"until [ -e ended ]; do sleep 0.1; {end_sleeps}; done; sleep 0.5; exit 3")
    launch = replace(LAUNCH, command=command, workdir=str(tmp_path), time_limit=timedelta(hours=2))
    assert _outcome(launch, tmp_path) == (Ending.EXITED, 3)


def _outcome(launch: Launch, folder: Path, inside: str = "") -> tuple[Ending, int | None]:
    (folder / "inside").write_text(inside or render_inside(launch, str(folder)))
    (folder / "env").write_text("")
    script = render_script(launch, str(folder), "token")
    env = {"PATH": "/usr/bin:/bin", "SLURM_JOB_ID": "17"}
    subprocess.run(["bash"], input=script, env=env, capture_output=True, text=True, timeout=60)
    ended = parse_ended((folder / "exit").read_text())
    assert ended is not None
    return ended.ending, ended.exit_code
