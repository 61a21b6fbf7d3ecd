"""How often somebody may try, by a clock that the test turns."""

from datetime import timedelta

import pytest

from danlu.actions.people.rate_limit import LoginLimiter, Pace, place_of
from danlu.errors import TooMany
from tests.builders import NOW


def seconds(count: float) -> timedelta:
    return timedelta(seconds=count)


def test_some_tries_are_free_then_the_pause_doubles_up_to_a_limit() -> None:
    pace = Pace(free=3, longest=seconds(10))
    now = NOW
    pauses = []
    for _ in range(8):
        pace.count("li", now)
        pauses.append(pace.wait("li", now).total_seconds())
        now += pace.wait("li", now)
    assert pauses == [0, 0, 1, 2, 4, 8, 10, 10]
    assert pace.wait("wang", now) == seconds(0)


def test_a_pause_passes_and_tries_are_forgotten() -> None:
    pace = Pace(free=1, memory=timedelta(minutes=5))
    pace.count("li", NOW)
    assert pace.wait("li", NOW + seconds(0.5)) == seconds(0.5)
    assert pace.wait("li", NOW + seconds(1)) == seconds(0)
    later = NOW + timedelta(minutes=6)
    pace.count("li", later)
    assert pace.wait("li", later) == seconds(1), "the count began anew"


def test_memory_is_bounded() -> None:
    pace = Pace(free=1, most_keys=100)
    pace.count("li", NOW)
    for number in range(100):
        pace.count(f"x{number}", NOW)
    assert pace.wait("li", NOW) == seconds(0)
    assert pace.wait("x99", NOW) == seconds(1)


def test_wrong_logins_of_a_name_are_slowed_from_everywhere() -> None:
    limiter = LoginLimiter()
    for number in range(50):
        limiter.enter("li", f"203.0.113.{number}", NOW)
    with pytest.raises(TooMany) as refused:
        limiter.enter("li", "198.51.100.1", NOW)
    assert refused.value.retry_after_s == 1
    limiter.enter("wang", "198.51.100.1", NOW)
    limiter.enter("li", "198.51.100.1", NOW + seconds(1))


def test_one_place_alone_slows_only_itself() -> None:
    limiter, now, refusals = LoginLimiter(), NOW, 0
    for _ in range(200):
        try:
            limiter.enter("li", "203.0.113.66", now)
        except TooMany as error:
            refusals += 1
            now += seconds(error.retry_after_s)
    assert refusals
    limiter.enter("li", "198.51.100.1", now)


def test_whoever_came_from_a_place_before_does_not_wait_for_strangers() -> None:
    limiter = LoginLimiter()
    limiter.enter("li", "198.51.100.1", NOW)
    limiter.passed("li", "198.51.100.1")
    for number in range(50):
        limiter.enter("li", f"203.0.113.{number}", NOW)
    with pytest.raises(TooMany):
        limiter.enter("li", "198.51.100.2", NOW)
    limiter.enter("li", "198.51.100.1", NOW)


def test_one_place_that_tries_many_names_is_slowed() -> None:
    limiter = LoginLimiter()
    for number in range(30):
        limiter.enter(f"name{number}", "203.0.113.7", NOW)
    with pytest.raises(TooMany):
        limiter.enter("li", "203.0.113.7", NOW)
    limiter.enter("li", "198.51.100.1", NOW)


def test_right_logins_cost_nothing() -> None:
    limiter = LoginLimiter()
    for _ in range(100):
        limiter.enter("li", "203.0.113.7", NOW)
        limiter.passed("li", "203.0.113.7")


def test_who_knows_one_password_cannot_clear_the_place_for_guessing_others() -> None:
    limiter = LoginLimiter()
    for number in range(29):
        limiter.enter(f"name{number}", "203.0.113.7", NOW)
    limiter.enter("li", "203.0.113.7", NOW)
    limiter.passed("li", "203.0.113.7")
    limiter.enter("wang", "203.0.113.7", NOW)
    with pytest.raises(TooMany):
        limiter.enter("zhao", "203.0.113.7", NOW)


@pytest.mark.parametrize(
    ("one", "other", "is_same"),
    [
        ("2001:db8:1:2::1", "2001:db8:1:2:ffff::9", True),
        ("2001:db8:1:2::1", "2001:db8:1:3::1", False),
        ("203.0.113.7", "203.0.113.8", False),
        ("unix socket", "unix socket", True),
        ("::ffff:203.0.113.7", "::ffff:203.0.113.8", False),
        ("::ffff:203.0.113.7", "203.0.113.7", True),
    ],
)
def test_an_ipv6_network_is_one_place(one: str, other: str, is_same: bool) -> None:
    assert (place_of(one) == place_of(other)) is is_same
