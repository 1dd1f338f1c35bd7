"""Only the client whose call asked for a page is notified of its completion."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest

from tests.gateway.importers import Json, stdio, write
from tests.gateway.passers import started
from tests.protocol.conftest import asynchronous
from tests.upstreams.conftest import until
from tests.upstreams.pools import Recorded, listening
from tests.upstreams.servers import official_pages
from waypost import Hub, RemoteError
from waypost.imports.relay import Pages
from waypost.testing import TestClient, connect
from waypost.wire.versions import LATEST_LEGACY, V2026_07_28

COMPLETE = "elicitation/complete"
SHOWS: dict[str, Any] = {"elicitation": {"form": {}, "url": {}}}

reached = pytest.mark.parametrize("transport", ["stdio", "http"])


@asynccontextmanager
async def importing(folder: Path, transport: str) -> AsyncIterator[Hub]:
    """A hub that imports the server."""
    wanted = [{"connection": "up"}]
    if transport == "stdio":
        async with started(write(folder, {"up": stdio("official_pages", version=LATEST_LEGACY)}, wanted)) as hub:
            yield hub
        return
    async with (
        listening(Recorded(official_pages.build().streamable_http_app(), sessions_only=True)) as url,
        started(write(folder, {"up": {"kind": "mcp", "url": url}}, wanted)) as hub,
    ):
        yield hub


def agree(params: Json) -> Json:
    """Accept the request to open a page."""
    assert params["elicitationId"] == "now"
    return {"action": "accept"}


@reached
def test_the_page_of_a_running_call_is_completed(tmp_path: Path, transport: str) -> None:
    @asynchronous
    async def scenario() -> None:
        async with (
            importing(tmp_path, transport) as hub,
            connect(hub, LATEST_LEGACY, elicitation=agree) as ada,
            connect(hub, LATEST_LEGACY, elicitation=agree) as bob,
        ):
            assert (await ada.call_tool("up.log_in")).text == "accept"
            await ada.assert_notification(COMPLETE, elicitationId="now")
            await bob.refute_notification(COMPLETE)

    scenario()


async def needs_a_page(client: TestClient) -> None:
    with pytest.raises(RemoteError) as needed:
        await client.call_tool("up.read_files")
    assert needed.value.data["elicitations"][0]["elicitationId"] == "later"


@reached
def test_the_page_of_a_refused_call_is_completed(tmp_path: Path, transport: str) -> None:
    @asynchronous
    async def scenario() -> None:
        async with (
            importing(tmp_path, transport) as hub,
            connect(hub, LATEST_LEGACY, capabilities=SHOWS) as ada,
            connect(hub, LATEST_LEGACY, capabilities=SHOWS) as bob,
        ):
            await needs_a_page(ada)
            await bob.call_tool("up.confirm")
            note = await ada.assert_notification(COMPLETE, within=60)
            assert note["params"] == {"elicitationId": "later"}
            await bob.call_tool("up.confirm")  # no client waits for it any longer
            await ada.refute_notification(COMPLETE)
            await bob.refute_notification(COMPLETE)

    scenario()


class Followed(Recorded):
    """A proxy app that counts the opened session streams."""

    streams = 0

    async def __call__(self, scope: Any, receive: Any, send: Any) -> None:
        async def count(message: Any) -> None:
            self.streams += scope.get("method") == "GET" and message["type"] == "http.response.start"
            await send(message)

        await super().__call__(scope, receive, count)


@asynchronous
async def test_a_session_with_user_credentials_gets_completions_of_pages(tmp_path: Path) -> None:
    app = Followed(official_pages.build().streamable_http_app(), sessions_only=True)
    async with listening(app) as url:
        far = {"kind": "mcp", "url": url, "credentials": "user"}
        async with (
            started(write(tmp_path, {"up": far}, [{"connection": "up"}])) as hub,
            connect(hub, LATEST_LEGACY, capabilities=SHOWS) as client,
        ):
            await hub.runtime.vault.put("anonymous", "up", {"X-Who": "anonymous"})
            await until(lambda: app.streams == 1)
            await needs_a_page(client)
            await until(lambda: app.streams == 2)
            await client.call_tool("up.confirm")
            await client.assert_notification(COMPLETE, within=60, elicitationId="later")


@asynchronous
async def test_a_client_of_an_era_without_completions_gets_no_notification(tmp_path: Path) -> None:
    def open_page(params: Json) -> Json:
        assert "elicitationId" not in params
        return {"action": "accept"}

    async with importing(tmp_path, "stdio") as hub, connect(hub, V2026_07_28, elicitation=open_page) as client:
        assert (await client.call_tool("up.log_in")).text == "accept"
        await client.refute_notification(COMPLETE)


@asynchronous
async def test_the_number_of_remembered_pages_is_limited() -> None:
    answer: list[str] = []

    class Session:
        async def send_elicitation_complete(self, elicitation_id: str) -> None:
            answer.append(elicitation_id)

    class Caller:
        version, session = LATEST_LEGACY, Session()

    class Ctx:
        caller = Caller()

    pages: Any = Pages()
    for number in range(1500):
        pages.remember("up", [{"elicitationId": str(number)}, {}, 7], Ctx())
    for number in range(1500):
        pages.complete("up", {"elicitationId": str(number)})
    await until(lambda: len(answer) >= 1000)
    assert answer == [str(number) for number in range(500, 1500)]
