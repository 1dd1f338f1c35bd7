"""MCP messages as data: versions, envelopes, parameters, content and definitions; no I/O."""
