"""The order of jobs, and Slurm's reaction to failures. Pure."""

from collections.abc import Iterator, Mapping, Sequence
from datetime import timedelta

from danlu.domain.job import DEFAULT_PRIORITY
from danlu.engines.slurm.text.options import NICE_PER_STEP
from danlu.engines.slurm.text.parse_cluster import parse_limit
from danlu.tools.doctor.facts import Slurm, Wishes
from danlu.tools.doctor.findings import Finding, note, ok, warning
from danlu.tools.doctor.texts import is_set, parameter, seconds_in

RECONFIGURE = "in slurm.conf, then `scontrol reconfigure`"
SHORT_MEMORY_S, GOOD_MEMORY_S = 60, 300
FEW_JOBS = 10_000
_WINDOW = 1440  # minutes that backfill looks ahead by default
_LARGEST_WINDOW = timedelta(days=30)


def judge_order(config: Mapping[str, str], partitions: Sequence[Mapping[str, str]]) -> Iterator[Finding]:
    before = 0
    for finding in _order(config, partitions):
        before += 1
        yield finding
    if not before:
        yield ok("order.backfill", "small jobs fill gaps, and priorities take effect")


def _order(config: Mapping[str, str], partitions: Sequence[Mapping[str, str]]) -> Iterator[Finding]:
    parameters = config.get("SchedulerParameters", "")
    if config.get("SchedulerType") == "sched/builtin":
        yield warning(
            "order.builtin",
            "SchedulerType=sched/builtin: strictly one after the other",
            "a waiting big job blocks every small job behind it, and jobs have no expected start",
            "in slurm.conf; then restart slurmctld",
            "SchedulerType=sched/backfill",
        )
    else:
        yield from _window(parameters, partitions)
    delay = parameter(parameters, "batch_sched_delay")
    if delay is None or (seconds_in(delay) or 0) > 1:
        yield note(
            "order.delay",
            f"batch_sched_delay is {delay or '3 (not set)'}: Slurm schedules batch jobs in batches",
            "each job starts some seconds later than it could",
            RECONFIGURE,
            f"SchedulerParameters={_with(parameters, 'batch_sched_delay=0')}",
        )
    yield from _nice(config)
    if config.get("PreemptType", "preempt/none") not in ("preempt/none", "(null)"):
        yield note(
            "order.preempt",
            f"PreemptType={config['PreemptType']}: Slurm stops jobs by itself",
            "also jobs that did not say `--preemptible` to Danlu; they go back to the queue as another attempt",
        )


