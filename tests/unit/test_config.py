"""One file of settings: every key documented, wrong ones refused by name."""

import tomllib
from dataclasses import fields
from pathlib import Path

import pytest

from danlu.config import SECTIONS, Settings, load_settings
from danlu.errors import Invalid

EXAMPLE = Path(__file__).parents[2] / "examples" / "danlu.toml"


def written(tmp_path: Path, text: str) -> str:
    path = tmp_path / "danlu.toml"
    path.write_text(text)
    return str(path)


def test_the_example_documents_every_key_with_its_default() -> None:
    document = tomllib.loads(EXAMPLE.read_text())
    assert {name: list(keys) for name, keys in document.items()} == {
        name: [field.name for field in fields(kind)] for name, kind in SECTIONS.items()
    }
    assert load_settings(str(EXAMPLE), {}) == Settings()


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("[engin]\n", "unknown section: `engin`"),
        ("[engine]\nfake_gpu = '1xA100'\n", "unknown key in [engine]: `fake_gpu`"),
        ("[engine]\ncpus = 'many'\n", "`engine.cpus` in"),
        ("[engine]\ncpus = true\n", "must be a whole number"),
        ("[engine]\ncpus = -1\n", "must be 0 or more"),
        ("[engine]\nkind = 'mesos'\n", "`engine.kind` in"),
        ("[engine]\ngrace = 'soon'\n", "engine.grace takes a duration"),
        ("[server]\nplain_http = 1\n", "must be true or false"),
        ("[server]\ntls_cert = 'a.pem'\n", "needs both"),
        ("engine = 1\n", "must be a section"),
        ("[engine\n", "is not valid TOML"),
    ],
)
def test_what_is_wrong_is_refused_by_name(tmp_path: Path, text: str, message: str) -> None:
    with pytest.raises(Invalid) as refused:
        load_settings(written(tmp_path, text), {})
    assert message in refused.value.text


def test_a_near_miss_gets_a_hint(tmp_path: Path) -> None:
    with pytest.raises(Invalid) as refused:
        load_settings(written(tmp_path, "[engine]\nfake_gpu = ''\n"), {})
    assert refused.value.hint == "did you mean `fake_gpus`?"


def test_the_environment_wins(tmp_path: Path) -> None:
    path = written(tmp_path, "[engine]\ncpus = 4\n[server]\nplain_http = true\n")
    settings = load_settings(path, {"DANLU_ENGINE_CPUS": "8", "DANLU_SERVER_PLAIN_HTTP": "false"})
    assert settings.engine.cpus == 8
    assert settings.server.plain_http is False


def test_a_missing_file_is_said() -> None:
    with pytest.raises(Invalid, match="cannot read the configuration /nope"):
        load_settings("/nope", {})
