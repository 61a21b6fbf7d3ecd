"""WHAT A JOB NEEDS BEFORE IT STARTS: paths, code snapshots, variables, home folders of people and teams.

May import: domain, unix, errors.
Must not: know the store or an engine.
"""
