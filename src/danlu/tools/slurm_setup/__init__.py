"""A SLURM CLUSTER FROM NOTHING: `danlu slurm init`, the files and scripts of a cluster described by a configuration.

main (the command) · blueprint (the cluster to build, as data) · hostlist (folded names) · slurm_conf (its lines and
their reasons) · side_files (gres.conf, cgroup.conf, slurmdbd.conf) · rollout (scripts and README) · tryout (the same
cluster simulated on this machine).

Must not: touch Slurm or another machine. The command writes files into a folder; all modules but main are text in,
text out.
"""
