"""Requests to a server, repeated safely after a lost connection."""

from __future__ import annotations

import json
import os
from time import monotonic, sleep

from danlu import errors, paths
from danlu.client.http import Address, Answer, Connection, Lost, NoServer

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any, Self

TIMEOUT_S = 60.0
RETRY_WITHIN_S = 30.0
_CLASSES = {
    kind.code: kind
    for kind in vars(errors).values()
    if isinstance(kind, type) and issubclass(kind, errors.DanluError) and kind is not errors.DanluError
}

_BY_STATUS: dict[int, type[errors.DanluError]] = {
    kind.status: kind
    for kind in (
        errors.Invalid,
        errors.NotFound,
        errors.Unauthorized,
        errors.Forbidden,
        errors.Refused,
        errors.Unreachable,
    )
}


def error_of(status: int, body: bytes) -> errors.DanluError:
    """The error described by a problem document."""
    try:
        problem = json.loads(body)
        code, detail, hint = str(problem["code"]), str(problem["detail"]), str(problem.get("hint") or "")
    except (ValueError, KeyError, TypeError):
        return errors.ServerDown(f"the server answered with HTTP status {status}", "see its log")
    kind = _CLASSES.get(code) or _BY_STATUS.get(status, errors.DanluError)
    return kind(detail, hint, code=code)


def _check_folder(socket: str) -> None:
    try:
        paths.check_owned(os.path.dirname(socket))
    except PermissionError as error:
        raise errors.Refused(
            f"your server's socket cannot be trusted: {error}",
            "remove the folder, or set DANLU_HOME to a folder of yours with a short path",
        ) from None


def new_key() -> str:
    """A key of a submit, which makes a repeated request recognizable."""
    return os.urandom(16).hex()


class Wire:
    """A server's address, the caller's token, and requests with them."""

    def __init__(
        self,
        server: str = "",
        *,
        token: str = "",
        start: bool = False,
        timeout: float = TIMEOUT_S,
        remembered: bool = True,
    ) -> None:
        given = server or os.environ.get("DANLU_SERVER", "")
        logins: Any = None
        if remembered and os.path.exists(paths.credentials_file()):
            from danlu.client import credentials as logins
        if not given and logins:
            given = logins.default_server()
        self.is_personal = not given
        self.address = Address(given or "unix://" + paths.server_socket(paths.state_dir()))
        # `danlu doctor` names it.
        self._is_own = self.is_personal or (
            self.address.path != "" and self.address.path == paths.server_socket(paths.state_dir())
        )
        self.starts = start and self.is_personal
        self._timeout = timeout
        self._headers = {"Accept": "application/json"}
        token = token or os.environ.get("DANLU_TOKEN", "")
        if not token and logins:
            token = logins.token_for(self.address)
        if token:
            self.use_token(token)
        self._idle: list[Connection] = []
        self.trouble: str | None = None  # of the server's engine, as last reported

    def use_token(self, token: str) -> None:
        """Use this token from now on."""
        if not token.isascii() or not token.isprintable():
            raise errors.Invalid("the token contains invalid characters", "check DANLU_TOKEN")
        self._headers["Authorization"] = f"Bearer {token}"

    def ask(
        self, method: str, target: str, body: object = None, *, key: str = "", again: bool = False
    ) -> dict[str, Any]:
        """Send a request and return its whole answer as data."""
        request = self._request(method, target, body, key)
        _, found = self._exchange(*request, again=bool(key) or again or method == "GET", whole=True)
        data: dict[str, Any] = json.loads(found) if found else {}
        self.trouble = data.get("trouble", self.trouble)
        return data

    def open(
        self,
        method: str,
        target: str,
        body: object = None,
        *,
        key: str = "",
        again: bool = False,
        start: bool = True,
    ) -> Answer:
        """Send a request and return the response; errors are raised.

        A repeatable request (`again`, a key, or a GET) is repeated for a while if the connection is lost.
        """
        request = self._request(method, target, body, key)
        return self._exchange(*request, again=bool(key) or again or method == "GET", start=start)[0]

    def _request(self, method: str, target: str, body: object, key: str) -> tuple[str, str, dict[str, str], bytes]:
        headers, data = dict(self._headers), b""
        if isinstance(body, bytes):
            headers["Content-Type"], data = "application/octet-stream", body
        elif body is not None:
            headers["Content-Type"] = "application/json"
            data = json.dumps(body, separators=(",", ":")).encode("ascii")
        if key:
            headers["Idempotency-Key"] = key
        return method, "/api/v1" + target, headers, data

    def _exchange(
        self,
        method: str,
        target: str,
        headers: dict[str, str],
        data: bytes,
        *,
        again: bool,
        start: bool = True,
        whole: bool = False,
    ) -> tuple[Answer, bytes]:
        until, pause = 0.0, 0.02
        while True:
            connection = None
            try:
                connection = self.connection(start=start)
                answer = connection.exchange(method, target, headers, data)
                return answer, self._checked(answer, whole)
            except Lost:
                if connection is not None:
                    connection.close()
                if not again or (until and monotonic() >= until):
                    raise
            except NoServer:
                # Before the first loss no request was sent: fail at once.
                if not until or monotonic() >= until:
                    raise
            until = until or monotonic() + RETRY_WITHIN_S
            sleep(pause)
            pause = min(pause * 1.5, 0.5)

    def _checked(self, answer: Answer, whole: bool) -> bytes:
        """The whole body if requested; a problem document is raised as its error."""
        if answer.status < 400 and not whole:
            return b""
        found = answer.body()
        self.release(answer)
        if answer.status >= 400:
            raise error_of(answer.status, found)
        return found

    def connection(self, *, start: bool = True) -> Connection:
        """A connection for a request; starts the personal server if permitted."""
        while self._idle:
            connection = self._idle.pop()
            if connection.is_idle():
                return connection
            connection.close()
        try:
            return self._connected()
        except NoServer as missing:
            if not (self.starts and start):
                if self.is_personal:
                    raise NoServer(
                        "your server is not running", "`danlu up --detach` starts it, as does any `danlu run`"
                    ) from missing
                raise
        from danlu.client import own_server

        own_server.start()
        return self._connected()

    def _connected(self) -> Connection:
        if self._is_own:
            _check_folder(self.address.path)
        return Connection(self.address, self._timeout)

    def release(self, answer: Answer) -> None:
        """Keep the connection of a finished response for the next request."""
        if answer.is_over and answer.keeps_alive:
            self._idle.append(answer.connection)
        else:
            answer.close()

    def headers(self) -> dict[str, str]:
        return dict(self._headers)

    def close(self) -> None:
        while self._idle:
            self._idle.pop().close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()
