"""The keeper: starts all runs of this machine, enforces their limits, cleans up their processes. Imports almost
nothing.
"""
