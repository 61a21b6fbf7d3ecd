"""An OpenID Connect provider: the address for the sign-on, and the claims about the person who signed on.

Danlu believes only claims that the provider signed for this installation, now, and for this very sign-on. Raises
`Unreachable` when the provider does not answer."""

import asyncio
import hmac
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Any, Self
from urllib.parse import quote_plus, urlencode, urlsplit

import httpx
from joserfc import jwt
from joserfc.errors import BadSignatureError, InvalidKeyIdError, JoseError
from joserfc.jwk import KeySet

from danlu.errors import Invalid, Unauthorized, Unreachable

# Signatures that only the provider can make. `none` and shared secrets (HS256…) are never accepted.
ALGORITHMS = ("RS256", "RS384", "RS512", "PS256", "PS384", "PS512", "ES256", "ES384", "ES512", "Ed25519", "EdDSA")
LOOPBACK = frozenset({"localhost", "127.0.0.1", "::1"})
PATIENCE_S = 10.0
METADATA_FOR = timedelta(hours=1)
# After a failure, sign-ons within this time do not ask the provider again.
TROUBLE_FOR = timedelta(seconds=3)
CLOCKS_DIFFER_S = 60
NEEDED = ("authorization_endpoint", "token_endpoint", "jwks_uri")


@dataclass(frozen=True, slots=True)
class Registration:
    """The registration of this installation with the provider."""

    issuer: str
    client_id: str
    client_secret: str = ""  # empty: a public client
    scopes: str = "openid profile email"


