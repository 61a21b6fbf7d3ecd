"""People on a real shared server: from the code that it prints to a job, with passwords typed at a real terminal."""

import os
import re
import select
import signal
import stat
import subprocess
import time
from pathlib import Path

import pytest

from tests.e2e.installation import DANLU, PATIENCE_S, Installation, eventually, read_bytes
from tests.e2e.terminal import Terminal
from tests.e2e.test_shared_server import Shared

CODE = r"It asks for this code: ([0-9a-f]{20})\n"
CHIEF, LI, NEW, WRONG = "sesame-of-chief", "sesame-of-li", "sesame-anew", "sesame-wrong"


class Lab:
    """A shared server, what it printed, and people who each have a home of their own."""

    def __init__(self, here: Installation, people: str = "") -> None:
        self.here = here
        self.printed = b""
        self.shared = Shared(here, people=people) if people else Shared(here)
        self.url = self.shared.url

    def until_printed(self, pattern: str) -> str:
        """What the server wrote to its terminal, once it fits; the first group of it."""
        pipe = self.shared.process.stderr
        assert pipe is not None
        until = time.monotonic() + PATIENCE_S
        while not (found := re.search(pattern, self.printed.decode())):
            ready, _, _ = select.select([pipe], [], [], max(until - time.monotonic(), 0))
            assert ready, f"the server printed {self.printed!r}"
            self.printed += os.read(pipe.fileno(), 1 << 16)
        return found[1]

    def home(self, person: str) -> Path:
        folder = self.here.root / f"home-of-{person}"
        folder.mkdir(exist_ok=True)
        return folder

    def env(self, person: str) -> dict[str, str]:
        return {"DANLU_HOME": str(self.home(person))}

    def danlu(self, person: str, *words: str, code: int | None = 0, stdin: str = "") -> str:
        done = self.here.danlu(*words, code=code, stdin=stdin.encode(), env=self.env(person))
        return done.text + done.talk

    def first_admin(self) -> None:
        code = self.until_printed(CODE)
        words = ("login", "--server", self.url, "--first", "-", "--user", "chief", "--password-stdin")
        assert "as chief (admin)" in self.danlu("chief", *words, stdin=f"{code}\n{CHIEF}\n")

    def account(self, person: str, password: str, team: str) -> None:
        words = ("account", "ask", "--server", self.url, "--team", team, "--user", person, "--password-stdin")
        self.danlu(person, *words, stdin=f"{password}\n")
        request = re.search(r"(\w{8}) +" + person, self.danlu("chief", "account", "list"))
        assert request
        self.danlu("chief", "account", "open", request[1])


def test_from_the_first_start_to_a_job_of_somebody_new(here: Installation) -> None:
    homes = here.root / "homes"
    homes.mkdir()
    lab = Lab(here, f'home = "{homes}/{{user}}"\ndefault_quota = "gpus=2"\n')
    code = lab.until_printed(CODE)
    assert f"danlu login --server {lab.url} --first - --user NAME" in lab.printed.decode()
    lab.first_admin()
    lab.danlu("chief", "login", "--server", lab.url, "--first", code, "--user", "evil", "--password-stdin",
              stdin="sesame-of-evil\n", code=3)  # fmt: skip
    assert "chief" in lab.danlu("chief", "whoami")
    lab.danlu("chief", "team", "create", "nlp")
    lab.account("li", LI, "nlp")
    assert (homes / "li").is_dir()
    assert "your own" in lab.danlu("li", "whoami"), "asking is no login"
    lab.danlu("li", "login", "--server", lab.url, "--user", "li", "--password-stdin", stdin=f"{LI}\n")
    assert "nlp" in lab.danlu("li", "whoami")
    assert lab.danlu("li", "run", "--quiet", "--", "sh", "-c", "echo $DANLU_USER").startswith("li")
    assert "may not do this" in lab.danlu("li", "audit", code=3)
    assert "request.open" in lab.danlu("chief", "audit", "--target", "li")
    assert re.search(
        r"li +job\.submit +\w{8} +127\.0\.0\.1", lab.danlu("chief", "audit", "--who", "li", "--what", "job")
    )

    kept = lab.home("li") / "credentials.json"
    assert stat.S_IMODE(kept.stat().st_mode) == 0o600
    stolen = kept.read_bytes()
    assert "logged out" in lab.danlu("li", "logout")
    assert "your own" in lab.danlu("li", "whoami")
    kept.write_bytes(stolen)
    assert "unknown, revoked or expired" in lab.danlu("li", "ps", code=3)

    # The second start prints no code: there is an administrator.
    lab.shared.process.send_signal(signal.SIGTERM)
    lab.shared.process.wait(PATIENCE_S)
    lab.printed = b""
    lab.shared.serve()
    lab.until_printed(r"(Ctrl-C stops)")
    assert b"--first" not in lab.printed
    assert b"all jobs run as the user of this server" in lab.printed
    assert "chief" in lab.danlu("chief", "whoami")


