"""Every engine that `[engine] kind` can name. A new engine is one line here."""

from danlu.engines.base import Abilities, EngineKind
from danlu.engines.local.kind import LOCAL
from danlu.engines.slurm.kind import SLURM

KINDS: dict[str, EngineKind] = {
    "local": LOCAL,
    "slurm": SLURM,
}
# Clusters that a configuration may describe and `--fake` simulates, although no engine runs jobs there yet.
ONLY_PLAYED = ("kubernetes",)


def abilities_of(kind: str) -> Abilities:
    return KINDS[kind].abilities if kind in KINDS else Abilities()
