"""WHAT THE HARDWARE SAYS: cards from NVML or fake cards, cores and memory of this machine.

May import: domain, errors.
Must not: change anything.
"""
