"""Waypost with a port for workers, beside the one for MCP."""

from __future__ import annotations

from benchmarks.contenders.common import options
from waypost import Hub

if __name__ == "__main__":
    port = options().port
    Hub("bench", version="1", workers={"port": port + 1, "registry": False}).run("http", port=port)
