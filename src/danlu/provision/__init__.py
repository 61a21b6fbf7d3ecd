"""WHAT A JOB NEEDS BEFORE IT STARTS: code snapshots laid out as folders.

May import: `danlu.domain`, `danlu.errors`, `danlu.unix.become`.
Must not: know the store, engines or people.
"""
