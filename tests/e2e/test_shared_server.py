"""A shared installation: tokens over TCP and TLS, PostgreSQL, and jobs that run as the people who submit them."""

import json
import os
import socket
import subprocess
import urllib.error
import urllib.request
from pathlib import Path

import pytest

from danlu.client.shell import Shell
from tests.e2e.installation import Done, Installation, eventually, is_gone, kill_9
from tests.postgres import postgres_server


def free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


class Shared:
    """`danlu serve` with a configuration, and people who use it."""

    def __init__(self, here: Installation, *, prefix: tuple[str, ...] = (), **sections: str) -> None:
        self.here, self.prefix = here, prefix
        self.port = free_port()
        server = f'state_dir = "{here.home}"\nlisten = "127.0.0.1:{self.port}"\n'
        engine = 'grace = "1s"\ncpus = 4\n'
        texts = {"server": server, "engine": engine}
        for name, text in sections.items():
            texts[name] = texts.get(name, "") + text
        self.config = here.root / "danlu.toml"
        self.config.write_text("".join(f"[{name}]\n{text}\n" for name, text in texts.items()))
        self.url = f"http{'s' if 'tls_cert' in texts['server'] else ''}://127.0.0.1:{self.port}"
        self.process = self.serve()

    def serve(self) -> "subprocess.Popen[bytes]":
        self.process = self.here.begin("serve", "--config", self.config, prefix=self.prefix)
        eventually(lambda: self.process.poll() is not None or self.is_up(), "the shared server listens")
        assert self.process.poll() is None, self.process.communicate()[1].decode()
        return self.process

    def is_up(self) -> bool:
        return self.here.danlu("status", code=None).code == 0

    def token(self, user: str, *options: str) -> str:
        """A token of an account, which is made if it is missing."""
        self.here.danlu("user", "create", user, code=None)
        return self.here.danlu("token", "create", "test", "--user", user, *options).text

    def danlu(self, token: str, *words: str, code: int | None = 0, env: dict[str, str] | None = None) -> Done:
        variables = {"DANLU_SERVER": self.url, **({"DANLU_TOKEN": token} if token else {}), **(env or {})}
        return self.here.danlu(*words, code=code, env=variables)


def status_of(url: str, **headers: str) -> tuple[int, dict[str, object]]:
    """An answer's status and body, asked as no Danlu client would."""
    try:
        with urllib.request.urlopen(urllib.request.Request(url, headers=headers), timeout=30) as answer:
            return answer.status, json.load(answer)
    except urllib.error.HTTPError as error:
        with error:
            return error.code, json.load(error)


def test_a_token_says_who_one_is(here: Installation) -> None:
    shared = Shared(here)
    li, wang = shared.token("li"), shared.token("wang", "--days", "1")
    done = shared.danlu(li, "run", "--", "sh", "-c", "echo $DANLU_USER; exit 3", code=3)
    assert done.out == b"li\n"
    job_id = shared.danlu(li, "submit", "--env", "PASSWORD=sesame", "--", "sleep", "600").text
    here.until(job_id, "RUNNING")
    assert shared.danlu(li, "ps", "--json").json()["items"][0]["user"] == "li"

    assert shared.danlu(wang, "ps", "--json").json()["items"] == []
    listed = shared.danlu(wang, "ps", "--user", "all", "--json")
    assert listed.json()["items"][0]["command"] is None
    assert b"sesame" not in listed.out + shared.danlu(wang, "show", job_id, "--json").out
    for words in (
        ("logs", job_id), ("logs", "-f", job_id), ("stop", job_id), ("exec", job_id, "--", "id"), ("clone", job_id),
        ("down",), ("token", "create", "x", "--user", "li"), ("token", "list", "--all"), ("audit",),
        ("user", "disable", "li"),
    ):  # fmt: skip
        refused = shared.danlu(wang, *words, code=3)
        assert "may not do this" in refused.talk, words
    assert here.state(job_id) == "RUNNING"
    assert shared.is_up()
    shared.danlu(li, "stop", job_id)
    assert here.ended(job_id)["state"] == "CANCELLED"
    assert "may not do this" in shared.danlu(wang, "rm", job_id, code=3).talk

    token_id = next(one["id"] for one in here.danlu("token", "list", "--user", "li", "--json").json()["items"])
    here.danlu("token", "revoke", token_id)
    assert "unknown, revoked or expired" in shared.danlu(li, "ps", code=3).talk
    assert shared.danlu(wang, "run", "--", "echo", "well").out == b"well\n"


