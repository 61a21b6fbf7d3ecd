"""SETTINGS: one TOML file and the environment, checked at start.

settings (the file) · cluster (nodes and queues in it) · fake_cluster (a cluster that one machine plays, `--fake`).

May import: engines, domain, monitor, errors.
Must not: start anything, or change a file.
"""
