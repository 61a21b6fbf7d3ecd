"""A machine for the `local` engine, and its server. Pure."""

from collections.abc import Iterator, Mapping

from danlu import __version__
from danlu.tools.doctor.facts import Machine, Server, Wishes
from danlu.tools.doctor.findings import Finding, note, ok, plural, problem, warning

# Older kernels cannot kill a whole cgroup; and exit codes are lost with the keeper.
KILLS_GROUPS, KEEPS_EXITS = (5, 14), (6, 15)
FEW_FILES = 4096
SMALL_SHM_MIB = 1024


def judge_server(server: Server | None) -> Iterator[Finding]:
    if server is None:
        return
    if server.silence:
        yield note("server.silent", f"not checked: the server at {server.address}: {server.silence}")
        return
    said = f"danlu {server.version} at {server.address}, engine {server.engine}"
    if server.trouble:
        costs = "job states stay as they are, and no job starts"
        yield warning(
            "server.trouble", f"{said}: {server.trouble}", costs, "it continues by itself when the cause is gone"
        )
    elif server.version != __version__:
        yield note("server.version", f"{said}; this command is {__version__}", "some of its answers may be misread")
    else:
        yield ok("server.up", said)


def judge_system(machine: Machine, wishes: Wishes) -> Iterator[Finding]:
    kernel = ".".join(map(str, machine.kernel))
    yield ok("system.python", f"{machine.host}: danlu {__version__}, Python {machine.python}, Linux {kernel}")
    if machine.kernel < KEEPS_EXITS:
        yield note(
            "system.kernel",
            f"Linux {kernel} is older than 6.15",
            "if the keeper itself is killed, its runs continue, but their exit status stays unknown: LOST",
        )
    if wishes.store_url.startswith("postgresql") and not machine.has_psycopg:
        costs = "the server does not start"
        yield problem(
            "system.psycopg",
            "store.url is PostgreSQL, and psycopg is not installed",
            costs,
            "",
            "pip install 'danlu[postgres]'",
        )
    if machine.open_files < FEW_FILES:
        yield warning(
            "system.files",
            f"a process may open {machine.open_files} files at most",
            "beyond some hundred running jobs or log followers, the server refuses more",
            "where the server is started (systemd: in [Service]):",
            "LimitNOFILE=65536",
        )


def judge_local_cards(machine: Machine, wishes: Wishes) -> Iterator[Finding]:
    cards = machine.cards
    if wishes.fake_gpus:
        yield note("cards.fake", f"pretended: {wishes.fake_gpus}", "jobs get card numbers, but no cards")
    if cards.models:
        counted: Mapping[str, int] = {model: cards.models.count(model) for model in dict.fromkeys(cards.models)}
        listed = ", ".join(f"{number} × {model}" for model, number in counted.items())
        yield ok("cards.found", f"{listed}; driver {cards.driver}")
        if cards.closed:
            yield problem(
                "cards.closed",
                f"{machine.user.name} may not open {', '.join(cards.closed)}",
                "jobs see their card and cannot use it",
                "add the user to the group that owns the devices, or:",
                "chmod 666 /dev/nvidia*",
            )
    elif cards.trouble:
        yield problem(
            "cards.driver",
            f"the NVIDIA driver does not answer: {cards.trouble}",
            "no job gets a card until it does",
            "after an update of the driver the machine must be restarted; else see",
            "nvidia-smi",
            "dmesg | grep -i nvrm",
        )
    elif cards.on_bus:
        yield problem(
            "cards.no_driver",
            f"{plural(cards.on_bus, 'NVIDIA card')} in the machine, and no driver",
            "no job gets a card",
            "install the driver, and restart:",
            "apt-get install nvidia-driver      # Debian; Ubuntu: ubuntu-drivers install",
        )
    elif not wishes.fake_gpus:
        yield note("cards.none", "no card in this machine", "`--gpus` is refused; `--fake-gpus 4xRTX3090` pretends")


def judge_groups(machine: Machine) -> Iterator[Finding]:
    groups = machine.groups
    delegate = (
        "a service of systemd needs this line in [Service]; without root: `systemd-run --user --scope -p Delegate=yes`"
    )
    if groups.holds_memory:
        yield ok("cgroups.memory", "the kernel enforces memory limits of jobs (`--mem`)")
    else:
        yield warning(
            "cgroups.memory",
            f"memory limits cannot be set: {groups.why_no_memory}",
            "`--mem` is used for placement only: a job that exceeds it can bring the machine down",
            f"run the server as root, or have a cgroup delegated to it; {delegate}",
            "Delegate=yes",
        )
    if groups.pools:
        yield ok("cgroups.kill", "each job has a cgroup: a stop ends all its processes")
    else:
        yield note(
            "cgroups.kill",
            "jobs get no cgroup of their own here (cgroup v2, writable and fast)",
            "a process that hides (own session, emptied environment) is killed only when all jobs that may have "
            "started it have ended",
        )
    if groups.pools and machine.kernel < KILLS_GROUPS:
        yield note(
            "cgroups.old", "this kernel cannot kill a cgroup at once (5.14 can)", "stops of big jobs take longer"
        )


def judge_shm(machine: Machine) -> Iterator[Finding]:
    if machine.shm_mib is None:
        costs = "data loaders with several workers fail"
        yield warning("memory.shm", "there is no /dev/shm", costs, "", "mount -t tmpfs tmpfs /dev/shm")
    elif machine.shm_mib < SMALL_SHM_MIB:
        yield warning(
            "memory.shm",
            f"/dev/shm has {machine.shm_mib} MiB",
            "data loaders with several workers fail with `Bus error`",
            "(in a container: `--shm-size` or `--ipc=host`)",
            "mount -o remount,size=50% /dev/shm",
        )
    else:
        yield ok(
            "memory.shm",
            f"{machine.memory_mib / 1024:.0f} GiB, of which /dev/shm may take {machine.shm_mib / 1024:.0f}",
        )


def judge_local_rights(machine: Machine, wishes: Wishes) -> Iterator[Finding]:
    if wishes.as_submitter and not machine.user.is_root:
        yield problem(
            "rights.submitter",
            f'run_as = "submitter" needs a server run by root, and this is {machine.user.name}',
            "the server refuses to start",
            "start it as root (or check again as root: `sudo danlu doctor`), or:",
            'run_as = "server"      # danlu.toml, in [engine]',
        )
    elif wishes.as_submitter:
        yield ok("rights.root", "running as root: each job runs as its owner")
    elif wishes.is_shared:
        yield warning(
            "rights.one_user",
            f"all jobs run as {machine.user.name}",
            "any user who may submit jobs can read all logs and act as an administrator. Fine for one user, not "
            "for a lab",
            "run the server as root, and in danlu.toml:",
            "[engine]",
            'run_as = "submitter"',
        )
    else:
        yield ok("rights.own", f"a personal server of {machine.user.name}: jobs run as {machine.user.name}")
