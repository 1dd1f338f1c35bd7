"""HTTP to other servers: `http1` for servers that the configuration names, `egress` for URLs that callers chose.

Both use the proxies that the environment names, try the next address of a server soon, and bound time and size.
"""
