"""WHAT SHOULD RUN NEXT: `plan(Snapshot) -> Plan`, a pure function.

snapshot (input and output) · plan (the pass over the queue) · ordering (priority, fair share) · admission,
quota_accounts (quotas) · preemption (borrowed cards go back) · placement (the best seat now) · queue_scope (nodes
of a queue) · reservations (seats reserved for later) · node_timeline (free resources of one node, now and later) ·
capacity (the largest asks that empty nodes hold) · estimates · reasons, reasons_room, reasons_quota (why an entry
waits).

May import: domain.
Must not: read a clock, do I/O, use randomness. The same snapshot gives the same plan.
"""
