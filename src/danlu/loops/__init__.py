"""WHAT THE CLOCK DOES: `tick` functions that load, think and apply.

schedule (the tick) · settle (observations become states) · dispatch, launch (starts and stops) · dependencies ·
external_usage.

May import: actions, state, store, engines, provision, scheduler, domain, errors.
Must not: call an engine inside a transaction, or let one bad job stop the others.
"""
