"""Waypost in front of another MCP server, from a configuration file as a user would write it."""

from __future__ import annotations

import os
from pathlib import Path

from benchmarks.contenders.common import UPSTREAM, options
from waypost import Hub

CONFIGURATION = """\
version: "1"
server: {{name: bench, surface: full}}
connections:
  up: {{kind: mcp, url: "{url}"}}
proxy:
  import: [{{connection: up, prefix: up}}]
audit: {{sink: none}}
"""

if __name__ == "__main__":
    chosen = options()
    file = Path("waypost.yaml")
    file.write_text(CONFIGURATION.format(url=os.environ[UPSTREAM]))
    Hub.from_config(file).run("http", port=chosen.port)
