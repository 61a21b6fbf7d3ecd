"""Sign-on for real: a provider, a server and the command line as processes, and a browser that follows a script."""

import json
import os
import pwd
import re
import signal
import subprocess
import sys
import textwrap
from pathlib import Path
from typing import Any
from urllib.parse import quote

import httpx
import pytest

from tests.e2e.installation import Done, Installation, eventually, read_bytes
from tests.e2e.test_shared_server import Shared, free_port

A_UNIX_USER = next(one.pw_name for one in pwd.getpwall() if one.pw_uid >= 1000 and one.pw_name.isalpha())
CRYPTOGRAPHY = b"cryptography/"


class RealProvider:
    """`oidc-provider-mock`: whoever is named in its form is signed on."""

    def __init__(self, here: Installation) -> None:
        self.port = free_port()
        self.issuer = f"http://127.0.0.1:{self.port}"
        words = ["-m", "oidc_provider_mock", "--port", str(self.port), "--require-nonce", "true"]
        self.process = here.own(
            subprocess.Popen(
                [sys.executable, *words], env=here.environ(), stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL
            )
        )
        eventually(self.is_up, "the provider answers")

    def is_up(self) -> bool:
        assert self.process.poll() is None
        try:
            return httpx.get(f"{self.issuer}/.well-known/openid-configuration").is_success
        except httpx.HTTPError:
            return False

    def describe(self, sub: str, **claims: object) -> None:
        httpx.put(f"{self.issuer}/users/{quote(sub)}", json=claims, timeout=60).raise_for_status()

    def stop(self) -> None:
        self.process.send_signal(signal.SIGKILL)
        self.process.wait(30)


def as_far_as_the_provider(url: str, browser: httpx.Client) -> httpx.Response:
    """The page that asks, a click on it, and the provider's form."""
    page = browser.get(url)
    found = re.search(r'name="confirmation" value="([^"]+)"', page.text)
    assert found, page.text
    form = browser.post(url.partition("?")[0], data={"confirmation": found[1]})
    assert 'name="sub"' in form.text, form.text
    return form


def sign_on(url: str, sub: str) -> str:
    """All the way; the last page that the browser shows."""
    with httpx.Client(follow_redirects=True, timeout=60) as browser:
        form = as_far_as_the_provider(url, browser)
        return browser.post(form.url, data={"sub": sub}).text


class Lab(Shared):
    """A shared server that signs people on."""

    def __init__(self, here: Installation, *, opens_accounts: bool = True) -> None:
        self.provider = RealProvider(here)
        secret = here.root / "client-secret"
        secret.write_text("s3cret\n")
        super().__init__(
            here,
            oidc=f'issuer = "{self.provider.issuer}"\nclient_id = "danlu"\nclient_secret_file = "{secret}"\n'
            f'domains = ["Lab.example"]\nopens_accounts = {json.dumps(opens_accounts)}\n'
            '[oidc.teams]\n"/lab/nlp" = "nlp"\n"/lab/vision" = "vision"\n',
        )

    def at_home(self, person: str) -> dict[str, str]:
        """The variables of somebody at their own machine."""
        return {"DANLU_HOME": str(self.here.root / person), "DANLU_SERVER": self.url}

    def begin_login(self, person: str, *options: str) -> "Terminal":
        begun = self.here.begin("login", "--browser", *options, env=self.at_home(person))
        return Terminal(begun)

    def login(self, person: str, sub: str = "", **claims: object) -> Done:
        """`danlu login --browser`, with the browser's part."""
        if claims:
            self.provider.describe(sub, **claims)
        terminal = self.begin_login(person, "--no-browser")
        page = sign_on(terminal.url(), sub or person)
        done = terminal.ended()
        assert "You may close this window" in page
        assert ("You are signed on" in page) == (done.code == 0), page
        return done

    def me(self, person: str) -> dict[str, Any]:
        found: dict[str, Any] = self.here.danlu("whoami", "--json", env=self.at_home(person)).json()
        return found


