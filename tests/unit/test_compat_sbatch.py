"""`sbatch` scripts and command lines as jobs of ours. What real Slurm does was seen on 24.11."""

import subprocess
from typing import Any

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from danlu.compat import batch_script, sbatch_options, values
from danlu.compat.directives import scan
from danlu.compat.sbatch import Request, read_script, read_words
from danlu.domain.options import NAMES
from danlu.errors import Invalid


def read(*lines: str, words: str = "", environ: dict[str, str] | None = None, body: str = "true") -> Request:
    """A script with these directives, submitted with these words."""
    text = "\n".join(["#!/bin/bash", *(f"#SBATCH {line}" for line in lines), body, ""])
    options, _ = read_words(words.split())
    return read_script(text.encode(), options, [], environ or {}, name="a.sh", folder="/w")


def asked(*lines: str, **more: Any) -> dict[str, Any]:
    options = dict(read(*lines, **more).options)
    options.pop("name")
    return options


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("#SBATCH --a=1 -N1\n", ["--a=1", "-N1"]),
        ("#SBATCH\t--a\t1\n#SBATCH--b\n", ["--a", "1", "--b"]),
        ("##SBATCH --a\n# SBATCH --b\n #SBATCH --c\n#sbatch --d\n", []),
        ("#SBATCH --a=1 # why\n#SBATCH --b=x#y\n", ["--a=1", "--b=x"]),
        ("#SBATCH --a='x y' --b=\"# z\" 'p'q\n", ["--a=x y", "--b=# z", "pq"]),
        ("#SBATCH --a=x\\ y --b=\\#\n", ["--a=x y", "--b=#"]),
        ("# text\n\n   \n#SBATCH --a\necho\n#SBATCH --b\n", ["--a"]),
        ("  # text\n#SBATCH ''\n", [""]),
    ],
)
def test_directives_are_found_as_slurm_finds_them(text: str, words: list[str]) -> None:
    assert [word for word, _ in scan("#!/bin/sh\n" + text)] == words


@pytest.mark.parametrize(
    ("lines", "options"),
    [
        (["--time=90"], {"time": "90m"}),
        (["-t 48:00"], {"time": "48m"}),
        (["-t1:30"], {"time": "2m"}),
        (["--time=2-12"], {"time": "3600m"}),
        (["--time=1-"], {"time": "1440m"}),
        (["--time=1-2:3:4"], {"time": "1564m"}),
        (["--time=999:00:00"], {"time": "59940m"}),
        (["--time=0"], {}),
        (["--time=-1"], {}),
        (["--time=infinite"], {}),
        (["--mem=64G"], {"mem": "65536M"}),
        (["--mem=7gb"], {"mem": "7168M"}),
        (["--mem=500"], {"mem": "500M"}),
        (["--mem=100K"], {"mem": "1M"}),
        (["--mem=0"], {}),
        (["--mem-per-cpu 2048", "-c4"], {"cpus": 4, "mem": "8192M"}),
        (["--mem-per-gpu=1G", "-G2"], {"gpus": 2, "mem": "2048M"}),
        (["-n 4"], {"cpus": 4}),
        (["-n4 -c2"], {"cpus": 8}),
        (["--ntasks-per-node=2 --cpus-per-task=3"], {"cpus": 6}),
        (["--tasks-per-node=2"], {"cpus": 2}),
        (["--cpus-per-gpu=2 --gpus=2 -n3"], {"cpus": 4, "gpus": 2}),
        (["--gres=gpu:1"], {"gpus": 1}),
        (["--gres gpu:2"], {"gpus": 2}),
        (["--gres=gpu"], {"gpus": 1}),
        (["--gres=gpu=2"], {"gpus": 2}),
        (["--gres=gpu:0"], {}),
        (["--gres=none"], {}),
        (["--gres=gpu:a100:4"], {"gpus": "a100:4"}),
        (["--gres=shard:16"], {"shards": 16}),
        (["--gres=shard:L40S:12"], {"gpus": "L40S:0", "shards": 12}),
        (["--gpus-per-node=h100:1"], {"gpus": "h100:1"}),
        (["--gpus-per-node=4", "--gres=gpu:4"], {"gpus": 4}),
        (["--gpus=A100:1"], {"gpus": "A100:1"}),
        (["--gpus-per-task=1 -n2"], {"gpus": 2, "cpus": 2}),
        (["-N1"], {}),
        (["-N 1-4"], {}),
        (["--array=0-2"], {"array": "0-2"}),
        (["-a 1-20%10"], {"array": "1-20%10"}),
        (["--array=[1,3]%0"], {"array": "1,3"}),
        (["--dependency=afterok:7:8"], {"after": ["7", "8"]}),
        (["--dependency=afterok:7,8"], {"after": ["7", "8:any"]}),
        (["-d 7"], {"after": ["7:any"]}),
        (["-d afterany:7_3,afterok:9"], {"after": ["7_3:any", "9"]}),
        (["--signal=B:USR1@60"], {"signal": "USR1@60"}),
        (["--signal=10"], {"signal": "USR1@60"}),
        (["--signal=SIGTERM@30"], {"signal": "TERM@30"}),
        (["--chdir=/x"], {"workdir": "/x"}),
        (["--export=ALL"], {}),
        (["--export=ALL,X=1"], {"env": {"X": "1"}}),
        (["--export=NONE"], {"inherit_env": False}),
        (["--export=X=1,Y,Z"], {"inherit_env": False, "env": {"X": "1", "Y": "y"}}),
        (["--time=5", "--time=6"], {"time": "6m"}),
        (["--jo=x", "--out=y --err=z"], {}),
        (["-exclusive"], {}),
    ],
)
def test_what_an_option_means(lines: list[str], options: dict[str, Any]) -> None:
    assert asked(*lines, environ={"Y": "y"}) == options


