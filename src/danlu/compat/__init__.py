"""HOW PEOPLE WROTE JOBS BEFORE: one pure parser per dialect, and the tables that other systems' commands print.

getopt (options as GNU reads them) · values (times, sizes, cards) · sbatch_options, directives, sbatch, batch_script
(from a Slurm script to our job) · columns, squeue, sinfo, scancel (what these commands print and select) · launchers
(ilaunch, zlaunch).

Text goes in; options under the names of `domain.options`, a command, and sentences come out.

May import: errors.
Must not: import another room; read a file, a clock, the network or the environment.
"""
