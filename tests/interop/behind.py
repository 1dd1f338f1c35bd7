"""A hub in front of real servers of other projects."""

from __future__ import annotations

import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

from tests.gateway.importers import names, running, write
from tests.interop import npm
from tests.upstreams.programs import ROOT
from waypost import Hub
from waypost.testing import TestClient
from waypost.wire.versions import LATEST_LEGACY, V2026_07_28

ERAS = (LATEST_LEGACY, V2026_07_28)
EVERYTHING = npm.MODULES / "@modelcontextprotocol" / "server-everything" / "dist" / "index.js"


def python(module: str) -> dict[str, Any]:
    """The entry for the section `connections` that starts a server of this folder."""
    arguments = ["-m", f"tests.interop.{module}"]
    return {"kind": "mcp", "command": sys.executable, "args": arguments, "workingDirectory": str(ROOT)}


def everything() -> dict[str, Any]:
    """The example server of the protocol's own project, which is installed when it is first needed."""
    npm.install()
    return {"kind": "mcp", "command": npm.node(), "args": [str(EVERYTHING), "stdio"]}


@asynccontextmanager
async def behind(
    folder: Path, version: str = V2026_07_28, **connections: dict[str, Any]
) -> AsyncIterator[tuple[Hub, TestClient]]:
    """A hub that imports all of these, and a client of it; afterwards no process and no task is left."""
    file = write(folder, connections, [{"connection": name} for name in connections])
    async with running(file, version=version) as (hub, client):
        yield hub, client


async def check_the_three(client: TestClient, name: str) -> None:
    """Check the list, calls, errors and progress of a server with the three tools of this folder."""
    assert await names(client) == [f"{name}.add", f"{name}.count", f"{name}.fail"]
    answer = await client.call_tool(f"{name}.add", {"a": 1, "b": 2})
    assert (answer["structuredContent"], answer.text) == ({"result": 3}, "3")
    failed = await client.call_tool(f"{name}.fail")
    assert failed.is_error
    assert "out of paper" in failed.text
    wrong = await client.call_tool(f"{name}.add", {"a": "x"})
    assert wrong.is_error
    assert (await client.call_with_progress(f"{name}.count", {"to": 3})).text == "counted"
    await client.assert_progress(1, 2, 3)
