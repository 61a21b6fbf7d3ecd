"""A SLURM CLUSTER FROM NOTHING: `danlu slurm init`, the files and scripts of a cluster that a configuration
describes.

main (the command) · blueprint (what to build, as data) · hostlist (names, folded) · slurm_conf (its lines and their
reasons) · side_files (gres.conf, cgroup.conf, slurmdbd.conf) · rollout (scripts and README) · tryout (the same
cluster on one machine).

Must not: touch Slurm or another machine. It writes files into one folder; all but main is text in, text out.
"""
