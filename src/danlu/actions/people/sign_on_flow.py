"""The steps of a sign-on: a terminal begins, a person confirms in a browser, the provider answers, the terminal ends.

Such a flow has four known attacks. The defences:
- An attacker sends a stranger's browser through the flow: the flow waits for a click on a page with the terminal's
  digits, and no other page can make this click.
- Another browser comes back from the provider: the browser must hold the sealed ticket, and the provider's `state` must
  be equal to the ticket's.
- The code goes to a wrong address: the code goes only to loopback of the browser's own machine, or onto the screen.
- Another terminal uses the code: only the terminal with the ticket's challenge can, once, for some minutes."""

from collections.abc import Mapping
from datetime import datetime
from typing import Any, Protocol

from danlu.actions.people.context import PeopleContext
from danlu.actions.people.login import issue_login
from danlu.actions.people.rate_limit import Pace, place_of, too_many
from danlu.actions.people.sign_on import SignonRules, arrive
from danlu.actions.people.sign_on_tickets import Codes, Ticket, Tickets, challenge_of, check_same
from danlu.actions.people.users import find_person, refuse_disabled
from danlu.errors import Invalid, Refused, Unauthorized
from danlu.store.protocol import Token

# Failed answers allowed from a single place; further answers are rate-limited before the server asks the provider.
FREE_TRIES = 20
CALLBACK = "/signon/callback"


def check_redirect(url: str) -> str:
    if url and (not url.startswith(("https://", "http://")) or not url.endswith(CALLBACK)):
        raise Invalid(f"`oidc.redirect_url` ends with {CALLBACK}, unlike `{url}`", f"https://HOST/api/v1{CALLBACK}")
    return url


class Provider(Protocol):
    """The identity provider, as implemented by `danlu.identity.oidc`."""

    async def metadata(self, now: datetime) -> Mapping[str, Any]: ...

    async def authorization_url(
        self, *, redirect_url: str, state: str, nonce: str, challenge: str, now: datetime
    ) -> str: ...

    async def claims(
        self, *, code: str, redirect_url: str, nonce: str, verifier: str, wanted: tuple[str, ...], now: datetime
    ) -> Mapping[str, Any]: ...


class Signon:
    """The sign-ons of an installation."""

    def __init__(
        self, context: PeopleContext, provider: Provider, rules: SignonRules, *, redirect_url: str = ""
    ) -> None:
        self.context, self.provider, self.rules = context, provider, rules
        self.redirect_url = check_redirect(redirect_url)
        self.tickets, self.codes = Tickets(), Codes()
        self._pace = Pace(free=FREE_TRIES)

    async def check(self, *, now: datetime) -> None:
        """Raise an error if the provider cannot be reached."""
        await self.provider.metadata(now)

    def recognized(
        self, sealed: str, state: str | None = None, confirmation: str | None = None, *, now: datetime
    ) -> Ticket:
        """The ticket of this browser. Refuses a `state` or `confirmation` from another sign-on."""
        ticket = self.tickets.unseal(sealed, now=now)
        if state is not None:
            check_same(state, ticket.state)
        if confirmation is not None:
            check_same(confirmation, self.tickets.confirmation(ticket))
        return ticket

    async def depart(self, ticket: Ticket, *, redirect_url: str, now: datetime) -> str:
        """The provider's address where the person continues."""
        return await self.provider.authorization_url(
            redirect_url=redirect_url,
            state=ticket.state,
            nonce=self.tickets.nonce(ticket),
            challenge=challenge_of(self.tickets.verifier(ticket)),
            now=now,
        )

    async def settle(
        self, ticket: Ticket, answer: Mapping[str, str], *, redirect_url: str, origin: str, now: datetime
    ) -> str:
        """Record the changes from the provider's answer, and return the name of the account."""
        if answer.get("iss", self.rules.issuer) != self.rules.issuer:
            raise Unauthorized("another identity provider answered", "begin again with `danlu login --browser`")
        if "error" in answer or not answer.get("code"):
            why = answer.get("error", "no answer")
            raise Refused(f"the identity provider did not let you in: {why[:60]!a}", "sign on again, or ask its people")
        place = place_of(origin)
        if wait := self._pace.wait(place, now):
            raise too_many("too many sign-ons that led nowhere", wait)
        self._pace.count(place, now)
        claims = await self.provider.claims(
            code=answer["code"],
            redirect_url=redirect_url,
            nonce=self.tickets.nonce(ticket),
            verifier=self.tickets.verifier(ticket),
            wanted=self.rules.wanted,
            now=now,
        )
        self._pace.give_back(place)
        return (await arrive(self.context, claims, self.rules, origin=origin, now=now)).name

    async def finish(self, code: str, verifier: str, *, origin: str, now: datetime) -> tuple[Token, str]:
        """A token and its secret for the terminal at the start of the flow. The secret is never shown again."""
        person = find_person(self.context.roster, self.codes.take(code, verifier, now=now))
        refuse_disabled(person)  # an administrator may have disabled the account since
        days = self.context.rules.login_days
        return await issue_login(self.context.store, person, origin=origin, now=now, days=days)
