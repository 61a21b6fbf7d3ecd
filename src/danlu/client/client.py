"""`Client`: the operations of the command line, for scripts and for the command line."""

from __future__ import annotations

from time import monotonic

from danlu.client import job_body
from danlu.client.follow import Follow
from danlu.client.http import query_of, quoted
from danlu.client.jobs import Job, Log
from danlu.client.session import Wire, new_key

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence
    from typing import Any, Unpack

    from danlu.client.job_body import Options

PAGE = 200


class Client(Wire):
    """A client of a server's REST API.

    The address is `server`, or DANLU_SERVER, or the server of the last `danlu login`, or the personal server; with
    `start=True` the personal server is started if necessary. The token is `token`, or DANLU_TOKEN, or the token of
    `danlu login` for this server (no stored login with `remembered=False`). The personal server needs no token.
    """

    # Called with (bytes sent, bytes to send) during the upload of a snapshot.
    on_upload: Callable[[int, int], None] | None = None

    def submit(self, command: Sequence[str], **options: Unpack[Options]) -> Job:
        """Submit a job, or with `array` many jobs."""
        return self._job_of(self.submit_body(self.body(command, options)))

    def run(self, command: Sequence[str], **options: Unpack[Options]) -> Job:
        """Submit a job to follow: `run([...]).logs()` yields its log until the job has ended."""
        return self.submit(command, **options)

    def dry_run(self, command: Sequence[str], **options: Unpack[Options]) -> dict[str, Any]:
        """Where a job would run now, or why it would wait."""
        return self.ask("POST", "/jobs?dry_run=true", self.body(command, options), again=True)

    def clone(self, ref: str, command: Sequence[str] | None = None, **changes: Unpack[Options]) -> Job:
        """Submit a job again, with changes."""
        return self._job_of(self.clone_body(ref, command, changes))

    def clone_body(self, ref: str, command: Sequence[str] | None, changes: Options) -> dict[str, Any]:
        """Like `clone`: `{"id", "jobs": [job…], "count": N}`."""
        if changes.get("snapshot") is True and not changes.get("workdir"):
            changes["workdir"] = str(self.job(ref).data.get("workdir") or "")
        return self.ask("POST", f"/jobs/{quoted(ref)}/clone", self.body(command, changes), key=new_key())

    def job(self, ref: str) -> Job:
        return Job(self, self.ask("GET", f"/jobs/{quoted(ref)}"))

    def jobs(
        self,
        *,
        state: str | Sequence[str] = (),
        user: str = "me",
        name: str = "",
        label: str = "",
        array: str = "",
        team: str = "",
        queue: str = "",
        limit: int | None = None,
    ) -> Iterator[Job]:
        """Jobs, newest first, loaded page by page. `user="all"`: all users."""
        states = [state] if isinstance(state, str) else list(state)
        cursor, left = "", limit
        while left is None or left > 0:
            most = PAGE if left is None else min(left, PAGE)
            filters = {"user": user, "name": name, "label": label, "array": array, "team": team, "queue": queue}
            page = self.page(states=states, limit=most, before=cursor, **filters)
            for data in page["items"][:most]:
                yield Job(self, data)
            left = None if left is None else left - len(page["items"])
            cursor = page.get("next") or ""
            if not cursor:
                return

    def page(self, *, states: Sequence[str] = (), **filters: object) -> dict[str, Any]:
        """A page of jobs: `{"items": […], "next": cursor or None}`."""
        pairs: list[tuple[str, object]] = [("state", state) for state in states]
        pairs += [(name, value) for name, value in filters.items() if (name, value) != ("user", "all")]
        return self.ask("GET", "/jobs" + query_of(pairs))

    def logs(self, ref: str, *, follow: bool = True, tail: int | None = None, attempt: int | None = None) -> Log:
        return Log(self, ref, follow=follow, tail=tail, attempt=attempt)

    def follow(self, ref: str, *, tail: int | None = None) -> Follow:
        """The log and the state changes of a job until its end."""
        return Follow(self, None, ref, tail)

    def follow_new(self, body: dict[str, Any]) -> Follow:
        """Submit a job and follow it, in a single request."""
        key = new_key()
        return Follow(self, lambda: self.open("POST", "/jobs?follow=true", body, key=key))

    def stop(self, ref: str, *, now: bool = False, kill: bool = False) -> list[Job]:
        """Stop a job, or every task of an array. Ended jobs are fine."""
        return [Job(self, data) for data in self.stop_all(ref, now=now, kill=kill)["items"]]

    def stop_all(self, ref: str, *, now: bool = False, kill: bool = False) -> dict[str, Any]:
        """Like `stop`: `{"items": [job…], "count": N}`."""
        return self.ask("POST", f"/jobs/{quoted(ref)}/stop", {"now": now, "kill": kill}, again=True)

    def wait(self, ref: str, timeout: float | None = None) -> Job:
        """Wait for the end of a job or of all tasks of an array. TimeoutError after `timeout` seconds."""
        ref = self.lasting(ref)
        until = None if timeout is None else monotonic() + timeout
        while True:
            left = 30.0 if until is None else max(min(until - monotonic(), 30.0), 0.0)
            if self.wait_once(ref, left)["done"]:
                return self.job(ref)
            if until is not None and monotonic() >= until:
                raise TimeoutError(f"job {ref} has not ended within {timeout:g} seconds")

    def lasting(self, ref: str) -> str:
        """A permanent id for repeated requests: `slurm:17` names a job only until the job ends."""
        return self.job(ref).id if ":" in ref else ref

    def wait_once(self, ref: str, seconds: float) -> dict[str, Any]:
        return self.ask("GET", f"/jobs/{quoted(ref)}/wait?timeout={seconds:g}")

    def why(self, ref: str) -> dict[str, Any]:
        return self.ask("GET", f"/jobs/{quoted(ref)}/why")

    def exec(self, ref: str, command: Sequence[str]) -> tuple[int, bytes, bytes]:
        """Run a command next to a running job, in its environment: exit code, stdout, stderr."""
        from danlu.client.shell import collected

        return collected(self, ref, command)

    def remove(self, ref: str) -> int:
        """Delete an ended job or array and its log; return the number of deleted jobs."""
        return int(self.ask("DELETE", f"/jobs/{quoted(ref)}")["removed"])

    def snapshot(self, folder: str = "", *, limit: int | None = None) -> str:
        """Upload the code of a folder; return the snapshot id for a submit."""
        from danlu.client.snapshot import upload

        return upload(self, job_body.working_folder(folder), limit, self.on_upload)

    def nodes(self) -> list[dict[str, Any]]:
        return list(self.ask("GET", "/nodes")["items"])

    def queues(self) -> list[dict[str, Any]]:
        """Each queue with its rules, its free resources, and whether the caller may use it."""
        return list(self.ask("GET", "/queues")["items"])

    def others(
        self, *, state: Sequence[str] = (), user: str = "all", queue: str = "", name: str = ""
    ) -> list[dict[str, Any]]:
        """Running and waiting jobs of the cluster that were not submitted through Danlu."""
        pairs: list[tuple[str, object]] = [("state", one) for one in state]
        pairs += [("user", "" if user == "all" else user), ("queue", queue), ("name", name)]
        return list(self.ask("GET", "/others" + query_of(pairs))["items"])

    def other(self, ref: str) -> list[dict[str, Any]]:
        """The run `slurm:17`, or every task of this array."""
        return list(self.ask("GET", f"/others/{quoted(ref)}")["items"])

    def stop_other(self, ref: str) -> list[dict[str, Any]]:
        """Stop an external run. Permitted for its owner and for administrators."""
        return list(self.ask("POST", f"/others/{quoted(ref)}/stop", {}, again=True)["items"])

    def status(self) -> dict[str, Any]:
        return self.ask("GET", "/status")

    def login(self, user: str, password: str) -> dict[str, Any]:
        """Log in with a password; this client uses the new token from now on: `{"token", "id", …}`."""
        return self._entered(self.ask("POST", "/login", {"user": user, "password": password}))

    def first_admin(self, code: str, user: str, password: str) -> dict[str, Any]:
        """Become the first administrator with the code printed by the server; same result as `login`."""
        return self._entered(self.ask("POST", "/login/first", {"code": code, "user": user, "password": password}))

    def _entered(self, answer: dict[str, Any]) -> dict[str, Any]:
        self.use_token(answer["token"])
        return answer

    def whoami(self) -> dict[str, Any]:
        """`{"user", "role", "teams": [{"team", "is_leader", "leaders"}…], …}`."""
        return self.ask("GET", "/me")

    def users(self) -> list[dict[str, Any]]:
        return list(self.ask("GET", "/users")["items"])

    def teams(self) -> list[dict[str, Any]]:
        return list(self.ask("GET", "/teams")["items"])

    def join_team(self, team: str) -> dict[str, Any]:
        """Accept an invitation."""
        return self.ask("POST", f"/teams/{quoted(team)}/join", {})

    def leave_team(self, team: str) -> dict[str, Any]:
        """Leave a team, or decline an invitation."""
        return self.ask("POST", f"/teams/{quoted(team)}/leave", {})

    def quotas(self, holder: str = "", *, every: bool = False) -> list[dict[str, Any]]:
        """Limits and usage of `team:NAME` or `user:NAME`; by default of the caller and their teams; `every`: all
        quotas."""
        pairs: list[tuple[str, object]] = [("holder", holder), ("every", "true" if every else "")]
        return list(self.ask("GET", "/quotas" + query_of(pairs))["items"])

    def set_quota(self, holder: str, **changes: int | str | bool | None) -> dict[str, Any]:
        """`set_quota("team:nlp", gpus=8, borrow=True)`. Other limits stay; None removes a limit."""
        return self.ask("PUT", f"/quotas/{quoted(holder)}", changes, again=True)

    def clear_quota(self, holder: str) -> bool:
        """Remove a quota; return whether the quota existed."""
        return bool(self.ask("DELETE", f"/quotas/{quoted(holder)}", again=True)["removed"])

    def usage(
        self, *, user: str = "", team: str = "", since: str = "", until: str = "", by: str = "user"
    ) -> dict[str, Any]:
        """Usage: `{"since", "until", "by", "items": [{"name", "runs", "gpu_hours", …}…], "total"}`."""
        given = {"user": user, "team": team, "since": since, "until": until, "by": by}
        return self.ask("GET", "/usage" + query_of([*given.items()]))

    def boosts(self) -> list[dict[str, Any]]:
        return list(self.ask("GET", "/boosts")["items"])

    def boost(self, user: str, *, until: str, why: str, team: str = "") -> dict[str, Any]:
        """Put a user's jobs first until a date (`2026-07-01`) or for a duration (`3d`)."""
        return self.ask("POST", "/boosts", {"user": user, "until": until, "why": why, "team": team})

    def end_boost(self, boost_id: str) -> None:
        self.ask("DELETE", f"/boosts/{quoted(boost_id)}")

    def stop_server(self) -> None:
        """Stop the server; jobs keep running."""
        self.ask("POST", "/server/stop", {})

    def body(self, command: Sequence[str] | None, options: Options) -> dict[str, Any]:
        """The JSON body of a submit; uploads the snapshot if requested."""
        body = job_body.body_of(command, options)
        if options.get("snapshot") is True:
            body["snapshot"] = self.snapshot(body["workdir"], limit=options.get("snapshot_limit"))
        return body

    def submit_body(self, body: dict[str, Any]) -> dict[str, Any]:
        """POST /jobs. A lost connection neither loses the job nor submits it twice."""
        return self.ask("POST", "/jobs", body, key=new_key())

    def _job_of(self, answer: dict[str, Any]) -> Job:
        jobs = answer["jobs"]
        if len(jobs) == 1 and jobs[0]["id"] == answer["id"]:
            return Job(self, jobs[0])
        states = {"QUEUED": answer["count"]}
        return Job(self, {"id": answer["id"], "array": True, "count": answer["count"], "states": states, "items": jobs})
