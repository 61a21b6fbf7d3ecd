"""Queues: their rules, and how people see them."""
