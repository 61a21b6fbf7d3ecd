"""Every error a person may see: a stable code, a sentence, and a hint with a working alternative.

DanluError
  Invalid          wrong usage: nonsense, an unknown name               exit 2, HTTP 422
    NotFound       no such thing                                        exit 2, HTTP 404
    Ambiguous      a prefix of several things                           exit 2, HTTP 409
    TooLong        a request longer than the server reads               exit 2, HTTP 413
  Refused          understood, and not allowed or not possible          exit 3, HTTP 409
    Unauthorized   no valid token                                       exit 3, HTTP 401
    Forbidden      not yours                                            exit 3, HTTP 403
    TooBig         too big for every machine here                       exit 3, HTTP 409
    TooMany        too often in a short time: wait                      exit 3, HTTP 429
  Conflict         a concurrent change (retried inside)                 exit 4, HTTP 409
  Unreachable      a required service does not answer                   exit 4, HTTP 503
    ServerDown     the Danlu server
    EngineDown     the engine: know nothing, change nothing
    StoreDown      the database: locked, full, gone
"""


class DanluError(Exception):
    code = "error"
    exit_code = 1
    status = 500

    def __init__(self, text: str, hint: str = "", *, code: str = "") -> None:
        super().__init__(text)
        self.text = text
        self.hint = hint
        if code:
            self.code = code


class Invalid(DanluError):
    code = "invalid"
    exit_code = 2
    status = 422


class NotFound(Invalid):
    code = "not_found"
    status = 404


class Ambiguous(Invalid):
    code = "ambiguous"
    status = 409


class TooLong(Invalid):
    code = "too_long"
    status = 413


class Refused(DanluError):
    code = "refused"
    exit_code = 3
    status = 409


class Unauthorized(Refused):
    code = "unauthorized"
    status = 401


class Forbidden(Refused):
    code = "forbidden"
    status = 403


class TooBig(Refused):
    code = "too_big"


class TooMany(Refused):
    code = "too_many"
    status = 429

    def __init__(self, text: str, hint: str = "", *, code: str = "", retry_after_s: int = 0) -> None:
        super().__init__(text, hint, code=code)
        self.retry_after_s = retry_after_s


class Conflict(DanluError):
    code = "conflict"
    exit_code = 4
    status = 409


class Unreachable(DanluError):
    code = "unreachable"
    exit_code = 4
    status = 503


class ServerDown(Unreachable):
    code = "server_down"


class EngineDown(Unreachable):
    code = "engine_down"


class StoreDown(Unreachable):
    code = "store_down"