def test_no_token_a_wrong_one_and_one_in_a_url_are_refused(here: Installation) -> None:
    shared = Shared(here)
    token = shared.token("li")
    assert "this server wants to know who you are" in shared.danlu("", "ps", code=3).talk
    assert "unknown, revoked or expired" in shared.danlu("danlu_wrong", "ps", code=3).talk
    assert "unknown, revoked or expired" in shared.danlu(token + "0", "submit", "--", "true", code=3).talk
    jobs = f"{shared.url}/api/v1/jobs"
    assert status_of(jobs)[0] == 401
    assert status_of(jobs, Authorization="Bearer danlu_wrong")[0] == 401
    assert status_of(jobs, Authorization=f"Basic {token}")[0] == 401
    assert status_of(jobs, Authorization=f"Bearer {token}") == (200, {"items": [], "next": None, "trouble": None})
    for name in ("token", "access_token"):
        code, problem = status_of(f"{jobs}?{name}={token}")
        assert (code, problem["code"]) == (422, "invalid")
        assert "does not belong in a URL" in str(problem["detail"])
    in_url = here.danlu("ps", code=2, env={"DANLU_SERVER": f"http://{token}@127.0.0.1:{shared.port}"})
    assert "is not a server's address" in in_url.talk
    database = (here.home / "danlu.db").read_bytes() + (here.home / "danlu.db-wal").read_bytes()
    assert token.encode() not in database, "tokens are kept as hashes"
    assert shared.process.poll() is None


