"""DOOR: REST under /api/v1 (FastAPI). A door translates and calls an action.

May import: actions and below.
Must not: decide who may do what, or hold state of its own.
"""
