"""A connection that says which version of MCP to speak."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.gateway.importers import imports_of, running, stdio, write
from tests.gateway.passers import downstream, red, started
from tests.protocol.conftest import asynchronous
from tests.upstreams.pools import Recorded, listening
from waypost import Hub
from waypost.config.models import McpConnection
from waypost.imports.sources import digest_connection
from waypost.testing import connect
from waypost.wire.versions import ALL, LATEST_LEGACY, V2025_06_18, V2026_07_28


@pytest.mark.parametrize("version", ALL)
@asynchronous
async def test_the_version_of_a_connection_is_used(tmp_path: Path, version: str) -> None:
    far = Hub("far", version="1")

    @far.tool
    async def hello() -> str:
        return "hello"

    app = Recorded(far.asgi())
    async with listening(app) as url:
        connection = {"kind": "mcp", "url": url, "version": version}
        async with started(write(tmp_path, {"up": connection}, [{"connection": "up"}])) as hub, connect(hub) as client:
            assert imports_of(hub).get_row("up").protocol == version
            assert (await client.call_tool("up.hello")).text == "hello"
            assert set(app.versions) <= {version, ""}
    await far.stop()


@asynchronous
async def test_another_version_is_not_tried_when_the_server_refuses_the_configured_one(tmp_path: Path) -> None:
    far = Hub("far", version="1")
    app = Recorded(far.asgi(), sessions_only=True)
    async with listening(app) as url:
        connection = {"kind": "mcp", "url": url, "version": V2026_07_28}
        async with started(write(tmp_path, {"up": connection}, [{"connection": "up"}])) as hub:
            row = imports_of(hub).get_row("up")
            assert (row.state, bool(row.reason)) == ("failed", True)
            assert set(app.versions) == {V2026_07_28}
    await far.stop()


@downstream
def test_elicitations_of_an_official_server_work_in_sessions(tmp_path: Path, version: str) -> None:
    @asynchronous
    async def asked() -> None:
        up = stdio("official_tools", version=LATEST_LEGACY)
        file = write(tmp_path, {"up": up}, [{"connection": "up"}])
        async with started(file) as hub, connect(hub, version, elicitation=red) as client:
            assert (await client.call_tool("up.paint")).text == "red"

    asked()


@asynchronous
async def test_a_stored_list_is_not_used_for_another_version(tmp_path: Path) -> None:
    url = "http://x.example/mcp"
    assert digest_connection(McpConnection(url=url)) != digest_connection(McpConnection(url=url, version=V2025_06_18))
    far = stdio("turncoat", str(tmp_path))
    (tmp_path / "tools.json").write_text("[]")
    for connection in (far, {**far, "version": V2025_06_18}):
        async with running(write(tmp_path, {"up": connection}, [{"connection": "up"}])):
            pass
    assert (tmp_path / "notes").read_text().count("started") == 2
