"""Options as written, turned into a spec and back."""

import pytest

from danlu.domain.request import JobRequest, changed_request, default_name, request_of, spec_of
from danlu.errors import Invalid


def test_a_wish_survives_the_way_to_a_spec_and_back() -> None:
    wanted = JobRequest(
        command=("python", "train.py"),
        workdir="/home/li",
        gpus="RTX3090:2",
        cpus=4,
        mem="16G",
        nodes=2,
        time="2h",
        priority=7,
        env={"SEED": "1"},
        label={"exp": "a"},
        array="1-10%2",
        retries=1,
        signal="USR1@300",
    )
    spec, array = spec_of(wanted)
    assert array is not None
    assert len(array.indices) == 10
    assert spec.at_once == 2
    assert spec_of(request_of(spec))[0] == spec


@pytest.mark.parametrize(
    ("options", "text"),
    [
        ({"gpus": "-1"}, "--gpus takes N or MODEL:N"),
        ({"cpus": "0"}, "at least one CPU"),
        ({"gpus": 1, "shards": 2}, "not for both"),
        ({"nodes": "0"}, "at least one node"),
        ({"nodes": "1-2"}, "--nodes takes a whole number"),
        ({"priority": 10}, "from 1 to 9"),
        ({"time": "soon"}, "--time takes a duration"),
        ({"time": 0}, "--time must be more than nothing"),
        ({"time": "0"}, "--time must be more than nothing"),
        ({"signal": "FOO"}, "`FOO`"),
        ({"array": "5-1"}, "--array takes numbers"),
        ({"workdir": "here"}, "absolute"),
        ({"env": {"": "x"}}, "--env takes NAME=VALUE"),
        ({"time": "1m", "signal": "USR1@300"}, "before the job starts"),
        ({"retries": "-1"}, "--retries takes a whole number"),
    ],
)
def test_nonsense_is_refused_by_the_options_name(options: dict[str, object], text: str) -> None:
    with pytest.raises(Invalid) as refused:
        spec_of(JobRequest(command=("true",), **options))  # type: ignore[arg-type]
    assert text in refused.value.text


def test_a_time_limit_of_less_than_a_second_survives_a_clone() -> None:
    spec, _ = spec_of(JobRequest(("true",), time="0.4s"))
    assert spec_of(request_of(spec))[0].time_limit == spec.time_limit


def test_changing_to_shards_lets_go_of_whole_cards() -> None:
    assert changed_request(JobRequest(("true",), gpus=2), {"shards": 16}).gpus == 0
    assert changed_request(JobRequest(("true",), shards=16), {"gpus": 1}).shards == 0


@pytest.mark.parametrize(
    ("command", "name"),
    [
        (("python", "-u", "src/train.py", "--lr", "1"), "train.py"),
        (("/usr/bin/python3", "train.py"), "train.py"),
        (("./run.sh",), "run.sh"),
        (("sh", "-c", "echo a\necho b"), "sh"),
        (("bash", "-c", "curl -H token:s3cret"), "bash"),
        (("echo", "s3cret"), "echo"),
        (("\udcff",), "job"),
    ],
)
def test_a_job_without_a_name_gets_one_that_says_what_it_is(command: tuple[str, ...], name: str) -> None:
    assert default_name(command) == name
