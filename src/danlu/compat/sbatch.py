"""From an `sbatch` command line, its variables and its script to a job of Danlu."""

from __future__ import annotations

from danlu.compat import batch_script, values
from danlu.compat.directives import scan
from danlu.compat.getopt import COMMAND_LINE, Given, on_command_line, parse
from danlu.compat.sbatch_options import OPTIONS, REFUSED_NAMES, VARIABLES, WHY_DROPPED
from danlu.errors import Invalid

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping, Sequence
    from typing import Any

    Found = dict[str, Given]

_ALIASES = {"tasks-per-node": "ntasks-per-node"}
_MEMORY = ("mem", "mem-per-cpu", "mem-per-gpu")
_NOT_YET = "Danlu does not do this yet; without the option the job would be another one"


class Request:
    """A job in the words of Danlu. The server decides later if `queues` and `account` exist there."""

    __slots__ = ("account", "command", "notes", "options", "queues", "switches")

    def __init__(self) -> None:
        self.command: list[str] = []
        self.options: dict[str, Any] = {}
        self.queues: list[str] = []
        self.account = ""
        self.notes: list[str] = []  # sentences about options without effect
        self.switches: frozenset[str] = frozenset()  # parsable, test-only, wait, quiet


def read_words(words: Iterable[str]) -> tuple[list[Given], list[str]]:
    """The options of a command line; then the script and its arguments."""
    given, rest = parse(on_command_line(words), OPTIONS)
    return given, [word for word, _ in rest]


def read_script(
    data: bytes, given: Sequence[Given], arguments: Sequence[str], environ: Mapping[str, str], *, name: str, folder: str
) -> Request:
    """The job of a script. `name` is the name of the script, `folder` the folder of submission."""
    request = Request()
    text = batch_script.checked_text(data, request.notes)
    found = _merged(text, given, environ)
    _drop(found, request)
    options = request.options
    options["name"] = found["job-name"].value if "job-name" in found else name
    if not options["name"]:
        del options["name"]
    for option, write in _PLAIN.items():
        if option in found:
            _value(found[option], lambda text, write=write: write(request, text))  # type: ignore[misc]
    variables = {
        "SLURM_SUBMIT_DIR": folder,
        "SLURM_JOB_NAME": options.get("name", ""),
        **_cards_and_cpus(found, request),
    }
    if "array" in found:
        variables |= _array(found["array"], request)
    if "export" in found:
        inherits, set_ones = values.exported(found["export"].value, list(environ.items()))
        if not inherits:
            options["inherit_env"] = False
        if set_ones:
            options["env"] = set_ones
    if line := batch_script.sets_cards(text):
        request.notes.append(
            f"line {line} sets CUDA_VISIBLE_DEVICES: Danlu sets it to the cards that the job got, other cards belong "
            "to other jobs; take the line out"
        )
    has_cards = bool(options.get("gpus") or options.get("shards"))
    request.command = batch_script.command_of(
        text, arguments, variables, is_array="array" in found, has_cards=has_cards
    )
    return request


def _merged(text: str, given: Sequence[Given], environ: Mapping[str, str]) -> Found:
    """The last of equal options wins; the command line over variables, variables over the script."""
    in_script, left = parse(scan(text), OPTIONS)
    if left:
        word, where = left[0]
        raise Invalid(f"{where}: invalid directive `{word[:80]}`", "a directive has options only: `#SBATCH --time=60`")
    in_environ = [Given(name, environ[key], key) for key, name in VARIABLES.items() if key in environ]
    found: Found = {}
    for one in [*in_script, *in_environ, *given]:
        one.name = _ALIASES.get(one.name, one.name)
        found[one.name] = one
    sizes = [found[name] for name in _MEMORY if name in found]
    if len(sizes) > 1:
        # Slurm drops the variable if the script or the command line disagrees, and refuses two other options.
        for one in [one for one in sizes if one.where in VARIABLES]:
            del found[one.name]
            sizes.remove(one)
        if len(sizes) > 1:
            raise sizes[1].invalid("--mem, --mem-per-cpu and --mem-per-gpu exclude each other", "keep one of them")
    return found


def _drop(found: Found, request: Request) -> None:
    why: dict[str, list[str]] = {}
    for name in sorted(found, key=lambda name: name not in REFUSED_NAMES):
        one = found[name]
        if name in REFUSED_NAMES:
            raise one.invalid("not supported yet", _NOT_YET)
        if name in WHY_DROPPED:
            where = "" if one.where == COMMAND_LINE else f" ({one.where})"
            why.setdefault(WHY_DROPPED[name], []).append(f"`--{name}`{where}")
    for reason, names in why.items():
        request.notes.append(f"without effect: {', '.join(names)}; {reason}")
    request.switches = frozenset(name for name in ("parsable", "quiet", "test-only", "wait") if name in found)


def _value(one: Given, read: Callable[[str], Any]) -> Any:
    try:
        return read(one.value)
    except ValueError as error:
        raise one.invalid(str(error)) from None


def _set_time(request: Request, text: str) -> None:
    minutes = values.minutes_of(text)
    if minutes is None:
        request.notes.append("`--time` asks for no limit: the default of the queue counts, if it has one")
    else:
        request.options["time"] = f"{minutes}m"


def _set_queues(request: Request, text: str) -> None:
    request.queues = [name for name in text.split(",") if name]


def _set_account(request: Request, text: str) -> None:
    request.account = text


def _set_workdir(request: Request, text: str) -> None:
    if text:
        request.options["workdir"] = text


def _set_after(request: Request, text: str) -> None:
    request.options["after"] = values.dependencies_of(text)