@pytest.mark.parametrize(
    ("line", "why"),
    [
        ("--time=12h", "a time is"), ("--time=", "a time is"), ("--time=1:2:3:4", "a time is"), ("-t+5", "a time is"),
        ("--mem=64Gi", "a size is"), ("--mem=1.5G", "a size is"), ("--mem=MaxMemPerNode", "a size is"),
        ("--mem=1 --mem-per-cpu=1", "exclude each other"), ("-c4 --cpus-per-gpu=1 -G1", "exclude each other"),
        ("--gres=gpu:1 --gpus=2", "asks for other cards"), ("--gres=gpu:2 --gpus-per-node=1", "asks for other cards"),
        ("--gres=dcu:2", "`gpu` or `shard`"), ("--gres=gpu:1,shard:2", "not both"), ("--gres=gpu:a:b:c", "resource is"),
        ("--gpus-per-task=1", "number of tasks"), ("-N2", "one node"), ("-n4 --ntasks-per-node=2", "several nodes"),
        ("-n0", "whole number of 1"), ("-c x", "whole number"), ("--array=1-", "whole number"),
        ("--array=5-1", "go up"),
        ("-d afternotok:7", "not supported"), ("-d afterok:7?afterok:8", "not supported"),
        ("-d singleton", "singleton"),
        ("--signal=FOO", "no such signal"), ("--signal=R:USR1", "only B"), ("--ti=5", "ambiguous"),
        ("--quotatype=spot", "unrecognized"), ("--kill-on-bad-exit", "unrecognized"), ("-l", "invalid option"),
        ("--pty", "unrecognized"), ("–-ntasks=4", "invalid directive"), ("foo", "invalid directive"),
        (": x", "unexpected `:`"), ("--job-name='abc", "not closed"), ("--nice 5", "invalid directive"),
        ("--job-name", "requires a value"), ("--parsable=1", "takes no value"),
    ],
)  # fmt: skip
def test_nonsense_is_refused_with_its_line(line: str, why: str) -> None:
    with pytest.raises(Invalid) as refused:
        read("-J x", line)
    assert refused.value.text.startswith("line 3: ")
    assert why in refused.value.text


@pytest.mark.parametrize("option", sbatch_options.REFUSED, ids=lambda option: option.name)
def test_what_would_change_the_job_is_refused_by_name(option: Any) -> None:
    with pytest.raises(Invalid, match=f"line 2: `--{option.name}.*not supported yet"):
        read(f"--{option.name}" + ("=1" if option.takes == "=" else ""))


