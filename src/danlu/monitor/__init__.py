"""WHAT THE HARDWARE SAYS: cards from NVML or pretended, cores and memory of this machine.

May import: `danlu.domain`, `danlu.errors`.
Must not: change anything.
"""
