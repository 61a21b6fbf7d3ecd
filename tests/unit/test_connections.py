"""Who holds how many connections, and who gives way."""

import logging
import os

import pytest

from danlu.api.connections import PEER, Limits, Line, Lines, limits_for
from danlu.errors import TooMany

LIMITS = Limits(strangers_of_one=2, strangers=4, of_one=3, remote=8, local=4)


class Door:
    """Lines with a clock that the test sets, and the connections that were ended."""

    def __init__(self, limits: Limits = LIMITS, **given: frozenset[str]) -> None:
        self.now = 1000.0
        self.lines = Lines(limits, lambda: self.now, **given)  # type: ignore[arg-type]
        self.ended: list[str] = []

    def come(self, name: str, origin: str = "203.0.113.1") -> Line | None:
        return self.lines.take(origin, lambda: self.ended.append(name))

    def must(self, name: str, origin: str = "203.0.113.1") -> Line:
        line = self.come(name, origin)
        assert line is not None
        return line


def test_the_oldest_stranger_of_an_address_gives_way_to_the_next() -> None:
    door = Door()
    for name in ("a", "b", "c"):
        door.must(name)
    assert door.ended == ["a"]
    door.must("far", "203.0.113.2")
    assert door.ended == ["a"], "another address has room of its own"


def test_a_request_that_is_worked_on_is_not_ended() -> None:
    door = Door()
    first, second = door.must("a"), door.must("b")
    first.is_busy = True
    door.must("c")
    assert door.ended == ["b"]
    third = door.must("d")
    assert door.ended == ["b", "c"]
    third.is_busy = second.is_busy = True
    assert door.come("e") is None, "nobody waits"


def test_a_flood_from_one_address_gives_way_to_all_others() -> None:
    door = Door()
    for number in range(10):
        door.must(f"flood{number}")
    quiet = [door.must(f"quiet{number}", f"198.51.100.{number}") for number in range(2)]
    door.ended.clear()
    door.must("new", "198.51.100.9")
    assert door.ended == ["flood8"], "the address with the most loses its oldest"
    assert all(line in door.lines.waiting for line in quiet)


def test_whole_networks_of_ipv6_are_one_address() -> None:
    door = Door()
    for number in range(3):
        door.must(f"a{number}", f"2001:db8::{number}")
    assert door.ended == ["a0"]


def test_people_with_a_token_do_not_share_the_limit_of_their_address() -> None:
    door = Door()
    for person in ("li", "wang", "zhao", "dean", "wei"):
        door.must(person).recognize(person)
    assert door.ended == []


def test_one_person_has_so_many_connections_and_no_more() -> None:
    door = Door()
    first = door.must("li")
    first.recognize("li")
    first.recognize("li")
    for _ in range(2):
        door.must("li").recognize("li")
    with pytest.raises(TooMany, match="too many connections"):
        door.must("li").recognize("li")
    door.must("wang").recognize("wang")
    door.lines.let_go(first)
    door.lines.let_go(first)
    door.must("li").recognize("li")


def test_a_proxy_is_many_people() -> None:
    door = Door(proxies=frozenset({"203.0.113.1"}))
    for number in range(8):
        door.must(str(number))
    assert door.ended == []
    assert door.come("beyond") is None, "all over TCP together have a limit"
    assert door.come("local", f"{PEER}1000") is not None
    assert door.come("root", f"{PEER}0") is not None


def test_nobody_but_root_and_the_server_take_all_connections_of_the_unix_socket() -> None:
    door = Door()
    lines = [door.come(str(number), f"{PEER}1000") for number in range(4)]
    assert [line is not None for line in lines] == [True, True, True, False]
    assert door.come("other", f"{PEER}1001") is not None
    assert door.come("third", f"{PEER}1002") is None, "all Unix users together"
    for uid in (0, os.getuid()):
        assert all(door.come("root", f"{PEER}{uid}") for _ in range(20))
    assert lines[0]
    door.lines.let_go(lines[0])
    assert door.come("again", f"{PEER}1000") is not None


def test_a_request_that_takes_too_long_is_ended() -> None:
    door = Door()
    slow, quick, known = door.must("slow"), door.must("quick", "203.0.113.2"), door.must("known", "203.0.113.3")
    known.recognize("li")
    door.now += door.lines.patience_s - 1
    door.lines.look()
    assert door.ended == []
    quick.has_asked()
    known.waits()  # the next piece of an upload
    door.now += 1
    door.lines.look()
    assert door.ended == ["slow"]
    door.now += 1000
    door.lines.look()
    assert door.ended == ["slow", "known"], "whoever has asked may take any time to listen"
    door.lines.let_go(slow)


def test_the_log_tells_of_a_flood_once_and_of_its_end(caplog: pytest.LogCaptureFixture) -> None:
    door = Door()
    with caplog.at_level(logging.INFO):
        for number in range(50):
            door.must(str(number))
        assert len(caplog.records) == 1
        assert "too many connections: 2 over TCP" in caplog.text
        assert "2 of 203.0.113.1" in caplog.text
        door.lines.look()
        door.now += 61
        door.lines.look()
        door.lines.look()
        assert len(caplog.records) == 2
        assert "48 were refused or ended" in caplog.text


@pytest.mark.parametrize("descriptors", [256, 1024, 4096, 65_536, 1 << 20])
def test_connections_leave_descriptors_for_files_and_jobs(descriptors: int) -> None:
    limits = limits_for(descriptors)
    assert limits.remote + limits.local <= descriptors * 3 // 4
    assert limits.strangers <= limits.remote // 2, "strangers keep no room from people"
    assert limits.strangers_of_one * 2 <= limits.strangers
    assert limits.remote <= 32_768
