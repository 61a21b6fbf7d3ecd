"""Sign-on through the REST door, in one process: the steps, what may go wrong in them, and who comes out of it."""

import pwd
import re
import secrets
from collections.abc import Awaitable, Callable, Iterator
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any
from urllib.parse import parse_qs, urlsplit

import httpx
import pytest

from danlu.actions.people import sign_on_tickets, tokens
from danlu.actions.people.context import PeopleRules
from danlu.actions.people.requests import approve, open_account, refuse
from danlu.actions.people.sign_on import SignonRules
from danlu.actions.people.sign_on_flow import FREE_TRIES, Signon, check_redirect
from danlu.actions.people.sign_on_tickets import CODE_FOR, TICKET_FOR, Codes, Tickets, challenge_of
from danlu.domain.people import Actor, Membership, Person, RequestState, Role, Team
from danlu.domain.quota import Quota
from danlu.errors import Invalid, Unauthorized
from danlu.identity.oidc import Provider, Registration
from danlu.store.people_protocol import Member
from tests.app.fake_provider import CLIENT, SECRET, FakeProvider, fake_provider
from tests.app.rig import Rig, on_rig

NOW = datetime.now(UTC)
CHIEF = Actor("chief", Role.ADMIN)
TEAMS = {"/lab/nlp": "nlp", "/lab/vision": "vision"}
A_UNIX_USER = next(one.pw_name for one in pwd.getpwall() if one.pw_uid >= 1000 and one.pw_name.isalpha())


@pytest.fixture
def fake() -> Iterator[FakeProvider]:
    with fake_provider() as made:
        yield made


Scenario = Callable[[Rig], Awaitable[None]]


def with_signon(scenario: Scenario, folder: Path, fake: FakeProvider, **rules: Any) -> None:
    async def play(rig: Rig) -> None:
        async with Provider(Registration(fake.issuer, CLIENT, SECRET)) as provider:
            options: dict[str, Any] = {"opens_accounts": True, "teams": TEAMS} | rules
            given = SignonRules(fake.issuer, **options)
            rig.desk = replace(rig.desk, signon=Signon(rig.desk.context, provider, given))
            await scenario(rig)

    on_rig(play, folder)


@dataclass
class SignOn:
    """A terminal that began, and the browser it sent there."""

    rig: Rig
    port: int = 50123
    verifier: str = field(default_factory=lambda: secrets.token_urlsafe(48))
    echo: str = field(default_factory=lambda: secrets.token_urlsafe(24))

    def __post_init__(self) -> None:
        self.browser = self.rig.client()
        self.terminal = self.rig.client()

    async def start(self, **changes: Any) -> httpx.Response:
        query: dict[str, Any] = {"port": self.port, "challenge": challenge_of(self.verifier), "state": self.echo}
        return await self.browser.get("/signon/start", params=query | changes)

    async def confirm(self, page: httpx.Response) -> httpx.Response:
        found = re.search(r'name="confirmation" value="([^"]+)"', page.text)
        assert found, page.text
        return await self.browser.post("/signon/start", data={"confirmation": found[1]})

    async def sent_back(self) -> str:
        """Where the provider sends the browser."""
        departed = await self.confirm(await self.start())
        assert departed.status_code == 303, departed.text
        async with httpx.AsyncClient() as elsewhere:
            location: str = (await elsewhere.get(departed.headers["location"])).headers["location"]
        assert location.startswith("http://danlu/api/v1/signon/callback?")
        return location

    async def returned(self) -> httpx.Response:
        return await self.browser.get((await self.sent_back()).replace("http://danlu/api/v1", ""))

    async def code(self) -> str:
        return code_in(await self.returned(), self)

    async def finish(self, code: str, verifier: str = "") -> httpx.Response:
        return await self.terminal.post("/signon/finish", json={"code": code, "verifier": verifier or self.verifier})

    async def outcome(self) -> dict[str, Any]:
        """The whole way: a token, or a problem."""
        answer: dict[str, Any] = (await self.finish(await self.code())).json()
        return answer


def code_in(answer: httpx.Response, begun: SignOn) -> str:
    where = urlsplit(answer.headers["location"])
    assert (answer.status_code, where.netloc, where.path) == (303, f"127.0.0.1:{begun.port}", "/")
    query = parse_qs(where.query)
    assert query["state"] == [begun.echo]
    assert set(query) == {"code", "state"}
    return query["code"][0]


