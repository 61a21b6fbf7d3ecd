"""HOW IT RUNS: engines start, watch and stop runs. An engine decides nothing.

May import: `danlu.domain`, `danlu.errors`.
Must not: know the store, people, or other engines.
"""
