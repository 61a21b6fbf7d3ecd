"""WHAT A MACHINE OR A CLUSTER LACKS: `danlu doctor`, which looks before anybody relies on it.

main (the command) · examination (which looks and judgements, in which order) · asking (commands of others, with a
limit in time) · look_machine, look_slurm, look_nodes (seeing it) · and, pure: facts (what was seen) · texts, probe
(what Slurm and small jobs wrote, read) · judge_reach, judge_nodes, judge_shares, judge_order, judge_queues,
judge_accounts, judge_folders, judge_probes, judge_machine (what it means) · findings (what it costs, what to do) ·
report (as people read it).

May import: what reads a configuration, the engines' own readers, the client, of `cli` what prints. Imported by nobody.
Must not: change anything. `--deep` runs a small job on each node, and takes away again what it wrote.
"""
