"""WHAT PEOPLE MAY DO: each verb a person has, with the check of who may.

May import: store, engines, provision, monitor, scheduler, domain, errors.
Must not: know HTTP, terminals or any other door. Permissions are checked here and nowhere else.
"""
