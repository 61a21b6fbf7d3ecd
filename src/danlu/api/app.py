"""The REST application: routes, errors, OpenAPI."""

import logging

from fastapi import Depends, FastAPI
from fastapi.exceptions import RequestValidationError
from fastapi.routing import APIRoute
from starlette.exceptions import HTTPException
from starlette.requests import ClientDisconnect, Request
from starlette.responses import Response

from danlu import __version__
from danlu.actions.installation import Installation
from danlu.api.bodies import Problem, problem_out
from danlu.api.document import PROBLEMS, Documented
from danlu.api.fields import check_address
from danlu.api.routes import exec as exec_routes
from danlu.api.routes import external, jobs, login, people, queues, quotas, server, sign_on, snapshots, streams
from danlu.errors import DanluError, Invalid, NotFound, TooMany

log = logging.getLogger(__name__)

BASE = "/api/v1"
ROUTERS = tuple(
    part.router
    for part in (jobs, streams, exec_routes, snapshots, external, server, queues, login, people, sign_on, quotas)
)


def make_app(desk: Installation) -> FastAPI:
    app = Documented(
        title="Danlu",
        version=__version__,
        openapi_url=f"{BASE}/openapi.json",
        docs_url=None,
        redoc_url=None,
        dependencies=[Depends(check_address)],
    )
    app.state.desk = desk
    for router in ROUTERS:
        app.include_router(router, prefix=BASE, responses=PROBLEMS)
    app.include_router(server.health, responses=PROBLEMS)
    app.add_exception_handler(DanluError, _danlu_error)
    app.add_exception_handler(RequestValidationError, _bad_request)
    app.add_exception_handler(HTTPException, _http_error)
    app.add_exception_handler(ClientDisconnect, _hung_up)
    app.add_exception_handler(Exception, _bug)
    return app


async def _danlu_error(_: Request, error: Exception) -> Response:
    assert isinstance(error, DanluError)
    headers = {"WWW-Authenticate": "Bearer"} if error.status == 401 else {}
    if isinstance(error, TooMany):
        headers["Retry-After"] = str(error.retry_after_s)
    return Problem(problem_out(error), status_code=error.status, headers=headers)


async def _bad_request(request: Request, error: Exception) -> Response:
    assert isinstance(error, RequestValidationError)
    first = error.errors()[0]
    name = first["loc"][-1] if first["loc"] else "request"
    return await _danlu_error(request, Invalid(f"`{name}`: {first['msg']}"))


async def _http_error(request: Request, error: Exception) -> Response:
    assert isinstance(error, HTTPException)
    if error.status_code == 404:
        return await _danlu_error(request, NotFound(f"no route {request.url.path}", f"see {BASE}/openapi.json"))
    if error.status_code == 405:
        allowed = _methods_of(request.url.path)
        hint = f"{request.url.path} knows {', '.join(allowed)}"
        problem = problem_out(Invalid(f"no {request.method} here", hint, code="no_method")) | {"status": 405}
        return Problem(problem, status_code=405, headers={"Allow": ", ".join(allowed)})
    problem = problem_out(Invalid(str(error.detail))) | {"status": error.status_code}
    return Problem(problem, status_code=error.status_code, headers=error.headers)


def _methods_of(path: str) -> list[str]:
    """The methods of all routes of a path; the framework names the methods of the first route only."""
    inside = path.removeprefix(BASE)
    routes = [route for router in ROUTERS for route in router.routes] if inside != path else server.health.routes
    found = [route for route in routes if isinstance(route, APIRoute) and route.path_regex.match(inside)]
    return sorted({method for route in found for method in route.methods or ()} or {"GET"})


async def _hung_up(request: Request, _: Exception) -> Response:
    """The client is gone: nobody reads the answer."""
    log.info("%s %s: the client hung up before the end of its request", request.method, request.url.path)
    return await _danlu_error(request, Invalid("the request broke off before its end", "send it again"))


async def _bug(request: Request, error: Exception) -> Response:
    log.error("%s %s failed", request.method, request.url.path, exc_info=error)
    return Problem(
        problem_out(DanluError("the server made a mistake", "its log says more", code="bug")), status_code=500
    )
