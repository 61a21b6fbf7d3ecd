"""The keeper's loop: one thread, one epoll; the socket, the signals, the clock and the writes of the journal."""

import os
import select
import signal
import socket
import struct
import sys
import time
from collections.abc import Callable
from typing import Any

from danlu.engines.local.keeper.log_limit import LogLimits
from danlu.engines.local.keeper.run import Run
from danlu.engines.local.keeper.shells import close_all, open_shell
from danlu.engines.local.keeper.spawn import CannotStart
from danlu.engines.local.keeper.supervisor import Supervisor
from danlu.engines.local.protocol import PROTOCOL, parse_handle, parse_line, render_line

SYNC_AFTER_SECONDS = 0.2
RETRY_AFTER_SECONDS = 1.0
EXIT_TOLD_WITHIN_SECONDS = 10.0
# While short runs come and go, the keeper reports the start of a run this much later: by then the run has ended, and
# both sides save a message. A user who follows the run sees its log at once all the same.
BEGUN_TOLD_WITHIN_SECONDS = 0.005
SHORT_RUNS_WITHIN_SECONDS = 0.05
# The server that started this keeper is about to connect.
FIRST_LINGER_SECONDS = 5.0


class Connection:
    __slots__ = ("incoming", "is_full", "outgoing", "shell", "sock")

    def __init__(self, sock: socket.socket) -> None:
        self.sock = sock
        self.incoming = bytearray()
        self.outgoing = bytearray()
        self.is_full = False  # the other side reads slower than the keeper writes
        self.shell = 0  # pid of the shell of this connection


