"""WHAT THE HARDWARE SAYS: cards from NVML or fake ones, cores and memory of this machine.

May import: domain, errors.
Must not: change anything.
"""
