"""A real Slurm for tests: private, several nodes on one machine, pretend cards, gone afterwards.

`layout` says what a cluster is and writes its files, `cage` holds its processes, `cluster` runs it, `accounting`
adds slurmdbd and its database, `releases` finds the versions that are installed, `places` keeps test runs apart.
"""
