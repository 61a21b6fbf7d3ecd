"""WHERE IT IS REMEMBERED: jobs, tokens, snapshots; SQLite and PostgreSQL through SQLAlchemy Core.

May import: `danlu.domain`, `danlu.errors`.
Must not: decide anything, or call an engine.
"""
