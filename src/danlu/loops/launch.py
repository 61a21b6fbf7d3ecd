"""Turns a job with a seat into a `Launch`: everything that the engine needs for the start."""

import asyncio
import os
import pwd
from collections.abc import Callable, Collection, Mapping
from concurrent.futures import ThreadPoolExecutor
from datetime import timedelta
from functools import partial

from danlu.domain.job import Job, RunId
from danlu.domain.people import is_boosted
from danlu.engines.base import Handle, Launch, LogSource
from danlu.provision.paths import run_folder_of, shelf_of
from danlu.provision.variables import run_variables
from danlu.state.inventory import Inventory
from danlu.state.jobs import JobCache

_KEPT_ENVIRONS = 256
LAID_OUT_AT_ONCE = 4


class Launcher:
    """Reads the submitter's environment, lays out the snapshot, and chooses the path of the log."""

    def __init__(
        self,
        cache: JobCache,
        files_dir: str,
        inventory: Inventory,
        logs: Callable[[RunId], LogSource],
        *,
        as_submitter: bool,
        grace: timedelta,
        log_limit_bytes: int = 0,
        boosted: Callable[[], Collection[str]] = tuple,
        check_user: Callable[[str], None] = lambda _: None,
    ) -> None:
        """`boosted`: people whose jobs currently go before all other jobs of their priority (see `is_boosted`).
        `check_user` refuses users whose jobs must not run."""
        self.cache = cache
        self.files_dir = files_dir
        self.as_submitter = as_submitter
        self._inventory = inventory
        self._logs = logs
        self.grace = grace
        self._log_limit_bytes = log_limit_bytes
        self._boosted = boosted
        self._check_user = check_user
        self._environs: dict[str, Mapping[str, str]] = {}
        # Not the default pool: starts must not wait behind requests of users.
        self._threads = ThreadPoolExecutor(LAID_OUT_AT_ONCE, thread_name_prefix="lay-out")
        try:
            self._own_login = _login_variables(pwd.getpwuid(os.getuid()))
        except KeyError:
            self._own_login = {}

    async def __call__(self, job: Job) -> Launch:
        assert job.handle is not None
        self._check_user(job.user)
        spec = job.spec
        workdir = spec.workdir
        if spec.snapshot:
            workdir = run_folder_of(self.files_dir, job.run_id)
            shelf = shelf_of(self.files_dir, job.user)
            lay_out = partial(shelf.lay_out, spec.snapshot, workdir, owner=self._owner(job.user))
            await asyncio.get_running_loop().run_in_executor(self._threads, lay_out)
        inherited = await self._environ(spec.environ)
        log = self._logs(job.run_id)
        if self.cache.active_jobs.is_watched(job.id):
            await log.prepare()
        return Launch(
            handle=Handle(job.handle),
            run_id=job.run_id,
            command=spec.command,
            workdir=workdir,
            env=run_variables(
                job, job.seat, inherited, login=self._login(job.user), shards_per_gpu=self._inventory.shards_per_gpu
            ),
            seat=job.seat,
            log_path=log.path,
            log_limit_bytes=self._log_limit_bytes,
            umask=spec.umask,
            user=job.user if self.as_submitter else "",
            time_limit=spec.time_limit,
            notice=spec.notice,
            grace=self.grace,
            ask=spec.ask,
            name=spec.name,
            queue=spec.queue,
            team=spec.team,
            priority=spec.priority,
            is_boosted=is_boosted(self._boosted(), job.user, job.spec.team),
        )

    async def _environ(self, environ_id: str) -> Mapping[str, str]:
        if not environ_id:
            return {}
        found = self._environs.get(environ_id)
        if found is None:
            if len(self._environs) >= _KEPT_ENVIRONS:
                self._environs.clear()
            found = self._environs[environ_id] = await self.cache.store.environ(environ_id)
        return found

    def _login(self, user: str) -> Mapping[str, str]:
        if not self.as_submitter:
            return self._own_login
        try:
            return _login_variables(pwd.getpwnam(user))
        except KeyError:
            return {}

    def _owner(self, user: str) -> tuple[int, int] | None:
        if not self.as_submitter:
            return None
        entry = pwd.getpwnam(user)
        return entry.pw_uid, entry.pw_gid


def _login_variables(entry: pwd.struct_passwd) -> dict[str, str]:
    return {"HOME": entry.pw_dir, "USER": entry.pw_name, "LOGNAME": entry.pw_name, "SHELL": entry.pw_shell}
