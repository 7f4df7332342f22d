"""Tools from an MCP server, tasks from a file.

env.py        the env: it offers what the server offers, and grades as `dataset` does
settings.py   what `env.args` may say
server.py     a connection to a server: start, tools, calls, end, each within a deadline
resources.py  the server's resources, as two tools
shared.py     one server for all episodes of an event loop
"""
