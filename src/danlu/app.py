"""The only place where rooms meet: builds everything, starts it, and lets it go again.

`python -m danlu.app up` is a person's own server, `python -m danlu.app serve --config FILE` a shared one."""

import argparse
import asyncio
import contextlib
import gc
import logging
import os
import signal
import sys
from collections.abc import AsyncIterator, Sequence
from datetime import UTC, datetime, timedelta
from functools import partial

import uvloop

from danlu import __version__, paths
from danlu.actions.jobs.limits import Limits
from danlu.actions.jobs.references import engine_ids
from danlu.actions.jobs.run_as import RunAs
from danlu.actions.jobs.submit import Rules
from danlu.actions.people.context import PeopleContext, PeopleRules
from danlu.actions.people.login import has_admin
from danlu.actions.people.sign_on import SignonRules
from danlu.actions.people.sign_on_flow import Signon
from danlu.api.app import make_app
from danlu.api.auth import Desk
from danlu.api.connections import Lines, limits_for
from danlu.api.listener import make_server
from danlu.config.cluster import nodes_of, queues_of, queues_with, written_queues
from danlu.config.settings import Settings
from danlu.domain.quota import parse_quota
from danlu.domain.resources import Node
from danlu.engines.base import Engine
from danlu.engines.local.engine import LocalEngine
from danlu.engines.log_files import LogFiles
from danlu.errors import DanluError, Refused, Unreachable
from danlu.loops.dependencies import release_overdue
from danlu.loops.dispatch import Dispatcher
from danlu.loops.external_usage import ExternalUsage, in_books
from danlu.loops.launch import Launcher
from danlu.loops.schedule import Schedule
from danlu.loops.sweep import Sweeper
from danlu.monitor.machine import read_node
from danlu.provision.paths import trash_of
from danlu.startup import process
from danlu.state.inventory import Inventory
from danlu.state.jobs import JobCache
from danlu.state.people import Roster
from danlu.state.snapshots import Outlook, Standing
from danlu.state.usage import Tally
from danlu.store.sql import SqlStore
from danlu.unix import descriptors
from danlu.unix.patient_folder import PatientFolder

log = logging.getLogger("danlu")

# A thread that has committed must not wait 5 ms for its turn to say so.
SWITCH_INTERVAL_S = 0.0005