def teams_of(rig: Rig, name: str) -> dict[str, bool]:
    return {one.team: one.is_mapped for one in rig.desk.roster.memberships(name)}


async def audit_of(rig: Rig) -> list[tuple[str, str, str]]:
    lines = await rig.desk.context.store.audit(limit=100)
    return [(one.who, one.what, one.target) for one in reversed(lines)]


def test_a_new_person_gets_an_account_and_a_token(tmp_path: Path, fake: FakeProvider) -> None:
    async def scenario(rig: Rig) -> None:
        rig.desk.context.rules = PeopleRules(default_quota=Quota(gpus=2))
        fake.person = {"sub": "42", "preferred_username": "Li@lab.example", "name": "Li Lei", "email": "li@lab.example"}
        fake.person["groups"] = ["/lab/nlp", "/staff"]
        answer = await SignOn(rig).outcome()
        assert (answer["user"], answer["role"]) == ("li", "member")
        me = (await rig.client(token=answer["token"]).get("/me")).json()
        assert (me["user"], me["full_name"], me["email"]) == ("li", "Li Lei", "li@lab.example")
        person = rig.desk.roster.persons["li"]
        assert person.subject == f"{fake.issuer}|42"
        assert teams_of(rig, "li") == {"nlp": True}
        assert rig.desk.roster.quotas["user:li"] == Quota(gpus=2)
        assert await audit_of(rig) == [
            ("li", "user.create", "li"),
            ("li", "team.create", "nlp"),
            ("li", "team.add", "nlp"),
            ("li", "account.login", "li"),
        ]
        again = await SignOn(rig).outcome()
        assert again["user"] == "li"
        assert [what for _, what, _ in await audit_of(rig)].count("user.create") == 1

    with_signon(scenario, tmp_path, fake, domains=("lab.example",))


@pytest.mark.parametrize("opens_accounts", [True, False])
@pytest.mark.parametrize(
    "name", ["dave@evil.example", "dave@lab.example@evil.example", "dave@", "dave@LAB.example.evil"]
)
def test_a_name_of_another_domain_is_nobody_here(
    tmp_path: Path, fake: FakeProvider, name: str, opens_accounts: bool
) -> None:
    async def scenario(rig: Rig) -> None:
        fake.person["preferred_username"] = name
        problem = await SignOn(rig).outcome()
        assert (problem["status"], "is not known here" in problem["detail"]) == (409, True), problem
        assert "oidc.domains" in problem["hint"]
        assert not rig.desk.roster.persons
        assert not rig.desk.roster.requests

    with_signon(scenario, tmp_path, fake, domains=("lab.example",), opens_accounts=opens_accounts)


def test_without_a_list_of_domains_no_domain_is_dropped(tmp_path: Path, fake: FakeProvider) -> None:
    async def scenario(rig: Rig) -> None:
        fake.person["preferred_username"] = "dave@evil.example"
        problem = await SignOn(rig).outcome()
        assert (problem["status"], "known domains: none" in problem["hint"]) == (409, True), problem
        assert not rig.desk.roster.persons

    with_signon(scenario, tmp_path, fake)


def test_the_same_name_in_two_domains_is_two_people(tmp_path: Path, fake: FakeProvider) -> None:
    async def scenario(rig: Rig) -> None:
        fake.person = {"sub": "42", "preferred_username": "li@lab.example"}
        assert (await SignOn(rig).outcome())["user"] == "li"
        fake.person = {"sub": "43", "preferred_username": "li@guests.lab.example"}
        assert "there is an account `li` already" in (await SignOn(rig).outcome())["detail"]

    with_signon(scenario, tmp_path, fake, domains=("lab.example", "guests.lab.example"))


def test_who_was_linked_before_there_were_domains_comes_in(tmp_path: Path, fake: FakeProvider) -> None:
    async def scenario(rig: Rig) -> None:
        await rig.desk.roster.record([Person("dave", NOW, subject=f"{fake.issuer}|42")])
        for name in ("dave@evil.example", "李雷", None):
            fake.person["preferred_username"] = name
            assert (await SignOn(rig).outcome())["user"] == "dave"

    with_signon(scenario, tmp_path, fake)


