"""HOW JOBS RUN: engines start, watch and stop runs. An engine decides nothing.

base (the protocol) · kinds (every engine, by its name in `[engine] kind`) · settings (the section `[engine]`) ·
log_files (logs in files) · local/ (this machine) · slurm/ (a Slurm cluster).

May import: domain, unix, paths, errors.
Must not: know the store, people, or another engine.
"""
