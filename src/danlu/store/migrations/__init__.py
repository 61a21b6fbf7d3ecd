"""How a database gets from one schema to the next: one Alembic step per file in `versions/`.

A step is never edited once landed.
"""