def own_certificate(here: Installation) -> tuple[Path, str]:
    """A certificate for loopback, and the lines of [server] that use it."""
    cert, key = here.root / "cert.pem", here.root / "key.pem"
    words = ["openssl", "req", "-x509", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:prime256v1", "-nodes"]
    words += ["-days", "2", "-subj", "/CN=danlu", "-keyout", str(key), "-out", str(cert)]
    subprocess.run([*words, "-addext", "subjectAltName=IP:127.0.0.1"], check=True, capture_output=True)
    return cert, f'tls_cert = "{cert}"\ntls_key = "{key}"\n'


def test_tls_with_a_certificate_of_ones_own(here: Installation) -> None:
    cert, lines = own_certificate(here)
    shared = Shared(here, server=lines)
    token = shared.token("li")
    trusting = {"DANLU_CA_FILE": str(cert)}
    done = shared.danlu(token, "run", "--", "sh", "-c", "echo encrypted; exit 3", code=3, env=trusting)
    assert done.out == b"encrypted\n"
    big = shared.danlu(token, "run", "--", "sh", "-c", "yes | head -c 5000000", env=trusting)
    assert big.out == b"y\n" * 2_500_000
    job_id = shared.danlu(token, "submit", "--", "sleep", "600", env=trusting).text
    here.until(job_id, "RUNNING")
    inside = shared.danlu(token, "exec", job_id, "--", "sh", "-c", "echo in; exit 4", code=4, env=trusting)
    assert inside.out == b"in\n"
    distrust = shared.danlu(token, "ps", code=4)
    assert "is not trusted" in distrust.talk
    assert "DANLU_CA_FILE" in distrust.talk
    # Not a question that is asked again and again while no server answers.
    plain = here.danlu(
        "token", "create", "x", code=4, env={"DANLU_SERVER": f"http://127.0.0.1:{shared.port}", "DANLU_TOKEN": token}
    )
    assert plain.talk.startswith("error: ")
    assert shared.is_up()


@pytest.mark.parametrize("listen", ["0.0.0.0", "192.0.2.1", "[::]"])
def test_other_machines_are_served_encrypted_or_not_at_all(here: Installation, listen: str) -> None:
    config = here.root / "danlu.toml"
    config.write_text(f'[server]\nstate_dir = "{here.home}"\nlisten = "{listen}:{free_port()}"\n')
    refused = here.danlu("serve", "--config", config, code=3)
    assert "without TLS would send tokens in clear" in refused.talk
    assert here.processes() == []


def test_a_configuration_is_checked_before_anything_starts(here: Installation) -> None:
    config = here.root / "danlu.toml"
    for text, sentence in (
        ("[server]\nlistn = 1\n", "unknown key in [server]: `listn`"),
        ("[sever]\n", "unknown section: `sever`"),
        ("[engine]\ncpus = -1\n", "`engine.cpus`"),
        ('[server]\ntls_cert = "x"\n', "TLS needs both"),
        ('[store]\nurl = "mysql://x/y"\n', "SQLite or PostgreSQL"),
        ("not toml", "is not valid TOML"),
    ):
        config.write_text(f'{text}\n[jobs]\nsnapshot_limit = "1M"\n' if text.startswith("[") else text)
        refused = here.danlu("serve", "--config", config, code=2, env={"DANLU_SERVER_STATE_DIR": str(here.home)})
        assert sentence in refused.talk
    assert "needs a configuration" in here.danlu("serve", code=2).talk


def test_jobs_are_kept_in_postgresql(here: Installation) -> None:
    url = postgres_server().fresh_url()
    shared = Shared(here, store=f'url = "{url}"\n')
    token = shared.token("li")
    assert shared.danlu(token, "run", "--", "sh", "-c", "echo kept; exit 3", code=3).out == b"kept\n"
    waits = shared.danlu(token, "submit", "--", "sh", "-c", "while [ ! -e door ]; do sleep 0.05; done; exit 5").text
    here.until(waits, "RUNNING")
    kill_9(shared.process.pid)
    assert "no server answers" in shared.danlu(token, "ps", code=4).talk
    shared.serve()
    assert here.state(waits) == "RUNNING"
    (here.work / "door").touch()
    ended = here.ended(waits)
    assert (ended["state"], ended["exit_code"]) == ("FAILED", 5)
    assert not (here.home / "danlu.db").exists()
    array = shared.danlu(token, "submit", "--array", "1-20", "--", "true").text
    shared.danlu(token, "wait", array)


class People:
    """Two Unix users of this machine, and a folder that both may use."""

    def __init__(self, here: Installation) -> None:
        self.here = here
        here.root.chmod(0o711)
        self.folder = here.root / "pub"
        self.folder.mkdir()
        self.folder.chmod(0o777)
        self.socket = here.root / "danlu.sock"

    def danlu(self, user: str, *words: str, code: int | None = 0) -> Done:
        variables = {"DANLU_SERVER": f"unix://{self.socket}"}
        return self.here.danlu(*words, code=code, prefix=as_user(user), cwd=self.folder, env=variables)


def as_user(user: str) -> tuple[str, ...]:
    return ("setpriv", f"--reuid={user}", f"--regid={user}", "--clear-groups")


@pytest.fixture
def people(here: Installation, as_root: None) -> People:
    people = People(here)
    reached = here.danlu("version", prefix=as_user("daemon"), code=None, cwd="/")
    if reached.code:
        untested = f"this Python cannot be run by other users, so NOBODY ELSE WAS TESTED: {reached.talk}"
        (pytest.fail if os.environ.get("CI") else pytest.skip)(untested)
    Shared(here, server=f'socket = "{people.socket}"\n', engine='run_as = "submitter"\n')
    return people


def test_jobs_run_as_who_submits_them(here: Installation, people: People) -> None:
    script = "id -un; id -Gn; echo $HOME $USER; echo mine > mine; umask"
    done = people.danlu("daemon", "run", "--", "sh", "-c", script)
    lines = done.out.decode().splitlines()
    assert lines[:3] == ["daemon", "daemon", "/usr/sbin daemon"]
    assert (people.folder / "mine").owner() == "daemon"
    assert people.danlu("bin", "run", "--", "id", "-un").out == b"bin\n"
    assert people.danlu("daemon", "ps", "--json").json()["items"][0]["user"] == "daemon"

    (people.folder / "code").write_text("code")
    snapshot = people.danlu(
        "daemon", "run", "--snapshot", "--", "sh", "-c", "cat code; echo new > new; stat -c %U code"
    )
    assert snapshot.out == b"codedaemon\n"
    assert here.danlu("run", "--", "id", "-un", env={"DANLU_SERVER": f"unix://{people.socket}"}).out == b"root\n"


def test_a_terminal_and_a_memory_limit_are_of_the_same_user(here: Installation, people: People) -> None:
    script = "id -un; cat /proc/self/cgroup; echo all; exec sleep 600"
    job_id = people.danlu("daemon", "submit", "--mem", "64M", "--", "sh", "-c", script).text
    here.until(job_id, "RUNNING")
    eventually(lambda: b"all\n" in people.danlu("daemon", "logs", job_id).out, "it says who it is")
    log = people.danlu("daemon", "logs", job_id).text
    assert log.startswith("daemon\n")
    notes = people.danlu("daemon", "show", job_id, "--json").json()["notes"]
    assert "danlu-" in log or any(note.startswith("memory limit not enforced: ") for note in notes)

    shell = Shell(here.client(), job_id, ["sh", "-c", "id -un; stty size < /dev/tty; exit 3"], tty=True, size=(33, 101))
    seen = b""
    while not shell.is_over:
        seen += b"".join(data for _, data in shell.pump())
    shell.close()
    assert (shell.exit_code, seen.split()) == (3, [b"daemon", b"33", b"101"])


def test_nobody_touches_the_job_of_another(here: Installation, people: People) -> None:
    job_id = people.danlu("daemon", "submit", "--", "sh", "-c", "echo private; exec sleep 600").text
    here.until(job_id, "RUNNING")
    main = here.main_of(f"{job_id}.1")
    log = eventually(lambda: people.danlu("daemon", "show", job_id, "--json").json()["log_path"], "its log")
    for words in (("logs", job_id), ("stop", job_id), ("exec", job_id, "--", "id"), ("clone", job_id), ("rm", job_id)):
        refused = people.danlu("bin", *words, code=3)
        assert "belongs to daemon; bin may not do this" in refused.talk
        assert b"private" not in refused.out
    assert people.danlu("bin", "show", job_id, "--json").json()["command"] is None
    peeked = subprocess.run([*as_user("bin"), "cat", log], capture_output=True)
    assert (peeked.returncode, peeked.stdout) == (1, b"")
    own = here.danlu(
        "ps", code=4, prefix=as_user("bin"), cwd="/", env={"DANLU_SERVER": f"unix://{here.home}/run/server.sock"}
    )
    assert own.talk.startswith("error: ")

    assert not is_gone(main)
    assert people.danlu("daemon", "exec", job_id, "--", "id", "-un").out == b"daemon\n"
    assert people.danlu("daemon", "logs", job_id).out == b"private\n"
    people.danlu("daemon", "stop", job_id)
    assert here.ended(job_id)["state"] == "CANCELLED"
    assert is_gone(main)


def test_a_job_as_another_user_gets_nothing_of_the_servers_rights(here: Installation, people: People) -> None:
    closed = here.root / "closed"
    (closed / "inside").mkdir(parents=True)
    closed.chmod(0o700)
    (closed / "inside").chmod(0o755)
    (closed / "inside" / "secret").write_text("secret")
    (closed / "inside" / "tool").symlink_to("/bin/true")
    # Its parent keeps people out: a server that entered it for them would let them in.
    entered = people.danlu("daemon", "run", "--workdir", str(closed / "inside"), "--", "cat", "secret", code=None)
    assert entered.code != 0
    assert b"secret" not in entered.out.replace(os.fsencode(closed), b"")
    assert "may not be entered" in entered.talk
    called = people.danlu("daemon", "run", "--", str(closed / "inside" / "tool"), code=127)
    assert "tool" in called.talk


def test_what_a_submitter_sets_reaches_no_program_of_root(here: Installation, people: People) -> None:
    # The loader obeys such variables in whatever it starts: as root, they would be a way to be root.
    traces = people.folder / "trace"
    done = people.danlu("daemon", "run", "--env", "LD_DEBUG=files", "--env", f"LD_DEBUG_OUTPUT={traces}", "--", "true")
    assert done.code == 0
    written = list(people.folder.glob("trace*"))
    assert written
    assert {path.owner() for path in written} == {"daemon"}
    rights = people.danlu(
        "daemon", "run", "--", "grep", "-E", "^(Uid|Gid|Groups|CapEff)", "/proc/self/status"
    ).out.decode()
    assert [line.split()[1:] for line in rights.splitlines()] == [["1"] * 4, ["1"] * 4, ["1"], ["0" * 16]]


def test_a_file_of_ones_own_is_no_way_out(here: Installation, people: People) -> None:
    """A snapshot is laid out by root: a link in it must not make root write elsewhere."""
    target = here.root / "target"
    target.write_text("untouched")
    (people.folder / "link").symlink_to(target)
    done = people.danlu("daemon", "run", "--snapshot", "--", "sh", "-c", "readlink link; echo x > link", code=None)
    assert str(target) in done.out.decode()
    assert target.read_text() == "untouched"
    assert Path(target).owner() == "root"
