"""Waypost with a port for workers, beside the one for MCP."""

from __future__ import annotations

import os

from benchmarks.contenders.common import WORKER_PORT, options
from waypost import Hub

if __name__ == "__main__":
    port = int(os.environ[WORKER_PORT])
    Hub("bench", version="1", workers={"port": port, "registry": False}).run("http", port=options().port)
