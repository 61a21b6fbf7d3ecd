"""A SLURM CLUSTER FROM NOTHING: `danlu slurm init`, the files and scripts of a cluster that a configuration describes.

main (the command) · blueprint (what is to be built, as data) · hostlist (names, folded) · slurm_conf (its lines, each
with its reason) · side_files (gres.conf, cgroup.conf, slurmdbd.conf) · rollout (scripts and README for the real
machines) · tryout (the same cluster, played by this machine).

May import: what reads a configuration, and of `cli` what prints. Imported by nobody.
Must not: touch a Slurm or another machine. It writes files into one folder; all but main is text in, text out.
"""