class Provider:
    """An identity provider. Metadata and keys are read when needed, cached, and read again when a key is unknown."""

    def __init__(self, registration: Registration) -> None:
        check_issuer(registration.issuer)
        self._own = registration
        self._http = httpx.AsyncClient(timeout=PATIENCE_S)
        self._metadata: dict[str, Any] = {}
        self._keys: KeySet | None = None
        self._read_at: datetime | None = None
        self._trouble: tuple[datetime, Unreachable] | None = None
        self._reading = asyncio.Lock()

    @property
    def issuer(self) -> str:
        return self._own.issuer

    async def close(self) -> None:
        await self._http.aclose()

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.close()

    async def authorization_url(
        self, *, redirect_url: str, state: str, nonce: str, challenge: str, now: datetime
    ) -> str:
        """The address where a browser signs on; the answer comes to `redirect_url` with `state`."""
        metadata = await self.metadata(now)
        query = {
            "response_type": "code",
            "client_id": self._own.client_id,
            "redirect_uri": redirect_url,
            "scope": " ".join(self._scopes(metadata)),
            "state": state,
            "nonce": nonce,
            "code_challenge": challenge,
            "code_challenge_method": "S256",
        }
        endpoint = str(metadata["authorization_endpoint"])
        return f"{endpoint}{'&' if '?' in endpoint else '?'}{urlencode(query)}"

    async def claims(
        self, *, code: str, redirect_url: str, nonce: str, verifier: str, wanted: tuple[str, ...], now: datetime
    ) -> Mapping[str, Any]:
        """The provider's claims about the person who came back with `code`. If the ID token lacks `wanted` claims, ask
        the userinfo endpoint, if the provider has such an endpoint."""
        metadata = await self.metadata(now)
        form = {
            "grant_type": "authorization_code",
            "code": code,
            "redirect_uri": redirect_url,
            "code_verifier": verifier,
        }
        tokens = await self._token_answer(metadata, form)
        found = await self._id_token(str(tokens.get("id_token", "")), nonce, now)
        if metadata.get("userinfo_endpoint") and tokens.get("access_token") and not set(wanted) <= set(found):
            more = await self._fetched(
                str(metadata["userinfo_endpoint"]), headers={"Authorization": f"Bearer {tokens['access_token']}"}
            )
            if more.get("sub") != found["sub"]:
                raise _not_believed("its userinfo is about somebody else")
            # Signed claims take precedence.
            found = more | found
        return found

    async def metadata(self, now: datetime) -> Mapping[str, Any]:
        """The metadata of the provider, at most an hour old."""
        async with self._reading:
            if self._read_at is not None and now - self._read_at < METADATA_FOR:
                return self._metadata
            if self._trouble is not None and now - self._trouble[0] < TROUBLE_FOR:
                raise Unreachable(self._trouble[1].text, self._trouble[1].hint)
            try:
                self._metadata = await self._discovered()
            except Unreachable as error:
                self._trouble = now, error
                raise
            self._keys, self._read_at, self._trouble = None, now, None
            return self._metadata

    def _scopes(self, metadata: Mapping[str, Any]) -> list[str]:
        """The scope `groups` is not standard: providers without this scope refuse it, and send groups anyway."""
        known = metadata.get("scopes_supported")
        return [one for one in self._own.scopes.split() if one != "groups" or not known or one in known]

    async def _discovered(self) -> dict[str, Any]:
        issuer = self._own.issuer
        metadata = await self._fetched(issuer.rstrip("/") + "/.well-known/openid-configuration")
        if metadata.get("issuer") != issuer:
            raise Unreachable(
                f"the identity provider calls itself `{metadata.get('issuer')}`, not `{issuer}`",
                "an administrator sets oidc.issuer to exactly that name, if it is the right one",
            )
        for name in NEEDED:
            if not isinstance(metadata.get(name), str):
                raise Unreachable(f"the identity provider {issuer} does not say its `{name}`", "is it one for OpenID?")
        for name in (*NEEDED, "userinfo_endpoint"):
            if name in metadata and not _is_safe(str(metadata[name])):
                raise Unreachable(f"the identity provider has its `{name}` without TLS at {metadata[name]}")
        return metadata

    async def _token_answer(self, metadata: Mapping[str, Any], form: dict[str, str]) -> dict[str, Any]:
        own = self._own
        methods = metadata.get("token_endpoint_auth_methods_supported") or ["client_secret_basic"]
        auth = None
        if not own.client_secret:
            form["client_id"] = own.client_id
        elif "client_secret_basic" in methods:
            auth = httpx.BasicAuth(quote_plus(own.client_id), quote_plus(own.client_secret))
        else:
            form |= {"client_id": own.client_id, "client_secret": own.client_secret}
        return await self._answered("POST", str(metadata["token_endpoint"]), data=form, auth=auth)

    async def _id_token(self, written: str, nonce: str, now: datetime) -> dict[str, Any]:
        try:
            try:
                decoded = jwt.decode(written, await self._key_set(), algorithms=ALGORITHMS)
            except (InvalidKeyIdError, BadSignatureError):
                # Providers rotate their keys; some keep the old key id.
                decoded = jwt.decode(written, await self._key_set(again=True), algorithms=ALGORITHMS)
            claims = decoded.claims
            jwt.JWTClaimsRegistry(
                now=int(now.timestamp()),
                leeway=CLOCKS_DIFFER_S,
                iss={"essential": True, "value": self._own.issuer},
                aud={"essential": True, "value": self._own.client_id},
                exp={"essential": True},
                iat={"essential": True},
                sub={"essential": True},
                nonce={"essential": True},
            ).validate(claims)
        except (JoseError, ValueError) as error:
            raise _not_believed(str(error)) from error
        if not hmac.compare_digest(str(claims["nonce"]).encode(), nonce.encode()):
            raise _not_believed("it answers another sign-on")
        several = isinstance(claims["aud"], list) and len(claims["aud"]) > 1
        if (several or "azp" in claims) and claims.get("azp") != self._own.client_id:
            raise _not_believed("it is for another application")
        return claims

    async def _key_set(self, *, again: bool = False) -> KeySet:
        async with self._reading:
            if self._keys is None or again:
                found: Any = await self._fetched(str(self._metadata["jwks_uri"]))
                try:
                    self._keys = KeySet.import_key_set(found)
                except (JoseError, ValueError, KeyError, TypeError) as error:
                    raise Unreachable(f"the keys of {self._own.issuer} cannot be read: {error}") from error
            return self._keys

    async def _fetched(self, url: str, headers: Mapping[str, str] | None = None) -> dict[str, Any]:
        return await self._answered("GET", url, headers=headers)

    async def _answered(self, method: str, url: str, **request: Any) -> dict[str, Any]:
        """The JSON of an answer. Errors contain nothing of the request, which holds secrets."""
        try:
            answer = await self._http.request(method, url, **request)
        except (httpx.HTTPError, httpx.InvalidURL) as error:
            raise Unreachable(
                f"the identity provider {self._own.issuer} cannot be reached: {type(error).__name__}",
                "try again later; `danlu login` with a password works meanwhile, if you have one",
            ) from error
        try:
            found = answer.json()
        except ValueError:
            found = None
        if answer.is_success and isinstance(found, dict):
            return found
        if method == "POST" and 400 <= answer.status_code < 500:
            why = str(found.get("error", "")) if isinstance(found, dict) else ""
            raise Unauthorized(
                f"the identity provider refuses the sign-on: {why or f'HTTP status {answer.status_code}'}",
                "sign on again; if it goes on, an administrator checks oidc.client_id and oidc.client_secret_file",
            )
        raise Unreachable(
            f"the identity provider {self._own.issuer} answers with HTTP status {answer.status_code}"
            + ("" if not answer.is_success else " and no JSON"),
            "try again later, or ask an administrator to check oidc.issuer",
        )


def check_issuer(issuer: str) -> None:
    """Require TLS: an attacker who can alter unencrypted answers of the provider can sign on as any person."""
    if not _is_safe(issuer):
        raise Invalid(f"`oidc.issuer` must begin with https://, not `{issuer}`", "http:// is for providers on loopback")


def _is_safe(url: str) -> bool:
    try:
        parts = urlsplit(url)
        return parts.scheme == "https" or (parts.scheme == "http" and parts.hostname in LOOPBACK)
    except ValueError:
        return False


def _not_believed(why: str) -> Unauthorized:
    return Unauthorized(f"what the identity provider sent is not believed: {why}", "sign on again")
