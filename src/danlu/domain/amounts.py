"""Amounts as people read them."""

from collections.abc import Sequence

from danlu.domain.resources import Ask


def render_count(count: int, thing: str) -> str:
    return f"{count} {thing}" if count == 1 else f"{count} {thing}s"


def render_cpus(cpus: int) -> str:
    return render_count(cpus, "CPU")


def render_memory(mib: int) -> str:
    if mib < 1024:
        return f"{mib} MiB"
    # Rounding must not make 63.99 of 64 GiB look like enough.
    return f"{mib // 1024} GiB" if mib % 1024 == 0 else f"{mib * 100 // 1024 / 100:.2f} GiB"


def render_cards(ask: Ask) -> str:
    """`2 GPUs of RTX3090`, `16 shards of one GPU`."""
    model = f" of {ask.gpu_model}" if ask.gpu_model else ""
    if ask.shards:
        return f"{render_count(ask.shards, 'shard')} of one GPU" + (f" ({ask.gpu_model})" if ask.gpu_model else "")
    return render_count(ask.gpus, "GPU") + model


def render_list(words: Sequence[str]) -> str:
    return words[0] if len(words) == 1 else f"{', '.join(words[:-1])} and {words[-1]}"


def render_nodes(ask: Ask) -> str:
    """`4 nodes with 2 GPUs each`; the text names CPUs only if the ask has no cards."""
    each = render_cards(ask) if ask.gpus or ask.shards else render_cpus(ask.cpus)
    return f"{ask.nodes} nodes with {each} each"


def render_gpus(gpus: float) -> str:
    """Also fractions: `2.5 GPUs`."""
    return f"{round(gpus, 2):g} GPU{'' if gpus == 1 else 's'}"
