"""What Slurm remembers of jobs and people, and what Danlu's server may do. Pure."""

import re
from collections.abc import Iterator, Mapping

from danlu.engines.slurm.text.messages import last_words
from danlu.tools.doctor.facts import Slurm, Wishes
from danlu.tools.doctor.findings import Finding, note, ok, plural, problem, unchecked, warning
from danlu.tools.doctor.judge.order import RECONFIGURE
from danlu.tools.doctor.texts import is_set

MANY_MESSAGES = 1000


def judge_accounting(slurm: Slurm, config: Mapping[str, str], wishes: Wishes, *, has_cards: bool) -> Iterator[Finding]:
    if not config.get("AccountingStorageType", "").endswith("slurmdbd"):
        yield note(
            "accounting.off",
            "Slurm keeps no accounts (no slurmdbd)",
            "how a job ended after Slurm forgot it is known from its own last word only; teams are not Slurm accounts; "
            "jobs of plain `sbatch` leave no trace of their use after their end",
            "not needed for Danlu's own quotas and reports. For a new cluster: `[slurm] accounting = true`, and",
            "danlu slurm init nodes.toml",
        )
    else:
        yield from _database(slurm, config)
        yield from _associations(slurm, config, wishes)
        counted = config.get("AccountingStorageTRES", "")
        if has_cards and "gres/gpu" not in counted:
            yield warning(
                "accounting.cards",
                "AccountingStorageTRES does not name gres/gpu",
                "cards are in no account: `sacct` and `sreport` know cores only, and Slurm's limits cannot count them",
                "in slurm.conf; then restart slurmctld",
                "AccountingStorageTRES=gres/gpu,gres/shard",
            )
    if not is_set(config.get("JobAcctGatherType")) or config.get("JobAcctGatherType", "").endswith("/none"):
        yield note(
            "accounting.gather",
            "JobAcctGatherType=none",
            "nobody can see how much memory and time a job really used (`sstat`, `sacct`)",
            "in slurm.conf; then restart slurmctld and every slurmd",
            "JobAcctGatherType=jobacct_gather/linux",
        )


def _database(slurm: Slurm, config: Mapping[str, str]) -> Iterator[Finding]:
    said = slurm.clusters
    where = config.get("AccountingStorageHost", "slurmdbd")
    if said is None:
        yield unchecked("accounting.database", "the command `sacctmgr` is not here")
        return
    if not said.is_ok:
        words = f"no answer within {said.took_s:.0f} s" if said.is_late else last_words(said.err)
        yield warning(
            "accounting.database",
            f"slurmdbd on {where} cannot be asked: {words}",
            "jobs run on, and are written down later; until then ends that Slurm has forgotten cannot be looked up, "
            "and a controller that restarts knows no limits",
            f"on {where}:",
            "systemctl status slurmdbd mariadb",
            "journalctl -u slurmdbd -n 50",
        )
        return
    known = [line.partition("|")[0] for line in said.out.splitlines()]
    if config.get("ClusterName", "") not in known:
        name = config.get("ClusterName", "")
        yield warning(
            "accounting.cluster",
            f"slurmdbd does not know the cluster {name}",
            "nothing is written down",
            "",
            f"sacctmgr -i add cluster {name}",
        )
        return
    waiting = re.search(r"DBD Agent queue size:\s*(\d+)", slurm.statistics.out if slurm.statistics else "")
    if waiting and int(waiting[1]) > MANY_MESSAGES:
        costs = (
            "it cannot be reached from the controller, or is too slow; when the heap is full, jobs are missing for ever"
        )
        yield warning("accounting.behind", f"{waiting[1]} messages wait for slurmdbd", costs)
    else:
        yield ok("accounting.database", f"slurmdbd on {where} answers")


def _associations(slurm: Slurm, config: Mapping[str, str], wishes: Wishes) -> Iterator[Finding]:
    if "associations" not in config.get("AccountingStorageEnforce", "") or not slurm.associations:
        return
    if not slurm.associations.is_ok:
        return
    pairs = [line.split("|")[:2] for line in slurm.associations.out.splitlines() if "|" in line]
    people = {user for _, user in pairs if user} - {"root"}
    accounts = {account for account, _ in pairs} - {"root"}
    found = (
        f"only who has an account in Slurm may submit: {plural(len(people), 'person', 'people')}, "
        f"{plural(len(accounts), 'account')}"
    )
    if wishes.makes_accounts:
        takes = "" if slurm.user.is_root else "; to add takes a server of root or of an operator of Slurm"
        yield note(
            "accounting.enforced",
            f"{found}; the server adds those of teams",
            f"only who is in no team and has no account there is refused by Slurm{takes}",
            "for each of them `danlu team add TEAM NAME`, or:",
            "sacctmgr -i add account ACCOUNT",
            "sacctmgr -i add user NAME account=ACCOUNT",
        )
        return
    level = note if people else warning
    yield level(
        "accounting.enforced",
        found,
        "a job of anybody else is refused by Slurm; one for a team that is no account there goes under its person's",
        "for each team and its people (names as in Danlu):",
        "sacctmgr -i add account TEAM",
        "sacctmgr -i add user NAME account=TEAM",
    )


def judge_rights(slurm: Slurm, config: Mapping[str, str], wishes: Wishes) -> Iterator[Finding]:
    yield from _as_root(config, wishes) if slurm.user.is_root else _as_one(slurm.user.name, config, wishes)


def _as_root(config: Mapping[str, str], wishes: Wishes) -> Iterator[Finding]:
    if wishes.as_submitter:
        yield ok("rights.root", "root here: each job is submitted as the person whose it is")
    elif not wishes.is_shared:
        yield ok("rights.own", "a server of root's own: jobs run as root")
    else:
        yield warning(
            "rights.as_root",
            'run_as = "server", and this is root: jobs of all people run as root',
            "whoever may submit a job owns every node",
            "in danlu.toml:",
            "[engine]",
            'run_as = "submitter"',
        )
    if config.get("DisableRootJobs", "no").lower() == "yes":
        costs = "root's own jobs are refused (those that it submits for people are not); `--deep` cannot look as root"
        yield note("rights.root_jobs", "DisableRootJobs=YES", costs, RECONFIGURE, "DisableRootJobs=NO")


def _as_one(name: str, config: Mapping[str, str], wishes: Wishes) -> Iterator[Finding]:
    if wishes.as_submitter:
        yield problem(
            "rights.submitter",
            f'run_as = "submitter" needs a server of root, and this is {name}',
            "the server refuses to start",
            "start it as root (or look again as root: `sudo danlu doctor`), or:",
            'run_as = "server"      # danlu.toml, in [engine]',
        )
    else:
        level = warning if wishes.is_shared else note
        yield level(
            "rights.one_user",
            f"{name} here: all jobs run as {name}",
            "people can read and stop each other's jobs and files, and Slurm counts them as one person; jobs of plain "
            "`sbatch` can be seen, not stopped. Fine for one person, not for a lab",
            "run the server as root: it gives up its rights before it touches anything of a person's",
        )
    if is_set(config.get("PrivateData")):
        yield warning(
            "rights.private",
            f"PrivateData={config['PrivateData']}: Slurm hides things from {name}",
            "cards that others hold look free, and their jobs and use are missing everywhere",
            f"run the server as root, or make {name} an operator:",
            f"sacctmgr -i modify user {name} set adminlevel=operator",
        )
