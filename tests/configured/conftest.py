"""A folder with a configuration and a toolkit, and clients of its hub."""

from __future__ import annotations

import asyncio
import os
import sys
import textwrap
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest

from waypost import ConfigError, Hub
from waypost.config import Finding, loader
from waypost.runtime.assembly import check
from waypost.testing import TestClient, connect
from waypost.wire.versions import LATEST_LEGACY, V2026_07_28

ERAS = [LATEST_LEGACY, V2026_07_28]
DEADLINE = 120.0

KIT = """\
from waypost import Toolkit, tool


class Kit(Toolkit, category="Small"):
    @tool(description="Say a word")
    async def speak(self) -> str:
        return "one"
"""

BROKEN_KIT = KIT + "\n    def __init__(self):\n        raise OSError('no disk')\n"

CONFIG = """\
version: "1"
server: {name: desk, version: 2.0.0, surface: full, instructions: Ask nicely.}
toolkits:
  - ./tools.py
"""


class Folder:
    """A configuration and the files it names."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.config = self.write("waypost.yaml", CONFIG)
        self.tools = self.write("tools.py", KIT)

    def write(self, name: str, text: str) -> Path:
        """Write a file in one step, as editors do."""
        path = self.path / name
        draft = path.with_name(path.name + ".draft")
        draft.write_text(textwrap.dedent(text))
        os.replace(draft, path)
        return path

    def hub(self) -> Hub:
        return Hub.from_config(self.config)

    def findings(self) -> list[Finding]:
        """The findings of `check`, which are also the errors of creating the hub."""
        found = check(self.config)
        with pytest.raises(ConfigError) as caught:
            self.hub()
        assert list(caught.value.findings) == found
        return found


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Folder:
    monkeypatch.setattr(sys, "path", list(sys.path))
    return Folder(tmp_path)


@pytest.fixture(autouse=True)
def short_wait(monkeypatch: pytest.MonkeyPatch) -> None:
    """Shorten the wait for incomplete files, because tests write files in one step."""
    monkeypatch.setattr(loader, "UNFINISHED_SETTLE_S", loader.SETTLE_S)


@asynccontextmanager
async def using(hub: Hub, version: str = LATEST_LEGACY) -> AsyncIterator[TestClient]:
    """A client of the hub, which stops with it."""
    async with asyncio.timeout(DEADLINE):
        try:
            async with connect(hub, version) as client:
                yield client
        finally:
            await hub.stop()


def names(rows: list[Any]) -> list[str]:
    return [row.name for row in rows]


def run(folder: Folder, use: Callable[[TestClient], Any], version: str = LATEST_LEGACY) -> Any:
    """The result of one use of a hub."""

    async def scenario() -> Any:
        async with using(folder.hub(), version) as client:
            return await use(client)

    return asyncio.run(scenario())


def held_kit(word: str) -> str:
    """The kit with a tool that waits for its gate before it answers."""
    waiting = KIT.replace('return "one"', f'await GATE.wait()\n        return "{word}"')
    return "import asyncio\n\nGATE = asyncio.Event()\n\n" + waiting


def gate() -> asyncio.Event:
    """The gate of the kit that was loaded last."""
    found: asyncio.Event = sys.modules["waypost_file_tools"].GATE
    return found


def more(name: str) -> str:
    """One more tool for the kit."""
    return f'\n    @tool(description="More")\n    async def {name}(self) -> str:\n        return "{name}"\n'


@asynccontextmanager
async def listening(client: TestClient) -> AsyncIterator[None]:
    """Receive change notifications, in the way of the client's era."""
    if client.version != V2026_07_28:
        yield
        return
    async with client.listen(toolsListChanged=True, promptsListChanged=True):
        yield
