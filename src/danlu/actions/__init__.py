"""WHAT PEOPLE MAY DO: one function per verb, with the check of permissions.

installation (what any door is given) · audit · jobs/ (submit, stop, logs, why) · cluster/ (queues) · shares/ (quotas,
use, boosts) · people/ (accounts, teams, sign-on).

May import: state, store, engines, provision, scheduler, domain, unix, errors.
Must not: know HTTP, terminals or any other door. Permissions are checked here and nowhere else.
"""
