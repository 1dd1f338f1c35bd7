"""The core skill that tells how the hub's machine is doing, without names, users or environment."""

from __future__ import annotations

import asyncio
import os
import platform
import shutil
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

from waypost.skills.core.inputs import CoreSettings
from waypost.version import __version__

if TYPE_CHECKING:
    from waypost.capabilities.context import Context
    from waypost.skills.core.inputs import Run

description = "Tell the platform, load, memory and disk space of the hub's machine."
version = "1.0.0"
permissions: tuple[str, ...] = ()
routes = ("on_success", "on_error")
external = False
input_schema: dict[str, Any] = {}


def make(settings: CoreSettings) -> Run:
    """The skill, looking at the disk of the data directory."""

    async def run(args: Mapping[str, Any], ctx: Context) -> dict[str, Any]:
        return await asyncio.to_thread(_facts, settings.data_directory)

    return run


def _facts(directory: Path) -> dict[str, Any]:
    return {
        "waypost": __version__,
        "python": platform.python_version(),
        "platform": {"system": platform.system(), "release": platform.release(), "machine": platform.machine()},
        "cpu_count": os.cpu_count(),
        "load": _load(),
        "memory": _memory(),
        "uptime_seconds": _uptime(),
        "disk": _disk(directory),
    }


def _load() -> list[float] | None:
    try:
        return [round(value, 2) for value in os.getloadavg()]
    except (OSError, AttributeError):
        return None


def _memory() -> dict[str, int] | None:
    """Bytes in all and to be had, where the system says so."""
    lines = _proc("meminfo").splitlines()
    found = {name: int(rest.split()[0]) * 1024 for name, _, rest in (line.partition(":") for line in lines)}
    if "MemTotal" not in found:
        return None
    return {"total_bytes": found["MemTotal"], "available_bytes": found.get("MemAvailable", 0)}


def _uptime() -> int | None:
    said = _proc("uptime").split()
    return int(float(said[0])) if said else None


def _proc(name: str) -> str:
    try:
        return Path("/proc", name).read_text()
    except OSError:
        return ""


def _disk(directory: Path) -> dict[str, int] | None:
    try:
        usage = shutil.disk_usage(directory)
    except OSError:
        return None
    return {"total_bytes": usage.total, "free_bytes": usage.free}
