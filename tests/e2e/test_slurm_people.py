"""A shared Danlu on a real Slurm: whose user jobs run as, under which account, and who is refused."""

import os
import pwd
import socket
import subprocess
from collections.abc import Iterator
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from tests.contract.test_slurm_accounts import add
from tests.e2e.installation import Done, eventually
from tests.e2e.slurm_site import Site, cluster_of, site_on
from tests.slurm.layout import Layout
from tests.slurm.releases import OLDER

pytestmark = pytest.mark.slurm
# They come by the Unix socket, where the kernel says who they are: users of the machine will do.
OWNER, STRANGER = "games", "news"
# Somebody who has an account at Danlu: whom it takes for a person is no user of the machine's own.
PERSON = "li"


@pytest.fixture(params=[pytest.param(Layout(), id="no books")])
def here(own_home: object, request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> Iterator[Site]:
    with site_on(cluster_of(OLDER, request.param), monkeypatch) as made:
        monkeypatch.delenv("DANLU_ENGINE_KIND")
        made.root.chmod(0o711)
        reached = made.danlu("version", prefix=as_user(OWNER), code=None, cwd="/")
        if reached.code:
            untested = f"this Python cannot be run by other users, so NOBODY ELSE WAS TESTED: {reached.talk}"
            (pytest.fail if os.environ.get("CI") else pytest.skip)(untested)
        yield made


def as_user(user: str) -> tuple[str, ...]:
    return ("setpriv", f"--reuid={user}", f"--regid={user}", "--clear-groups")


class Lab:
    """`danlu serve` on a cluster, as root or as `server`; and people on its socket."""

    def __init__(self, here: Site, *, server: str = "", state: Path | None = None, engine: str = "") -> None:
        self.here = here
        self.folder = here.root / "pub"
        self.folder.mkdir()
        self.folder.chmod(0o777)
        self.socket = here.root / "pub/danlu.sock"
        # It may read where this Python is, which may be in a folder of root's; that is all that it has of root.
        reads = ("--inh-caps=+dac_read_search", "--ambient-caps=+dac_read_search")
        self.prefix = (*as_user(server), *reads) if server else ()
        self.state = state or here.home
        with socket.socket() as probe:
            probe.bind(("127.0.0.1", 0))
            self.port = int(probe.getsockname()[1])
        self.config = here.root / "danlu.toml"
        self.config.write_text(
            f'[server]\nstate_dir = "{self.state}"\nsocket = "{self.socket}"\nlisten = "127.0.0.1:{self.port}"\n'
            f'[engine]\nkind = "slurm"\ngrace = "1s"\n{engine}'
        )

    def serve(self) -> "subprocess.Popen[bytes]":
        process = self.here.begin("serve", "--config", self.config, prefix=self.prefix)
        eventually(lambda: process.poll() is not None or self.is_up(), "the server listens")
        assert process.poll() is None, process.communicate()[1].decode()
        return process

    def refusal(self, *prefix: str) -> str:
        """Why it does not come up."""
        return self.here.danlu("serve", "--config", self.config, code=3, prefix=prefix or self.prefix).talk

    def is_up(self) -> bool:
        return self.danlu("root", "status", code=None).code == 0

    def danlu(self, user: str, *words: str, code: int | None = 0, token: str = "") -> Done:
        env = {"DANLU_SERVER": f"unix://{self.socket}"}
        if token:
            env = {"DANLU_SERVER": f"http://127.0.0.1:{self.port}", "DANLU_TOKEN": token}
        return self.here.danlu(*words, code=code, prefix=as_user(user), cwd=self.folder, env=env)

    def token(self, user: str) -> str:
        self.danlu("root", "user", "create", user)
        return self.danlu("root", "token", "create", "t", "--user", user).text


def test_jobs_run_as_who_submits_them(here: Site) -> None:
    lab = Lab(here)
    lab.serve()
    assert "the submitter" in lab.danlu(OWNER, "status").text
    script = "id -un; id -Gn; echo $USER; echo mine > mine; echo $DANLU_USER $DANLU_NODE"
    said = lab.danlu(OWNER, "run", "--", "sh", "-c", script).out.decode().splitlines()
    assert said[:3] == [OWNER] * 3
    assert said[3].split()[0] == OWNER
    assert (lab.folder / "mine").owner() == OWNER
    assert lab.danlu(STRANGER, "run", "--gpus", "1", "--", "id", "-un").out == f"{STRANGER}\n".encode()
    (lab.folder / "code").write_text("code\n")
    kept = lab.danlu(OWNER, "run", "--snapshot", "--", "sh", "-c", "cat code; stat -c %U code; echo new > new")
    assert kept.out == f"code\n{OWNER}\n".encode()

    job = lab.danlu(OWNER, "submit", "--env", "SECRET=sesame", "--", "sh", "-c", "echo private; exec sleep 600").text
    eventually(lambda: b"private" in lab.danlu(OWNER, "logs", job).out, "it runs")
    eventually(lambda: lab.danlu(OWNER, "show", job, "--json").json()["state"] == "RUNNING", "that is known")
    for words in (("logs", job), ("stop", job), ("exec", job, "--", "id"), ("clone", job)):
        refused = lab.danlu(STRANGER, *words, code=3)
        assert f"belongs to {OWNER}" in refused.talk
        assert b"private" not in refused.out
    for attack in (
        f"cat {here.home}/logs/{job[0]}/{job}.1.log",
        f"cat {here.home}/slurm/runs/{job}.1/env",
        f"ls {here.home}/slurm/runs",
        f"echo > {here.home}/slurm/runs/{job}.1/stop",
    ):
        tried = subprocess.run([*as_user(STRANGER), "sh", "-c", attack], capture_output=True, cwd="/")
        assert (tried.returncode != 0, tried.stdout) == (True, b""), attack
    assert lab.danlu(OWNER, "exec", job, "--", "id", "-un").out == f"{OWNER}\n".encode()
    lab.danlu(OWNER, "stop", job)
    assert here.danlu("wait", job, code=None, env={"DANLU_SERVER": f"unix://{lab.socket}"}).code == 1


def test_an_administrator_is_not_root(here: Site) -> None:
    """Accounts are names that people gave: none of them is a user of the machine."""
    here.has_people(PERSON)
    lab = Lab(here)
    lab.serve()
    for name in ("root", "daemon", OWNER):
        refused = lab.danlu("root", "user", "create", name, code=3).talk
        assert "the machine" in refused, refused
    lab.danlu("root", "user", "create", "ghost", "--role", "admin")
    ghost = lab.danlu("root", "token", "create", "t", "--user", "ghost", "--role", "admin").text
    nobody = lab.danlu(OWNER, "submit", "--", "id", token=ghost, code=3).talk
    assert "this machine has no user `ghost`" in nobody

    job = lab.danlu("root", "submit", "--", "sleep", "600").text
    eventually(lambda: lab.danlu("root", "show", job, "--json").json()["state"] == "RUNNING", "root's job runs")
    inside = lab.danlu(OWNER, "exec", job, "--", "id", token=ghost, code=3).talk
    assert "entered by that user and by root only" in inside
    lab.danlu(OWNER, "stop", job, token=ghost)
    said = lab.danlu(OWNER, "run", "--", "id", "-un", token=lab.token(PERSON)).out
    assert said == f"{PERSON}\n".encode(), "a token is whose it is, whoever uses it"


@pytest.mark.parametrize("here", [Layout(accounting=True)], indirect=True, ids=["books"])
def test_a_team_is_an_account_of_slurm_and_where_it_is_none_the_job_runs_all_the_same(here: Site) -> None:
    here.has_people(PERSON)
    add(here.cluster, PERSON, "lab", "vision")  # whose default account is the first one
    lab = Lab(here)
    lab.serve()
    token = lab.token(PERSON)
    jobs = {}
    for team in ("vision", "nlp"):
        lab.danlu("root", "team", "create", team)
        lab.danlu("root", "team", "add", team, PERSON)
        jobs[team] = lab.danlu(OWNER, "submit", "--team", team, "--", "sleep", "600", token=token).text

    def running(job: str) -> dict[str, Any] | None:
        found: dict[str, Any] = lab.danlu(OWNER, "show", job, "--json", token=token).json()
        return found if found["state"] == "RUNNING" else None

    shown = [eventually(partial(running, job), f"the job of {team} runs") for team, job in jobs.items()]
    note = f"Slurm has no account nlp for {PERSON}: the job uses the default account in Slurm"
    assert [(one["team"], one["notes"]) for one in shown] == [("vision", []), ("nlp", [note])]
    said = here.cluster.ask("squeue", "--noheader", "--states=RUNNING", "--format=%k %a").splitlines()
    assert {line.rpartition(":")[2] for line in said} == {f"{jobs['vision']}.1 vision", f"{jobs['nlp']}.1 lab"}
    told = lab.danlu(OWNER, "show", jobs["nlp"], token=token).text
    assert [line.split(maxsplit=1)[1] for line in told.splitlines() if line.startswith("notes")] == [note]


@pytest.mark.parametrize("here", [Layout(accounting=True)], indirect=True, ids=["books"])
def test_who_has_as_many_jobs_as_slurms_books_allow_waits_for_the_next_place(here: Site) -> None:
    here.has_people(PERSON)
    add(here.cluster, PERSON, "lab")
    books = ("sacctmgr", "-i", "modify", "user", PERSON, "set")
    here.cluster.ask(*books, "MaxSubmitJobs=1")
    lab = Lab(here)
    lab.serve()
    token = lab.token(PERSON)
    waits = f"echo $DANLU_ARRAY_INDEX >> trace; while [ ! -e {lab.folder}/door ]; do sleep 0.05; done"
    array = lab.danlu(OWNER, "submit", "--array", "1-4", "--", "sh", "-c", waits, token=token).text
    told = "its account in Slurm has reached its limit of jobs"

    def held() -> list[str]:
        found = [lab.danlu(OWNER, "why", f"{array}_{task}", "--json", token=token).json() for task in range(1, 5)]
        return [one["id"] for one in found if one["reason"]["text"].startswith(told)]

    eventually(lambda: len(held()) == 3, "one is there, and the others are told why they are not")
    unwanted = held()[-1]
    lab.danlu(OWNER, "stop", unwanted, token=token)
    (lab.folder / "door").touch()
    assert lab.danlu(OWNER, "wait", array, token=token, code=None).code != 2
    shown = lab.danlu(OWNER, "show", array, "--json", token=token).json()["items"]
    states = {one["id"]: one["state"] for one in shown}
    assert states.pop(unwanted) == "CANCELLED"
    assert list(states.values()) == ["SUCCEEDED"] * 3
    assert len((lab.folder / "trace").read_text().split()) == 3, "nothing ran twice"


def test_a_server_that_is_not_roots_works_for_itself(here: Site) -> None:
    state = here.root / "theirs"
    state.mkdir()
    os.chown(state, pwd.getpwnam(OWNER).pw_uid, -1)
    lab = Lab(here, server=OWNER, state=state)
    process = lab.serve()
    assert lab.danlu(OWNER, "run", "--", "id", "-un").out == f"{OWNER}\n".encode()
    refused = lab.danlu(STRANGER, "run", "--", "id", "-un", code=3).talk
    assert f"can submit jobs only as {OWNER}" in refused
    assert "jobs of other users are refused" in lab.danlu(STRANGER, "status").text
    process.terminate()
    said = process.communicate(timeout=60)[1].decode()
    assert f"submits jobs to Slurm as {OWNER} only" in said


def test_what_is_refused_at_the_start(here: Site) -> None:
    lab = Lab(here, engine='run_as = "server"\n')
    assert "would run as root, on every node" in lab.refusal()
    lab.config.write_text(lab.config.read_text().replace('run_as = "server"', ""))
    # An NFS server that takes root for nobody leaves it as little as this does.
    squashed = ("setpriv", "--bounding-set=-chown")
    assert "no_root_squash" in lab.refusal(*squashed)
    open_to_all = here.root / "open"
    open_to_all.mkdir()
    open_to_all.chmod(0o777)
    text = lab.config.read_text()
    lab.config.write_text(f'{text}shared_dir = "{open_to_all}/danlu"\n')
    assert f"chmod +t {open_to_all}" in lab.refusal()
    assert not (open_to_all / "danlu").exists(), "nothing was made there"
    open_to_all.chmod(0o1777)
    victim = here.root / "victim"
    victim.mkdir(mode=0o755)
    trap = open_to_all / "danlu"
    subprocess.run([*as_user(OWNER), "ln", "-s", str(victim), str(trap)], check=True)
    assert "belongs to another user" in lab.refusal()
    trap.unlink()
    subprocess.run([*as_user(OWNER), "mkdir", str(trap)], check=True)
    assert "belongs to another user" in lab.refusal()
    assert (victim.stat().st_mode & 0o777, list(victim.iterdir())) == (0o755, [])
