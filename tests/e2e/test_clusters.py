"""The five clusters of examples/clusters, each played by this machine: a real server, real jobs on pretend nodes."""

import os
import re
import socket
import subprocess
from pathlib import Path
from typing import Any

import pytest

from danlu.client import Client
from tests.e2e.installation import DANLU, Installation, eventually
from tests.e2e.terminal import Terminal

CLUSTERS = Path(__file__).parents[2] / "examples" / "clusters"
FICS = CLUSTERS / "fics.toml"

# cluster: its nodes with their cards, its queues, and one job with the nodes that it may be on
EXPECTED: dict[str, tuple[dict[str, tuple[int, str]], list[str], list[str], str]] = {
    "fics": (
        {f"makkapakka0{number}": (5, "RTX3090") for number in range(1, 5)},
        ["makkapakka"],
        ["--gpus", "5"],
        r"makkapakka0[1-4] 0,1,2,3,4 makkapakka",
    ),
    "quadro": (
        {"control118": (2, "Quadro RTX 4000"), "control-173": (4, "Quadro RTX 5000")},
        ["hpc", "shared"],
        ["--shards", "16", "--queue", "shared"],
        r"control-?1\d\d \d shared",
    ),
    "aha": (
        {"eureka": (4, "RTX2080Ti"), "tatooine": (4, "RTX2080Ti")},
        ["compute", "login"],
        ["--queue", "login", "--interactive"],
        r"(eureka|tatooine)  login",
    ),
    "k8s": (
        {f"p100-{n}": (4, "P100") for n in (1, 2)} | {f"v100-{n}": (8, "V100") for n in (1, 2, 3, 4)},
        ["dsw", "dlc"],
        ["--gpus", "8", "--mem", "500G"],
        r"v100-[1-4] 0,1,2,3,4,5,6,7 dlc",
    ),
    "pami": (
        {"pami-1080ti": (2, "GTX 1080 Ti"), "pami-3090": (2, "RTX 3090")},
        ["any", "1080ti", "3090"],
        ["--queue", "3090", "--gpus", "1"],
        r"pami-3090 0 3090",
    ),
}
SAY = ("sh", "-c", 'echo "$DANLU_NODE $CUDA_VISIBLE_DEVICES $DANLU_QUEUE"')


def play(here: Installation, config: Path) -> None:
    here.danlu("up", "--detach", "--config", config, "--fake")


def items(here: Installation, *words: str) -> list[dict[str, Any]]:
    found: list[dict[str, Any]] = here.danlu(*words, "--json").json()["items"]
    return found


def test_every_example_is_tried() -> None:
    assert sorted(path.stem for path in CLUSTERS.glob("*.toml")) == sorted(EXPECTED)


@pytest.mark.parametrize("name", EXPECTED)
def test_a_cluster_can_be_tried_at_once(here: Installation, name: str) -> None:
    nodes, queues, options, told = EXPECTED[name]
    play(here, CLUSTERS / f"{name}.toml")
    shown = {node["name"]: (len(node["gpus"]), node["gpus"][0]["model"]) for node in items(here, "nodes")}
    assert shown == nodes
    assert {card["shards"] for card in items(here, "gpus")} == {64}
    assert len(items(here, "gpus")) == sum(count for count, _ in nodes.values())
    assert [queue["name"] for queue in items(here, "queues")] == queues
    assert re.fullmatch(told, here.danlu("run", *options, "--", *SAY).text)
    assert "would start now on" in here.danlu("run", "--dry-run", *options, "--", "true").text
    status = here.danlu("status").text
    assert f"{name}.toml" in status
    assert all(node in status for node in nodes)
    screen = Terminal(here, "queues", columns=80)
    code, table = screen.end()
    assert code == 0
    assert all(len(line) <= 80 for line in table.splitlines()), table
    assert all(model in table for _, model in nodes.values()), "nothing that matters is cut"


def test_all_nodes_are_played_at_once(here: Installation) -> None:
    play(here, FICS)
    jobs = [here.submit("--gpus", "5", "--mem", "200G", "--", "sleep", "600") for _ in range(5)]
    held = [here.until(job, "RUNNING") for job in jobs[:4]]
    assert {job["node"] for job in held} == {f"makkapakka0{number}" for number in range(1, 5)}
    assert here.state(jobs[4]) == "QUEUED"
    (queue,) = items(here, "queues")
    assert (queue["running"], queue["waiting"], queue["cards"][0]["free"]) == (4, 1, 0)
    here.danlu("stop", "--kill", jobs[0])
    assert here.until(jobs[4], "RUNNING")["node"] == held[0]["node"]


