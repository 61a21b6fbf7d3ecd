"""Whose the jobs are that Slurm lists. Of thousands, only those that changed are thought of again. Pure."""

from collections.abc import Callable, Iterable

from danlu.engines.slurm.text.options import parse_comment
from danlu.engines.slurm.text.parse_jobs import SEATLESS, QueueLine

# So long Slurm may take to see that a run is over. Whoever goes on after that only said that it was.
LINGERS_S = 60.0
NumberOf = Callable[[str], int | None]


class Sorting:
    def __init__(self) -> None:
        self.instance = ""
        self.ours: dict[str, list[QueueLine]] = {}  # what is listed of each run
        self.calm: dict[str, QueueLine] = {}  # of each that only waits
        self.doubled: set[str] = set()  # runs that are listed more than once
        self.others: dict[str, QueueLine] = {}  # by what Slurm calls them
        # They wait to be a run of ours that is over and forgotten: a controller that was killed puts some back there.
        self.strays: dict[str, QueueLine] = {}
        self.holding: dict[str, QueueLine] = {}  # those that have a place, whosever they are
        self.changed: set[str] = set()  # runs of which something else is listed, for whoever thinks of them
        self._named: dict[str, list[QueueLine]] = {}  # jobs that bear the name of a run of this installation
        self._touched: set[str] = set()
        self._buried: dict[str, tuple[int, float]] = {}

    def touch(self, run_id: str) -> None:
        """Something else is known of this run: whose the jobs are that bear its name is to be thought of again."""
        self._touched.add(run_id)

    def bury(self, run_id: str, number: int, at: float) -> None:
        """A run of ours is over and forgotten. Slurm lists its job for a while, and it is nobody else's."""
        self._buried[run_id] = number, at
        self.touch(run_id)

    def sort(
        self,
        fresh: Iterable[QueueLine],
        gone: Iterable[QueueLine],
        *,
        began_at: float,
        owner_of: NumberOf,
        begun_as: NumberOf,
    ) -> None:
        """What is listed anew and no more since the list before, of a look that began then. `owner_of` a run is its
        user's number: anyone can write the name of a run into a comment, so only its owner's job is the run. `begun_as`
        is which job it has: what else of its owner runs under that name is none of ours."""
        changed, self._touched = self._touched, set()
        for line in gone:
            for known in (self.holding, self.others, self.strays):
                known.pop(line.id, None)
            if run_id := self._run_id(line):
                self._named[run_id].remove(line)
                changed.add(run_id)
        for line in fresh:
            if line.state not in SEATLESS:
                self.holding[line.id] = line
            if run_id := self._run_id(line):
                self._named.setdefault(run_id, []).append(line)
                changed.add(run_id)
            else:
                self.others[line.id] = line
        for run_id, (_, at) in list(self._buried.items()):
            if at < began_at - LINGERS_S or (at < began_at and run_id not in self._named):
                del self._buried[run_id]
                changed.add(run_id)
        for run_id in changed:
            self._sort_one(run_id, owner_of(run_id), begun_as(run_id))
        self.changed |= changed

    def _run_id(self, line: QueueLine) -> str:
        named = parse_comment(line.comment)
        return named[1] if named and named[0] == self.instance else ""

    def _sort_one(self, run_id: str, owner: int | None, begun: int | None) -> None:
        ours = []
        for line in self._named.get(run_id, ()):
            self.others.pop(line.id, None)
            self.strays.pop(line.id, None)
            has_place = line.state not in SEATLESS
            if owner == line.uid:
                if has_place and begun is not None and begun != line.number:
                    self.others[line.id] = line
                else:
                    ours.append(line)
            elif owner is None and line.is_waiting:
                self.strays[line.id] = line
            elif not self._is_left_over(line, run_id):
                self.others[line.id] = line
        if not self._named.get(run_id):
            self._named.pop(run_id, None)
        for known in (self.ours, self.calm):
            known.pop(run_id, None)
        self.doubled.discard(run_id)
        if ours:
            self.ours[run_id] = ours
            if len(ours) > 1:
                self.doubled.add(run_id)
            elif ours[0].is_waiting:
                self.calm[run_id] = ours[0]

    def _is_left_over(self, line: QueueLine, run_id: str) -> bool:
        """Of a run that was ours. A job that only says so, and goes on, is somebody's."""
        is_going = line.is_over or line.state == "COMPLETING"
        return is_going or self._buried.get(run_id, (None, 0.0))[0] == line.number
