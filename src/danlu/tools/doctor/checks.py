"""The observations and judgements, topic by topic."""

import os
from collections.abc import Callable, Iterable, Iterator

from danlu import paths
from danlu.client import credentials
from danlu.config.settings import Settings
from danlu.startup import process
from danlu.tools.doctor.facts import Server, Slurm, Wishes
from danlu.tools.doctor.findings import Finding, plural, unchecked
from danlu.tools.doctor.judge import accounts as judge_accounts
from danlu.tools.doctor.judge import machine as judge_machine
from danlu.tools.doctor.judge import nodes as judge_nodes
from danlu.tools.doctor.judge import order as judge_order
from danlu.tools.doctor.judge import queues as judge_queues
from danlu.tools.doctor.judge import reach as judge_reach
from danlu.tools.doctor.judge import shares as judge_shares
from danlu.tools.doctor.judge.folders import judge_clock, judge_mark, judge_shared, judge_state
from danlu.tools.doctor.judge.probes import judge_probes
from danlu.tools.doctor.judge.queues import open_queues
from danlu.tools.doctor.look.machine import look_at_clock, look_at_folder, look_at_machine, look_at_mark, look_at_server
from danlu.tools.doctor.look.nodes import look_at_nodes
from danlu.tools.doctor.look.slurm import look_at_slurm
from danlu.tools.doctor.texts import NodeLine, node_lines, records, settings_in

Tell = Callable[[str], None]


