"""HOW JOBS RUN: engines start, watch and stop runs. An engine decides nothing.

base (the protocol) · kinds (every engine, by the name that `[engine] kind` gives it) · settings (that section) ·
log_files (logs that are files) · local/ (this machine) · slurm/ (a Slurm cluster).

May import: domain, unix, paths, errors.
Must not: know the store, people, or another engine.
"""
