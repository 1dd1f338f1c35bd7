"""Hubs that import a server with elicitations, over both transports and in both eras, and clients that answer."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest

from tests.gateway.importers import DEADLINE, Json, imports_of, stdio, write
from tests.upstreams.pools import listening
from tests.upstreams.programs import nothing_left
from tests.upstreams.servers.curious import Dated, curious
from waypost import Hub
from waypost.testing import TestClient, connect
from waypost.wire.versions import LATEST_LEGACY, V2026_07_28

BOTH = (LATEST_LEGACY, V2026_07_28)
downstream = pytest.mark.parametrize("version", BOTH)
upstream = pytest.mark.parametrize("era", BOTH)
transports = pytest.mark.parametrize("transport", ["stdio", "http"])


def red(params: Json) -> Json:
    """Accept the elicitation with the colour red."""
    return {"action": "accept", "content": {"colour": "red"}}


@asynccontextmanager
async def importing(
    folder: Path, era: str, transport: str = "http", **settings: Any
) -> AsyncIterator[tuple[Hub, Dated | None]]:
    """A hub that imports the server `curious` as `up`, and that server if it runs in this process."""
    wanted = [{"connection": "up", "trust": "off", **settings}]
    if transport == "stdio":
        async with started(write(folder, {"up": stdio("curious", era)}, wanted)) as hub:
            yield hub, None
        return
    far = curious(era)
    async with (
        listening(far.asgi()) as url,
        started(write(folder, {"up": {"kind": "mcp", "url": url}}, wanted)) as hub,
    ):
        yield hub, far
    await far.stop()


@asynccontextmanager
async def started(file: Path) -> AsyncIterator[Hub]:
    """A hub that has listed its upstreams; no process is left afterwards."""
    with nothing_left():
        async with asyncio.timeout(DEADLINE):
            hub = Hub.from_config(file)
            try:
                await hub.start()
                await imports_of(hub).wait_until_listed()
                yield hub
            finally:
                await hub.stop()


@asynccontextmanager
async def client_of(
    folder: Path, version: str, era: str, transport: str = "http", **answers: Any
) -> AsyncIterator[tuple[TestClient, Dated | None]]:
    """A client of such a hub."""
    async with importing(folder, era, transport) as (hub, far), connect(hub, version, **answers) as client:
        yield client, far
