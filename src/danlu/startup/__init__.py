"""HOW A SERVER PROCESS STARTS: folders, lock, sockets, log, and the message to the process that started it.

May import: config, engines, paths, unix, errors.
Must not: know what the server does afterwards.
"""
