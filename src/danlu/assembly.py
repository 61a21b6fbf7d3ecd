"""Builds the parts of a server: the engine, then everything around a store and an engine.
`app` and the tests of the doors use the same assembly."""

import asyncio
import contextlib
import gc
from collections.abc import AsyncIterator, Callable
from datetime import UTC, datetime, timedelta
from functools import partial

from danlu.actions.installation import Installation
from danlu.actions.jobs.limits import Limits
from danlu.actions.jobs.run_as import RunAs
from danlu.actions.jobs.submit import Rules
from danlu.actions.people.context import PeopleContext, PeopleRules
from danlu.actions.people.sign_on import SignonRules
from danlu.actions.people.sign_on_flow import Signon
from danlu.config.cluster import nodes_of, queues_of, queues_with, written_queues
from danlu.config.settings import Settings
from danlu.domain.quota import parse_quota
from danlu.domain.resources import Node
from danlu.engines.base import Engine, EngineSetup
from danlu.engines.kinds import KINDS
from danlu.errors import Refused
from danlu.loops.dependencies import release_overdue
from danlu.loops.dispatch import Dispatcher
from danlu.loops.external_usage import ExternalUsage, in_books
from danlu.loops.launch import Launcher
from danlu.loops.schedule import Schedule
from danlu.loops.sweep import Sweeper
from danlu.monitor.machine import read_node
from danlu.provision.paths import trash_of
from danlu.startup import process
from danlu.startup.process import Place
from danlu.state.inventory import Inventory
from danlu.state.jobs import JobCache
from danlu.state.people import Roster
from danlu.state.snapshots import Outlook, Standing
from danlu.state.usage import Tally
from danlu.store.sql import SqlStore


@contextlib.asynccontextmanager
async def assembled(
    settings: Settings,
    place: Place,
    store: SqlStore,
    engine: Engine,
    inventory: Inventory,
    stop_server: Callable[[], None],
) -> AsyncIterator[tuple[Installation, Schedule]]:
    """Store, engine and loops: started in this order, and stopped in reverse order."""
    async with contextlib.AsyncExitStack() as stack:
        cache = await _opened(store, engine)
        stack.push_async_callback(store.close)
        roster = Roster(store, await store.people(), cache.changed.set)
        context = PeopleContext(roster, store, _people_rules(settings))
        await engine.open(cache.changed.set)
        stack.push_async_callback(engine.close)
        run_as = RunAs(
            process.server_user(), settings.runs_as_submitter, is_shut=settings.runs_for_itself, roster=roster
        )
        launcher = Launcher(
            cache,
            place.files_dir,
            inventory,
            engine.logs,
            as_submitter=settings.runs_as_submitter,
            grace=settings.grace,
            log_limit_bytes=settings.log_limit_bytes,
            boosted=lambda: roster.boosted(datetime.now(UTC)),
            check_user=run_as.check,
        )
        tally, others = await _use(store, cache.engine_prefix, settings.half_life, datetime.now(UTC))
        standing = Standing(
            roster,
            tally,
            inventory,
            settings.grace,
            engine.abilities,
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
        installation = Installation(
            cache=cache,
            engine=engine,
            outlook=schedule.outlook,
            rules=Rules(
                inventory,
                settings.default_time,
                place.pretends,
                looks_at_folders=not settings.runs_as_submitter or place.is_for_one,
                abilities=engine.abilities,
                run_as=run_as,
                limits=_limits(settings, place),
                files_dir=place.files_dir,
                snapshot_limit_bytes=settings.snapshot_limit_bytes,
                shelf_limit_bytes=settings.shelf_limit_bytes,
                sweep_soon=sweeper.soon,
            ),
            roster=roster,
            context=context,
            signon=await _signon(settings, context, stack),
            state_dir=place.state_dir,
            addresses=place.addresses(tls=bool(settings.server.tls_cert)),
            trouble=lambda: schedule.trouble,
            stop_server=stop_server,
            proxies=frozenset(settings.server.proxies),
        )
        yield installation, schedule


async def _opened(store: SqlStore, engine: Engine) -> JobCache:
    """The stored active jobs. A million jobs have no reference cycles, and a search would double the time."""
    gc.disable()
    try:
        return JobCache(store, await store.open(), engine)
    finally:
        gc.freeze()
        gc.enable()


async def _use(store: SqlStore, prefix: str, half_life: timedelta, now: datetime) -> tuple[Tally, ExternalUsage]:
    """The past usage that still counts, and the part of this usage from outside Danlu."""
    charges = await store.charges(Tally.since(half_life, now), with_gpus=True)
    return Tally(half_life, charges, now), in_books(charges, now, prefix)


def engine_of(settings: Settings, place: Place) -> tuple[Engine, Inventory]:
    """The engine that runs the jobs, and the inventory as far as known at the start."""
    kind, shards = KINDS[settings.engine.kind], settings.engine.shards_per_gpu
    is_live = kind.abilities.live_nodes
    nodes = () if is_live else _nodes(settings, place)
    queues = written_queues(settings.queues) if is_live else queues_of(settings.queues, nodes)
    engine = kind.build(EngineSetup(settings.engine, place.state_dir, place.files_dir, nodes))
    return engine, Inventory(nodes, queues, shards_per_gpu=shards, is_known=not is_live)


def _nodes(settings: Settings, place: Place) -> tuple[Node, ...]:
    """This machine, or the nodes of the cluster that this machine plays."""
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


def _limits(settings: Settings, place: Place) -> Limits:
    """A personal server has no other users to keep room for."""
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
        # Import only here: a server without sign-on does not pay for this import.
        from danlu.identity.oidc import Provider, Registration
    except ImportError as error:
        raise Refused(f"sign-on needs {error.name}, which is not installed", "pip install 'danlu[oidc]'") from error
    secret = process.read_secret("oidc.client_secret_file", oidc.client_secret_file)
    provider = await stack.enter_async_context(Provider(Registration(oidc.issuer, oidc.client_id, secret, oidc.scopes)))
    domains = tuple(one.lower() for one in oidc.domains)
    rules = SignonRules(oidc.issuer, oidc.name_claim, oidc.groups_claim, oidc.opens_accounts, oidc.teams, domains)
    return Signon(context, provider, rules, redirect_url=oidc.redirect_url)


async def _ended(task: "asyncio.Task[None]") -> None:
    task.cancel()
    await asyncio.gather(task, return_exceptions=True)
