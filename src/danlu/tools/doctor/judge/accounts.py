"""Slurm's accounting, and the rights of Danlu's server. Pure."""

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
            "after Slurm has forgotten a job, only the job's own exit file tells how it ended; teams are not "
            "Slurm accounts;  "
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
                "cards are not accounted: `sacct` and `sreport` show cores only, and Slurm's limits cannot count cards",
                "in slurm.conf; then restart slurmctld",
                "AccountingStorageTRES=gres/gpu,gres/shard",
            )
    if not is_set(config.get("JobAcctGatherType")) or config.get("JobAcctGatherType", "").endswith("/none"):
        yield note(
            "accounting.gather",
            "JobAcctGatherType=none",
            "there are no figures of the memory and time that a job really used (`sstat`, `sacct`)",
            "in slurm.conf; then restart slurmctld and every slurmd",
            "JobAcctGatherType=jobacct_gather/linux",
        )


def _database(slurm: Slurm, config: Mapping[str, str]) -> Iterator[Finding]:
    said = slurm.clusters
    where = config.get("AccountingStorageHost", "slurmdbd")
    if said is None:
        yield unchecked("accounting.database", "the command `sacctmgr` is not installed here")
        return
    if not said.is_ok:
        words = f"no answer within {said.took_s:.0f} s" if said.is_late else last_words(said.err)
        yield warning(
            "accounting.database",
            f"slurmdbd on {where} cannot be asked: {words}",
            "jobs keep running, and are recorded later; until then, how forgotten jobs ended cannot be looked up, "
            "and a restarted controller knows no limits",
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
        costs = "the controller cannot reach it, or it is too slow; when the backlog is full, jobs are missing for ever"
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
        f"only users with a Slurm account may submit: {plural(len(people), 'person', 'people')}, "
        f"{plural(len(accounts), 'account')}"
    )
    if wishes.makes_accounts:
        takes = "" if slurm.user.is_root else "; adding accounts needs a server run by root or by a Slurm operator"
        yield note(
            "accounting.enforced",
            f"{found}; the server adds those of teams",
            f"Slurm refuses only users without a team and without a Slurm account{takes}",
            "for each of them `danlu team add TEAM NAME`, or:",
            "sacctmgr -i add account ACCOUNT",
            "sacctmgr -i add user NAME account=ACCOUNT",
        )
        return
    level = note if people else warning
    yield level(
        "accounting.enforced",
        found,
        "Slurm refuses jobs of other users; a job for a team without a Slurm account uses the default account of "
        "its user",
        "for each team and its people (names as in Danlu):",
        "sacctmgr -i add account TEAM",
        "sacctmgr -i add user NAME account=TEAM",
    )


def judge_rights(slurm: Slurm, config: Mapping[str, str], wishes: Wishes) -> Iterator[Finding]:
    yield from _as_root(config, wishes) if slurm.user.is_root else _as_one(slurm.user.name, config, wishes)


def _as_root(config: Mapping[str, str], wishes: Wishes) -> Iterator[Finding]:
    if wishes.as_submitter:
        yield ok("rights.root", "running as root: each job is submitted as its owner")
    elif not wishes.is_shared:
        yield ok("rights.own", "a personal server of root: jobs run as root")
    else:
        yield warning(
            "rights.as_root",
            'run_as = "server", and this is root: the jobs of all users run as root',
            "any user who may submit a job controls every node",
            "in danlu.toml:",
            "[engine]",
            'run_as = "submitter"',
        )
    if config.get("DisableRootJobs", "no").lower() == "yes":
        costs = "root's own jobs are refused (jobs that root submits for users are not); `--deep` cannot run as root"
        yield note("rights.root_jobs", "DisableRootJobs=YES", costs, RECONFIGURE, "DisableRootJobs=NO")


def _as_one(name: str, config: Mapping[str, str], wishes: Wishes) -> Iterator[Finding]:
    if wishes.as_submitter:
        yield problem(
            "rights.submitter",
            f'run_as = "submitter" needs a server run by root, and this is {name}',
            "the server refuses to start",
            "start it as root (or check again as root: `sudo danlu doctor`), or:",
            'run_as = "server"      # danlu.toml, in [engine]',
        )
    else:
        level = warning if wishes.is_shared else note
        yield level(
            "rights.one_user",
            f"{name} here: all jobs run as {name}",
            "users can read and stop each other's jobs and files, and Slurm counts them as one user; jobs of plain "
            "`sbatch` can be seen, not stopped. Fine for one person, not for a lab",
            "run the server as root: it drops its privileges before it touches a user's files",
        )
    if is_set(config.get("PrivateData")):
        yield warning(
            "rights.private",
            f"PrivateData={config['PrivateData']}: Slurm hides things from {name}",
            "cards held by others look free, and the jobs and usage of others are missing everywhere",
            f"run the server as root, or make {name} an operator:",
            f"sacctmgr -i modify user {name} set adminlevel=operator",
        )