class Terminal:
    """A login that waits for a browser."""

    def __init__(self, begun: "subprocess.Popen[bytes]") -> None:
        self.process, self.talk = begun, b""
        assert begun.stderr
        os.set_blocking(begun.stderr.fileno(), False)

    def url(self) -> str:
        def shown() -> "re.Match[bytes] | None":
            assert self.process.stderr
            self.talk += self.process.stderr.read() or b""
            assert self.process.poll() is None, self.talk
            return re.search(rb"^  (http\S+)\n.*digits", self.talk, flags=re.M | re.S)

        return str(eventually(shown, "the terminal shows an address")[1].decode())

    def ended(self) -> Done:
        assert self.process.stderr
        os.set_blocking(self.process.stderr.fileno(), True)
        out, err = self.process.communicate(timeout=60)
        assert b"Traceback" not in err, err
        return Done(self.process.returncode, out, self.talk + err)


@pytest.fixture
def lab(here: Installation) -> Lab:
    return Lab(here)


def test_a_browser_brings_a_login(lab: Lab) -> None:
    lab.provider.describe("li", preferred_username="li", name="Li Lei", groups=["/lab/nlp", "/staff"])
    done = lab.login("li")
    assert done.code == 0
    assert f"logged in to {lab.url} as li (member)" in done.text
    me = lab.me("li")
    assert (me["user"], me["full_name"], me["by"]) == ("li", "Li Lei", "login")
    assert [one["team"] for one in me["teams"]] == ["nlp"]
    submitted = lab.here.danlu("submit", "--json", "--", "true", env=lab.at_home("li")).json()
    assert submitted["jobs"][0]["user"] == "li"

    kept = Path(lab.here.root / "li" / "credentials.json")
    assert kept.stat().st_mode & 0o777 == 0o600
    token = json.loads(kept.read_text())["servers"][lab.url]["token"]
    said = done.out + done.err + lab.here.server_log().encode()
    assert token.encode() not in said, "the token is in the file and nowhere else"

    lab.provider.describe("li", preferred_username="li", name="Li Lei", groups=["/lab/vision"])
    assert lab.login("li").code == 0
    assert [one["team"] for one in lab.me("li")["teams"]] == ["vision"]
    lines = lab.here.danlu("audit", "--json").json()["items"]
    assert {"user.create", "team.create", "team.add", "team.remove", "account.login"} <= {one["what"] for one in lines}
    assert token not in json.dumps(lines)


def test_the_browser_is_opened(lab: Lab) -> None:
    lab.provider.describe("wang", preferred_username="wang")
    script = lab.here.root / "browser.py"
    script.write_text(
        textwrap.dedent(
            f"""
            import sys
            sys.path.insert(0, {str(Path(__file__).parents[2])!r})
            from tests.e2e.test_sign_on import sign_on
            sign_on(sys.argv[1], "wang")
            """
        )
    )
    variables = {**lab.at_home("wang"), "BROWSER": f"{sys.executable} {script} %s"}
    done = lab.here.danlu("login", "--browser", "--json", env=variables)
    assert (done.json()["user"], "token" in done.json()) == ("wang", False)
    assert lab.me("wang")["user"] == "wang"


def test_a_code_can_be_pasted(lab: Lab) -> None:
    lab.provider.describe("li", preferred_username="li")
    begun = subprocess.Popen(
        [Path(sys.executable).with_name("danlu"), "login", "--browser", "--paste"],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        env={**lab.here.environ(), **lab.at_home("li")},
    )
    terminal = Terminal(lab.here.own(begun))
    found = re.search(r"<code>(\w+)</code>", sign_on(terminal.url(), "li"))
    assert found
    assert begun.stdin
    begun.stdin.write(f"  {found[1]}\n".encode())
    begun.stdin.flush()
    assert terminal.ended().code == 0
    assert lab.me("li")["user"] == "li"


