"""The commands `sbatch`, `squeue`, `scancel`, `sinfo`, `ilaunch`, `zlaunch`: thin, `compat` reads their words."""