def _window(parameters: str, partitions: Sequence[Mapping[str, str]]) -> Iterator[Finding]:
    limits = [parse_limit(one.get("MaxTime", "")) for one in partitions]
    longest = min(max((limit for limit in limits if limit), default=timedelta()), _LARGEST_WINDOW)
    wanted = int(longest.total_seconds() // 60)
    given = seconds_in(parameter(parameters, "bf_window") or "") or _WINDOW
    if wanted > given:
        yield note(
            "order.window",
            f"backfill looks {given // 60} h ahead, jobs may take {wanted // 60} h",
            "big jobs behind long jobs have no expected start, and small jobs may overtake them repeatedly",
            RECONFIGURE,
            f"SchedulerParameters={_with(parameters, f'bf_window={wanted}', 'bf_resolution=300')}",
        )


def _with(parameters: str, *wanted: str) -> str:
    names = {one.partition("=")[0] for one in wanted}
    kept = [part for part in parameters.split(",") if is_set(part) and part.partition("=")[0] not in names]
    return ",".join([*kept, *wanted])


def _nice(config: Mapping[str, str]) -> Iterator[Finding]:
    """Danlu's priorities below the default become `--nice`. With a smaller sum of weights, all priorities end at 1."""
    if config.get("PriorityType") != "priority/multifactor":
        return
    weights = [config.get(name, "0") for name in config if name.startswith("PriorityWeight")]
    most = sum(int(weight) for weight in weights if weight.isdigit())
    deepest = (DEFAULT_PRIORITY - 1) * NICE_PER_STEP
    if most < deepest:
        costs = "`--priority` below 5 has no effect: all priorities in Slurm are at most 1, and only age counts"
        if most:
            costs = "the lowest values of `--priority` are equal to Slurm: its priorities end at 1"
        yield note(
            "order.nice",
            f"priority/multifactor with weights of {most} in all; one step of `--priority` is {NICE_PER_STEP}",
            costs,
            "in slurm.conf (fair share and quotas are Danlu's); then restart slurmctld",
            "PriorityType=priority/basic",
        )
    elif int(config.get("PriorityWeightFairShare", "0") or 0):
        yield note(
            "order.two_masters",
            "Slurm has a fair share of its own (PriorityWeightFairShare)",
            "both order jobs: the first job in Danlu may wait behind others in Slurm. Quotas still hold",
        )


def judge_trouble(slurm: Slurm, config: Mapping[str, str], wishes: Wishes) -> Iterator[Finding]:
    found = [*_ends(config), *_full(slurm, config), *_nodes_lost(config), *_stops(config, wishes), *_plugins(config)]
    yield from found or [ok("trouble.ready", "timeouts for lost nodes, ended jobs and stops are long enough")]


def _ends(config: Mapping[str, str]) -> Iterator[Finding]:
    age = seconds_in(config.get("MinJobAge", ""))
    if age == 0:
        yield warning(
            "trouble.never_forgets",
            "MinJobAge=0: Slurm never forgets an ended job",
            "some day MaxJobCount is reached, and every submit is refused",
            RECONFIGURE,
            "MinJobAge=600",
        )
    elif age is not None and age < GOOD_MEMORY_S:
        level = warning if age < SHORT_MEMORY_S else note
        yield level(
            "trouble.forgets",
            f"MinJobAge={age}: ended jobs are forgotten after {age} s",
            "if Danlu is down for longer, only the job's own exit file or accounting tells how a job ended; a "
            "job whose node died then is lost without a reason",
            RECONFIGURE,
            "MinJobAge=600",
        )


def _full(slurm: Slurm, config: Mapping[str, str]) -> Iterator[Finding]:
    most = seconds_in(config.get("MaxJobCount", ""))
    jobs = len(slurm.queue.out.split()) if slurm.queue and slurm.queue.is_ok else 0
    if most and jobs > 0.8 * most:
        costs = "soon every submit is refused; Danlu keeps its own jobs, and hands them over when there is room"
        found = f"{jobs} jobs are in a queue that takes {most} (MaxJobCount)"
        yield warning("trouble.full", found, costs, "in slurm.conf; then restart slurmctld", "MaxJobCount=100001")
    elif most and most < FEW_JOBS:
        costs = "a large array does not fit: the rest waits in Danlu until there is room"
        do = "in slurm.conf; then restart slurmctld"
        yield note("trouble.few", f"Slurm keeps at most {most} jobs (MaxJobCount)", costs, do, "MaxJobCount=100001")


def _nodes_lost(config: Mapping[str, str]) -> Iterator[Finding]:
    patience, message = seconds_in(config.get("SlurmdTimeout", "")), seconds_in(config.get("MessageTimeout", ""))
    if patience == 0:
        costs = "jobs of a dead machine count as running for ever, and hold their quota"
        yield warning(
            "trouble.never_down",
            "SlurmdTimeout=0: no node is ever set down",
            costs,
            RECONFIGURE,
            "SlurmdTimeout=300",
        )
    elif patience and message and patience <= 2 * message:
        yield warning(
            "trouble.timeout",
            f"SlurmdTimeout={patience} is not more than twice MessageTimeout={message}",
            "while the controller waits for a dead node, it ignores the others: healthy nodes are set down, and "
            "their jobs begin again",
            RECONFIGURE,
            "SlurmdTimeout=300",
        )
    if config.get("ReturnToService") == "0":
        yield note(
            "trouble.return",
            "ReturnToService=0: a node that was down stays down",
            "after each power cut, an administrator must resume every node by hand",
            RECONFIGURE,
            "ReturnToService=2",
        )
    if config.get("JobRequeue") == "0":
        costs = "plain `sbatch` jobs of a dead node are lost. Danlu requests a requeue for its own jobs"
        yield note("trouble.requeue", "JobRequeue=0", costs, RECONFIGURE, "JobRequeue=1")


def _stops(config: Mapping[str, str], wishes: Wishes) -> Iterator[Finding]:
    wait, grace = seconds_in(config.get("KillWait", "")), int(wishes.grace.total_seconds())
    if wait is not None and wait < grace:
        yield note(
            "trouble.grace",
            f"KillWait={wait} is less than engine.grace ({grace} s)",
            f"a job that Slurm itself stops (`scancel`, a partition's limit) has {wait} s to write its checkpoint",
            RECONFIGURE,
            f"KillWait={grace}",
        )


def _plugins(config: Mapping[str, str]) -> Iterator[Finding]:
    for name in ("JobSubmitPlugins", "CliFilterPlugins"):
        if is_set(config.get(name)):
            costs = "a script of this site may change or refuse Danlu's jobs; users see its messages"
            yield note("trouble.plugins", f"{name}={config[name]}", costs)
    if config.get("EnforcePartLimits", "NO") == "NO":
        yield note(
            "trouble.part_limits",
            "EnforcePartLimits=NO: jobs beyond a partition's limits are taken, and wait for ever",
            "Danlu refuses jobs over the limits; users of plain `sbatch` wait without a message",
            RECONFIGURE,
            "EnforcePartLimits=ALL",
        )
