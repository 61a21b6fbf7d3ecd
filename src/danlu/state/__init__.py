"""WHAT IS KNOWN NOW: active jobs, people, use, nodes; in memory, written through to the store.

jobs, active_jobs · people · usage · inventory (nodes and queues as last seen) · occupancy (taken cards) ·
snapshots (the whole state as the scheduler sees it).

May import: store, engines, scheduler, domain, errors.
Must not: check permissions, or know a door.
"""