def test_what_is_played_is_apart_from_ones_own(here: Installation) -> None:
    mine = here.submit("--", "sleep", "600")
    here.until(mine, "RUNNING")
    refused = here.danlu("up", "--detach", "--config", FICS, "--fake", code=None)
    assert refused.code != 0
    assert "your server is up already" in refused.talk
    assert "DANLU_HOME=" in refused.talk
    assert here.state(mine) == "RUNNING", "it is still the server that commands reach"

    here.danlu("down")
    play(here, FICS)
    play(here, FICS)  # again is fine
    assert here.danlu("show", mine, code=2).talk.startswith("error: no job")
    theirs = here.submit("--", "sleep", "600")
    here.until(theirs, "RUNNING")

    here.kill_server()
    assert here.state(theirs) == "RUNNING", "after a crash a command starts the same cluster again"
    here.danlu("down")
    assert here.state(mine) == "RUNNING", "after its proper end, commands mean one's own server"
    assert [node["name"] for node in items(here, "nodes")] == [socket.gethostname().split(".")[0]]


def test_both_can_be_up_with_a_folder_for_each(here: Installation) -> None:
    here.danlu("run", "--", "true")
    other = {"DANLU_HOME": str(here.root / "fics")}
    here.danlu("up", "--detach", "--config", FICS, "--fake", env=other)
    assert "makkapakka01" in here.danlu("nodes", env=other).text
    assert "makkapakka01" not in here.danlu("nodes").text
    here.danlu("down", env=other)


@pytest.mark.parametrize(
    ("text", "told"),
    [
        ('[engine]\nkind = "kubernetes"\n', 'this version runs jobs with "local" and "slurm" only'),
        ('[[nodes]]\nname = "n1"\n', "without `--fake` there is only this machine"),
        ('[[queues]]\nname = "a"\nnodes = ["elsewhere"]\n', "queue `a`: there is no node `elsewhere`"),
    ],
)
def test_what_cannot_be_real_is_refused_and_stands_in_nobodys_way(here: Installation, text: str, told: str) -> None:
    config = here.root / "danlu.toml"
    config.write_text(text)
    refused = here.danlu("up", "--config", config, code=None)
    assert refused.code in (2, 3)
    assert told in refused.talk
    assert here.danlu("up", "--detach", "--config", config, code=None).code != 0
    assert here.danlu("run", "--", "echo", "fine").text == "fine"


def test_fake_needs_nodes_to_play(here: Installation) -> None:
    assert "none is named" in here.danlu("up", "--fake", code=2).talk
    config = here.root / "danlu.toml"
    config.write_text("[engine]\ncpus = 2\n")
    assert "describes no nodes" in here.danlu("up", "--config", config, "--fake", code=2).talk


def test_rules_of_a_queue_at_the_terminal(here: Installation) -> None:
    play(here, CLUSTERS / "k8s.toml")
    refused = here.danlu("run", "--interactive", "--", "true", code=3)
    assert "queue `dlc` takes no interactive work" in refused.talk
    assert "--queue dsw" in refused.talk
    assert "did you mean `--queue dlc`?" in here.danlu("run", "--queue", "dcl", "--", "true", code=2).talk
    job = here.submit("--", "sleep", "600")
    shown = here.until(job, "RUNNING")
    assert (shown["queue"], shown["priority"], shown["time_limit_s"]) == ("dlc", 1, 2 * 86400)
    assert "time         2d unless said, at most 14d" in here.danlu("queues", "dlc").text
    assert "there is dsw, dlc" in here.danlu("queues", "nlp", code=2).talk
    code, text = Terminal(here, "exec", "-t", job).end()
    assert code == 3
    assert "which takes no interactive work" in text
    assert here.danlu("exec", job, "--", "echo", "beside").text == "beside"
    file = here.work / "job.yaml"
    file.write_text("command: 'true'\nqueue: dsw\ninteractive: true\npreemptible: yes\n")
    data = here.ended(here.submit(file))
    assert (data["queue"], data["interactive"], data["preemptible"]) == ("dsw", True, True)
    assert "preemptible, interactive" in here.danlu("show", data["id"]).text


def test_the_people_of_a_cluster_come_from_a_script(here: Installation) -> None:
    play(here, CLUSTERS / "k8s.toml")
    path = f"{DANLU.parent}{os.pathsep}{os.environ['PATH']}"
    script = ["sh", str(CLUSTERS / "k8s-people.sh")]
    done = subprocess.run(script, capture_output=True, text=True, env={**here.environ(), "PATH": path})
    assert done.returncode == 0, done.stderr
    assert {team["name"] for team in items(here, "team", "list")} == {"nlp", "cv", "research"}
    disk = next((here.home / "fake").glob("k8s-*")) / "disk" / "mnt"
    assert (disk / "user" / "wang").is_dir()
    assert (disk / "share" / "nlp").is_dir(), "below the cluster's own folder, not on this machine's /mnt"


def test_a_shared_installation_can_be_played_too(here: Installation) -> None:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = probe.getsockname()[1]
    begun = here.begin(
        "serve", "--config", CLUSTERS / "quadro.toml", "--fake", env={"DANLU_SERVER_LISTEN": f"127.0.0.1:{port}"}
    )
    own = eventually(lambda: next(here.home.glob("fake/quadro-*/run/server.sock"), None), "it has a socket")
    server = f"unix://{own}"
    eventually(lambda: here.danlu("status", env={"DANLU_SERVER": server}, code=None).code == 0, "it answers")
    names = [node["name"] for node in Client(server).nodes()]
    assert names == ["control118", "control-173"]
    begun.terminate()
    begun.wait(30)
