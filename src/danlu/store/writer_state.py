"""The writer's state in memory: the next number, and the environments of active jobs."""

from collections.abc import Iterable

from danlu.domain.job import Job


class Ledger:
    """As of the last commit."""

    def __init__(self, active: Iterable[Job] = (), next_seq: int = 1) -> None:
        self.next_seq = next_seq
        self.holders: dict[str, set[str]] = {}
        for job in active:
            if job.spec.environ:
                self.holders.setdefault(job.spec.environ, set()).add(job.id)

    def draft(self) -> "Draft":
        return Draft(self)


class Draft:
    """The ledger after the commit of the current transaction."""

    def __init__(self, ledger: Ledger) -> None:
        self._ledger = ledger
        self.next_seq = ledger.next_seq
        self._moves: list[tuple[str, str, bool]] = []

    def hold(self, job: Job) -> None:
        """An active job needs its environment; an ended job does not."""
        if job.spec.environ:
            self._moves.append((job.spec.environ, job.id, not job.state.is_ended))

    def mark(self) -> tuple[int, int]:
        return self.next_seq, len(self._moves)

    def back_to(self, mark: tuple[int, int]) -> None:
        self.next_seq, length = mark
        del self._moves[length:]

    def unneeded(self) -> list[str]:
        """Environments without an active job. Only changes are counted, because an environment may have many
        holders."""
        last = {(environ, job_id): needs for environ, job_id, needs in self._moves}
        left: dict[str, int] = {}
        for (environ, job_id), needs in last.items():
            held = self._ledger.holders.get(environ, set())
            left[environ] = left.get(environ, len(held)) + needs - (job_id in held)
        return [environ for environ, count in left.items() if count == 0]

    def keep(self) -> None:
        """Apply the draft after the commit."""
        self._ledger.next_seq = self.next_seq
        for environ, job_id, needs in self._moves:
            held = self._ledger.holders.setdefault(environ, set())
            (held.add if needs else held.discard)(job_id)
            if not held:
                del self._ledger.holders[environ]
