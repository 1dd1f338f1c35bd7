"""MCP itself, without transports: two eras, one table of methods.

A transport hands a parsed message to an era. `legacy` (sessions, up to 2025-11-25) finds the session it belongs to,
`modern` (2026-07-28) reads everything from the request itself. Both make an `Exchange`, one request and its way back,
and look the method up in `dispatch`. The method asks the registry, the lists or the pipeline, and returns an `Answer`.
`responses` wraps it for the era, and is the only place where an error becomes a JSON-RPC error. Notifications outside
of requests (changed lists, updated resources) reach sessions and listen streams through `broadcast`.
"""
