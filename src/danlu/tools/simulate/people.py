"""Teams, quotas and boosts of a simulation, from a file. (An installation keeps these in its database.)"""

import tomllib
from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import Any

from danlu.domain.parsing import parse_duration
from danlu.domain.quota import Quota, parse_holder, parse_quota
from danlu.errors import Invalid
from danlu.tools.simulate.replay import Boosted

_SECTIONS = ("teams", "quotas", "boosts")
_BOOST_KEYS = ("user", "from", "until")


@dataclass(frozen=True, slots=True)
class People:
    teams: Mapping[str, tuple[str, ...]] = field(default_factory=dict)  # team -> members
    quotas: Mapping[str, Quota] = field(default_factory=dict)  # by `user:NAME` and `team:NAME`
    boosts: tuple[tuple[str, float | datetime, float | datetime], ...] = ()  # user, from, until

    def teams_of(self, user: str) -> tuple[str, ...]:
        return tuple(team for team, members in self.teams.items() if user in members)

    def boosts_since(self, begin: datetime) -> tuple[Boosted, ...]:
        """The boosts in seconds since the start of the trace."""

        def seconds(when: float | datetime) -> float:
            return (when - begin).total_seconds() if isinstance(when, datetime) else when

        return tuple(Boosted(user, seconds(since), seconds(until)) for user, since, until in self.boosts)


def read_people(path: str) -> People:
    """Read the file. An error names the wrong entry."""
    try:
        with open(path, "rb") as file:
            document = tomllib.load(file)
    except OSError as error:
        raise Invalid(f"cannot read {path}: {error.strerror}") from error
    except (tomllib.TOMLDecodeError, UnicodeDecodeError) as error:
        raise Invalid(f"{path} is not valid TOML: {error}") from error
    for name in document:
        if name not in _SECTIONS:
            raise Invalid(f"unknown section: `{name}` in {path}", f"known: {', '.join(_SECTIONS)}", code="unknown_key")
    return People(
        _teams(document.get("teams", {}), path),
        _quotas(document.get("quotas", {}), path),
        tuple(_boost(one, path) for one in _listed(document.get("boosts", []), path)),
    )


def _teams(given: Any, path: str) -> dict[str, tuple[str, ...]]:
    if not isinstance(given, dict):
        raise Invalid(f"`teams` in {path} must be a section", 'for example `[teams]` and `nlp = ["li", "wang"]`')
    for team, members in given.items():
        if not isinstance(members, list) or not all(isinstance(one, str) and one for one in members):
            raise Invalid(f"team `{team}` in {path} must be a list of people", f'for example `{team} = ["li", "wang"]`')
    return {team: tuple(members) for team, members in given.items()}


def _quotas(given: Any, path: str) -> dict[str, Quota]:
    if not isinstance(given, dict):
        raise Invalid(f"`quotas` in {path} must be a section", 'for example `"team:nlp" = "gpus=8 borrow=yes"`')
    quotas = {}
    for holder, text in given.items():
        try:
            kind, name = parse_holder(holder)
            if not isinstance(text, str):
                raise Invalid("a quota is a text", 'for example "gpus=8 borrow=yes"')
            quotas[f"{kind}:{name}"] = parse_quota(text.split())
        except Invalid as error:
            raise Invalid(f"quota of `{holder}` in {path}: {error.text}", error.hint) from error
    return quotas


def _listed(given: Any, path: str) -> list[dict[str, Any]]:
    if not isinstance(given, list) or not all(isinstance(one, dict) for one in given):
        raise Invalid(f"`boosts` in {path} must be a list of sections", "write `[[boosts]]` before each of them")
    return given


def _boost(given: dict[str, Any], path: str) -> tuple[str, float | datetime, float | datetime]:
    for key in given:
        if key not in _BOOST_KEYS:
            raise Invalid(
                f"unknown key in [[boosts]]: `{key}` in {path}", f"known: {', '.join(_BOOST_KEYS)}", code="unknown_key"
            )
    user = given.get("user")
    if not isinstance(user, str) or not user or "until" not in given:
        raise Invalid(f"a boost in {path} needs `user` and `until`", 'for example `user = "li"` and `until = "5d"`')
    return user, _when(given.get("from", 0), "from", path), _when(given["until"], "until", path)


def _when(given: Any, key: str, path: str) -> float | datetime:
    """Seconds or a duration since the start of the trace, or a time."""
    if isinstance(given, datetime):
        return given if given.tzinfo else given.replace(tzinfo=UTC)
    if isinstance(given, int | float) and not isinstance(given, bool) and given >= 0:
        return float(given)
    if isinstance(given, str):
        return parse_duration(given, f"`{key}` of a boost in {path}").total_seconds()
    raise Invalid(f"`{key}` of a boost in {path} is a duration since the start of the trace, or a time, not {given!r}")