class Keeper:
    def __init__(self, listener: socket.socket, supervisor: Supervisor, boot: str, linger: float) -> None:
        self._listener = listener
        self._supervisor = supervisor
        self._boot = boot
        self._linger = max(linger, FIRST_LINGER_SECONDS)
        self._linger_later = linger
        self._epoll = select.epoll()
        self._callbacks: dict[int, Callable[[int], None]] = {}
        self._connections: dict[int, Connection] = {}
        self._server: Connection | None = None
        self._asked_to_go = False
        self._idle_since: float | None = None
        self._sync_at: float | None = None
        self._retry_at: float | None = None
        self._tell_begun_at: float | None = None
        self._last_end = 0.0
        self._log_limits = LogLimits()
        supervisor.on_shell_exit = self._shell_exited
        self.watch(listener.fileno(), self._accept)

    def watch(self, fd: int, callback: Callable[[int], None]) -> None:
        self._epoll.register(fd, select.EPOLLIN)
        self._callbacks[fd] = callback

    def _unwatch(self, fd: int) -> None:
        del self._callbacks[fd]
        self._epoll.unregister(fd)

    def watch_main(self, run: Run) -> None:
        def gone(events: int) -> None:
            self._unwatch(run.pidfd)
            self._supervisor.main_gone(run, time.monotonic() + EXIT_TOLD_WITHIN_SECONDS)

        self.watch(run.pidfd, gone)

    def watch_signals(self) -> None:
        read_end, write_end = os.pipe2(os.O_NONBLOCK | os.O_CLOEXEC)
        signal.set_wakeup_fd(write_end, warn_on_full_buffer=False)

        def arrived(events: int) -> None:
            numbers = os.read(read_end, 4096)
            self._asked_to_go |= signal.SIGTERM in numbers
            self._supervisor.reap()

        self.watch(read_end, arrived)

    # The loop

    def run(self) -> None:
        self._flush()
        while not self._may_go():
            try:
                for fd, events in self._epoll.poll(self._timeout()):
                    if callback := self._callbacks.get(fd):
                        callback(events)
                self._supervisor.run_timers()
                self._log_limits.look(self._supervisor.alive.values())
                self._flush()
            except Exception:  # noqa: BLE001 - all runs depend on this loop: it writes down what happened and goes on
                import traceback

                traceback.print_exc()
                time.sleep(0.05)

    def _timeout(self) -> float | None:
        now = time.monotonic()
        times = [at - now for at in (self._sync_at, self._retry_at, self._tell_begun_at) if at is not None]
        if self._idle_since is not None:
            times.append(self._idle_since + self._linger - now)
        if self._supervisor.alive:
            times.append(self._log_limits.seconds_to_next())
        if (next_timer := self._supervisor.seconds_to_next()) is not None:
            times.append(next_timer)
        return max(0.0, min(times)) if times else None

    def _flush(self) -> None:
        """Write the journal, then report to the server, then sync: the server works while the disk does."""
        journal, now = self._supervisor.journal, time.monotonic()
        is_written = journal.write()
        if self._supervisor.changed:
            self._tell_due_changes(now)
        for connection in [c for c in self._connections.values() if c.outgoing]:
            self._send(connection)
        if not is_written or self._supervisor.groups.leaving:
            if self._retry_at is None or self._retry_at <= now:
                self._supervisor.groups.tidy()
                self._retry_at = now + RETRY_AFTER_SECONDS
        else:
            self._retry_at = None
        if not journal.needs_sync:
            self._sync_at = None
        elif self._server is None or (self._sync_at is not None and self._sync_at <= now):
            journal.sync()
            self._sync_at = None
        elif self._sync_at is None:
            self._sync_at = now + SYNC_AFTER_SECONDS

    def _may_go(self) -> bool:
        if self._supervisor.alive or self._connections or self._supervisor.journal.has_waiting:
            self._idle_since = None
            self._asked_to_go &= bool(not self._supervisor.alive)
            return self._asked_to_go and not self._supervisor.journal.has_waiting
        now = time.monotonic()
        if self._idle_since is None:
            self._idle_since = now
        return self._asked_to_go or now - self._idle_since >= self._linger

    # Connections

    def _accept(self, events: int) -> None:
        sock, _ = self._listener.accept()
        uid = struct.unpack("3i", sock.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, 12))[1]
        if uid not in (0, os.geteuid()):
            sock.close()
            return
        sock.setblocking(False)
        self._linger = self._linger_later
        connection = Connection(sock)
        self._connections[sock.fileno()] = connection
        self.watch(sock.fileno(), lambda events: self._ready(connection, events))

    def _ready(self, connection: Connection, events: int) -> None:
        if events & select.EPOLLOUT:
            self._send(connection)
        if not events & (select.EPOLLIN | select.EPOLLHUP | select.EPOLLERR) or connection.sock.fileno() < 0:
            return
        try:
            data = connection.sock.recv(1 << 18)
        except BlockingIOError:
            return
        except OSError:
            data = b""
        if not data:
            self._close(connection)
            return
        connection.incoming += data
        if b"\n" not in data:
            return
        *lines, rest = connection.incoming.split(b"\n")
        connection.incoming = rest
        for line in lines:
            try:
                self._obey(connection, parse_line(line))
            except (ValueError, KeyError, TypeError, AttributeError) as error:
                sys.stderr.write(f"keeper: a message was not understood: {error!r}\n")
                self._close(connection)
                return

    def _send(self, connection: Connection) -> None:
        try:
            sent = connection.sock.send(connection.outgoing)
            del connection.outgoing[:sent]
        except BlockingIOError:
            pass
        except OSError:  # the peer reads no more; the keeper still reads all messages sent before
            connection.outgoing.clear()
        if connection.is_full != bool(connection.outgoing):
            connection.is_full = bool(connection.outgoing)
            wanted = select.EPOLLIN | (select.EPOLLOUT if connection.is_full else 0)
            self._epoll.modify(connection.sock.fileno(), wanted)

    def _close(self, connection: Connection) -> None:
        if connection.sock.fileno() < 0:
            return
        self._unwatch(connection.sock.fileno())
        del self._connections[connection.sock.fileno()]
        connection.sock.close()
        if connection is self._server:
            self._server = None
        if connection.shell in self._supervisor.ownership.shells:  # the client is gone: hang up
            os.killpg(connection.shell, signal.SIGHUP)
            os.killpg(connection.shell, signal.SIGCONT)

    def _shell_exited(self, pid: int, status: int) -> None:
        code = os.waitstatus_to_exitcode(status)
        for connection in self._connections.values():
            if connection.shell == pid:
                connection.outgoing += render_line({"exit": code if code >= 0 else 128 - code})
                connection.shell = 0

    # Messages

    def _obey(self, connection: Connection, message: dict[str, Any]) -> None:
        verb = message["do"]
        if verb == "start":
            self._supervisor.start([one for one in message["runs"] if parse_handle(one["handle"])[0] == self._boot])
        elif verb == "stop":
            notice = message.get("notice")
            self._supervisor.stop(message["handle"], message["grace"], (notice[0], notice[1]) if notice else None)
        elif verb == "forget":
            self._supervisor.forget(message["handles"])
        elif verb == "hello":
            self._hello(connection, message)
        elif verb == "exec":
            self._exec(connection, message)
        elif verb == "quit":
            self._asked_to_go = True
        else:
            raise ValueError(f"unknown verb {verb!r}")
        if "number" in message:
            self._tell_changes()
            connection.outgoing += render_line({"done": message["number"]})

    def _tell_due_changes(self, now: float) -> None:
        """Report ends at once, starts a little later."""
        changed = self._supervisor.changed
        over = [run for run in changed.values() if run.end]
        if over:
            self._last_end = now
        is_busy = self._server and now - self._last_end < SHORT_RUNS_WITHIN_SECONDS
        is_due = self._tell_begun_at is not None and self._tell_begun_at <= now
        if is_busy and not is_due and len(over) < len(changed):
            self._tell_begun_at = self._tell_begun_at or now + BEGUN_TOLD_WITHIN_SECONDS
            self._tell(over)
        else:
            self._tell_changes()

    def _tell_changes(self) -> None:
        """Report all changes: the changes behind an answer go before the answer."""
        self._tell_begun_at = None
        self._tell(list(self._supervisor.changed.values()))

    def _tell(self, runs: list[Run]) -> None:
        if runs and self._server:
            self._server.outgoing += render_line({"runs": [run.view() for run in runs]})
        for run in runs:
            del self._supervisor.changed[run.handle]

    def _hello(self, connection: Connection, message: dict[str, Any]) -> None:
        is_understood = message.get("protocol") == PROTOCOL
        runs = self._supervisor.runs.values() if is_understood else ()
        told = {"protocol": PROTOCOL, "pid": os.getpid(), "boot": self._boot, "alive": len(self._supervisor.alive)}
        connection.outgoing += render_line({"hello": told, "runs": [run.view() for run in runs]})
        if not is_understood:
            return
        if self._server is not None and self._server is not connection:
            older = self._server
            older.outgoing += render_line({"replaced": True})
            self._send(older)
            self._close(older)
        self._server = connection
        self._supervisor.changed.clear()

    def _exec(self, connection: Connection, message: dict[str, Any]) -> None:
        run = self._supervisor.alive.get(message["handle"])
        if run is None or run.main_over:
            connection.outgoing += render_line({"refused": "this run is not running"})
            return
        try:
            pid, fds = open_shell(self._supervisor, run, message)
        except CannotStart as cannot:
            code = 126 if cannot.exit_code is None else cannot.exit_code
            connection.outgoing += render_line({"failed": cannot.text, "exit": code})
            return
        connection.shell = pid
        try:
            socket.send_fds(connection.sock, [render_line({"fds": len(fds), "pid": pid})], fds)
        except OSError:
            self._close(connection)
        finally:
            close_all(fds)
