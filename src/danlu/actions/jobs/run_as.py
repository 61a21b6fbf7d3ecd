"""Whose Unix user the jobs of a person run as, and who may therefore submit any."""

from collections.abc import Container
from dataclasses import dataclass

from danlu.domain.people import Actor
from danlu.errors import Forbidden, Refused
from danlu.state.people import Roster
from danlu.unix.users import find_unix_user, is_system_user


@dataclass(frozen=True, slots=True)
class RunAs:
    """`server`: the user that the server is. `is_shut`: jobs run as that user, and so only that user may submit."""

    server: str = ""
    as_submitter: bool = False
    is_shut: bool = False
    roster: Roster | None = None

    def check(self, user: str) -> None:
        """Refuse somebody whose jobs would run as a user who is not theirs. Asked at the submit, and again at each
        start: users of the machine come and go, and so do accounts and settings."""
        if self.is_shut and user != self.server:
            raise Forbidden(
                f"this server does not run as root, so it can submit jobs only as {self.server}",
                'an administrator runs it as root, or sets engine.run_as = "server": then all jobs are of that user',
                code="not_root",
            )
        if not self.as_submitter:
            return
        if find_unix_user(user) is None:
            raise Refused(
                f"jobs run as the Unix user of who submits them, and this machine has no user `{user}`",
                "ask an administrator to make one, with the same number on every node",
                code="no_unix_user",
            )
        if is_system_user(user) and user in self._accounts:
            raise Forbidden(
                f"`{user}` is a user of the machine's own, and nobody with an account runs jobs as it",
                "take an account with a name of your own",
                code="system_user",
            )

    @property
    def _accounts(self) -> Container[str]:
        """Who else but the kernel can say to be somebody: without an account one comes by the Unix socket only."""
        return self.roster.persons if self.roster else ()


def check_inside(actor: Actor, user: str) -> None:
    """Refuse to go into the job of one of the machine's own users: who is inside is that user. Root may, for nobody is
    called so but by the kernel (see `check_new_name`)."""
    if actor.name == user or not is_system_user(user):
        return
    found = find_unix_user(actor.name)
    if found is None or found.pw_uid != 0:
        raise Forbidden(f"jobs of `{user}`, a user of the machine's own, are entered by that user and by root only")
