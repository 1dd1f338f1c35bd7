"""What a command works on: a configuration file, a hub in Python code, or a server at a URL."""

from __future__ import annotations

import argparse
import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Final

from waypost.errors import WaypostError

if TYPE_CHECKING:
    from waypost.hub import Hub
    from waypost.upstreams.client import Client

DEFAULT: Final = "waypost.yaml"
HELP: Final = "waypost.yaml, file.py:hub, package.module:hub or a URL"


def add_target(command: argparse.ArgumentParser) -> None:
    """Give a command its TARGET."""
    command.add_argument("target", metavar="TARGET", help=HELP)


def is_url(target: str) -> bool:
    """Whether a target is a server somewhere else."""
    return target.startswith(("http://", "https://"))


def is_config(target: str) -> bool:
    """Whether a target is a configuration file."""
    return target.endswith((".yaml", ".yml"))


def load_hub(target: str) -> Hub:
    """The hub a target names."""
    from waypost.hub import Hub

    if is_url(target):
        raise WaypostError(f"{target} is a server already; name a configuration file or file.py:hub.")
    if is_config(target):
        from waypost.configured import ConfiguredHub

        return ConfiguredHub(Path(target))
    if ":" not in target:
        raise WaypostError(f"{target} is no target; use {HELP}.")
    from waypost.building import find

    here = str(Path.cwd())
    if here not in sys.path:
        sys.path.insert(0, here)
    file, _, name = target.rpartition(":")
    if file.endswith(".py") and not Path(file).exists():
        raise WaypostError(f"The file {file} does not exist.")
    hub = find(str(Path(file).resolve()) + ":" + name if file.endswith(".py") else target)
    if not isinstance(hub, Hub):
        raise WaypostError(f"{name} in {file} is a {type(hub).__name__}, not a Hub.")
    return hub


@asynccontextmanager
async def open_client(target: str) -> AsyncIterator[tuple[Client, Hub | None]]:
    """A client of the target, and the hub itself where it is not somewhere else."""
    from waypost.upstreams.client import connected

    if is_url(target):
        from waypost.upstreams.http import HttpLink

        address = target.rstrip("/")
        client = await connected(HttpLink(address if address.endswith("/mcp") else f"{address}/mcp"))
        try:
            yield client, None
        finally:
            await client.close()
        return
    from waypost.transports.memory import MemoryLink

    hub = load_hub(target)
    await hub.start()
    if hub.imports is not None:
        await hub.imports.settled()
    client = await connected(MemoryLink(hub.engine))
    try:
        yield client, hub
    finally:
        await client.close()
        await hub.stop()
