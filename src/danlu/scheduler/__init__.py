"""WHAT SHOULD RUN NEXT: `plan(Snapshot) -> Plan`, a pure function.

snapshot (what comes in and goes out) · plan (the pass over the queue) · ordering (who is before whom) · placement
(the best seat now) · backfill (seats promised for later) · free (what is free on one node, now and later) · capacity
(what empty nodes could hold) · explain and wording (why an entry waits).

May import: `danlu.domain`, `danlu.errors`.
Must not: read a clock, do I/O, use randomness. The same snapshot gives the same plan.
"""
