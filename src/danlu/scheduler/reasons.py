"""Why each remaining entry waits. Texts and estimates are made on demand."""

from collections.abc import Iterator, Mapping
from datetime import datetime

from danlu.domain.job import Reason
from danlu.domain.reasons import HOPELESS, ReasonCode
from danlu.scheduler.admission import Admission
from danlu.scheduler.placement import Fleet
from danlu.scheduler.reasons_quota import whose_is_exceeded, why_over
from danlu.scheduler.reasons_room import ARRAY_LIMIT, CROWDED, Explainer
from danlu.scheduler.reservations import Reservations
from danlu.scheduler.snapshot import Wait, Waiting


class NotStarted:
    """The entries that did not start, in queue order, with what the pass found out about them."""

    def __init__(self) -> None:
        self.entries: dict[str, Waiting] = {}
        self.limited: set[str] = set()  # arrays at their limit of running tasks
        self.crowded: set[str] = set()  # the engine's own queue has no room for more of these
        self.over: set[str] = set()  # over quota
        self.borrowing: set[str] = set()
        self.reclaiming: dict[str, int] = {}  # number of borrowed cards that are being given back for an entry


class Waits(Mapping[str, Wait]):
    """Waits by key, in queue order. The text and the estimate of a wait are made on first access."""

    def __init__(
        self, left: NotStarted, fleet: Fleet, reservations: Reservations, admission: Admission | None, now: datetime
    ) -> None:
        self._left = left
        self._entries = left.entries
        self._reservations = reservations
        self._admission = admission
        self._now = now
        self._explainer = Explainer(fleet)
        self._places: dict[str, int] = {}
        self._made: dict[str, Wait] = {}

    def __getitem__(self, key: str) -> Wait:
        wait = self._made.get(key)
        if wait is None:
            wait = self._made[key] = self._make(self._entries[key])
        return wait

    def __iter__(self) -> Iterator[str]:
        return iter(self._entries)

    def __len__(self) -> int:
        return len(self._entries)

    def __contains__(self, key: object) -> bool:
        return key in self._entries

    def __repr__(self) -> str:
        return repr(dict(self))

    def _make(self, waiting: Waiting) -> Wait:
        if not self._places:
            self._places = {key: place for place, key in enumerate(self._entries, 1)}
        key, left, admission = waiting.key, self._left, self._admission
        place = self._places[key]
        if waiting.blocked is not None:
            return Wait(waiting.blocked, place)
        if waiting.may_start <= 0 or key in left.limited:
            return Wait(ARRAY_LIMIT, place)
        if key in left.crowded:
            return Wait(CROWDED, place)
        if admission and key in left.over and not self._explainer.hopeless(waiting):
            return Wait(why_over(admission, waiting), place, admission.estimate(waiting))
        reason = _reclaiming(left.reclaiming[key]) if key in left.reclaiming else self._explainer.why(waiting)
        if reason.code in HOPELESS:
            return Wait(reason, place)
        if admission and key in left.borrowing:
            reason = Reason(reason.code, f"{reason.text}; {whose_is_exceeded(admission, waiting)}")
        return Wait(reason, place, self._reservations.estimate(waiting, place, self._now))


def _reclaiming(cards: int) -> Reason:
    if not cards:
        return Reason(ReasonCode.RECLAIMING, "borrowed room is being given back")
    given = "1 borrowed card is" if cards == 1 else f"{cards} borrowed cards are"
    return Reason(ReasonCode.RECLAIMING, f"{given} being given back")
