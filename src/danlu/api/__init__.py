"""DOOR: REST under /api/v1 (FastAPI). A door translates and calls an action.

app (routes and errors) · server (uvicorn) · auth (identifies the client) · bodies, present_* (JSON in and out) ·
routes/ (one module per topic).

May import: actions, state, store, engines, provision, domain, errors.
Must not: decide about permissions, or hold state of its own.
"""
