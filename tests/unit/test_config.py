"""One file of settings: every key documented, wrong ones refused by name."""

import re
import tomllib
from dataclasses import fields
from datetime import timedelta
from pathlib import Path

import pytest

from danlu.config.cluster import nodes_of, queues_of, written_out
from danlu.config.settings import LISTS, SECTIONS, Settings, load_settings
from danlu.domain.queue import Queue
from danlu.errors import Invalid

EXAMPLE = Path(__file__).parents[2] / "examples" / "danlu.toml"


def written(tmp_path: Path, text: str) -> str:
    path = tmp_path / "danlu.toml"
    path.write_text(text)
    return str(path)


def test_the_example_documents_every_key_with_its_default() -> None:
    document = tomllib.loads(EXAMPLE.read_text())
    assert {name: list(keys) for name, keys in document.items()} == {
        name: [field.name for field in fields(kind)] for name, kind in SECTIONS.items()
    }
    assert load_settings(str(EXAMPLE), {}) == Settings()


def test_the_example_shows_every_key_of_queues_and_nodes(tmp_path: Path) -> None:
    text = re.sub(r'(?m)^#(?=\[\[|"|\w+ = )', "", EXAMPLE.read_text())
    document = tomllib.loads(text)
    for name, kind in LISTS.items():
        assert [list(one) for one in document[name]] == [[field.name for field in fields(kind)]]
    settings = load_settings(written(tmp_path, text), {})
    assert [(queue.name, queue.max_gpus) for queue in settings.queues] == [("train", 4)]
    assert settings.oidc.teams == {"/lab/nlp": "nlp"}


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("[engin]\n", "unknown section: `engin`"),
        ("[engine]\nfake_gpu = '1xA100'\n", "unknown key in [engine]: `fake_gpu`"),
        ("[engine]\ncpus = 'many'\n", "`engine.cpus` in"),
        ("[engine]\ncpus = true\n", "must be a whole number"),
        ("[engine]\ncpus = -1\n", "must be 0 or more"),
        ("[engine]\nkind = 'mesos'\n", "`engine.kind` in"),
        ("[engine]\ngrace = 'soon'\n", "engine.grace takes a duration"),
        ("[server]\nplain_http = 1\n", "must be true or false"),
        ("[server]\ntls_cert = 'a.pem'\n", "needs both"),
        ("engine = 1\n", "must be a section"),
        ("[engine\n", "is not valid TOML"),
        ("[people]\nopens = 'anybody'\n", "`people.opens` in"),
        ("[people]\nlogin_days = 0\n", "must be 1 or more"),
        ("[people]\ndefault_quota = 'gpu=2'\n", "gpu"),
        ("[people]\nhome = '/mnt/user'\n", "with {user} in it"),
        ("[people]\nhome = '/mnt/{user}/{team}'\n", "knows only {user}"),
        ("[people]\nhome = '/mnt/{user}/../../etc'\n", "does not stay in its place"),
        ("[people]\nteam_folder = 'share/{team}'\n", "is an absolute path"),
        ("[oidc]\nissuer = 'sso'\nclient_id = 'danlu'\n", "is a URL"),
        ("[oidc]\nissuer = 'https://sso'\n", "needs both"),
        ("[oidc]\ndomains = ['@lab.example']\n", "`@lab.example` is none"),
        ("[oidc]\ndomains = 'lab.example'\n", "must be a list of texts"),
        ("[oidc]\nteams = ['nlp']\n", "must be a table of texts"),
        ("[oidc.teams]\nlab = 1\n", "must be a table of texts"),
        ("[policy]\nhalf_life = 'long'\n", "policy.half_life takes a duration"),
        ("[queues]\nname = 'a'\n", "must be a list of sections"),
        ("queues = 1\n", "must be a list of sections"),
        ("[[queues]]\nmax_gpus = 1\n", "[[queues]] number 1"),
        ("[[queues]]\nname = 'a'\nmax_gpu = 1\n", "unknown key in [[queues]] `a`: `max_gpu`"),
        ("[[queues]]\nname = 'a'\nnodes = 'n1'\n", "must be a list of texts"),
        ("[[queues]]\nname = 'a'\nnodes = [1]\n", "must be a list of texts"),
        ("[[queues]]\nname = 'a'\nmax_gpus = -1\n", "must be 0 or more"),
        ("[[queues]]\nname = 'a'\nmax_gpus = true\n", "must be a whole number"),
        ("[[queues]]\nname = 'a'\ninteractive = 'no'\n", "must be true or false"),
        ("[[nodes]]\nname = 'n1'\ncpu = 4\n", "unknown key in [[nodes]] `n1`: `cpu`"),
    ],
)
def test_what_is_wrong_is_refused_by_name(tmp_path: Path, text: str, message: str) -> None:
    with pytest.raises(Invalid) as refused:
        load_settings(written(tmp_path, text), {})
    assert message in refused.value.text


NODE = "[[nodes]]\nname = 'n[1-2]'\ngpus = '2xRTX3090'\n"
QUEUE = NODE + "[[queues]]\nname = 'a'\n"


