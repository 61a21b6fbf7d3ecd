"""WHAT SHOULD RUN NEXT: `plan(Snapshot) -> Plan`, a pure function.

snapshot (what comes in and goes out) · plan (the pass over the queue) · ordering (who is before whom) · admission and
accounts (who may start within the quotas) · preemption (what was borrowed and is given back) · placement (the best seat
now) · scope (what a queue may use) · backfill (seats promised for later) · free (what is free on one node, now and
later) · capacity (what empty nodes could hold) · waits, explain, overdraft and wording (why an entry waits) · replay,
past, room (a trace lived through plans).

May import: `danlu.domain`, `danlu.errors`.
Must not: read a clock, do I/O, use randomness. The same snapshot gives the same plan.
"""
