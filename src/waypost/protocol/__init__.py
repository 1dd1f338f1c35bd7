"""MCP itself, whatever carries it: two eras, one set of methods.

A transport hands a parsed message to an era. `legacy` finds the session it belongs to, `modern` reads everything from
the request itself; both make an `Exchange`, one request and its way back, and look the method up in `methods`, which
asks the registry, the listing or the pipeline and gives an encoded result. What fails is turned into a JSON-RPC error
in `failures` and nowhere else. What happens outside of requests (changed lists, updated resources) reaches sessions and
listen streams through `broadcast`.
"""
