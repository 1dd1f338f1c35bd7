"""Waypost with many imported servers, whose manifests it keeps in a folder that outlives the process."""

from __future__ import annotations

import os
from pathlib import Path

import msgspec

from benchmarks.contenders.common import UPSTREAM, options
from waypost import Hub

KEPT = "WAYPOST_BENCH_KEPT"
"""The environment variable that names the folder."""
SERVERS = 100


def configuration(folder: Path, url: str) -> dict[str, object]:
    names = [f"up{number:03d}" for number in range(SERVERS)]
    return {
        "version": "1",
        "server": {"name": "bench", "surface": "gateway"},
        "connections": {name: {"kind": "mcp", "url": url} for name in names},
        "proxy": {"import": [{"connection": name} for name in names]},
        "store": {"url": f"sqlite:///{folder / 'waypost.db'}"},
        "audit": {"sink": "none"},
    }


if __name__ == "__main__":
    chosen = options()
    kept = Path(os.environ[KEPT])
    file = kept / "waypost.yaml"
    if not file.exists():
        file.write_bytes(msgspec.json.encode(configuration(kept, os.environ[UPSTREAM])))
    Hub.from_config(file).run("http", port=chosen.port)
