"""Routes of the sign-on with a browser. The browser gets HTML pages; the terminal gets JSON."""

import logging
from datetime import UTC, datetime
from urllib.parse import parse_qs, urlencode, urlsplit

from fastapi import APIRouter, Request
from pydantic import BaseModel, ConfigDict
from starlette.responses import HTMLResponse, RedirectResponse, Response

from danlu.actions.installation import Installation
from danlu.actions.people.sign_on import link
from danlu.actions.people.sign_on_flow import Signon
from danlu.actions.people.sign_on_tickets import Ticket, spoken
from danlu.api.answers import Answer
from danlu.api.auth import TheActor, TheDesk, origin_of
from danlu.api.bodies import Json, body_of, read_body, schema_of
from danlu.api.document import PAGES, REDIRECT, body_as, query_of
from danlu.api.fields import Text
from danlu.api.present_people import NewToken, token_out
from danlu.api.routes.sign_on_pages import HEADERS, code_page, confirm_page, error_page
from danlu.errors import DanluError, Invalid, Refused

log = logging.getLogger(__name__)
router = APIRouter(default_response_class=Json)

COOKIE = "danlu_signon"
PLACE = "/api/v1/signon"
MOST_FORM = 10_000


class SignonStart(Answer):
    issuer: str
    url: str


class FinishIn(BaseModel):
    model_config = ConfigDict(extra="forbid")
    code: Text
    verifier: Text


class LinkIn(BaseModel):
    model_config = ConfigDict(extra="forbid")
    subject: Text


class Linked(Answer):
    user: str
    subject: str


def _signon(desk: Installation) -> Signon:
    if desk.signon is None:
        raise Refused("this server has no sign-on with a browser", "`danlu login` asks for a password")
    return desk.signon


@router.get("/signon", response_model=SignonStart)
async def show_signon(desk: TheDesk) -> Response:
    """Check whether a sign-on can begin, and name the URL."""
    signon = _signon(desk)
    await signon.check(now=datetime.now(UTC))
    url = signon.redirect_url.removesuffix("/callback") + "/start" if signon.redirect_url else ""
    return Json({"issuer": signon.rules.issuer, "url": url})


@router.get(
    "/signon/start",
    response_class=HTMLResponse,
    responses=PAGES,
    openapi_extra=query_of("port", "challenge", "state"),
)
async def begin_signon(desk: TheDesk, request: Request) -> Response:
    """Show a page that asks whether the terminal belongs to the person."""
    query, now = request.query_params, datetime.now(UTC)
    try:
        signon = _signon(desk)
        port = query.get("port", "")
        if not (port.isascii() and port.isdecimal() and len(port) < 6):
            raise Invalid("`port` is where a terminal listens on loopback, or 0")
        ticket = signon.tickets.issue(
            port=int(port), challenge=query.get("challenge", ""), echo=query.get("state", ""), now=now
        )
    except DanluError as error:
        return error_page(error)
    page = confirm_page(spoken(ticket.challenge), signon.tickets.confirmation(ticket), signon.rules.issuer)
    where = urlsplit(_redirect_url(signon, request))
    page.set_cookie(
        COOKIE,
        signon.tickets.seal(ticket),
        path=where.path.removesuffix("/callback"),
        secure=where.scheme == "https",
        httponly=True,
        samesite="lax",
    )
    return page


@router.post(
    "/signon/start",
    status_code=303,
    response_class=RedirectResponse,
    responses=PAGES | REDIRECT,
    openapi_extra=body_as("application/x-www-form-urlencoded"),
)
async def confirm_signon(desk: TheDesk, request: Request) -> Response:
    """Redirect to the provider, after a click on the confirmation page."""
    now = datetime.now(UTC)
    try:
        signon = _signon(desk)
        confirmation = _field(await body_of(request, most=MOST_FORM), "confirmation")
        ticket = signon.recognized(request.cookies.get(COOKIE, ""), confirmation=confirmation, now=now)
    except DanluError as error:
        return error_page(error)
    try:
        where = await signon.depart(ticket, redirect_url=_redirect_url(signon, request), now=now)
    except DanluError as error:
        return _ended(signon, request, ticket, error, now)
    return RedirectResponse(where, 303, HEADERS)


@router.get(
    "/signon/callback",
    response_class=HTMLResponse,
    responses=PAGES | REDIRECT,
    openapi_extra=query_of("state", "code", "error", "iss"),
)
async def return_from_provider(desk: TheDesk, request: Request) -> Response:
    """Return from the provider: send a one-time code to the terminal, or show the code on a page for pasting."""
    query, now = request.query_params, datetime.now(UTC)
    try:
        signon = _signon(desk)
        ticket = signon.recognized(request.cookies.get(COOKIE, ""), state=query.get("state", ""), now=now)
    except DanluError as error:
        return error_page(error)
    redirect_url = _redirect_url(signon, request)
    try:
        name = await signon.settle(ticket, query, redirect_url=redirect_url, origin=origin_of(request), now=now)
    except DanluError as error:
        return _ended(signon, request, ticket, error, now)
    return _ended(signon, request, ticket, name, now)


@router.post("/signon/finish", status_code=201, response_model=NewToken, openapi_extra=schema_of(FinishIn))
async def finish_signon(desk: TheDesk, request: Request) -> Response:
    given = await read_body(FinishIn, request)
    token, secret = await _signon(desk).finish(
        given.code, given.verifier, origin=origin_of(request), now=datetime.now(UTC)
    )
    return Json({**token_out(token, desk.roster), "token": secret}, status_code=201)


@router.put("/users/{name}/subject", response_model=Linked, openapi_extra=schema_of(LinkIn))
async def link_account(desk: TheDesk, actor: TheActor, request: Request, name: str) -> Response:
    given = await read_body(LinkIn, request)
    person = await link(desk.context, actor, name, given.subject, now=datetime.now(UTC))
    return Json({"user": person.name, "subject": person.subject})


def _ended(signon: Signon, request: Request, ticket: Ticket, outcome: str | DanluError, now: datetime) -> Response:
    """Report success or failure to the terminal; without a listening terminal, on the page."""
    answer: Response
    if isinstance(outcome, DanluError):
        # As a literal: a name from the provider may hold line ends.
        log.info("a sign-on from %s was refused: %a", origin_of(request), outcome.text)
    if ticket.port:
        code = signon.codes.give(outcome, ticket.challenge, now=now)
        query = urlencode({"code": code, "state": ticket.echo})
        answer = RedirectResponse(f"http://127.0.0.1:{ticket.port}/?{query}", 303, HEADERS)
    elif isinstance(outcome, DanluError):
        answer = error_page(outcome)
    else:
        answer = code_page(signon.codes.give(outcome, ticket.challenge, now=now))
    answer.delete_cookie(COOKIE, path=urlsplit(_redirect_url(signon, request)).path.removesuffix("/callback"))
    return answer


def _redirect_url(signon: Signon, request: Request) -> str:
    return signon.redirect_url or f"{request.url.scheme}://{request.url.netloc}{PLACE}/callback"


def _field(body: bytes, name: str) -> str:
    return parse_qs(body.decode("ascii", "replace")).get(name, [""])[0]