@pytest.mark.parametrize("verified", [None, False, "false", True])
def test_an_e_mail_address_is_a_name_only_if_verified(tmp_path: Path, fake: FakeProvider, verified: Any) -> None:
    async def scenario(rig: Rig) -> None:
        fake.person = {"sub": "42", "email": "li@lab.example", "email_verified": verified}
        outcome = await SignOn(rig).outcome()
        if verified is True:
            assert outcome["user"] == "li"
        else:
            assert "no verified `email`" in outcome["detail"]
            assert not rig.desk.roster.persons

    with_signon(scenario, tmp_path, fake, domains=("lab.example",), name_claim="email")


def test_a_unix_users_name_waits_for_an_administrator(tmp_path: Path, fake: FakeProvider) -> None:
    """Whoever the provider calls so would be that Unix user here, and jobs may run as one."""

    async def scenario(rig: Rig) -> None:
        rig.desk.context.rules = PeopleRules(leaders_open=True)
        await rig.desk.roster.record([Team("nlp", NOW)])
        fake.person = {"sub": "42", "preferred_username": f"{A_UNIX_USER}@lab.example", "groups": ["/lab/nlp"]}
        for _ in range(2):
            problem = await SignOn(rig).outcome()
            assert (problem["status"], "waits for approval" in problem["detail"]) == (409, True), problem
            assert "an administrator decides" in problem["hint"]
        assert not rig.desk.roster.persons
        (request,) = rig.desk.roster.requests.values()
        assert request.why == f"signed on as {fake.issuer}|42, there called {A_UNIX_USER}@lab.example"
        leader = Actor("wang", teams=(Membership("nlp", is_leader=True),))
        assert (await approve(rig.desk.context, leader, request.id, now=NOW)).request.state is RequestState.APPROVED
        assert "waits for approval" in (await SignOn(rig).outcome())["detail"]
        await open_account(rig.desk.context, CHIEF, request.id, now=NOW)
        assert (await SignOn(rig).outcome())["user"] == A_UNIX_USER

    with_signon(scenario, tmp_path, fake, domains=("lab.example",))


def test_teams_follow_the_groups_and_nothing_else(tmp_path: Path, fake: FakeProvider) -> None:
    async def scenario(rig: Rig) -> None:
        roster = rig.desk.roster

        async def with_groups(*groups: str) -> dict[str, bool]:
            fake.person = {"sub": "42", "preferred_username": "li", "groups": list(groups)}
            assert "token" in await SignOn(rig).outcome()
            return teams_of(rig, "li")

        assert await with_groups("/lab/nlp") == {"nlp": True}
        assert await with_groups("/lab/nlp", "/lab/vision") == {"nlp": True, "vision": True}
        await roster.record([Team("robots", NOW), Member("li", "robots", Membership("robots", is_leader=True))])
        assert await with_groups("/lab/vision", "robots") == {"robots": False, "vision": True}
        await roster.record([Member("li", "nlp", Membership("nlp"))])  # by hand: it is not the sign-on's to take
        assert await with_groups("/lab/vision") == {"nlp": False, "robots": False, "vision": True}
        assert await with_groups() == {"nlp": False, "robots": False}
        removed = [target for _, what, target in await audit_of(rig) if what == "team.remove"]
        assert removed == ["nlp", "vision"]

    with_signon(scenario, tmp_path, fake)


def test_groups_that_were_not_sent_conclude_nothing(tmp_path: Path, fake: FakeProvider) -> None:
    async def scenario(rig: Rig) -> None:
        fake.person = {"sub": "42", "preferred_username": "li", "groups": ["/lab/nlp"]}
        await SignOn(rig).outcome()
        fake.person = {"sub": "42", "preferred_username": "li", "_claim_names": {"groups": "src1"}}
        await SignOn(rig).outcome()
        assert teams_of(rig, "li") == {"nlp": True}
        fake.person = {"sub": "42", "preferred_username": "li"}
        await SignOn(rig).outcome()
        assert teams_of(rig, "li") == {}

    with_signon(scenario, tmp_path, fake)


def test_a_person_is_known_by_subject_and_not_by_name(tmp_path: Path, fake: FakeProvider) -> None:
    async def scenario(rig: Rig) -> None:
        await SignOn(rig).outcome()
        fake.person = {"sub": "42", "preferred_username": "li.lei"}
        assert (await SignOn(rig).outcome())["user"] == "li"
        fake.person = {"sub": "43", "preferred_username": "li"}
        problem = await SignOn(rig).outcome()
        assert (problem["status"], problem["code"]) == (409, "refused")
        assert "there is an account `li` already" in problem["detail"]
        assert set(rig.desk.roster.persons) == {"li"}

    with_signon(scenario, tmp_path, fake)


