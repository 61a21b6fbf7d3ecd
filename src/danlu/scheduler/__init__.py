"""WHAT SHOULD RUN NEXT: `plan(Snapshot) -> Plan`, a pure function.

May import: `danlu.domain`, `danlu.errors`.
Must not: read a clock, do I/O, use randomness. The same snapshot gives the same plan.
"""
