"""Terminals, odd bytes, large logs and notices, on a real Slurm: the same tests as on a machine of one's own."""

from collections.abc import Iterator

import pytest

from tests.e2e.slurm_site import SMALL, Settings, Site, cluster_of, settings_of, site_on
from tests.e2e.test_big_logs import (  # noqa: F401
    test_a_job_that_floods_its_log_and_a_slow_reader_disturb_nobody,
    test_a_log_of_a_gigabyte_arrives_whole_and_leaves_the_server_small,
)
from tests.e2e.test_odd_bytes import (  # noqa: F401
    test_a_command_that_cannot_be_run_says_why,
    test_a_folder_that_goes_away_under_a_running_job,
    test_a_folder_that_goes_away_while_the_job_waits,
    test_a_snapshot_keeps_names_that_are_no_text,
    test_arguments_names_and_folders_that_are_no_text,
    test_every_byte_of_the_output_arrives_unharmed,
    test_output_without_a_newline_shows_at_once,
    test_submitting_from_a_folder_that_is_gone,
)
from tests.e2e.test_terminal import (  # noqa: F401
    short_grace,
    test_a_run_says_what_it_waits_for,
    test_a_terminal_that_is_closed_hangs_up_the_shell,
    test_ctrl_c_asks_and_d_detaches,
    test_ctrl_c_asks_and_s_stops,
    test_ctrl_c_twice_detaches,
    test_exec_gives_a_shell_with_a_terminal_inside_the_job,
)
from tests.slurm.releases import NEWER

pytestmark = [pytest.mark.slurm, pytest.mark.xdist_group("slurm-terminal")]


@pytest.fixture
def here(own_home: object, monkeypatch: pytest.MonkeyPatch) -> Iterator[Site]:
    with site_on(cluster_of(NEWER, SMALL), monkeypatch) as made:
        yield made


@pytest.fixture
def settings(here: Site, settings: Settings) -> Settings:
    return settings_of(here, settings)


@pytest.fixture
def size() -> int:
    """Of a log."""
    return 100 << 20