def test_a_local_account_is_not_taken_over_but_can_be_linked(tmp_path: Path, fake: FakeProvider) -> None:
    async def scenario(rig: Rig) -> None:
        await rig.desk.roster.record([Person("li", NOW, Role.ADMIN, password="hash"), Person("wang", NOW)])
        problem = await SignOn(rig).outcome()
        assert "nothing says that it is yours" in problem["detail"]
        subject = f"{fake.issuer}|42"
        assert subject in problem["hint"]
        assert rig.desk.roster.persons["li"].subject == ""

        root, stranger = rig.client(0), rig.client(token=await token_of(rig, "wang"))
        assert (await stranger.put("/users/li/subject", json={"subject": subject})).status_code == 403
        for nonsense in ("", "li", "|42", "https://x|", "a\n|b"):
            assert (await root.put("/users/li/subject", json={"subject": nonsense})).status_code == 422, nonsense
        assert (await root.put("/users/nobody/subject", json={"subject": subject})).status_code == 404
        assert (await root.put("/users/li/subject", json={"subject": subject})).json()["subject"] == subject
        assert (await SignOn(rig).outcome())["user"] == "li"
        assert rig.desk.roster.persons["li"].role is Role.ADMIN
        assert (await root.put("/users/wang/subject", json={"subject": subject})).status_code == 409

    with_signon(scenario, tmp_path, fake)


async def token_of(rig: Rig, name: str) -> str:
    context = rig.desk.context
    _, secret = await tokens.create(
        context, CHIEF, user=name, name="test", role="member", days=1, now=datetime.now(UTC)
    )
    return secret


def test_a_disabled_person_stays_outside(tmp_path: Path, fake: FakeProvider) -> None:
    async def scenario(rig: Rig) -> None:
        await SignOn(rig).outcome()
        begun = SignOn(rig)
        code = await begun.code()
        person = rig.desk.roster.persons["li"]
        await rig.desk.roster.record([replace(person, is_enabled=False)])
        assert (await begun.finish(code)).status_code == 403, "disabled while the browser was on its way"
        fake.person["groups"] = ["/lab/nlp"]
        problem = await SignOn(rig).outcome()
        assert problem["status"] == 403
        assert "disabled" in problem["detail"]
        assert teams_of(rig, "li") == {}

    with_signon(scenario, tmp_path, fake)


def test_a_stranger_waits_for_approval(tmp_path: Path, fake: FakeProvider) -> None:
    async def scenario(rig: Rig) -> None:
        fake.person |= {"groups": ["/lab/vision", "/lab/nlp"], "email": "li@lab.example"}
        for _ in range(2):
            problem = await SignOn(rig).outcome()
            assert problem["status"] == 409
            assert "waits for approval" in problem["detail"]
        (request,) = rig.desk.roster.requests.values()
        assert (request.name, request.team, request.state) == ("li", "nlp", RequestState.ASKED)
        assert not rig.desk.roster.persons
        await open_account(rig.desk.context, CHIEF, request.id, now=NOW)
        assert (await SignOn(rig).outcome())["user"] == "li"
        assert teams_of(rig, "li") == {"nlp": True, "vision": True}
        assert rig.desk.roster.persons["li"].subject == f"{fake.issuer}|42"
        fake.person["sub"] = "43"
        assert "already" in (await SignOn(rig).outcome())["detail"]

    with_signon(scenario, tmp_path, fake, opens_accounts=False)


def test_a_stranger_without_a_team_can_be_let_in_too(tmp_path: Path, fake: FakeProvider) -> None:
    async def scenario(rig: Rig) -> None:
        await SignOn(rig).outcome()
        (request,) = rig.desk.roster.requests.values()
        assert request.team == ""
        await open_account(rig.desk.context, CHIEF, request.id, now=NOW)
        assert (await SignOn(rig).outcome())["user"] == "li"

    with_signon(scenario, tmp_path, fake, opens_accounts=False)


def test_a_refused_request_stays_refused(tmp_path: Path, fake: FakeProvider) -> None:
    async def scenario(rig: Rig) -> None:
        await SignOn(rig).outcome()
        (request,) = rig.desk.roster.requests.values()
        await refuse(rig.desk.context, CHIEF, request.id, why="", now=NOW)
        assert "was refused" in (await SignOn(rig).outcome())["detail"]
        assert not rig.desk.roster.persons

    with_signon(scenario, tmp_path, fake, opens_accounts=False)


