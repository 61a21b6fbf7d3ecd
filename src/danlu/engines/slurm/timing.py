"""Every duration of the Slurm engine, in seconds. Tests pass shorter values."""

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Timing:
    # Polling: the pause grows from `poll_soon_s` after a change up to `poll_busy_s` or `poll_idle_s`.
    poll_idle_s: float = 12.0  # without runs of this installation
    poll_busy_s: float = 2.0  # with runs, while nothing changes
    poll_soon_s: float = 0.1  # right after a submit or a stop
    read_folders_s: float = 0.25  # between reads of run folders, which cost the controller nothing
    refresh_nodes_s: float = 15.0
    refresh_nodes_busy_s: float = 2.0  # while jobs start and end
    refresh_settings_s: float = 600.0
    refresh_before_stop_s: float = 1.0  # a stop of an external job needs a job list of at most this age
    # Verdicts
    settles_after_s: float = 4.0  # the shared folder may show a run's last file this long after the end in Slurm
    lingers_s: float = 60.0  # Slurm may need this long to notice that a run has ended
    past_shown_s: float = 600.0  # external jobs from accounting stay in the list this long
    # Commands and the shared folder
    command_patience_s: float = 60.0  # a busy controller answers late; `sbatch` gives up after MessageTimeout
    ping_after_s: float = 1.5
    ping_patience_s: float = 5.0
    folder_patience_s: float = 60.0
    # Accounting (`sacct`): every poll waits for the answer.
    accounting_patience_s: float = 10.0
    accounting_retry_s: float = 60.0
    # Accounts (`sacctmgr`)
    accounts_patience_s: float = 10.0
    accounts_refresh_s: float = 300.0
    accounts_retry_s: float = 30.0  # after a missing account or a silent database
    accounts_doubted_s: float = 2.0  # after the controller refused a listed account
    # Submits and stops
    full_retry_s: float = 4.0  # between two submits for a user at a job limit of Slurm
    submit_close_s: float = 15.0  # a closing engine waits this long for running submits
    stop_signal_retry_s: float = 3.0
    stop_overdue_s: float = 30.0  # after the grace period: then Slurm kills the run
    # Shells
    hang_up_s: float = 2.0  # between SIGHUP, SIGTERM and SIGKILL

    def poll_pause_s(self, calm_polls: int, *, is_busy: bool) -> float:
        """The pause after this many polls without a change."""
        longest_s = self.poll_busy_s if is_busy else self.poll_idle_s
        return min(self.poll_soon_s * 1.5 ** min(calm_polls, 20), longest_s)
