"""Passwords: the value that the `det` client sends, hashed slowly, off the event loop."""

import asyncio
import hashlib
import subprocess
import sys

import pytest

from danlu.actions.people import passwords
from danlu.errors import Invalid


def test_what_is_hashed_is_what_det_sends() -> None:
    sent = hashlib.sha512(b"GubPEmmotfiK9TMD6Zdw" + b"correct horse").hexdigest()
    assert passwords.wire_value("correct horse") == sent

    async def scenario() -> None:
        kept = await passwords.hashed(passwords.new_value("correct horse"))
        assert kept.startswith("$argon2id$")
        assert sent not in kept
        assert await passwords.is_right(kept, passwords.given_value("correct horse"))
        assert await passwords.is_right(kept, passwords.given_value(sent, is_hashed=True))
        for wrong in ("correct horsf", "", sent, "correct horse "):
            assert not await passwords.is_right(kept, passwords.given_value(wrong))
        for wrong in ("", "correct horse", sent[:-1], kept):
            assert not await passwords.is_right(kept, passwords.given_value(wrong, is_hashed=True))

    asyncio.run(scenario())


@pytest.mark.parametrize("kept", ["", "nonsense", "$argon2id$v=19$broken"])
def test_an_account_without_a_password_has_none_that_is_right(kept: str) -> None:
    for given in ("", "password", kept):
        assert not asyncio.run(passwords.is_right(kept, passwords.given_value(given)))
        assert not asyncio.run(passwords.is_right(kept, passwords.given_value(given, is_hashed=True)))


@pytest.mark.parametrize(
    ("password", "is_hashed", "text"),
    [
        ("", False, "too short"),
        ("seven77", False, "too short: 7 characters"),
        ("x" * 1025, False, "too long"),
        ("sesame-open", True, "128 hex digits"),
        ("", True, "128 hex digits"),
        ("G" * 128, True, "128 hex digits"),
        (passwords.wire_value(""), True, "128 hex digits"),
    ],
)
def test_what_is_no_password_is_refused(password: str, is_hashed: bool, text: str) -> None:
    with pytest.raises(Invalid, match=text) as refused:
        passwords.new_value(password, is_hashed=is_hashed)
    assert not password or password not in refused.value.text


@pytest.mark.parametrize("password", ["密码密码密码密码", "sp ace\ttab", "\udcff\udc80 bytes", "\ud800 is alone"])
def test_odd_passwords_work(password: str) -> None:
    async def scenario() -> None:
        kept = await passwords.hashed(passwords.new_value(password))
        assert await passwords.is_right(kept, passwords.given_value(password))

    asyncio.run(scenario())


def test_the_loop_goes_on_while_a_password_is_checked() -> None:
    async def scenario() -> None:
        turns = 0
        checking = asyncio.ensure_future(passwords.is_right("", passwords.given_value("whatever")))
        while not checking.done():
            turns += 1
            await asyncio.sleep(0)
        assert turns > 2

    asyncio.run(scenario())


def test_a_server_without_logins_does_not_load_argon2() -> None:
    code = "import sys, danlu.app; sys.exit('argon2' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code]).returncode == 0
