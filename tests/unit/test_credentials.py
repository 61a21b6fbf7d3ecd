"""What `danlu login` remembers on this machine."""

import json
import os
import stat
import threading
from pathlib import Path

import pytest

from danlu.client import Client, credentials
from danlu.client.http import Address
from danlu.errors import Invalid
from danlu.paths import credentials_file

LAB, OTHER = Address("https://gpu.lab:7411"), Address("https://other.lab")


def kept() -> Path:
    return Path(credentials_file())


def test_it_is_for_its_owners_eyes_only_whatever_the_umask() -> None:
    before = os.umask(0)
    try:
        credentials.remember(LAB, "li", "danlu_secret")
        assert stat.S_IMODE(kept().stat().st_mode) == 0o600
        kept().chmod(0o644)
        credentials.remember(LAB, "li", "danlu_other")
        assert stat.S_IMODE(kept().stat().st_mode) == 0o600
    finally:
        os.umask(before)
    assert [path.name for path in kept().parent.iterdir()] == ["credentials.json"]


def test_it_lies_where_configuration_lies(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.delenv("DANLU_HOME")
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path))
    credentials.remember(LAB, "li", "danlu_secret")
    assert (tmp_path / "danlu" / "credentials.json").exists()


def test_a_token_is_for_its_server_alone() -> None:
    credentials.remember(LAB, "li", "danlu_lab")
    credentials.remember(OTHER, "li", "danlu_other")
    assert credentials.token_for(Address("https://GPU.lab:7411/")) == "danlu_lab"
    for near in ("http://gpu.lab:7411", "https://gpu.lab:7412", "https://gpu.lab.evil:7411", "unix:///gpu.lab"):
        assert credentials.token_for(Address(near)) == ""
    assert credentials.default_server() == "https://other.lab:443"
    credentials.forget(OTHER)
    assert (credentials.default_server(), credentials.token_for(OTHER)) == ("", "")
    assert credentials.token_for(LAB) == "danlu_lab"


def test_clients_mean_the_server_that_one_logged_in_to(monkeypatch: pytest.MonkeyPatch) -> None:
    assert Client().is_personal
    credentials.remember(LAB, "li", "danlu_lab")
    client = Client()
    assert (client.address.host, client.is_personal) == ("gpu.lab", False)
    assert client.headers()["Authorization"] == "Bearer danlu_lab"
    assert Client(remembered=False).is_personal
    assert "Authorization" not in Client("https://other.lab").headers()
    monkeypatch.setenv("DANLU_TOKEN", "danlu_mine")
    assert Client().headers()["Authorization"] == "Bearer danlu_mine"
    monkeypatch.setenv("DANLU_SERVER", "http://elsewhere:1")
    assert Client().address.host == "elsewhere"


@pytest.mark.parametrize(
    "text", ["", "{", "[]", '{"default": 1, "servers": {}}', '{"default": "", "servers": {"x": {}}}']
)
def test_a_damaged_file_is_said(text: str) -> None:
    kept().parent.mkdir(parents=True, exist_ok=True)
    kept().write_text(text)
    with pytest.raises(Invalid, match="damaged"):
        Client()


def test_logins_at_the_same_time_do_not_lose_each_other() -> None:
    threads = [
        threading.Thread(target=credentials.remember, args=(Address(f"https://lab{number}"), "li", "danlu_x"))
        for number in range(12)
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(json.loads(kept().read_text())["servers"]) == 12
