"""Reaching other servers: an MCP client and the links it talks over."""
