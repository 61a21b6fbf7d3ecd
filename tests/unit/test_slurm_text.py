"""What Slurm printed, in both versions, as data."""

from datetime import timedelta
from pathlib import Path

import pytest

from danlu.domain.resources import Seat
from danlu.engines.slurm.text import parse_cluster as text
from danlu.engines.slurm.text import parse_jobs as job_text

GOLDEN = Path(__file__).parents[1] / "golden" / "slurm"
VERSIONS = ("22.05.8", "24.11.5")
both_versions = pytest.mark.parametrize("version", VERSIONS)


def printed(what: str, version: str) -> str:
    return (GOLDEN / f"engine-{what}-{version}.txt").read_text()


@both_versions
def test_the_queue_is_read(version: str) -> None:
    lines = job_text.QueueReader().read(printed("squeue", version), "@MARK@")
    ours = next(line for line in lines if line.comment == "danlu:inst:a.1")
    assert (ours.state, ours.user, ours.uid, ours.partition, ours.nodelist) == ("RUNNING", "root", 0, "gpu", "gn1")
    assert (ours.cpus, ours.memory_mib, text.parse_gres(ours.gres).gpus) == (1, 1000, 2)
    assert ours.ends_at is not None
    assert ours.starts_at is not None
    assert ours.ends_at - ours.starts_at == timedelta(hours=1)
    assert {line.name for line in lines} >= {"train", "odd|name", "two\nlines"}
    waiting = next(line for line in lines if line.reason == "Resources")
    assert waiting.is_waiting
    assert waiting.id == f"{waiting.number}_[2-4]"
    late = next(line for line in lines if line.reason == "PartitionTimeLimit" and line.is_waiting)
    assert late.starts_at is None


def test_a_name_cannot_forge_a_record() -> None:
    forged = "evil\n9|9|RUNNING|0|root|gpu|1|gn1|1|1M|N/A|1|1|1|None|danlu:inst:victim.1|x"
    record = f"m4rk|8|8|PENDING|1000|eve|gpu|1||1|1M|N/A|1|N/A|N/A|None|(null)|{forged}\n"
    (line,) = job_text.QueueReader().read(record, "m4rk")
    assert (line.user, line.comment, line.name) == ("eve", "", forged)


@both_versions
def test_seats_are_read_card_by_card(version: str) -> None:
    seats = job_text.parse_job_seats(printed("scontrol-job", version)).values()
    assert (Seat("gn1", 1, 1000, gpus=(0, 1)),) in seats
    shards = Seat("gn1", 1, 1000, shared_gpu=2, shards=16), Seat("gn2", 1, 1000, shared_gpu=0, shards=16)
    assert shards in seats
    assert (Seat("gn3", 1, 1000, gpus=(0, 1, 2, 3)),) in seats
    assert () in seats  # those that wait


@both_versions
def test_nodes_are_read(version: str) -> None:
    facts = {one.node.name: one for one in text.parse_nodes(printed("scontrol-node", version))}
    assert set(facts) == {"gn1", "gn2", "gn3"}
    first = facts["gn1"]
    assert (first.node.cpus, first.node.memory_mib, first.node.accepts_jobs) == (32, 64000, True)
    assert [(gpu.index, gpu.model, gpu.shards) for gpu in first.node.gpus] == [(at, "a100", 64) for at in range(4)]
    assert first.partitions == ("gpu", "interactive")
    assert first.version == version
    assert (first.used.indices, first.used.shared) == ((0, 1), (2,))
    assert not facts["gn3"].node.accepts_jobs
    assert facts["gn3"].why == "bad fan, card 2"


def test_a_node_that_is_reserved_for_others_takes_no_jobs() -> None:
    words = {"IDLE": True, "IDLE+PLANNED": True, "IDLE+RESERVED+PLANNED": False, "MIXED+RESERVED": False}
    lines = [f"NodeName=n{at} CPUTot=8 RealMemory=1000 State={word} Partitions=gpu" for at, word in enumerate(words)]
    assert [facts.node.accepts_jobs for facts in text.parse_nodes("\n".join(lines))] == list(words.values())


