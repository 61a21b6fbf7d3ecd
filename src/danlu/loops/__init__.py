"""WHAT THE CLOCK DOES: `tick` functions that load, think and apply.

May import: actions and everything below.
Must not: call an engine inside a transaction, or let one bad job stop the others.
"""
