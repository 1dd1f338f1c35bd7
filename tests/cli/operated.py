"""A hub for operator commands, served by a real process."""

from __future__ import annotations

import json
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any
from urllib.error import HTTPError
from urllib.request import Request, urlopen

import pytest

from tests.cli.shell import Serving, serving
from tests.protocol.conftest import stateless
from waypost.identity import digest

Captured = pytest.CaptureFixture[str]

AGENT = "wp_a-key-of-the-configuration"

SERVER = f'''\
"""A hub that an operator uses."""

from waypost import DefinitionError, Hub
from waypost.identity import Authentication, Key
from waypost.policy import Rule
from waypost.runtime.runtime import Runtime

auth = Authentication([Key("agent", "{digest(AGENT)}", roles=("agent",))], anonymous=None)
hub = Hub(
    "desk",
    version="1.2.3",
    auth=auth,
    audit="store",
    policies=[Rule(name="no-shell", type="mcp_restriction", config={{"tool_pattern": "shell"}}, priority=10)],
)


@hub.tool
async def add(a: float, b: float) -> float:
    return a + b


@hub.tool
async def shell(command: str) -> str:
    return command


class Shelf:
    """Skills that are only remembered."""

    def __init__(self):
        self.versions = {{}}

    async def list_skills(self):
        return [self.row(name) for name in sorted(self.versions)]

    async def create(self, name):
        return f"{{name}}.py"

    async def load(self, file):
        name = file.removesuffix(".py")
        if name in self.versions:
            raise DefinitionError(f"The skill {{name}} is loaded already in this version.")
        self.versions[name] = 1
        return self.row(name)

    async def reload(self, name):
        self.versions[name] += 1
        return self.row(name)

    async def rollback(self, name):
        self.versions[name] -= 1
        return self.row(name)

    async def unload(self, name):
        del self.versions[name]

    def row(self, name):
        return {{"name": name, "type": "dynamic", "status": "serving", "version": str(self.versions[name])}}


Runtime.skill_set = Shelf()
'''


@contextmanager
def operated(folder: Path, *options: str) -> Iterator[Serving]:
    """The hub, served from a folder until the block ends."""
    (folder / "server.py").write_text(SERVER)
    with serving("server.py:hub", "--port", "0", *options, cwd=folder) as hub:
        assert hub.url
        yield hub


@pytest.fixture(scope="module")
def served(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Serving]:
    """The hub, for all tests of a module; commands find it by its data directory."""
    folder = tmp_path_factory.mktemp("operated")
    with operated(folder) as hub, pytest.MonkeyPatch.context() as patch:
        patch.setenv("WAYPOST_DATA", str(folder / ".waypost"))
        yield hub


def note_of(folder: Path) -> dict[str, Any]:
    """The content of the `hub.json` in the data directory."""
    note: dict[str, Any] = json.loads((folder / ".waypost" / "hub.json").read_text())
    return note


def use(url: str, name: str, arguments: dict[str, Any], key: str) -> int:
    """The status with which a call of a tool is answered."""
    message = stateless(1, "tools/call", {"name": name, "arguments": arguments})
    headers = {
        "Authorization": f"Bearer {key}",
        "Content-Type": "application/json",
        "Accept": "application/json, text/event-stream",
        "MCP-Protocol-Version": "2026-07-28",
        "Mcp-Method": "tools/call",
        "Mcp-Name": name,
    }
    try:
        with urlopen(Request(url, json.dumps(message).encode(), headers), timeout=60) as answer:
            return int(answer.status)
    except HTTPError as error:
        with error:
            return error.code


def printed(capsys: Captured) -> str:
    """The text on stdout; stderr must be empty."""
    said = capsys.readouterr()
    assert said.err == ""
    return str(said.out)


def complaint(capsys: Captured) -> str:
    """The single line on stderr; stdout must be empty."""
    said = capsys.readouterr()
    assert said.out == ""
    (line,) = said.err.splitlines()
    return str(line)


def printed_json(capsys: Captured) -> Any:
    """The JSON on stdout; stderr must be empty."""
    return json.loads(printed(capsys))
