"""HOW A POLICY WOULD DO: `danlu simulate`, a trace of jobs, replayed through the same `plan()`.

main (the command) · trace (the CSV file) · people (teams, quotas and boosts from a file) · accepting (the rules of a
submit) · figures (what came of it, as data) · tables (the same for people) · invent (traces for those who have none).

May import: everything below `app`, and of `cli` what prints. Imported by nobody.
Must not: touch an installation. It reads files and writes what it was asked to write.
"""