def test_the_newer_version_tells_how_full_each_card_is() -> None:
    facts = {one.node.name: one for one in text.parse_nodes(printed("scontrol-node", "24.11.5"))}
    assert facts["gn1"].used.shards_of == {2: 16}
    assert facts["gn2"].used.shards_of == {0: 16}


@both_versions
def test_partitions_and_configuration_are_read(version: str) -> None:
    gpu, interactive = text.parse_partitions(printed("scontrol-partition", version))
    assert (gpu.name, gpu.is_default, gpu.state, gpu.max_time) == ("gpu", True, "UP", None)
    assert gpu.default_time == timedelta(hours=1)
    assert (interactive.name, interactive.is_default, interactive.max_time) == (
        "interactive",
        False,
        timedelta(hours=8),
    )
    config = text.parse_config(printed("scontrol-config", version))
    assert config["SLURM_VERSION"] == version
    assert config["ClusterName"] == "testc"
    assert config["MinJobAge"] == "300 sec"


@both_versions
def test_whom_a_partition_is_for(version: str) -> None:
    gpu, debug, _ = text.parse_partitions((GOLDEN / f"scontrol-partition-rules-{version}.txt").read_text())
    assert (gpu.groups, gpu.is_for_root, gpu.besides) == (frozenset(), False, "")
    assert (debug.groups, debug.is_for_root) == (frozenset({"news"}), True)
    assert debug.besides == "accounts root; QOS nosuch"
    (denied,) = text.parse_partitions("PartitionName=a AllowGroups=ALL DenyAccounts=x,y DenyQos=z State=UP Nodes=gn1")
    assert denied.besides == "no accounts x, y; no QOS z"


def test_the_reading_of_the_guide() -> None:
    cards = text.parse_gres("gpu:Quadro_RTX_4000:1(IDX:0),shard:Quadro_RTX_4000:32(0/64,32/64)")
    assert (cards.gpus, cards.model, cards.indices) == (1, "Quadro_RTX_4000", (0,))
    assert (cards.shards, cards.shards_of, cards.shared) == (32, {1: 32}, (1,))


@pytest.mark.parametrize(
    ("written", "gpus", "model", "shards"),
    [
        ("gpu:2", 2, "", 0),
        ("gpu", 1, "", 0),
        ("gpu:a100", 1, "a100", 0),
        ("gpu:3090:2", 2, "3090", 0),
        ("gres:gpu:1", 1, "", 0),
        ("gres/gpu:a100:4", 4, "a100", 0),
        ("gres/gpu=3", 3, "", 0),
        ("gres:shard:16", 0, "", 16),
        ("gpu:a100:2(S:0-1),shard:a100:128(S:0)", 2, "a100", 128),
        ("craynetwork:3,mps:100", 0, "", 0),
        ("N/A", 0, "", 0),
        ("(null)", 0, "", 0),
    ],
)
def test_cards_as_they_are_written(written: str, gpus: int, model: str, shards: int) -> None:
    cards = text.parse_gres(written)
    assert (cards.gpus, cards.model, cards.shards) == (gpus, model, shards)


@pytest.mark.parametrize(
    ("written", "names"),
    [
        ("gn1", "gn1"),
        ("gn[1-3,7],login", "gn1 gn2 gn3 gn7 login"),
        ("n[08-11]", "n08 n09 n10 n11"),
        ("r[1-2]c[1-2]", "r1c1 r1c2 r2c1 r2c2"),
        ("gn[1-2]-ib", "gn1-ib gn2-ib"),
        ("(null)", ""),
    ],
)
def test_lists_of_hosts(written: str, names: str) -> None:
    assert text.parse_hostlist(written) == tuple(names.split())


