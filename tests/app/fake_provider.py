"""A small OpenID Connect provider that lies on request: whatever a real one never sends, this one can."""

import base64
import contextlib
import hashlib
import hmac
import json
import threading
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any
from urllib.parse import parse_qs, urlencode, urlsplit

from joserfc import jwt
from joserfc.jwk import ECKey, KeySet, RSAKey

SECRET = "s3cret/+&"
CLIENT = "danlu lab"
_FIRST, _SECOND = (RSAKey.generate_key(2048, {"kid": kid, "use": "sig"}) for kid in ("first", "second"))


@dataclass
class FakeProvider:
    """Everybody who asks is signed on as `person`."""

    person: dict[str, Any] = field(default_factory=lambda: {"sub": "42", "preferred_username": "li"})
    # Between the true claims and the signature.
    twisted: Callable[[dict[str, Any]], dict[str, Any]] = lambda claims: claims
    key: RSAKey | ECKey | bytes = field(default_factory=lambda: _FIRST)
    published: list[Any] = field(default_factory=lambda: [_FIRST])
    header: dict[str, str] = field(default_factory=lambda: {"alg": "RS256", "kid": "first"})
    more: dict[str, Any] = field(default_factory=dict)  # of the metadata
    info: dict[str, Any] | None = None  # of the userinfo endpoint
    is_broken: bool = False
    asked: list[str] = field(default_factory=list)
    issuer: str = ""
    _codes: dict[str, dict[str, str]] = field(default_factory=dict)

    def rotate(self, *, kid: str = "second") -> None:
        """From now on another key signs, under this name."""
        self.key = RSAKey.import_key(_SECOND.as_dict(private=True) | {"kid": kid})
        self.published = [self.key]
        self.header = {"alg": "RS256", "kid": kid}

    def metadata(self) -> dict[str, Any]:
        base = self.issuer
        known = {
            "issuer": base,
            "authorization_endpoint": f"{base}/authorize",
            "token_endpoint": f"{base}/token",
            "jwks_uri": f"{base}/keys",
        }
        if self.info is not None:
            known["userinfo_endpoint"] = f"{base}/userinfo"
        return known | self.more

    def authorize(self, query: dict[str, str]) -> str:
        """Where the browser goes with the code."""
        code = f"code{len(self._codes)}"
        self._codes[code] = query
        return f"{query['redirect_uri']}?{urlencode({'code': code, 'state': query['state']})}"

    def token(self, form: dict[str, str], authorization: str) -> tuple[int, dict[str, Any]]:
        expected = base64.b64encode(b"danlu+lab:s3cret%2F%2B%26").decode()
        if authorization != f"Basic {expected}":
            return 401, {"error": "invalid_client"}
        begun = self._codes.pop(form["code"], None)
        digest = hashlib.sha256(form["code_verifier"].encode()).digest()
        if (
            begun is None
            or begun["redirect_uri"] != form["redirect_uri"]
            or _written(digest) != begun["code_challenge"]
        ):
            return 400, {"error": "invalid_grant"}
        now = int(time.time())
        claims = {"iss": self.issuer, "aud": CLIENT, "iat": now, "exp": now + 300, "nonce": begun["nonce"]}
        claims = self.twisted(claims | self.person)
        return 200, {"id_token": self._signed(claims), "access_token": "for-userinfo", "token_type": "Bearer"}

    def _signed(self, claims: dict[str, Any]) -> str:
        if not isinstance(self.key, bytes):
            return jwt.encode(dict(self.header), claims, self.key, algorithms=[self.header["alg"]])
        # By hand: the library refuses to make what an attacker would.
        text = ".".join(_written(json.dumps(part).encode()) for part in (self.header, claims))
        return f"{text}.{_written(hmac.digest(self.key, text.encode(), 'sha256'))}"


def _written(data: bytes) -> str:
    return base64.urlsafe_b64encode(data).rstrip(b"=").decode()


class _Handler(BaseHTTPRequestHandler):
    fake: FakeProvider

    def do_GET(self) -> None:
        parts = urlsplit(self.path)
        query = {name: values[0] for name, values in parse_qs(parts.query).items()}
        self.fake.asked.append(parts.path)
        if self.fake.is_broken:
            return self._answer(500, {})
        match parts.path:
            case "/.well-known/openid-configuration":
                return self._answer(200, self.fake.metadata())
            case "/keys":
                return self._answer(200, KeySet(list(self.fake.published)).as_dict())
            case "/userinfo" if self.headers["Authorization"] == "Bearer for-userinfo":
                return self._answer(200, self.fake.info or {})
            case "/authorize":
                self.send_response(302)
                self.send_header("Location", self.fake.authorize(query))
                self.send_header("Content-Length", "0")
                return self.end_headers()
        return self._answer(404, {})

    def do_POST(self) -> None:
        body = self.rfile.read(int(self.headers["Content-Length"])).decode()
        form = {name: values[0] for name, values in parse_qs(body).items()}
        self.fake.asked.append(self.path)
        self._answer(*self.fake.token(form, self.headers.get("Authorization", "")))

    def _answer(self, status: int, data: Any) -> None:
        body = json.dumps(data).encode()
        self.send_response(status)
        self.send_header("Content-Type", "application/json")
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, *_: object) -> None:
        pass


@contextlib.contextmanager
def fake_provider() -> Iterator[FakeProvider]:
    fake = FakeProvider()
    server = ThreadingHTTPServer(("127.0.0.1", 0), type("Handler", (_Handler,), {"fake": fake}))
    fake.issuer = f"http://127.0.0.1:{server.server_port}"
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.02})
    thread.start()
    try:
        yield fake
    finally:
        server.shutdown()
        thread.join()
        server.server_close()
