"""WHAT IS TRUE: asks, nodes, jobs, people, as frozen data and pure functions.

May import: `danlu.errors` and the standard library.
Must not: read a clock, a file, the network or the environment.
"""