def test_passwords_are_typed_unseen(here: Installation, monkeypatch: pytest.MonkeyPatch) -> None:
    lab = Lab(here)
    lab.first_admin()
    here.danlu("user", "create", "li", "--password-stdin", stdin=f"{LI}\n".encode())
    monkeypatch.setenv("DANLU_HOME", str(lab.home("li")))

    def at_a_terminal(*words: str, answers: tuple[tuple[str, str], ...]) -> tuple[int, str]:
        terminal = Terminal(here, *words)
        seen = ""
        for question, answer in answers:
            seen += terminal.see(question)
            terminal.type(f"{answer}\n".encode())
        code, last = terminal.end()
        for _, answer in answers:
            assert "sesame" not in answer or answer not in seen + last
        return code, last

    asked = f"Password of li at {lab.url}: "
    code, said = at_a_terminal("login", "--server", lab.url, answers=(("Name: ", "li"), (asked, WRONG)))
    assert (code, "the name or the password is wrong" in said) == (3, True)
    code, said = at_a_terminal("login", "--server", lab.url, "--user", "li", answers=((asked, LI),))
    assert (code, "logged in" in said) == (0, True)
    old, new, again = "Old password of li: ", "New password for li: ", "The same again: "
    code, said = at_a_terminal("passwd", answers=((old, LI), (new, NEW), (again, WRONG)))
    assert (code, "not the same" in said) == (2, True)
    code, said = at_a_terminal("passwd", answers=((old, LI), (new, NEW), (again, NEW)))
    assert (code, "is changed" in said) == (0, True)
    lab.danlu("li", "login", "--user", "li", "--password-stdin", stdin=f"{NEW}\n")
    without = subprocess.run(
        ["setsid", DANLU, "login", "--user", "li"], stdin=subprocess.DEVNULL, capture_output=True, env=here.environ()
    )
    assert (without.returncode, b"no terminal to ask" in without.stderr) == (2, True)


