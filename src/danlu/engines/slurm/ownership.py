"""Assigns the jobs in Slurm's list to runs, strays and other users. Only changed jobs are assigned again. Pure."""

from collections.abc import Callable, Iterable

from danlu.engines.slurm.text.options import parse_comment
from danlu.engines.slurm.text.parse_jobs import SEATLESS, QueueLine

NumberOf = Callable[[str], int | None]


class JobOwnership:
    def __init__(self, *, lingers_s: float) -> None:
        self._lingers_s = lingers_s
        self.instance = ""
        self.ours: dict[str, list[QueueLine]] = {}  # jobs of each run
        self.waiting: dict[str, QueueLine] = {}  # the job of each run with one pending job
        self.duplicated: set[str] = set()  # runs with several jobs
        self.others: dict[str, QueueLine] = {}  # by Slurm's job id
        # Pending jobs of forgotten runs: a killed controller may restore such jobs.
        self.strays: dict[str, QueueLine] = {}
        self.placed: dict[str, QueueLine] = {}  # all jobs on nodes, of any user
        self.changed: set[str] = set()  # runs with changed jobs, for the verdicts
        self._named: dict[str, list[QueueLine]] = {}  # jobs with the run id in their comment
        self._touched: set[str] = set()
        self._forgotten: dict[str, tuple[int, float]] = {}

    def touch(self, run_id: str) -> None:
        """Assign the jobs of this run again at the next update."""
        self._touched.add(run_id)

    def forget(self, run_id: str, number: int, at: float) -> None:
        """A run is ended and forgotten. Slurm lists the job for a while: the job is not external."""
        self._forgotten[run_id] = number, at
        self.touch(run_id)

    def update(
        self,
        fresh: Iterable[QueueLine],
        gone: Iterable[QueueLine],
        *,
        began_at: float,
        owner_of: NumberOf,
        begun_number: NumberOf,
    ) -> None:
        """Take over the differences between two lists. `owner_of` gives the user id of a run: any user can write a run
        id into a comment, so only a job of the owner counts. `begun_number` gives the job of a started run: other
        running jobs of the owner with this comment are external."""
        changed, self._touched = self._touched, set()
        for line in gone:
            for known in (self.placed, self.others, self.strays):
                known.pop(line.id, None)
            if run_id := self._run_id(line):
                self._named[run_id].remove(line)
                changed.add(run_id)
        for line in fresh:
            if line.state not in SEATLESS:
                self.placed[line.id] = line
            if run_id := self._run_id(line):
                self._named.setdefault(run_id, []).append(line)
                changed.add(run_id)
            else:
                self.others[line.id] = line
        for run_id, (_, at) in list(self._forgotten.items()):
            if at < began_at - self._lingers_s or (at < began_at and run_id not in self._named):
                del self._forgotten[run_id]
                changed.add(run_id)
        for run_id in changed:
            self._assign(run_id, owner_of(run_id), begun_number(run_id))
        self.changed |= changed

    def _run_id(self, line: QueueLine) -> str:
        named = parse_comment(line.comment)
        return named[1] if named and named[0] == self.instance else ""

    def _assign(self, run_id: str, owner: int | None, begun: int | None) -> None:
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
        for known in (self.ours, self.waiting):
            known.pop(run_id, None)
        self.duplicated.discard(run_id)
        if ours:
            self.ours[run_id] = ours
            if len(ours) > 1:
                self.duplicated.add(run_id)
            elif ours[0].is_waiting:
                self.waiting[run_id] = ours[0]

    def _is_left_over(self, line: QueueLine, run_id: str) -> bool:
        """A remainder of a forgotten run. A job that keeps running after `lingers_s` is external."""
        is_going = line.is_over or line.state == "COMPLETING"
        return is_going or self._forgotten.get(run_id, (None, 0.0))[0] == line.number