def _set_signal(request: Request, text: str) -> None:
    request.options["signal"] = values.signal_of(text)


_PLAIN: dict[str, Callable[[Request, str], None]] = {
    "time": _set_time, "partition": _set_queues, "account": _set_account, "chdir": _set_workdir,
    "dependency": _set_after, "signal": _set_signal,
}  # fmt: skip


def _array(one: Given, request: Request) -> dict[str, str]:
    written, indices = _value(one, values.array_of)
    request.options["array"] = written
    step = indices[1] - indices[0] if len(indices) > 1 else 1
    return {
        "SLURM_ARRAY_TASK_COUNT": str(len(indices)),
        "SLURM_ARRAY_TASK_MIN": str(indices[0]),
        "SLURM_ARRAY_TASK_MAX": str(indices[-1]),
        "SLURM_ARRAY_TASK_STEP": str(step),
    }


def _cards_and_cpus(found: Found, request: Request) -> dict[str, str]:
    """Cards, cores and memory, and the variables of the options for them."""
    options = request.options
    tasks, variables = _tasks(found)
    model, gpus, shards = _cards(found, tasks)
    if gpus or (model and shards):
        options["gpus"] = f"{model}:{gpus}" if model else gpus
    if shards:
        options["shards"] = shards
    per_task = _count(found, "cpus-per-task", 1)
    cpus = (tasks or 1) * (per_task or 1)
    if per_gpu := _count(found, "cpus-per-gpu", 1):
        if per_task:
            raise found["cpus-per-gpu"].invalid("--cpus-per-task and --cpus-per-gpu exclude each other")
        cpus = max(cpus, per_gpu * gpus)
    if tasks or per_task or per_gpu:
        options["cpus"] = cpus
    if per_task:
        variables["SLURM_CPUS_PER_TASK"] = str(per_task)
    for name, variable in (("gpus", "SLURM_GPUS"), ("gpus-per-node", "SLURM_GPUS_PER_NODE"),
                           ("gpus-per-task", "SLURM_GPUS_PER_TASK")):  # fmt: skip
        if name in found:
            variables[variable] = found[name].value
    variables |= _memory(found, request, cpus, gpus)
    return variables


def _memory(found: Found, request: Request, cpus: int, gpus: int) -> dict[str, str]:
    one = next((found[name] for name in _MEMORY if name in found), None)
    if one is None:
        return {}
    size = _value(one, values.mib_of)
    mib = size * {"mem": 1, "mem-per-cpu": cpus, "mem-per-gpu": gpus}[one.name]
    if mib:
        request.options["mem"] = f"{mib}M"
    elif one.name == "mem":
        request.notes.append("`--mem=0` asks for all memory of a node: no memory is reserved, and none is limited")
    variable = {"mem": "SLURM_MEM_PER_NODE", "mem-per-cpu": "SLURM_MEM_PER_CPU", "mem-per-gpu": "SLURM_MEM_PER_GPU"}
    return {variable[one.name]: str(size)} if size else {}


def _tasks(found: Found) -> tuple[int, dict[str, str]]:
    """The number of tasks, 0 without an option for tasks. Refuses more than one node."""
    nodes = _value(found["nodes"], values.least_nodes) if "nodes" in found else 1
    tasks, per_node = _count(found, "ntasks", 1), _count(found, "ntasks-per-node", 1)
    if nodes > 1:
        raise found["nodes"].invalid(
            "a script runs on one node here", "`danlu run --nodes` starts a command on each of several nodes"
        )
    if tasks and per_node and tasks > per_node:
        raise found["ntasks-per-node"].invalid(f"{tasks} tasks would need several nodes, and a script runs on one here")
    variables = {"SLURM_TASKS_PER_NODE": str(tasks or per_node or 1)}
    if tasks or per_node:
        variables |= {"SLURM_NTASKS": str(tasks or per_node), "SLURM_NPROCS": str(tasks or per_node)}
    if per_node:
        variables["SLURM_NTASKS_PER_NODE"] = str(per_node)
    return tasks or per_node, variables


def _count(found: Found, name: str, least: int) -> int:
    """The number of an option, 0 without the option."""
    return int(_value(found[name], lambda text: values.count_of(text, least))) if name in found else 0


def _cards(found: Found, tasks: int) -> tuple[str, int, int]:
    """Model, whole cards and shards. `--gpus` is per job, the others per node or task: on one node, both must agree."""
    asked: list[tuple[str, int, Given]] = []
    shards, model = 0, ""
    if "gres" in found:
        one = found["gres"]
        for kind, its_model, count in _value(one, values.gres_of):
            if kind == "shard" and not shards:
                shards, model = count, its_model
            elif kind == "gpu" and not asked:
                asked.append((its_model, count, one))
            else:
                raise one.invalid("one kind of `gpu` or `shard` is what a job may have here")
    for name in ("gpus-per-node", "gpus", "gpus-per-task"):
        if name in found:
            its_model, count = _value(found[name], values.cards_of)
            if name == "gpus-per-task":
                if not tasks:
                    raise found[name].invalid("it needs the number of tasks", "give --ntasks too")
                count *= tasks
            asked.append((its_model, count, found[name]))
    if not asked:
        return model, 0, shards
    first, count, _ = asked[0]
    for its_model, its_count, one in asked[1:]:
        if its_count != count or (its_model and first and its_model != first):
            raise one.invalid(
                f"{asked[0][2].where} asks for other cards with `--{asked[0][2].name}={asked[0][2].value}`",
                "these options do not replace each other; on one node they must ask for the same",
            )
        first = first or its_model
    if shards and count:
        raise found["gres"].invalid("a job has whole cards or shards of one, not both")
    return first or model, count, shards