@pytest.mark.parametrize(
    ("name", "said"),
    [("root", "taken by the machine"), ("李雷", "no name"), ("../etc", "no name"), ("", "does not say who you are"),
     (None, "does not say who you are"), ("a b", "no name"), ("me", "taken by the machine"), (["li"], "who you are")],
)  # fmt: skip
def test_a_name_that_cannot_be_one_is_refused(tmp_path: Path, fake: FakeProvider, name: Any, said: str) -> None:
    async def scenario(rig: Rig) -> None:
        fake.person["preferred_username"] = name
        problem = await SignOn(rig).outcome()
        assert (problem["status"], said in problem["detail"]) == (409, True), problem
        assert not rig.desk.roster.persons

    with_signon(scenario, tmp_path, fake)


# What may go wrong on the way.


def test_nothing_goes_on_without_the_click(tmp_path: Path, fake: FakeProvider) -> None:
    async def scenario(rig: Rig) -> None:
        begun = SignOn(rig)
        page = await begun.start()
        assert page.status_code == 200
        assert sign_on_tickets.spoken(challenge_of(begun.verifier)) in page.text
        assert "frame-ancestors 'none'" in page.headers["content-security-policy"]
        cookie = page.headers["set-cookie"]
        assert "HttpOnly" in cookie
        assert "SameSite=lax" in cookie
        for data in ({}, {"confirmation": ""}, {"confirmation": "guessed"}):
            assert (await begun.browser.post("/signon/start", data=data)).status_code == 401
        # From a page of somebody else the cookie is not sent along.
        other = SignOn(rig)
        found = re.search(r'value="([^"]+)"', page.text)
        assert found
        assert (await other.browser.post("/signon/start", data={"confirmation": found[1]})).status_code == 401
        await other.start()
        assert (await other.browser.post("/signon/start", data={"confirmation": found[1]})).status_code == 401
        assert not fake.asked

    with_signon(scenario, tmp_path, fake)


@pytest.mark.parametrize(
    "changes",
    [{"port": 80}, {"port": 65536}, {"port": -1}, {"port": "50123@evil.example"}, {"port": "²"}, {"port": ""},
     {"challenge": "short"}, {"challenge": "<script>alert(1)</script>" + "a" * 18}, {"state": "x"},
     {"state": "https://evil.example/?aaaaaaaa"}],
)  # fmt: skip
def test_only_loopback_and_only_what_a_terminal_makes(tmp_path: Path, fake: FakeProvider, changes: Any) -> None:
    async def scenario(rig: Rig) -> None:
        page = await SignOn(rig).start(**changes)
        assert page.status_code == 422
        assert "set-cookie" not in page.headers
        assert "<script" not in page.text
        assert "evil" not in page.text

    with_signon(scenario, tmp_path, fake)


def test_an_address_to_come_back_to_cannot_be_named(tmp_path: Path, fake: FakeProvider) -> None:
    async def scenario(rig: Rig) -> None:
        begun = SignOn(rig)
        extra = dict.fromkeys(("redirect", "redirect_uri", "host", "next", "url"), "https://evil.example/")
        departed = await begun.confirm(await begun.start(**extra))
        assert "evil" not in departed.headers["location"]
        sent = parse_qs(urlsplit(departed.headers["location"]).query)
        assert sent["redirect_uri"] == ["http://danlu/api/v1/signon/callback"]
        assert sent["code_challenge_method"] == ["S256"]
        assert sent["response_type"] == ["code"]

    with_signon(scenario, tmp_path, fake)


def test_an_answer_for_another_browser_is_refused(tmp_path: Path, fake: FakeProvider) -> None:
    async def scenario(rig: Rig) -> None:
        attacker, victim = SignOn(rig), SignOn(rig)
        theirs = (await attacker.sent_back()).replace("http://danlu/api/v1", "")
        answer = await victim.browser.get(theirs)
        assert answer.status_code == 401, "a browser that began nothing"
        await victim.start()
        answer = await victim.browser.get(theirs)
        assert (answer.status_code, "another sign-on" in answer.text) == (401, True)
        state = re.search(r"state=([\w-]+)", theirs)
        assert state
        forged = theirs.replace(state[1], "x" * len(state[1]))
        assert (await attacker.browser.get(forged)).status_code == 401
        assert not rig.desk.roster.persons
        code_in(await attacker.browser.get(theirs), attacker)

    with_signon(scenario, tmp_path, fake)


