"""A folder with a hub in each form a command can work on, and one of them served."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.cli.shell import serving

SERVER = '''\
"""A hub with one of everything."""

from waypost import Context, Hub, Image, ToolError

hub = Hub("desk", version="1.2.3")
not_a_hub = 42


@hub.tool(category="Maths")
async def add(a: float, b: float) -> float:
    """Add two numbers.

    The second line of the description.
    """
    return a + b


@hub.tool(hidden=True)
async def secret() -> str:
    """Not listed."""
    return "found me"


@hub.tool
async def refuse(ctx: Context) -> str:
    """Fail."""
    raise ToolError("Not today.")


@hub.tool
async def picture() -> list:
    """A picture and a word."""
    return ["a dot", Image(data=b"dot", mime_type="image/png")]


@hub.resource("docs://readme", mime_type="text/markdown")
async def readme() -> str:
    """How to use it."""
    return "# Grüße"


@hub.resource("docs://logo", mime_type="image/png")
async def logo() -> bytes:
    """A picture."""
    return b"\\x89PNG\\r\\n\\x00\\xff"


@hub.resource("notes://{number}")
async def note(number: int) -> str:
    """A note."""
    return f"note {number}"


@hub.prompt
def greet(name: str) -> str:
    """Compose a greeting."""
    return f"Greet {name}."
'''

TOOLS = '''\
"""Tools."""

from waypost import Toolkit, tool


class Kit(Toolkit, category="Maths"):
    """Small tools."""

    @tool(description="Add two numbers")
    async def add(self, a: float, b: float) -> float:
        return a + b
'''

CONFIG = """\
version: "1"
server: {name: desk, version: 1.2.3, surface: full, port: 0}
toolkits: [./tools.py]
prompts:
  greet:
    description: Compose a greeting
    arguments: [{name: name, required: true}]
    template: Greet {{ name }}.
"""


def write_project(folder: Path) -> Path:
    """Write `server.py`, `deskpackage/server.py`, `tools.py` and `waypost.yaml`."""
    (folder / "server.py").write_text(SERVER)
    (folder / "deskpackage").mkdir()
    (folder / "deskpackage" / "__init__.py").write_text("")
    (folder / "deskpackage" / "server.py").write_text(SERVER)
    (folder / "tools.py").write_text(TOOLS)
    (folder / "waypost.yaml").write_text(CONFIG)
    return folder


@pytest.fixture
def project(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder to work in; the current one during the test."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.syspath_prepend(tmp_path)
    monkeypatch.delenv("WAYPOST_DATA", raising=False)
    for name in ("deskpackage", "deskpackage.server"):  # its hub remembers the data directory of an earlier test
        monkeypatch.delitem(sys.modules, name, raising=False)
    return write_project(tmp_path)


@pytest.fixture(scope="session")
def gateway_url(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """Where a hub is served that lists the seven tools of its gateway only."""
    folder = write_project(tmp_path_factory.mktemp("gateway"))
    (folder / "waypost.yaml").write_text(CONFIG.replace("surface: full", "surface: gateway"))
    with serving("waypost.yaml", "--port", "0", cwd=folder) as hub:
        yield hub.url


@pytest.fixture(scope="session")
def url(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """Where the hub of `server.py` is served, with `/mcp`."""
    folder = write_project(tmp_path_factory.mktemp("served"))
    with serving("server.py:hub", "--port", "0", cwd=folder) as hub:
        yield hub.url


@pytest.fixture
def target(request: pytest.FixtureRequest, project: Path) -> str:
    """The target a test is run on; `URL` and `GATEWAY` stand for those of served hubs."""
    name = str(request.param)
    if name == "GATEWAY":
        return str(request.getfixturevalue("gateway_url"))
    if not name.startswith("URL"):
        return name
    url: str = request.getfixturevalue("url")
    return url if name == "URL/mcp" else url.removesuffix("/mcp")
