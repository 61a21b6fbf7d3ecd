"""Danlu (丹炉): one shared training platform on one machine, Slurm or Kubernetes."""

__version__ = "0.1.0"
