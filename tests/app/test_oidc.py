"""What the provider sends is believed only if it is signed by it, for us, now, and for this very sign-on."""

import asyncio
import json
from collections.abc import Callable, Iterator, Mapping
from datetime import UTC, datetime, timedelta
from typing import Any
from urllib.parse import parse_qs, urlsplit

import httpx
import pytest
from joserfc.jwk import ECKey, RSAKey

from danlu.actions.people.sign_on_tickets import challenge_of
from danlu.errors import DanluError, Invalid, Unauthorized, Unreachable
from danlu.identity.oidc import METADATA_FOR, TROUBLE_FOR, Provider, Registration
from tests.app.fake_provider import CLIENT, SECRET, FakeProvider, fake_provider

BACK = "https://danlu.lab/api/v1/signon/callback"
NAME = ("preferred_username",)


@pytest.fixture
def fake() -> Iterator[FakeProvider]:
    with fake_provider() as made:
        yield made


def registration(fake: FakeProvider, **changes: str) -> Registration:
    return Registration(**({"issuer": fake.issuer, "client_id": CLIENT, "client_secret": SECRET} | changes))


async def signed_on(provider: Provider, *, wanted: tuple[str, ...] = NAME, **changes: str) -> Mapping[str, Any]:
    """Through the provider and back, as a browser would go."""
    now = datetime.now(UTC)
    given = {"redirect_url": BACK, "nonce": "n" * 20}
    where = await provider.authorization_url(**given, state="st", challenge=challenge_of("v" * 43), now=now)
    async with httpx.AsyncClient() as browser:
        location = (await browser.get(where)).headers["location"]
    answer = parse_qs(urlsplit(location).query)
    assert answer["state"] == ["st"]
    given |= {"code": answer["code"][0], "verifier": "v" * 43}
    return await provider.claims(**(given | changes), wanted=wanted, now=now)


def claims_of(fake: FakeProvider, wanted: tuple[str, ...] = NAME, **changes: str) -> Mapping[str, Any]:
    async def play() -> Mapping[str, Any]:
        async with Provider(registration(fake)) as provider:
            return await signed_on(provider, wanted=wanted, **changes)

    return asyncio.run(play())


def refused(fake: FakeProvider, wanted: tuple[str, ...] = NAME, **changes: str) -> DanluError:
    with pytest.raises(DanluError) as caught:
        claims_of(fake, wanted, **changes)
    assert SECRET not in caught.value.text + caught.value.hint
    return caught.value


def test_a_true_answer_is_believed(fake: FakeProvider) -> None:
    assert claims_of(fake)["preferred_username"] == "li"


def test_other_strong_signatures_are_fine(fake: FakeProvider) -> None:
    fake.key = ECKey.generate_key("P-256", {"kid": "curve"})
    fake.published, fake.header = [fake.key], {"alg": "ES256", "kid": "curve"}
    assert claims_of(fake)["sub"] == "42"


LIES: dict[str, Callable[[dict[str, Any]], dict[str, Any]]] = {
    "another issuer": lambda claims: claims | {"iss": "https://evil.example"},
    "another audience": lambda claims: claims | {"aud": "another-app"},
    "several audiences, for another": lambda claims: claims | {"aud": [CLIENT, "x"], "azp": "x"},
    "several audiences, nobody named": lambda claims: claims | {"aud": [CLIENT, "x"]},
    "another party": lambda claims: claims | {"azp": "another-app"},
    "another nonce": lambda claims: claims | {"nonce": "of-another-sign-on"},
    "no nonce": lambda claims: {name: value for name, value in claims.items() if name != "nonce"},
    "expired": lambda claims: claims | {"exp": claims["iat"] - 120},
    "no end": lambda claims: {name: value for name, value in claims.items() if name != "exp"},
    "of the future": lambda claims: claims | {"iat": claims["iat"] + 600},
    "nobody": lambda claims: claims | {"sub": ""},
    "a number": lambda claims: claims | {"sub": 42},
}


@pytest.mark.parametrize("lie", LIES)
def test_what_is_not_for_us_now_is_not_believed(fake: FakeProvider, lie: str) -> None:
    fake.twisted = LIES[lie]
    error = refused(fake)
    assert isinstance(error, Unauthorized)
    assert "not believed" in error.text


def test_another_key_under_a_known_name_is_not_believed(fake: FakeProvider) -> None:
    fake.key = RSAKey.generate_key(2048, {"kid": "first"})
    assert "not believed" in refused(fake).text


@pytest.mark.filterwarnings("ignore:JWS algorithm")
def test_an_unsigned_answer_is_not_believed(fake: FakeProvider) -> None:
    fake.header = {"alg": "none"}
    assert "not believed" in refused(fake).text


