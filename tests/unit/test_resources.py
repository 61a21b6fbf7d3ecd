import pytest

from danlu.domain.resources import Ask, forms_of_model, model_fits, squeeze
from danlu.errors import Invalid


@pytest.mark.parametrize(
    ("model", "wanted"),
    [
        ("NVIDIA GeForce RTX 3090", "RTX3090"),
        ("NVIDIA GeForce RTX 3090", "rtx 3090"),
        ("NVIDIA GeForce RTX 3090", "3090"),
        ("NVIDIA GeForce RTX 3090", "NVIDIA GeForce RTX 3090"),
        ("NVIDIA GeForce RTX 3080 Ti", "3080ti"),
        ("NVIDIA GeForce GTX 1080 Ti", "1080Ti"),
        ("NVIDIA A100-SXM4-80GB", "A100"),
        ("NVIDIA A100-SXM4-80GB", "A100-SXM4"),
        ("NVIDIA A100-SXM4-80GB", "A100-80GB"),
        ("NVIDIA A100 80GB PCIe", "A100-80GB"),
        ("NVIDIA H100 80GB HBM3", "h100"),
        ("Tesla V100-SXM2-32GB", "V100"),
        ("Tesla T4", "T4"),
        ("NVIDIA RTX A6000", "A6000"),
        ("NVIDIA RTX 6000 Ada Generation", "RTX6000Ada"),
        ("NVIDIA RTX 6000 Ada Generation", "6000-ada"),
        ("AMD Instinct MI300X", "mi300x"),
        ("AMD Radeon RX 7900 XTX", "RX7900XTX"),
        ("anything", None),
    ],
)
def test_a_card_answers_to_the_names_people_use(model: str, wanted: str | None) -> None:
    assert model_fits(model, wanted)


@pytest.mark.parametrize(
    ("model", "wanted"),
    [
        ("NVIDIA GeForce RTX 3080 Ti", "3080"),
        ("NVIDIA GeForce RTX 3080 Ti", "RTX3080"),
        ("NVIDIA GeForce RTX 3090", "RTX"),
        ("NVIDIA GeForce RTX 3090", "NVIDIA"),
        ("NVIDIA GeForce RTX 3090", "309"),
        ("NVIDIA GeForce RTX 3090", ""),
        ("NVIDIA RTX 6000 Ada Generation", "RTX6000"),
        ("NVIDIA A100-SXM4-80GB", "A100-40GB"),
        ("NVIDIA A100-SXM4-80GB", "80GB"),
        ("NVIDIA H100 80GB HBM3", "H200"),
    ],
)
def test_a_card_does_not_answer_to_another_ones_name(model: str, wanted: str) -> None:
    assert not model_fits(model, wanted)


@pytest.mark.parametrize("model", ["", "NVIDIA", "GeForce RTX", "Generation", "雷"])
def test_odd_models_have_only_forms_that_say_something(model: str) -> None:
    assert "" not in forms_of_model(model)


def test_squeezing_leaves_letters_and_digits() -> None:
    assert squeeze("NVIDIA GeForce RTX 3090") == "nvidiageforcertx3090"


def test_an_ask_is_one_cpu_unless_it_says_more() -> None:
    assert Ask() == Ask(gpus=0, gpu_model=None, shards=0, cpus=1, memory_mib=0)


@pytest.mark.parametrize(
    "ask", [{"gpus": -1}, {"shards": -1}, {"memory_mib": -1}, {"cpus": 0}, {"gpus": 1, "shards": 1}]
)
def test_a_senseless_ask_is_refused(ask: dict[str, int]) -> None:
    with pytest.raises(Invalid) as refused:
        Ask(**ask)  # type: ignore[arg-type]
    assert refused.value.hint
