"""The local engine: engine, link, protocol and streams run in the server; keeper/ is a process that outlives the
server.
"""
