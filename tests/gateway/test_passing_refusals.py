"""Refusals of an upstream that require a page to be opened by the client."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest

from tests.gateway.importers import write
from tests.gateway.passers import started, upstream
from tests.protocol.conftest import asynchronous
from tests.upstreams.pools import listening
from tests.upstreams.servers.curious import Dated
from waypost import Hub, RemoteError
from waypost.errors import ProtocolError
from waypost.testing import connect
from waypost.wire.versions import LATEST_LEGACY, V2025_06_18, V2026_07_28

PAGES: dict[str, Any] = {
    "elicitations": [
        {"mode": "url", "elicitationId": "e1", "url": "https://x.example/hush-hush?token=one-time", "message": "Go."}
    ]
}
SHOWS_PAGES: dict[str, Any] = {"elicitation": {"form": {}, "url": {}}}


class PageFirst(ProtocolError):
    """Open a page first."""

    code = -32042


@asynccontextmanager
async def refusing(folder: Path, era: str) -> AsyncIterator[Hub]:
    far = Dated("refusing", era)

    @far.tool
    async def log_in() -> str:
        raise PageFirst("Log in with hush-hush.", PAGES)

    @far.prompt
    async def ask() -> str:
        """Refuse."""
        raise PageFirst("Log in first.", PAGES)

    async with listening(far.asgi()) as url:
        connection = {"kind": "mcp", "url": url, "headers": {"X-Key": "hush-hush"}}
        async with started(write(folder, {"up": connection}, [{"connection": "up"}])) as hub:
            yield hub
    await far.stop()


@upstream
def test_a_required_page_reaches_a_client_that_supports_url_elicitation(tmp_path: Path, era: str) -> None:
    @asynchronous
    async def scenario() -> None:
        async with (
            refusing(tmp_path, era) as hub,
            connect(hub, LATEST_LEGACY, capabilities=SHOWS_PAGES) as client,
        ):
            for use in (client.call_tool("up.log_in"), client.get_prompt("up.ask")):
                with pytest.raises(RemoteError, match="Log in") as needed:
                    await use
                assert needed.value.code == -32042
                assert "hush" not in needed.value.message
                (page,) = needed.value.data["elicitations"]
                assert page == PAGES["elicitations"][0] | {"url": "https://x.example/[REDACTED]?token=one-time"}

    scenario()


@pytest.mark.parametrize(
    ("version", "capabilities"),
    [(V2026_07_28, SHOWS_PAGES), (V2025_06_18, SHOWS_PAGES), (LATEST_LEGACY, {"elicitation": {}}), (LATEST_LEGACY, {})],
)
@asynchronous
async def test_for_other_clients_a_required_page_is_an_error_result(
    tmp_path: Path, version: str, capabilities: Any
) -> None:
    async with (
        refusing(tmp_path, LATEST_LEGACY) as hub,
        connect(hub, version, capabilities=capabilities) as client,
    ):
        answer = await client.call_tool("up.log_in")
        assert answer["isError"]
        assert "Log in" in answer.text
