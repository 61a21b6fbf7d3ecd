"""Shares of the cluster: quotas, use, boosts."""
