"""Hubs from configuration texts, and calls of their tools."""

from __future__ import annotations

import textwrap
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

from waypost import Hub
from waypost.capabilities.principals import ANONYMOUS, Principal
from waypost.capabilities.results import Result
from waypost.config import Finding
from waypost.runtime.assembly import check
from waypost.testing import TestClient, connect
from waypost.wire.versions import V2026_07_28
from waypost.workflows.instance import detached_caller

HEAD = 'version: "1"\nserver: {name: demo, surface: both}\nstore: {url: "sqlite://"}\naudit: {sink: none}\n'


def write(folder: Path, text: str) -> Path:
    """Write a configuration file."""
    file = folder / "waypost.yaml"
    file.write_text(HEAD + textwrap.dedent(text))
    return file


@asynccontextmanager
async def using(folder: Path, text: str, version: str = V2026_07_28) -> AsyncIterator[tuple[Hub, TestClient]]:
    """A running hub, and a client of it."""
    hub = Hub.from_config(write(folder, text))
    try:
        async with connect(hub, version) as client:
            yield hub, client
    finally:
        await hub.stop()


async def called(hub: Hub, name: str, by: Principal = ANONYMOUS, /, **arguments: Any) -> Result:
    """The result of a tool called by a principal."""
    return await hub.runtime.invoke(name, arguments, detached_caller(by, ""))


async def call_structured(client: TestClient, tool: str, **arguments: Any) -> dict[str, Any]:
    """The structured answer of a tool."""
    answer: dict[str, Any] = (await client.call_tool(tool, arguments))["structuredContent"]
    return answer


def findings(folder: Path, text: str) -> list[Finding]:
    """The findings of `check` in a configuration."""
    return check(write(folder, text))


def codes(folder: Path, text: str) -> list[str]:
    """The codes of the findings."""
    return [found.code for found in findings(folder, text)]
