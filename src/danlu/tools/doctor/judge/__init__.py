"""Judging facts, pure: what is missing, what it costs, what to do."""
