"""DOOR: the terminal. Well-formed commands take a path that imports next to nothing.

May import: `danlu.client`, `danlu.errors`, `danlu.domain`.
Must not: import any server room, FastAPI or SQLAlchemy; print anywhere but in `render`.
"""
