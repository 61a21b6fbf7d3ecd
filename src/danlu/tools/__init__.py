"""PROGRAMS OF THEIR OWN: `danlu doctor`, `danlu simulate`, `danlu slurm init`. No other room imports them.

May import: actions, cli, client, config, startup, engines, monitor, scheduler, domain, unix, paths, errors.
Must not: change an installation that runs.
"""
