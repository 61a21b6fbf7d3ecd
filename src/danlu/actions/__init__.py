"""WHAT PEOPLE MAY DO: one function per verb, with the check of permissions.

installation (the parts given to each interface) · audit · jobs/ (submit, stop, logs, why) · cluster/ (queues) ·
shares/ (quotas, use, boosts) · people/ (accounts, teams, sign-on).

May import: state, store, engines, provision, scheduler, domain, unix, errors.
Must not: know HTTP, terminals or any other interface. Permissions are checked here and nowhere else.
"""
