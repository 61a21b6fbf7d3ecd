"""WHAT THE OPERATING SYSTEM DOES FOR US: users, groups, commands with the rights of a person, safe folders.

become (run as a person, remove the leftovers of a person) · users, groups · safe_folders (folders that no other user
can replace) · patient_folder (a folder that may not answer).

May import: errors.
Must not: know jobs, people of Danlu, or an engine.
"""