def test_times_limits_and_sizes() -> None:
    assert text.parse_limit("1-02:03:04") == timedelta(days=1, hours=2, minutes=3, seconds=4)
    assert text.parse_limit("08:00:00") == timedelta(hours=8)
    assert text.parse_limit("30") == timedelta(minutes=30)
    assert text.parse_limit("UNLIMITED") is None
    assert text.parse_memory("62.50G") == 64000
    assert text.parse_time("N/A") is None
    assert text.parse_time("Unknown") is None


def test_accounting_is_read() -> None:
    said = "17|COMPLETED|0:0|1794794729|1794794829|ann\n18|CANCELLED by 1000|0:15|Unknown|1794794829|ann\n"
    first, second = job_text.parse_accounting(said)
    assert (first.number, first.state, first.exit_code, first.user) == (17, "COMPLETED", 0, "ann")
    assert (second.state, second.exit_code, second.started_at) == ("CANCELLED", 143, None)


@both_versions
def test_exit_codes_are_read_from_the_jobs_themselves(version: str) -> None:
    codes = job_text.parse_exit_codes((GOLDEN / f"scontrol-jobs-lines-{version}.txt").read_text())
    assert {codes[number] for number in (2, 3, 4)} == {0, 7, 137}
    liar = "JobId=9 JobName=a ExitCode=0:0 b UserId=li(7) ExitCode=3:0 DerivedExitCode=0:0\n"
    assert job_text.parse_exit_codes(liar) == {}
    of_another = "JobId=8 JobName=a ExitCode=3:0 \nJobId=9 JobName=b\nJobId=8 JobName=c ExitCode=0:0 \n"
    assert job_text.parse_exit_codes(of_another) == {}


SEATED = "JobId={} JobName={}\n   UserId=ann(7)\n     Nodes=gn1 CPU_IDs=0-1 Mem=5 GRES=gpu:2(IDX:0-1)\n   Comment=c\n"
REAL = (Seat("gn1", 2, 5, gpus=(0, 1)),)


@pytest.mark.parametrize(
    ("name", "of_eight"),
    [
        ("x\n Nodes=gn2 CPU_IDs=0-99999999999 Mem=1", REAL),
        ("x\n Nodes=gn1 CPU_IDs=0 Mem=1 GRES=gpu:2(IDX:2-3)", REAL),
        ("x\n Nodes=gn[0-99999999999] CPU_IDs=0 Mem=1", REAL),
        (f"x\n Nodes={'a[0-9]' * 600} CPU_IDs=0 Mem=1", REAL),
        ("x\nJobId=8 JobName=y\n Nodes=gn1 CPU_IDs=0 Mem=1 GRES=gpu:2(IDX:2-3)", ()),
    ],
    ids=["many cores", "other cards", "many nodes", "many brackets", "another's"],
)
def test_a_name_forges_no_seats(name: str, of_eight: tuple[Seat, ...]) -> None:
    found = job_text.parse_job_seats(SEATED.format(8, "plain") + SEATED.format(9, name))
    assert found[8] == of_eight, "of whom two things are said, neither is believed"


@pytest.mark.parametrize("count", ["4000000000", "0" * 5000 + "1", "9" * 5000, "²"])
def test_whoever_asks_for_billions_is_still_only_a_line(count: str) -> None:
    cards = text.parse_gres(f"gres:gpu:{count}")
    assert len(cards.models) <= text.MOST_OF_A_NODE


def test_a_node_may_have_cards_of_several_models() -> None:
    line = "NodeName=n1 CPUTot=8 RealMemory=64000 Gres=gpu:RTX_3090:2,gpu:A100:1,shard:96 State=IDLE Partitions=gpu"
    (facts,) = text.parse_nodes(line)
    assert [(gpu.index, gpu.model, gpu.shards) for gpu in facts.node.gpus] == [
        (0, "RTX_3090", 32),
        (1, "RTX_3090", 32),
        (2, "A100", 32),
    ]
