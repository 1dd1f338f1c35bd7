"""Workers: programs that connect over a WebSocket, register functions, and call other workers and the hub.

A message travels `sockets` → `worker` (the session decodes it as one of `frames`) → `workers`, the component
that owns everything below. `functions` is the table of functions, `tools` publishes them, `calls` runs calls
through the pipeline or queues them, `triggers` holds trigger types and bindings, `observers` and `observer_registry`
deliver finished calls to observers. `builtins`, `state` and `channels` are functions that the hub itself provides.
"""
