"""Text of Slurm, pure: its tables and messages parsed, its options and scripts rendered."""
