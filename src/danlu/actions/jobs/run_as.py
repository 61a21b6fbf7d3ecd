"""The Unix user of a person's jobs, and which people may therefore submit jobs."""

from collections.abc import Container
from dataclasses import dataclass

from danlu.domain.people import Actor
from danlu.errors import Forbidden, Refused
from danlu.state.people import Roster
from danlu.unix.users import find_unix_user, is_system_user


@dataclass(frozen=True, slots=True)
class RunAs:
    """`server`: the server's own user. `is_shut`: jobs run as the server's user, so only this user may submit."""

    server: str = ""
    as_submitter: bool = False
    is_shut: bool = False
    roster: Roster | None = None

    def check(self, user: str) -> None:
        """Refuse a person if their jobs would run as another Unix user. Danlu checks at the submit, and again at each
        start: users of the machine, accounts and settings change."""
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
        """The names of accounts. A person without an account can only use the Unix socket, where the
        kernel proves the identity."""
        return self.roster.persons if self.roster else ()


def check_inside(actor: Actor, user: str) -> None:
    """Refuse to enter a job of a system user: a command inside the job runs as this user. Root may enter, because only
    the kernel can give an actor the name of root (see `check_new_name`)."""
    if actor.name == user or not is_system_user(user):
        return
    found = find_unix_user(actor.name)
    if found is None or found.pw_uid != 0:
        raise Forbidden(f"jobs of `{user}`, a user of the machine's own, are entered by that user and by root only")
