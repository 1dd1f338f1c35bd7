"""FastMCP's proxy in front of another MCP server."""

from __future__ import annotations

import os

from fastmcp.server import create_proxy

from benchmarks.contenders.common import UPSTREAM, options, serve, settle

if __name__ == "__main__":
    chosen = options()
    proxy = create_proxy(os.environ[UPSTREAM])
    settle()
    serve(proxy.http_app(json_response=True), chosen.port)
