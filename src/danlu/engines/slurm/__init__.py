"""The Slurm engine: submit, poll, verdict, cancel. text/ holds the pure part: text of Slurm in, data out, and
back.
"""