def test_a_public_key_is_no_shared_secret(fake: FakeProvider) -> None:
    public = fake.published[0].as_pem(private=False)
    fake.key, fake.header = public, {"alg": "HS256", "kid": "first"}
    assert "not believed" in refused(fake).text


def test_a_client_secret_is_no_signature(fake: FakeProvider) -> None:
    fake.key, fake.header = SECRET.encode(), {"alg": "HS256"}
    assert "not believed" in refused(fake).text


@pytest.mark.parametrize("kid", ["second", "first"])
def test_new_keys_are_read_when_one_is_unknown(fake: FakeProvider, kid: str) -> None:
    async def play() -> None:
        async with Provider(registration(fake)) as provider:
            await signed_on(provider)
            await signed_on(provider)
            assert fake.asked.count("/keys") == 1
            fake.rotate(kid=kid)
            assert (await signed_on(provider))["sub"] == "42"
            assert fake.asked.count("/keys") == 2
            assert fake.asked.count("/.well-known/openid-configuration") == 1

    asyncio.run(play())


def test_the_code_is_bound_to_our_verifier_and_address(fake: FakeProvider) -> None:
    assert "invalid_grant" in refused(fake, verifier="w" * 43).text
    assert "invalid_grant" in refused(fake, redirect_url="https://danlu.lab/elsewhere").text
    assert "invalid_grant" in refused(fake, code="guessed").text


def test_what_the_id_token_lacks_is_asked_for(fake: FakeProvider) -> None:
    fake.info = {"sub": "42", "groups": ["/lab/nlp"], "preferred_username": "somebody"}
    assert "/userinfo" not in fake.asked
    found = claims_of(fake, (*NAME, "groups"))
    assert (found["groups"], found["preferred_username"]) == (["/lab/nlp"], "li")
    fake.info = {"sub": "43", "groups": ["/lab/admins"]}
    error = refused(fake, (*NAME, "groups"))
    assert "somebody else" in error.text


@pytest.mark.parametrize(
    ("known", "asked"),
    [(None, "openid groups x"), (["openid", "groups"], "openid groups x"), (["openid", "email"], "openid x")],
)
def test_groups_are_asked_for_where_that_is_known(fake: FakeProvider, known: list[str] | None, asked: str) -> None:
    async def play() -> None:
        fake.more = {"scopes_supported": known} if known else {}
        async with Provider(registration(fake, scopes="openid groups x")) as provider:
            where = await provider.authorization_url(
                redirect_url=BACK, state="s", nonce="n", challenge="c", now=datetime.now(UTC)
            )
            assert parse_qs(urlsplit(where).query)["scope"] == [asked]

    asyncio.run(play())


def test_a_provider_that_names_itself_otherwise_is_refused(fake: FakeProvider) -> None:
    fake.more = {"issuer": fake.issuer + "/"}
    error = refused(fake)
    assert isinstance(error, Unreachable)
    assert f"calls itself `{fake.issuer}/`" in error.text


def test_endpoints_without_tls_are_refused(fake: FakeProvider) -> None:
    fake.more = {"token_endpoint": "http://sso.example.org/token"}
    assert "without TLS" in refused(fake).text
    with pytest.raises(Invalid, match="https://"):
        Provider(Registration("http://sso.example.org", CLIENT))


def test_a_wrong_secret_is_said_and_not_shown(fake: FakeProvider) -> None:
    async def play() -> None:
        async with Provider(registration(fake, client_secret="wrong-one")) as provider:
            with pytest.raises(Unauthorized, match="invalid_client") as caught:
                await signed_on(provider)
            assert "wrong-one" not in str(vars(caught.value))
            assert "oidc.client_secret_file" in caught.value.hint

    asyncio.run(play())


def test_a_provider_that_is_away_is_asked_again_later(fake: FakeProvider) -> None:
    async def play() -> None:
        now = datetime.now(UTC)
        async with Provider(registration(fake)) as provider:
            fake.is_broken = True
            for _ in range(3):
                with pytest.raises(Unreachable, match="HTTP status 500"):
                    await provider.metadata(now)
            assert len(fake.asked) == 1
            fake.is_broken = False
            assert json.dumps(dict(await provider.metadata(now + TROUBLE_FOR)))
            await provider.metadata(now + METADATA_FOR)
            assert len(fake.asked) == 2
            await provider.metadata(now + METADATA_FOR + timedelta(seconds=4))
            assert len(fake.asked) == 3

    asyncio.run(play())


def test_a_provider_that_does_not_exist_is_unreachable(fake: FakeProvider) -> None:
    async def play() -> None:
        async with Provider(registration(fake, issuer="http://127.0.0.1:9")) as provider:
            with pytest.raises(Unreachable, match="cannot be reached") as caught:
                await provider.metadata(datetime.now(UTC))
            assert caught.value.exit_code == 4

    asyncio.run(play())
