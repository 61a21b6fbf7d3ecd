"""HOW IT RUNS: engines start, watch and stop runs. An engine decides nothing.

    base                                    the seam
    fake                                    in memory, for tests
    local, keeper_link, local_shell         the server's side of the local engine
    keeper, supervisor, adoption, kin, …    the keeper's side: a process of its own that imports next to nothing
    wire                                    what the two sides say to each other
    slurm, slurm_look, slurm_runs, …        Slurm: what it lists, what runs wrote down, what follows
    slurm_text, _job_text, _words, _judge, … its pure parts

May import: `danlu.domain`, `danlu.errors`, `danlu.paths`.
Must not: know the store, people, or other engines.
"""
