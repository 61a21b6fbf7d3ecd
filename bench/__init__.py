"""Figures of docs/performance.md: `make bench`, or `python -m bench --quick --only start`."""
