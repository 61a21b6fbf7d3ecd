"""Looking at the machine, at Slurm and at nodes: commands and files become facts."""
