"""What the configuration has to know of the local engine."""

from danlu import paths
from danlu.engines.base import Abilities, Engine, EngineKind, EngineSetup

ABILITIES = Abilities()


def _build(setup: EngineSetup) -> Engine:
    # Only here: a server that drives a cluster does not load it.
    from danlu.engines.local.engine import LocalEngine

    socket = paths.keeper_socket(setup.state_dir)
    return LocalEngine(setup.state_dir, socket, lambda: setup.nodes, logs_dir=f"{setup.files_dir}/logs")


LOCAL = EngineKind("local", ABILITIES, _build)