class Examination:
    """The examination of a machine or cluster. `tell` gets progress, `announce` gets actions on the cluster in
    advance."""

    def __init__(
        self,
        settings: Settings,
        *,
        config: str = "",
        server: str = "",
        deep: bool = False,
        tell: Tell,
        announce: Tell,
    ) -> None:
        self._settings, self._server_given, self._deep = settings, server, deep
        self._tell, self._announce = tell, announce
        # Root with a configuration file prepares `danlu serve`; other users may prepare `danlu up`.
        is_shared = bool(settings.server.listen or settings.server.socket or (config and os.getuid() == 0))
        default = process.DEFAULT_STATE if is_shared else paths.state_dir()
        self._state_dir = os.path.abspath(settings.server.state_dir or default)
        self._wishes = wishes_of(settings, is_shared=is_shared)
        self.subject = ""  # set by `findings`
        self.can_go_deeper = False

    def findings(self) -> list[Finding]:
        return list(self._slurm() if self._settings.engine.kind == "slurm" else self._machine())

    def _machine(self) -> Iterator[Finding]:
        self._tell("looks at this machine …")
        machine = look_at_machine()
        self.subject = f"this machine, {machine.host}"
        wishes = self._wishes
        yield from judge_machine.judge_server(self._server())
        yield from judge_machine.judge_system(machine, wishes)
        yield from judge_machine.judge_local_cards(machine, wishes)
        yield from judge_machine.judge_groups(machine)
        yield from judge_machine.judge_shm(machine)
        yield from judge_machine.judge_local_rights(machine, wishes)
        yield from judge_state(look_at_folder(self._state_dir), wishes)
        yield from judge_clock(look_at_clock())
        if self._deep:
            yield unchecked("deep.none", "`--deep` checks the nodes of a Slurm cluster; this is a single machine")

    def _slurm(self) -> Iterator[Finding]:
        slurm = look_at_slurm(self._settings.engine.slurm_conf, self._tell)
        config = settings_in(slurm.config.out) if slurm.config and slurm.config.is_ok else {}
        nodes = node_lines(slurm.nodes.out) if slurm.nodes and slurm.nodes.is_ok else []
        name = config.get("ClusterName", "")
        self.subject = f"Slurm cluster {name}, seen from {slurm.host}" if name else f"Slurm, seen from {slurm.host}"
        yield from judge_machine.judge_server(self._server())
        yield from judge_reach.judge_commands(slurm)
        yield from judge_reach.judge_controller(slurm)
        yield from judge_reach.judge_auth(slurm, config)
        if config:
            yield from self._cluster(slurm, config, nodes)
        else:
            yield unchecked(
                "cluster.all", "nodes, cards, queues, limits, order and accounting: slurmctld could not be asked"
            )
        files_dir = self._settings.shared_dir or self._state_dir
        yield from judge_accounts.judge_rights(slurm, config, self._wishes)
        yield from judge_shared(look_at_folder(files_dir), slurm, nodes, self._wishes)
        if files_dir != self._state_dir:
            yield from judge_mark(*look_at_mark(self._state_dir, files_dir))
        for one in judge_state(look_at_folder(self._state_dir), self._wishes):
            if files_dir != self._state_dir or one.code == "state.network":
                yield one
        yield from judge_clock(look_at_clock(), slurm)
        if self._deep:
            yield from self._look_inside(slurm, nodes, files_dir)

    def _cluster(self, slurm: Slurm, config: dict[str, str], nodes: list[NodeLine]) -> Iterator[Finding]:
        partitions = records(slurm.partitions.out) if slurm.partitions and slurm.partitions.is_ok else []
        has_cards = any(node.facts.node.gpus for node in nodes)
        self.can_go_deeper = bool(nodes)
        yield from judge_reach.judge_versions(slurm, config, nodes)
        yield from judge_nodes.judge_nodes(nodes)
        yield from judge_nodes.judge_cards(config, nodes, self._wishes, slurm.gres_conf or "")
        yield from judge_shares.judge_sharing(config, nodes, partitions)
        yield from judge_shares.judge_limits(slurm, config, has_cards=has_cards)
        yield from judge_queues.judge_queues(partitions, self._wishes)
        yield from judge_order.judge_order(config, partitions)
        yield from judge_order.judge_trouble(slurm, config, self._wishes)
        yield from judge_accounts.judge_accounting(slurm, config, self._wishes, has_cards=has_cards)

    def _look_inside(self, slurm: Slurm, nodes: list[NodeLine], folder: str) -> Iterator[Finding]:
        if not nodes:
            yield unchecked("deep.none", "slurmctld could not be asked")
            return
        if not slurm.paths["srun"]:
            yield unchecked("deep.none", "there is no `srun` to run a job with")
            return
        partitions = records(slurm.partitions.out) if slurm.partitions else []
        up = open_queues(partitions)
        asked = [node for node in nodes if node.facts.node.accepts_jobs and set(up) & set(node.facts.partitions)]
        if asked:
            self._announce(f"runs a small job on {plural(len(asked), 'node')} (srun: 1 core, 64 MiB, no card)")
        yield from judge_probes(look_at_nodes(slurm, nodes, asked, folder, up, self._tell))

    def _server(self) -> Server | None:
        return look_at_server(list(_addresses(self._server_given, self._settings, self._state_dir)))


def wishes_of(settings: Settings, *, is_shared: bool) -> Wishes:
    return Wishes(
        queues=tuple(queue.name for queue in settings.queues),
        has_default_queue=any(queue.default for queue in settings.queues),
        has_default_time=settings.default_time is not None,
        grace=settings.grace,
        shards_per_gpu=settings.engine.shards_per_gpu,
        as_submitter=settings.runs_as_submitter,
        makes_accounts=settings.engine.slurm_accounts == "make",
        is_shared=is_shared,
        fake_gpus=settings.engine.fake_gpus,
        store_url=settings.store.url,
    )


def _addresses(given: str, settings: Settings, state_dir: str) -> Iterable[str]:
    """Addresses of possible servers, the most likely address first."""
    if given:
        yield given
        return
    if settings.server.socket:
        yield f"unix://{settings.server.socket}"
    yield f"unix://{os.path.join(state_dir, 'run', 'server.sock')}"
    if meant := os.environ.get("DANLU_SERVER") or credentials.default_server():
        yield meant
    yield f"unix://{paths.server_socket(paths.state_dir())}"