def test_a_changed_ticket_is_refused(tmp_path: Path, fake: FakeProvider) -> None:
    async def scenario(rig: Rig) -> None:
        begun = SignOn(rig)
        page = await begun.start()
        sealed = begun.browser.cookies["danlu_signon"]
        for changed in (sealed.replace(".50123.", ".50124."), sealed[:-1], sealed.split(".")[0], "", "....."):
            begun.browser.cookies.clear()
            begun.browser.cookies.set("danlu_signon", changed)
            assert (await begun.confirm(page)).status_code == 401, changed

    with_signon(scenario, tmp_path, fake)


def test_the_provider_s_answer_works_once(tmp_path: Path, fake: FakeProvider) -> None:
    async def scenario(rig: Rig) -> None:
        begun = SignOn(rig)
        back = (await begun.sent_back()).replace("http://danlu/api/v1", "")
        kept = dict(begun.browser.cookies)
        first = await begun.browser.get(back)
        assert 'danlu_signon=""' in first.headers["set-cookie"]
        assert (await begun.browser.get(back)).status_code == 401, "the ticket is gone"
        for name, value in kept.items():
            begun.browser.cookies.set(name, value)
        again = code_in(await begun.browser.get(back), begun)
        assert "invalid_grant" in (await begun.finish(again)).json()["detail"]
        assert (await begun.finish(code_in(first, begun))).status_code == 201

    with_signon(scenario, tmp_path, fake)


def test_a_code_works_once_and_only_for_its_terminal(tmp_path: Path, fake: FakeProvider) -> None:
    async def scenario(rig: Rig) -> None:
        begun = SignOn(rig)
        code = await begun.code()
        assert (await begun.finish(code)).status_code == 201
        replayed = await begun.finish(code)
        assert (replayed.status_code, replayed.json()["code"]) == (401, "unauthorized")
        stolen = await begun.code()
        assert (await begun.finish(stolen, "v" * 43)).status_code == 401
        assert (await begun.finish(stolen)).status_code == 401, "a code that was tried with a wrong verifier is spent"
        assert (await begun.finish("0" * 40)).status_code == 401

    with_signon(scenario, tmp_path, fake)


def test_codes_and_tickets_end() -> None:
    codes, tickets, verifier = Codes(), Tickets(), "v" * 43
    challenge = challenge_of(verifier)
    for late, is_good in ((CODE_FOR - timedelta(seconds=1), True), (CODE_FOR, False)):
        code = codes.give("li", challenge, now=NOW)
        try:
            assert codes.take(code, verifier, now=NOW + late) == "li"
        except Unauthorized:
            assert not is_good
        else:
            assert is_good
    sealed = tickets.seal(tickets.issue(port=0, challenge=challenge, echo="e" * 16, now=NOW))
    assert tickets.unseal(sealed, now=NOW + TICKET_FOR - timedelta(seconds=2)).challenge == challenge
    with pytest.raises(Unauthorized, match="took too long"):
        tickets.unseal(sealed, now=NOW + TICKET_FOR)
    with pytest.raises(Unauthorized):
        Tickets().unseal(sealed, now=NOW)


def test_codes_are_kept_as_hashes_and_forgotten() -> None:
    codes = Codes()
    code = codes.give("li", "c" * 43, now=NOW)
    assert code not in repr(vars(codes))
    codes.give("wang", "c" * 43, now=NOW + CODE_FOR)
    assert "li" not in repr(vars(codes))


def test_a_code_to_paste(tmp_path: Path, fake: FakeProvider) -> None:
    async def scenario(rig: Rig) -> None:
        begun = SignOn(rig, port=0)
        page = await begun.returned()
        assert page.status_code == 200
        assert "no-store" in page.headers["cache-control"]
        found = re.search(r"<code>(\w+)</code>", page.text)
        assert found
        assert (await begun.finish(found[1])).json()["user"] == "li"
        fake.person["preferred_username"] = "<b>"
        fake.person["sub"] = "43"
        page = await SignOn(rig, port=0).returned()
        assert (page.status_code, "<b>" in page.text, "&lt;b&gt;" in page.text) == (409, False, True)

    with_signon(scenario, tmp_path, fake)


