"""WHERE IT IS REMEMBERED: SQLite and PostgreSQL through SQLAlchemy Core.

protocol, people_protocol (the seam) · sql (its implementation) · writer, writer_state, operations (group commit) ·
tables, schema, migrations/ · *_rows, *_queries, pages · database, sqlite, postgres.

May import: domain, errors.
Must not: decide anything, or call an engine.
"""
