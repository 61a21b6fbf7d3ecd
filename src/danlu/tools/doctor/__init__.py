"""WHAT A MACHINE OR A CLUSTER LACKS: `danlu doctor`.

main (the command) · checks (which looks and judgements, in which order) · run (commands, with a time limit) · look/
· facts (raw observations) · texts, probe (output of Slurm and of small jobs, parsed) · judge/ · findings (cost and
advice) · report.

Must not: change anything. `--deep` runs a small job on each node, and removes the files of this job.
"""
