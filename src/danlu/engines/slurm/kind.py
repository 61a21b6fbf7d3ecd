"""What the configuration has to know of the Slurm engine."""

import re
from dataclasses import dataclass

from danlu.engines.base import Abilities, Engine, EngineKind, EngineSetup
from danlu.engines.settings import EngineSettings
from danlu.errors import Invalid

ABILITIES = Abilities(places=True, live_nodes=True, many_nodes=True, runs_as_submitter=True)


@dataclass(frozen=True, slots=True)
class SlurmSettings:
    """For `danlu slurm init`, which makes a cluster of the nodes and queues of the file."""

    cluster: str = "danlu"
    controller: str = ""  # empty: the first node
    accounting: bool = False
    shared: str = ""  # a folder that every machine mounts


def _shared_dir(settings: EngineSettings, section: SlurmSettings) -> str:
    return settings.shared_dir or (f"{section.shared}/danlu" if section.shared else "")


def _check_section(section: SlurmSettings) -> None:
    if section.shared and not re.fullmatch(r"/[\w./+-]+", section.shared):
        raise Invalid(f"`slurm.shared` is an absolute path of plain letters, not `{section.shared}`")


def _build(setup: EngineSetup) -> Engine:
    # Only here: a person's own machine does not pay for it.
    from danlu.engines.slurm.engine import SlurmEngine

    return SlurmEngine(
        f"{setup.files_dir}/slurm",
        conf=setup.settings.slurm_conf,
        makes_accounts=setup.settings.slurm_accounts == "make",
    )


SLURM = EngineKind("Slurm", ABILITIES, _build, _shared_dir, _check_section)
