"""Hubs whose configuration imports the tools of real servers, and a server whose tools change."""

from __future__ import annotations

import asyncio
import json
import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

from tests.upstreams.programs import ROOT, SERVERS, nothing_left
from waypost import Hub
from waypost.imports.imports import Imports
from waypost.testing import TestClient, connect
from waypost.wire.versions import V2026_07_28

Json = dict[str, Any]
DEADLINE = 120.0


def tool(name: str, description: str = "Do it.", **more: Any) -> Json:
    """A definition."""
    return {"name": name, "description": description, "inputSchema": {"type": "object"}, **more}


class Turncoat:
    """The server that reads its tools from a file."""

    def __init__(self, folder: Path, *tools: Json, name: str = "turncoat") -> None:
        self.folder = folder / name
        self.folder.mkdir()
        self.offer(*tools)

    def offer(self, *tools: Json) -> None:
        """Replace the tools that the server offers."""
        (self.folder / "tools.json").write_text(json.dumps(tools))

    @property
    def notes(self) -> list[str]:
        """The log of the server: its starts, the requests for its tools, and the cancellations."""
        file = self.folder / "notes"
        return file.read_text().splitlines() if file.exists() else []

    @property
    def starts(self) -> int:
        """How often it was started."""
        return sum(line.startswith("started") for line in self.notes)

    @property
    def connection(self) -> Json:
        """The entry for the section `connections`."""
        return stdio("turncoat", str(self.folder))


def stdio(name: str, *arguments: str, **more: Any) -> Json:
    """The entry for the section `connections` that starts a server of the folder."""
    script = str(SERVERS / f"{name}.py")
    return {
        "kind": "mcp",
        "command": sys.executable,
        "args": [script, *arguments],
        "workingDirectory": str(ROOT),
        **more,
    }


def write(folder: Path, connections: Json, imports: list[Json], **more: Any) -> Path:
    """Write a configuration; JSON is YAML too."""
    settings = {
        "version": "1",
        "server": {"name": "desk", "version": "1.0.0", "surface": "full"},
        "connections": connections,
        "proxy": {"import": imports},
        **more,
    }
    file = folder / "waypost.yaml"
    file.write_text(json.dumps(settings))
    return file


def imports_of(hub: Hub) -> Imports:
    """The imports of a hub."""
    assert hub.runtime.imports is not None
    return hub.runtime.imports


@asynccontextmanager
async def running(
    file: Path, *, settled: bool = True, version: str = V2026_07_28
) -> AsyncIterator[tuple[Hub, TestClient]]:
    """A hub and a client of it; afterwards no process and no task is left."""
    with nothing_left():
        async with asyncio.timeout(DEADLINE):
            hub = Hub.from_config(file)
            try:
                async with connect(hub, version) as client:
                    if settled:
                        await imports_of(hub).wait_until_listed()
                    yield hub, client
            finally:
                await hub.stop()
            others = asyncio.all_tasks() - {asyncio.current_task()}
            assert [task for task in others if "Upstream" in repr(task) or "Imports" in repr(task)] == []


async def names(client: TestClient) -> list[str]:
    """The tools a client sees."""
    return [found["name"] for found in await client.list_tools()]


async def recorded(hub: Hub, action: str) -> list[Json]:
    """The audit entries of an action."""
    assert hub.guard.audit is not None
    await hub.guard.audit.written()
    return [entry.value for entry in await hub.store.audit.latest(1000) if entry.value.get("action") == action]