def test_what_has_no_effect_is_named_once() -> None:
    notes = read("--output=a", "--error=b", "--mail-type=ALL", words="--qos=x").notes
    assert notes == [
        "without effect: `--output` (line 2), `--error` (line 3); output goes to the log for now, "
        "`danlu logs ID` shows it",
        "without effect: `--mail-type` (line 4); Danlu sends no mail",
        "without effect: `--qos`; Danlu has quotas of teams instead",
    ]


def test_an_ambiguous_beginning_is_refused_with_the_list() -> None:
    with pytest.raises(Invalid) as refused:
        read_words(["--wa"])
    assert (
        refused.value.hint == "it may be --wait, --wrap, --wait-all-nodes" or "--wait-all-nodes" in refused.value.hint
    )


def test_the_command_line_wins_over_variables_and_they_over_the_script() -> None:
    environ = {"SBATCH_TIMELIMIT": "20", "SBATCH_PARTITION": "env"}
    request = read("--time=10 -p script", "-J script", words="--time=30", environ=environ)
    assert (request.options["time"], request.queues, request.options["name"]) == ("30m", ["env"], "script")
    with pytest.raises(Invalid, match="SBATCH_GRES: `--gres=dcu:1`"):
        read(environ={"SBATCH_GRES": "dcu:1"})
    assert asked("--mem=5", environ={"SBATCH_MEM_PER_CPU": "9"}) == {"mem": "5M"}


def test_words_after_the_script_are_its_own() -> None:
    options, rest = read_words(["-N1", "-J", "x", "a.sh", "--time=5", "-n"])
    assert [one.name for one in options] == ["nodes", "job-name"]
    assert rest == ["a.sh", "--time=5", "-n"]


def test_partitions_and_accounts_are_left_to_the_server() -> None:
    request = read("-p a,b", "-A x@gpu")
    assert (request.queues, request.account) == (["a", "b"], "x@gpu")
    assert "queue" not in request.options


@pytest.mark.parametrize(
    ("data", "why"),
    [
        (b"", "empty"), (b" \n\t", "only whitespace"), (b"echo hi\n", "does not look like"), (b"#!\ntrue\n", "line 1"),
        (b"#!/bin/sh\ntrue\n\0", "line 3: the script contains a NULL"), (b"#!/bin/sh\n" + b"#" * 2_000_000, "at most"),
    ],
)  # fmt: skip
def test_what_is_no_script(data: bytes, why: str) -> None:
    with pytest.raises(Invalid, match=why):
        read_script(data, [], [], {}, name="a", folder="/")


def test_windows_line_ends_are_accepted_with_a_word() -> None:
    request = read_script(b"#!/bin/sh\r\n#SBATCH -c2\r\ntrue\r\n", [], [], {}, name="a", folder="/")
    assert request.options["cpus"] == 2
    assert "Windows" in request.notes[0]
    assert "\r" not in batch_script.text_of(request.command)


def test_a_script_that_chooses_cards_is_told() -> None:
    assert "line 3 sets CUDA_VISIBLE_DEVICES" in read("-G1", body="export CUDA_VISIBLE_DEVICES=5").notes[0]
    assert not read("-G1", body="echo $CUDA_VISIBLE_DEVICES").notes


def ran(request: Request, **variables: str) -> dict[str, str]:
    """The variables that the script sees."""
    environ = {"PATH": "/usr/bin:/bin", "DANLU_JOB_NUMBER": "7", "DANLU_ATTEMPT": "1", **variables}
    done = subprocess.run(request.command, env=environ, capture_output=True, text=True, timeout=30)
    assert done.returncode == 0, done.stderr
    return dict(line.split("=", 1) for line in done.stdout.splitlines())


def test_variables_exist_only_if_asked_for() -> None:
    plain = ran(read("-N1", body="env"), DANLU_NODE="n1")
    assert (plain["SLURM_JOB_ID"], plain["SLURM_SUBMIT_DIR"], plain["SLURM_JOB_NODELIST"]) == ("7", "/w", "n1")
    absent = "NTASKS NPROCS CPUS_PER_TASK GPUS GPUS_PER_NODE NTASKS_PER_NODE ARRAY_TASK_ID JOB_GPUS MEM_PER_NODE"
    assert not {f"SLURM_{name}" for name in absent.split()} & set(plain)
    full = ran(
        read("-n2 -c3 -G1 --array=2-8:3 --mem=1G", "-J 'a b'", body="env"),
        DANLU_ARRAY_INDEX="5", DANLU_ARRAY_NUMBER="6", DANLU_ATTEMPT="2",
    )  # fmt: skip
    expected = {
        "NTASKS": "2", "NPROCS": "2", "CPUS_PER_TASK": "3", "GPUS": "1", "ARRAY_TASK_ID": "5", "ARRAY_JOB_ID": "6",
        "ARRAY_TASK_COUNT": "3", "ARRAY_TASK_STEP": "3", "MEM_PER_NODE": "1024", "JOB_NAME": "a b",
        "RESTART_COUNT": "1",
    }  # fmt: skip
    assert {name: full[f"SLURM_{name}"] for name in expected} == expected