@pytest.mark.parametrize(
    ("text", "message"),
    [
        (NODE + NODE, "two `[[nodes]]` describe `n1`"),
        ("[[nodes]]\nname = 'n[1-'\n", "is no name of nodes"),
        ("[[nodes]]\nname = 'n[3-1]'\n", "is no list of nodes"),
        ("[[nodes]]\nname = 'n[1-999999]'\n", "is no list of nodes"),
        ("[[nodes]]\nname = 'a b'\n", "is no name of a node"),
        ("[[nodes]]\nname = 'n'\ncpus = 0\n", "`cpus` must be 1 or more"),
        ("[[nodes]]\nname = 'n'\nmemory = 'lots'\n", "node `n`: `memory` takes a size"),
        ("[[nodes]]\nname = 'n'\ngpus = '4x'\n", "node `n`: cards are written as"),
        (QUEUE + "[[queues]]\nname = 'a'\n", "two `[[queues]]` are called `a`"),
        (NODE + "[[queues]]\nname = 'a b'\n", "is no name for a queue"),
        (QUEUE + "default = true\n[[queues]]\nname = 'b'\ndefault = true\n", "`a` and `b` are both the default"),
        (QUEUE + "nodes = ['n3']\n", "queue `a`: there is no node `n3`"),
        (QUEUE + "nodes = ['gpu-*']\n", "queue `a`: no node fits `gpu-*`"),
        (QUEUE + "nodes = ['n[1-3]']\n", "queue `a`: there is no node `n3`"),
        (QUEUE + "models = ['A100']\n", "queue `a`: its nodes have no card `A100`"),
        (QUEUE + "default_priority = 7\nmax_priority = 6\n", "default priority 7 is above its highest, 6"),
        (QUEUE + "max_priority = 3\n", "jobs that name no priority have 5"),
        (QUEUE + "max_priority = 12\n", "`max_priority` goes from 1 to 9"),
        (QUEUE + "max_time = 'long'\n", "queue `a`: `max_time` takes a duration"),
        (QUEUE + "max_time = '1h'\ndefault_time = '2h'\n", "`default_time` is longer than `max_time`"),
        (QUEUE + "default_time = '0'\n", "queue `a`: `default_time` must be more than nothing"),
        (QUEUE + "max_time = '0s'\n", "queue `a`: `max_time` must be more than nothing"),
        ("[jobs]\ndefault_time = '0'\n", "jobs.default_time must be more than nothing"),
        ("[jobs]\ndefault_time = 0\n", "`jobs.default_time`"),
        (QUEUE + "max_mem = 'lots'\n", "queue `a`: `max_mem` takes a size"),
    ],
)
def test_nonsense_about_nodes_and_queues_is_refused_by_name(tmp_path: Path, text: str, message: str) -> None:
    with pytest.raises(Invalid) as refused:
        load_settings(written(tmp_path, text), {})
    assert message in refused.value.text


def test_nodes_and_queues_become_what_the_scheduler_knows(tmp_path: Path) -> None:
    text = """
        [[nodes]]
        name = "fics-[1-2]"
        cpus = 64
        memory = "256G"
        gpus = "5xRTX3090"
        [[nodes]]
        name = "old"
        gpus = "1xP100"
        [[queues]]
        name = "makkapakka"
        nodes = ["fics-*"]
        models = ["3090"]
        max_time = "3d"
        default = true
        [[queues]]
        name = "dev"
        nodes = ["old"]
        max_gpus = 0
        max_mem = "8G"
        teams = ["nlp"]
        interactive = false
    """
    settings = load_settings(written(tmp_path, text), {})
    nodes = nodes_of(settings.nodes, shards_per_gpu=4)
    assert [(node.name, node.cpus, node.memory_mib, len(node.gpus)) for node in nodes] == [
        ("fics-1", 64, 256 * 1024, 5),
        ("fics-2", 64, 256 * 1024, 5),
        ("old", 16, 64 * 1024, 1),
    ]
    assert len({gpu.uuid for node in nodes for gpu in node.gpus}) == 11
    assert nodes[2].gpus[0].shards == 4
    assert queues_of(settings.queues, nodes) == {
        "makkapakka": Queue(
            "makkapakka", frozenset({"fics-1", "fics-2"}), ("3090",), max_time=timedelta(days=3), is_default=True
        ),
        "dev": Queue(
            "dev", frozenset({"old"}), teams=frozenset({"nlp"}), max_gpus=0, max_memory_mib=8192, is_interactive=False
        ),
    }


@pytest.mark.parametrize(
    ("pattern", "names"),
    [
        ("aha", ("aha",)),
        ("control-173", ("control-173",)),
        ("makkapakka[01-03]", ("makkapakka01", "makkapakka02", "makkapakka03")),
        ("n[1,3-4]-gpu", ("n1-gpu", "n3-gpu", "n4-gpu")),
        ("n[9-11]", ("n9", "n10", "n11")),
    ],
)
def test_patterns_of_nodes(pattern: str, names: tuple[str, ...]) -> None:
    assert written_out(pattern, "a test") == names


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("[engin]\n", "did you mean `engine`?"),
        ("[[queue]]\nname = 'a'\n", "did you mean `queues`?"),
        ("[oidc]\nissuers = ''\n", "did you mean `issuer`?"),
        (QUEUE + "nodes = ['n11']\n", "did you mean `n1`?"),
    ],
)
def test_a_near_miss_of_a_name_gets_a_hint(tmp_path: Path, text: str, message: str) -> None:
    with pytest.raises(Invalid) as refused:
        load_settings(written(tmp_path, text), {})
    assert refused.value.hint == message


def test_a_near_miss_gets_a_hint(tmp_path: Path) -> None:
    with pytest.raises(Invalid) as refused:
        load_settings(written(tmp_path, "[engine]\nfake_gpu = ''\n"), {})
    assert refused.value.hint == "did you mean `fake_gpus`?"


def test_the_environment_wins(tmp_path: Path) -> None:
    path = written(tmp_path, "[engine]\ncpus = 4\n[server]\nplain_http = true\n")
    settings = load_settings(path, {"DANLU_ENGINE_CPUS": "8", "DANLU_SERVER_PLAIN_HTTP": "false"})
    assert settings.engine.cpus == 8
    assert settings.server.plain_http is False


def test_a_missing_file_is_said() -> None:
    with pytest.raises(Invalid, match="cannot read the configuration /nope"):
        load_settings("/nope", {})
