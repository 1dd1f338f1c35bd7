"""Connections to other servers.

`pool.Upstreams` has one `upstream.Upstream` per connection, which keeps one `client.Client` running. A client speaks
MCP over `jsonrpc`, on a `transport`: `stdio` or `http`, the latter on an HTTP client of our own, `outbound.http1`.
"""