def main(argv: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(prog="python -m danlu.app")
    parser.add_argument("mode", choices=["up", "serve"])
    parser.add_argument("--config")
    parser.add_argument("--fake-gpus")
    parser.add_argument("--fake", action="store_true")
    parser.add_argument("--ready-fd", type=int)
    options = parser.parse_args(argv)
    ready = process.Ready(options.ready_fd)
    os.umask(0o077)
    descriptors.raise_limit()
    try:
        prepare = process.prepare_shared if options.mode == "serve" else process.prepare_personal
        settings, place = prepare(options)
        process.log_to(place.state_dir if ready.is_awaited else None)
        lock = process.take_lock(place, ready)
        if lock is None:
            return 0
        sys.setswitchinterval(SWITCH_INTERVAL_S)
        store = SqlStore(settings.store.url or f"sqlite:///{place.state_dir}/danlu.db")
        store.migrate_apart()
        with lock:
            uvloop.run(serve(settings, place, store, ready))
        return 0
    except DanluError as error:
        ready.failed(error)
        return error.exit_code
    except OSError as error:
        failure = Unreachable(f"the server could not start: {error}")
        ready.failed(failure)
        return failure.exit_code


async def serve(settings: Settings, place: process.Place, store: SqlStore, ready: process.Ready) -> None:
    """Serve until a signal or a person says stop."""
    stopping = asyncio.Event()
    for number in (signal.SIGTERM, signal.SIGINT):
        asyncio.get_running_loop().add_signal_handler(number, stopping.set)
    async with rooms(settings, place, store, stopping) as desk:
        app = make_app(desk)
        lines = Lines(limits_for(descriptors.limit()), asyncio.get_running_loop().time, desk.proxies)
        servers = [(make_server(app, lines), process.unix_sockets(place))]
        if place.listen:
            remote = make_server(app, lines, tls_cert=settings.server.tls_cert, tls_key=settings.server.tls_key)
            servers.append((remote, [process.tcp_socket(place.listen)]))
        tasks = [asyncio.create_task(server.serve(sockets=sockets)) for server, sockets in servers]
        while not all(server.started for server, _ in servers):
            await asyncio.wait(tasks, timeout=0.001, return_when=asyncio.FIRST_COMPLETED)
            if any(task.done() for task in tasks):
                raise Unreachable("the server could not listen", f"see {place.state_dir}/server.log")
        # What is here stays; what comes after is mostly dropped by itself, so cycles are looked for seldom.
        gc.freeze()
        gc.set_threshold(20_000, 20, 50)
        log.info("danlu %s serves %s", __version__, ", ".join(desk.addresses))
        ready.reached(", ".join(desk.addresses), process.told_of(place, settings) + _first_admin(place, desk))
        await stopping.wait()
        log.info("stopping; jobs go on")
        for server, _ in servers:
            server.should_exit = True
        await asyncio.gather(*tasks)
        for path in filter(None, (place.own_socket, place.shared_socket)):
            with contextlib.suppress(FileNotFoundError):
                os.unlink(path)


@contextlib.asynccontextmanager
async def rooms(
    settings: Settings, place: process.Place, store: SqlStore, stopping: asyncio.Event
) -> AsyncIterator[Desk]:
    """Store, engine and loop, brought up in this order and taken down in the other."""
    engine, inventory = _engine(settings, place)
    async with contextlib.AsyncExitStack() as stack:
        cache = await _opened(store, engine)
        stack.push_async_callback(store.close)
        roster = Roster(store, await store.people(), cache.changed.set)
        context = PeopleContext(roster, store, _people_rules(settings))
        await engine.open(cache.changed.set)
        stack.push_async_callback(engine.close)
        files = LogFiles(PatientFolder(place.files_dir) if engine.has_scheduler else None)
        stack.callback(files.close)
        run_as = RunAs(
            process.server_user(), settings.runs_as_submitter, is_shut=settings.runs_for_itself, roster=roster
        )
        launcher = Launcher(
            cache,
            place.files_dir,
            inventory,
            as_submitter=settings.runs_as_submitter,
            grace=settings.grace,
            log_limit_bytes=settings.log_limit_bytes,
            boosted=lambda: roster.boosted(datetime.now(UTC)),
            check_user=run_as.check,
        )
        tally, others = await _use(store, settings.half_life, datetime.now(UTC))
        standing = Standing(
            roster,
            tally,
            inventory,
            settings.grace,
            engine.has_scheduler,
            settings.policy.waiting_there,
        )
        dispatcher = Dispatcher(cache, engine, launcher, settings.grace)
        schedule = Schedule(cache, dispatcher, Outlook(standing), partial(queues_with, settings.queues), others)
        await release_overdue(cache, datetime.now(UTC))
        trash_of(place.files_dir).open()
        stack.enter_context(process.remembered(place))
        sweeper = Sweeper(store, place.files_dir)
        for loop in (schedule.run(), sweeper.run()):
            stack.push_async_callback(_ended, asyncio.create_task(loop))
        yield Desk(
            cache=cache,
            engine=engine,
            files=files,
            outlook=schedule.outlook,
            rules=Rules(
                inventory,
                settings.default_time,
                place.pretends,
                looks_at_folders=not settings.runs_as_submitter or place.is_for_one,
                runs_on_many=engine.has_scheduler,
                run_as=run_as,
                limits=_limits(settings, place),
            ),
            roster=roster,
            context=context,
            signon=await _signon(settings, context, stack),
            state_dir=place.state_dir,
            files_dir=place.files_dir,
            addresses=place.addresses(tls=bool(settings.server.tls_cert)),
            trouble=lambda: schedule.trouble,
            stop_server=stopping.set,
            snapshot_limit_bytes=settings.snapshot_limit_bytes,
            shelf_limit_bytes=settings.shelf_limit_bytes,
            sweep_soon=sweeper.soon,
            proxies=frozenset(settings.server.proxies),
        )


async def _opened(store: SqlStore, engine: Engine) -> JobCache:
    """The jobs of before. A million of them have no cycles, and looking for some would double the time."""
    gc.disable()
    try:
        return JobCache(store, await store.open(), engine_ids(engine))
    finally:
        gc.freeze()
        gc.enable()


async def _use(store: SqlStore, half_life: timedelta, now: datetime) -> tuple[Tally, ExternalUsage]:
    """What was used, as far as it still counts; and of that, what did not come through Danlu."""
    charges = await store.charges(Tally.since(half_life, now), with_gpus=True)
    return Tally(half_life, charges, now), in_books(charges, now)


def _engine(settings: Settings, place: process.Place) -> tuple[Engine, Inventory]:
    """What runs the jobs, and what there is to run them on as far as it is known already."""
    if settings.engine.kind == "slurm":
        # Only here: a person's own machine does not pay for it.
        from danlu.engines.slurm.engine import SlurmEngine

        engine = SlurmEngine(
            f"{place.files_dir}/slurm",
            conf=settings.engine.slurm_conf,
            makes_accounts=settings.engine.slurm_accounts == "make",
        )
        queues = written_queues(settings.queues)
        return engine, Inventory((), queues, shards_per_gpu=settings.engine.shards_per_gpu, is_known=False)
    nodes = _nodes(settings, place)
    local = LocalEngine(place.state_dir, paths.keeper_socket(place.state_dir), lambda: nodes)
    return local, Inventory(nodes, queues_of(settings.queues, nodes), shards_per_gpu=settings.engine.shards_per_gpu)


def _nodes(settings: Settings, place: process.Place) -> tuple[Node, ...]:
    """This machine; or, where it only plays a cluster, the nodes of that one."""
    engine = settings.engine
    if place.pretends:
        return nodes_of(settings.nodes, shards_per_gpu=engine.shards_per_gpu)
    node = read_node(
        name=engine.node_name,
        fake_gpus=engine.fake_gpus,
        shards_per_gpu=engine.shards_per_gpu,
        cpus=engine.cpus,
        memory_mib=settings.memory_mib,
    )
    return (node,)


def _limits(settings: Settings, place: process.Place) -> Limits:
    """On one's own machine there is nobody to leave room for."""
    in_all = settings.policy.max_active_in_all
    return Limits(in_all if place.is_for_one else settings.policy.max_active, in_all)


def _people_rules(settings: Settings) -> PeopleRules:
    people = settings.people
    return PeopleRules(
        leaders_open=people.opens == "leader",
        leads_see_all=people.leaders_see_all,
        needs_account=people.unix_users == "accounts",
        login_days=people.login_days,
        default_quota=parse_quota(people.default_quota.split()) if people.default_quota else None,
        home=people.home,
        team_folder=people.team_folder,
        as_submitter=settings.runs_as_submitter,
        is_open=bool(settings.server.socket),
    )


async def _signon(settings: Settings, context: PeopleContext, stack: contextlib.AsyncExitStack) -> Signon | None:
    oidc = settings.oidc
    if not oidc.issuer:
        return None
    try:
        # Only here: a server without sign-on does not pay for it.
        from danlu.identity.oidc import Provider, Registration
    except ImportError as error:
        raise Refused(f"sign-on needs {error.name}, which is not installed", "pip install 'danlu[oidc]'") from error
    secret = process.read_secret("oidc.client_secret_file", oidc.client_secret_file)
    provider = await stack.enter_async_context(Provider(Registration(oidc.issuer, oidc.client_id, secret, oidc.scopes)))
    domains = tuple(one.lower() for one in oidc.domains)
    rules = SignonRules(oidc.issuer, oidc.name_claim, oidc.groups_claim, oidc.opens_accounts, oidc.teams, domains)
    return Signon(context, provider, rules, redirect_url=oidc.redirect_url)


def _first_admin(place: process.Place, desk: Desk) -> str:
    """How a shared installation gets its first administrator; nothing once there is one."""
    if place.home or has_admin(desk.context):
        return ""
    server = process.reachable(place, desk.addresses[-1])
    # Not in the command: every user of a machine sees the words of every command that runs.
    return (
        "There is no administrator's account yet. This makes one, once, as long as this server runs:\n"
        f"  danlu login --server {server} --first - --user NAME\n"
        f"It asks for this code: {desk.context.first.new_code()}\n"
    )


async def _ended(task: "asyncio.Task[None]") -> None:
    task.cancel()
    await asyncio.gather(task, return_exceptions=True)


if __name__ == "__main__":
    sys.exit(main())