def test_who_is_refused_learns_it_in_the_terminal(lab: Lab) -> None:
    admin = lab.here.danlu
    admin("user", "create", "li")
    lab.provider.describe("other-li", preferred_username="li")
    refused = lab.login("li", "other-li")
    assert refused.code == 3
    assert "there is an account `li` already" in refused.talk
    subject = f"{lab.provider.issuer}|other-li"
    assert f"danlu user link li '{subject}'" in refused.talk

    assert admin("user", "link", "li", subject, "--json").json() == {"user": "li", "subject": subject}
    assert lab.login("li", "other-li").code == 0
    admin("user", "disable", "li")
    disabled = lab.login("li", "other-li")
    assert (disabled.code, "disabled" in disabled.talk) == (3, True)

    lab.provider.describe("root", preferred_username="root")
    assert "taken by the machine" in lab.login("root").talk


def test_a_domain_is_part_of_who_somebody_is(lab: Lab) -> None:
    lab.provider.describe("7", preferred_username="dave@evil.example")
    refused = lab.login("dave", "7")
    assert (refused.code, "'dave@evil.example'" in refused.talk, "oidc.domains" in refused.talk) == (3, True, True)
    lab.provider.describe("8", preferred_username="dave@lab.example")
    assert lab.login("dave", "8").code == 0
    assert lab.me("dave")["user"] == "dave"
    assert "nothing says that it is yours" in lab.login("other", "9", preferred_username="dave@lab.example").talk

    waits = lab.login("unix", "10", preferred_username=f"{A_UNIX_USER}@lab.example")
    assert (waits.code, "an administrator decides" in waits.talk) == (3, True)
    (request,) = lab.here.danlu("account", "list", "--json").json()["items"]
    assert f"{A_UNIX_USER}@lab.example" in request["why"]
    lab.here.danlu("account", "open", request["id"])
    assert lab.login("unix", "10").code == 0
    assert lab.me("unix")["user"] == A_UNIX_USER


def test_a_stranger_waits_for_approval(here: Installation) -> None:
    lab = Lab(here, opens_accounts=False)
    lab.provider.describe("li", preferred_username="li", groups=["/lab/nlp"])
    waits = lab.login("li")
    assert (waits.code, "waits for approval" in waits.talk) == (3, True)
    (request,) = here.danlu("account", "list", "--json").json()["items"]
    assert (request["user"], request["team"]) == ("li", "nlp")
    here.danlu("account", "open", request["id"])
    assert lab.login("li").code == 0
    assert [one["team"] for one in lab.me("li")["teams"]] == ["nlp"]


def test_a_provider_that_is_away(lab: Lab) -> None:
    terminal = lab.begin_login("li", "--no-browser")
    with httpx.Client(follow_redirects=True, timeout=60) as browser:
        form = as_far_as_the_provider(terminal.url(), browser)
        browser.follow_redirects = False
        back = browser.post(form.url, data={"sub": "li"}).headers["location"]
        lab.provider.stop()
        browser.follow_redirects = True
        assert "You are not signed on" in browser.get(back).text
    done = terminal.ended()
    assert done.code == 4
    assert f"the identity provider {lab.provider.issuer} cannot be reached" in done.talk

    os.kill(lab.process.pid, signal.SIGTERM)
    lab.process.wait(60)
    lab.serve()
    away = lab.here.danlu("login", "--browser", code=4, env=lab.at_home("li"))
    assert "cannot be reached" in away.talk
    assert "http://127.0.0.1" in away.talk, "which provider"


def test_only_who_signs_people_on_pays_for_it(here: Installation) -> None:
    plain = Shared(here)
    assert CRYPTOGRAPHY not in read_bytes(f"/proc/{here.server_pid()}/maps")
    refused = plain.danlu("", "login", "--browser", code=3)
    assert "this server has no sign-on with a browser" in refused.talk


def test_a_wrong_configuration_is_said_at_the_start(here: Installation) -> None:
    config = here.root / "danlu.toml"
    for oidc, said in (
        ('issuer = "http://sso.example.org"\nclient_id = "danlu"', "must begin with https://"),
        ('issuer = "https://sso.example.org"\nclient_id = "danlu"\nclient_secret_file = "/nowhere"', "/nowhere"),
    ):
        config.write_text(f'[server]\nstate_dir = "{here.home}"\nlisten = "127.0.0.1:{free_port()}"\n[oidc]\n{oidc}\n')
        assert said in here.danlu("serve", "--config", config, code=2).talk