def test_where_a_real_slurm_runs_the_job_its_variables_stay() -> None:
    assert ran(read("-c3", body="env"), SLURM_JOB_ID="4711")["SLURM_JOB_ID"] == "4711"


def test_a_script_runs_with_its_interpreter_its_arguments_and_a_copy_of_itself() -> None:
    body = '#!/usr/bin/env -S bash -eu\necho "$0|$*|$-"; head -1 "$0"; ls /proc/$$/fd | wc -l; exit 3\n'
    request = read_script((body + "#" * 200_000 + "é").encode(), [], ["a b", "c"], {}, name="x", folder="/")
    assert len(request.command) > 8, "a long script travels in pieces"
    done = subprocess.run(request.command, env={"PATH": "/usr/bin:/bin", "DANLU_ATTEMPT": "1"}, capture_output=True)
    first, second, *_ = done.stdout.decode().splitlines()
    assert done.returncode == 3
    assert first.startswith("/proc/self/fd/9|a b c|")
    assert "e" in first.split("|")[2]
    assert second == "#!/usr/bin/env -S bash -eu"
    python = read_script(b"#!/usr/bin/python3\nimport sys\nprint(sys.argv[1:])\n", [], ["-v"], {}, name="x", folder="/")
    done = subprocess.run(python.command, env={"PATH": "/usr/bin:/bin", "DANLU_ATTEMPT": "1"}, capture_output=True)
    assert done.stdout == b"['-v']\n"


def test_tables_cover_each_option_once_and_ours_only() -> None:
    names = [option.name for option in sbatch_options.OPTIONS]
    assert len(names) == len(set(names))
    assert set(sbatch_options.VARIABLES.values()) <= set(names)
    full = read("-n1 -c1 -G1 --array=1 --mem=1 -t1 -d 1 --signal=USR1 -D /x --export=A=1")
    assert set(full.options) <= {*NAMES, "inherit_env"}


LINES = st.lists(
    st.one_of(
        st.text(max_size=40),
        st.builds(
            lambda name, sign, value: f"--{name}{sign}{value}",
            st.sampled_from([option.name for option in sbatch_options.OPTIONS]), st.sampled_from(["", "=", " "]),
            st.one_of(st.text("0123456789:-,%@GMKgpushard?_[]x ", max_size=12), st.text(max_size=8)),
        ),
    ),
    max_size=6,
)  # fmt: skip


@settings(max_examples=300, deadline=None)
@given(LINES, st.dictionaries(st.sampled_from(sorted(sbatch_options.VARIABLES)), st.text(max_size=10), max_size=2))
@example(["--gpus=²"], {})
def test_any_script_is_a_request_or_a_sentence_with_its_place(lines: list[str], environ: dict[str, str]) -> None:
    text = "\n".join(["#!/bin/sh", *(f"#SBATCH {line}" for line in lines), ""])
    try:
        request = read_script(text.encode("utf-8", "replace"), [], [], environ, name="a", folder="/")
    except Invalid as refused:
        placed = refused.text.startswith(("line ", *sbatch_options.VARIABLES))
    else:
        placed = set(request.options) <= {*NAMES, "inherit_env"}
    assert placed


@given(st.text(max_size=20))
@settings(max_examples=200, deadline=None)
def test_values_are_read_or_refused(text: str) -> None:
    for reader in (values.minutes_of, values.mib_of, values.cards_of, values.gres_of, values.least_nodes,
                   values.array_of, values.dependencies_of, values.signal_of):  # fmt: skip
        try:
            reader(text)
        except ValueError:
            continue