def test_no_password_and_no_token_is_in_a_log_or_in_the_list_of_processes(
    here: Installation, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("DANLU_DEBUG", "1")
    lab = Lab(here)
    code = lab.until_printed(CODE)
    lab.first_admin()
    lab.danlu("chief", "team", "create", "nlp")
    lab.account("li", LI, "nlp")
    enter = ("login", "--server", lab.url, "--user", "li", "--password-stdin")
    assert "wrong" in lab.danlu("li", *enter, stdin=f"{WRONG}\n", code=3)
    # Somebody types the password where the name belongs.
    lab.danlu("li", "login", "--server", lab.url, "--user", LI, "--password-stdin", stdin=f"{LI}\n", code=3)

    waiting = here.own(
        subprocess.Popen(
            [DANLU, *enter], stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.PIPE,
            env=here.environ() | lab.env("li"),
        )
    )  # fmt: skip
    assert waiting.stdin
    waiting.stdin.write(LI.encode())
    waiting.stdin.flush()
    eventually(lambda: b"login" in read_bytes(f"/proc/{waiting.pid}/cmdline"), "it runs")
    assert_nobody_shows([LI, CHIEF, code])
    waiting.stdin.write(b"\n")
    waiting.stdin.close()
    assert waiting.wait(PATIENCE_S) == 0

    token = lab.danlu("li", "token", "create", "ci", "--json").split('"token": "')[-1].split('"')[0]
    assert token.startswith("danlu_")
    job = lab.danlu("li", "submit", "--", "sleep", "600").split()[0]
    here.until(job, "RUNNING")
    assert lab.danlu("li", "exec", job, "--", "echo", "inside") == "inside"
    lab.danlu("li", "stop", "--kill", job)
    lab.danlu("li", "passwd", "--password-stdin", stdin=f"{LI}\n{NEW}\n")
    lab.danlu("chief", "passwd", "li", "--password-stdin", stdin=f"{NEW}\n")
    logins = [(lab.home(name) / "credentials.json").read_text() for name in ("li", "chief")]
    secrets = [LI, CHIEF, NEW, WRONG, token, *re.findall(r"danlu_[0-9a-f]{64}", "".join(logins))]
    assert len(secrets) == 7
    assert_nobody_shows(secrets)

    lab.shared.process.send_signal(signal.SIGTERM)
    out, err = lab.shared.process.communicate(timeout=PATIENCE_S)
    said = lab.printed.replace(code.encode(), b"", 1) + out + err
    assert b"DEBUG" in said
    files = [path for path in here.home.rglob("*") if path.is_file()]
    assert {"danlu.db", "keeper.log"} <= {path.name for path in files}
    for secret in (*secrets, code):
        assert secret.encode() not in said
        for path in files:
            assert secret.encode() not in path.read_bytes(), path


def assert_nobody_shows(secrets: list[str]) -> None:
    for pid in (name for name in os.listdir("/proc") if name.isdigit()):
        shown = read_bytes(f"/proc/{pid}/cmdline") + read_bytes(f"/proc/{pid}/environ")
        for secret in secrets:
            assert secret.encode() not in shown, read_bytes(f"/proc/{pid}/cmdline")


def test_who_is_disabled_is_out_and_their_jobs_wait(here: Installation) -> None:
    lab = Lab(here)
    lab.first_admin()
    here.danlu("user", "create", "li", "--password-stdin", stdin=f"{LI}\n".encode())
    lab.danlu("li", "login", "--server", lab.url, "--user", "li", "--password-stdin", stdin=f"{LI}\n")
    running = lab.danlu("li", "submit", "--cpus", "4", "--", "sleep", "600").split()[0]
    here.until(running, "RUNNING")
    waiting = lab.danlu("li", "submit", "--cpus", "4", "--", "true").split()[0]
    told = lab.danlu("chief", "user", "disable", "li")
    assert f"still running: {running}" in told
    assert f"waiting, and held: {waiting}" in told
    assert "the account of li is disabled" in lab.danlu("li", "ps", code=3)
    lab.danlu("chief", "stop", "--kill", running)
    here.ended(running)
    assert "disabled" in lab.danlu("chief", "why", waiting)
    assert here.state(waiting) == "QUEUED"
    lab.danlu("chief", "user", "enable", "li")
    assert here.ended(waiting)["state"] == "SUCCEEDED"
    assert "last administrator" in lab.danlu("chief", "user", "disable", "chief", code=3)


def test_down_is_ones_own_server_and_never_the_labs(here: Installation) -> None:
    lab = Lab(here)
    lab.first_admin()
    assert "not running" in lab.danlu("chief", "down")
    assert "chief" in lab.danlu("chief", "whoami")
    assert lab.shared.process.poll() is None
