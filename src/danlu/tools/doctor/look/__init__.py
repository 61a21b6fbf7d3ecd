"""Observations of the machine, of Slurm and of nodes: commands and files become facts."""
