"""WHAT IS TRUE: asks, nodes, jobs, queues, quotas and people, as frozen data and pure functions.

May import: errors.
Must not: read a clock, a file, the network or the environment.
"""
