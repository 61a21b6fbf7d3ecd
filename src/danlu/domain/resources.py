"""The resources of a job, of a machine, and of a seat."""

import re
from dataclasses import dataclass

from danlu.errors import Invalid

SHARDS_PER_GPU = 64
# Ports at which the processes of a job meet: below the ephemeral ports of the system, and without the default port of
# torchrun (29500).
MEETING_PORTS = range(23_000, 29_000)

_VENDOR_WORDS = frozenset({"nvidia", "geforce", "tesla", "quadro", "amd", "instinct", "radeon"})


@dataclass(frozen=True, slots=True)
class Ask:
    """Requested resources. Either whole GPUs or shards of one GPU, never both."""

    gpus: int = 0
    gpu_model: str | None = None
    shards: int = 0
    cpus: int = 1
    memory_mib: int = 0  # 0: none reserved, none enforced
    nodes: int = 1  # number of machines at the same time, each with all of the above
    shm_mib: int = 0  # shared memory; 0: no request

    def __post_init__(self) -> None:
        if min(self.gpus, self.shards, self.memory_mib, self.shm_mib) < 0:
            raise Invalid("a job cannot ask for less than nothing", "use numbers of 0 or more")
        if self.cpus < 1:
            raise Invalid(f"a job needs at least one CPU, not {self.cpus}", "use `--cpus 1` or more")
        if self.nodes < 1:
            raise Invalid(
                f"a job needs at least one node, not {self.nodes}", "use `--nodes 1` or more, or leave it out"
            )
        if self.gpus and self.shards:
            raise Invalid(
                "a job asks for whole GPUs or for shards of one, not for both",
                "keep `--gpus` or `--shards`",
            )


@dataclass(frozen=True, slots=True)
class Gpu:
    index: int
    model: str
    uuid: str = ""
    memory_mib: int = 0
    shards: int = SHARDS_PER_GPU


@dataclass(frozen=True, slots=True)
class Node:
    name: str
    cpus: int
    memory_mib: int
    gpus: tuple[Gpu, ...] = ()
    accepts_jobs: bool = True


@dataclass(frozen=True, slots=True)
class Seat:
    """The place of a run: a node, and some of its cards. `gpus` are whole; a shard seat has one shared card."""

    node: str
    cpus: int
    memory_mib: int = 0
    gpus: tuple[int, ...] = ()
    shared_gpu: int | None = None
    shards: int = 0


def squeeze(model: str) -> str:
    """`NVIDIA GeForce RTX 3090` -> `nvidiageforcertx3090`."""
    return re.sub(r"[^a-z0-9]", "", model.casefold())


def forms_of_model(model: str) -> frozenset[str]:
    """All squeezed names of this model: `RTX 3090` matches rtx3090, 3090, geforcertx3090…

    `A100-SXM4-80GB` also matches a100, a100sxm4 and a10080gb; but `RTX 3080 Ti` does not match rtx3080, which is
    another card.
    """
    words = [word for word in re.split(r"[^a-z0-9]+", model.casefold()) if word]
    forms = {squeeze(model)}
    while words and words[0] in _VENDOR_WORDS:
        words = words[1:]
        forms.add("".join(words))
    if words[-1:] == ["generation"]:
        words = words[:-1]
        forms.add("".join(words))
    if words:
        forms.add("".join(words).removeprefix("rtx").removeprefix("gtx"))
        if re.search(r"\d", words[0]) and re.search(r"[a-z]", words[0]):
            forms.add(words[0])
            forms.update(words[0] + word for word in words[1:])
    forms.discard("")
    return frozenset(forms)


def model_fits(model: str, wanted: str | None) -> bool:
    """Whether a card of `model` satisfies a request for `wanted`. `wanted=None` matches every card."""
    return wanted is None or squeeze(wanted) in forms_of_model(model)
