"""HOW A POLICY WOULD DO: `danlu simulate`, a trace of jobs, replayed through the same `plan()`.

main (the command) · trace (the CSV file) · people (teams, quotas and boosts from a file) · intake (the rules of a
submit) · replay, past_use, quick_fit (the trace, played) · metrics, tables (the outcome) · generate (traces).

Must not: touch an installation. It only reads its input files and writes the requested output.
"""