def test_what_the_provider_refuses_reaches_the_terminal(tmp_path: Path, fake: FakeProvider) -> None:
    async def scenario(rig: Rig) -> None:
        begun = SignOn(rig)
        state = re.search(r"state=([\w-]+)", await begun.sent_back())
        assert state
        refused = await begun.browser.get("/signon/callback", params={"error": "access_denied", "state": state[1]})
        problem = (await begun.finish(code_in(refused, begun))).json()
        assert (problem["status"], "access_denied" in problem["detail"]) == (409, True)

        begun = SignOn(rig)
        back = (await begun.sent_back()).replace("http://danlu/api/v1", "")
        other = await begun.browser.get(f"{back}&iss=https://evil.example")
        assert "another identity provider" in (await begun.finish(code_in(other, begun))).json()["detail"]

        fake.twisted = lambda claims: claims | {"nonce": "replayed"}
        assert "not believed" in (await SignOn(rig).outcome())["detail"]
        assert not rig.desk.roster.persons

    with_signon(scenario, tmp_path, fake)


def test_a_provider_that_is_away_is_said_before_and_after_the_click(tmp_path: Path, fake: FakeProvider) -> None:
    async def scenario(rig: Rig) -> None:
        fake.is_broken = True
        asked = await rig.client().get("/signon")
        assert (asked.status_code, asked.json()["code"]) == (503, "unreachable")
        begun = SignOn(rig)
        answer = await begun.confirm(await begun.start())
        assert (await begun.finish(code_in(answer, begun))).status_code == 503

    with_signon(scenario, tmp_path, fake)


def test_the_provider_is_not_asked_about_everything_at_once(tmp_path: Path, fake: FakeProvider) -> None:
    async def scenario(rig: Rig) -> None:
        for _ in range(FREE_TRIES + 5):
            assert "token" in await SignOn(rig).outcome(), "what leads somewhere does not count"
        fake.twisted = lambda claims: claims | {"nonce": "replayed"}
        said = [(await SignOn(rig).outcome())["code"] for _ in range(FREE_TRIES + 3)]
        assert said[:FREE_TRIES] == ["unauthorized"] * FREE_TRIES
        assert "too_many" in said[FREE_TRIES:]
        assert fake.asked.count("/token") < 2 * FREE_TRIES + 5 + 3

    with_signon(scenario, tmp_path, fake)


def test_a_server_without_sign_on_says_so(tmp_path: Path) -> None:
    async def scenario(rig: Rig) -> None:
        asked = await rig.client().get("/signon")
        assert (asked.status_code, "no sign-on" in asked.json()["detail"]) == (409, True)
        assert "no sign-on" in (await SignOn(rig).start()).text

    on_rig(scenario, tmp_path)


def test_secrets_stay_where_they_belong(tmp_path: Path, fake: FakeProvider) -> None:
    async def scenario(rig: Rig) -> None:
        begun = SignOn(rig)
        code = await begun.code()
        token = (await begun.finish(code)).json()["token"]
        listed = repr(await rig.desk.context.store.audit(limit=100))
        on_disk = b"".join(path.read_bytes() for path in Path(rig.desk.state_dir).rglob("*") if path.is_file())
        for secret in (code, token, begun.verifier, SECRET):
            assert secret not in listed
            assert secret.encode() not in on_disk

    with_signon(scenario, tmp_path, fake)


def test_the_cookie_is_for_tls_where_the_address_is(tmp_path: Path, fake: FakeProvider) -> None:
    async def scenario(rig: Rig) -> None:
        assert rig.desk.signon is not None
        rig.desk.signon.redirect_url = "https://lab.example/danlu/api/v1/signon/callback"
        cookie = (await SignOn(rig).start()).headers["set-cookie"]
        assert "Secure" in cookie
        assert "Path=/danlu/api/v1/signon;" in cookie
        asked = (await rig.client().get("/signon")).json()
        assert asked == {"issuer": fake.issuer, "url": "https://lab.example/danlu/api/v1/signon/start"}

    with_signon(scenario, tmp_path, fake)


def test_a_wrong_address_to_come_back_to_is_refused() -> None:
    for wrong in ("danlu.lab/api/v1/signon/callback", "https://danlu.lab/", "javascript:/signon/callback"):
        with pytest.raises(Invalid, match=r"oidc\.redirect_url"):
            check_redirect(wrong)
