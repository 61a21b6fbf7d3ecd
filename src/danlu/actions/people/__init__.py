"""Accounts, teams, requests, tokens, passwords, sign-on, and the limits on how often a person may try."""
