"""The core skill that reports on the hub's machine, without names, users or environment."""

from __future__ import annotations

import asyncio
import os
import platform
import shutil
from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path
from typing import Any

from waypost.capabilities.context import Context
from waypost.skills.core.inputs import CoreSettings
from waypost.version import __version__

description = "Report the platform, load, memory and disk space of the hub's machine."
input_schema: dict[str, Any] = {}


async def run(args: Mapping[str, Any], ctx: Context, settings: CoreSettings) -> dict[str, Any]:
    """Collect the figures; the disk is that of the data directory."""
    return await asyncio.to_thread(_collect, settings.data_directory)


def _collect(directory: Path) -> dict[str, Any]:
    uptime = _read_proc("uptime").split()
    load = disk = None
    with suppress(OSError, AttributeError):
        load = [round(value, 2) for value in os.getloadavg()]
    with suppress(OSError):
        usage = shutil.disk_usage(directory)
        disk = {"total_bytes": usage.total, "free_bytes": usage.free}
    return {
        "waypost": __version__,
        "python": platform.python_version(),
        "platform": {"system": platform.system(), "release": platform.release(), "machine": platform.machine()},
        "cpu_count": os.cpu_count(),
        "load": load,
        "memory": _read_memory(),
        "uptime_seconds": int(float(uptime[0])) if uptime else None,
        "disk": disk,
    }


def _read_memory() -> dict[str, int] | None:
    lines = _read_proc("meminfo").splitlines()
    found = {name: int(rest.split()[0]) * 1024 for name, _, rest in (line.partition(":") for line in lines)}
    if "MemTotal" not in found:
        return None
    return {"total_bytes": found["MemTotal"], "available_bytes": found.get("MemAvailable", 0)}


def _read_proc(name: str) -> str:
    try:
        return Path("/proc", name).read_text()
    except OSError:
        return ""
