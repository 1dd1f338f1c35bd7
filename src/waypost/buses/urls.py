"""Buses by URL."""

from __future__ import annotations

from importlib import import_module
from typing import Final

from waypost.buses.bus import Bus
from waypost.buses.local import LocalBus
from waypost.errors import WaypostError

LOCAL: Final = "local://"
# Named, not imported: only the bus in use has to have its driver installed.
_MODULES: Final = {
    "postgresql": "waypost.buses.postgres",
    "postgres": "waypost.buses.postgres",
    "nats": "waypost.buses.nats",
    "tls": "waypost.buses.nats",
}


def create_bus(url: str, cluster: str) -> Bus:
    """The bus a URL names, not connected yet; `WaypostError` for a URL that names none."""
    if url in ("local", LOCAL):
        return LocalBus()
    module = _MODULES.get(url.partition(":")[0].lower())
    if module is None:
        raise WaypostError(f"{url.rpartition('@')[2]} names no bus; use auto, local, postgresql:// or nats://.")
    try:
        created: Bus = import_module(module).create_bus(url, cluster)
    except ModuleNotFoundError as error:
        extra = module.rpartition(".")[2]
        raise WaypostError(f"A {extra} bus needs {error.name}: pip install 'waypost[{extra}]'.") from None
    return created
