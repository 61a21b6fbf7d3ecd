"""DOOR: the terminal. Well-formed commands take a path that imports almost nothing.

main · render (the only module that prints) · text · grammar/ (commands, options, parsers, help) · input/ (options,
files, prompts) · commands/ (one module per topic) · views/ (data in, text out) · shims/ (`sbatch` and other old names).

May import: client, compat, domain, errors, paths.
Must not: import any room of the server, FastAPI or SQLAlchemy; print outside `render`.
"""
