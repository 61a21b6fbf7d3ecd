"""The part of the local engine that the configuration needs."""

from danlu import paths
from danlu.engines.base import Abilities, Engine, EngineKind, EngineSetup

ABILITIES = Abilities()


def _build(setup: EngineSetup) -> Engine:
    # Imported only here: a server that drives a cluster does not load the local engine.
    from danlu.engines.local.engine import LocalEngine

    socket = paths.keeper_socket(setup.state_dir)
    return LocalEngine(setup.state_dir, socket, lambda: setup.nodes, logs_dir=f"{setup.files_dir}/logs")


LOCAL = EngineKind("local", ABILITIES, _build)
