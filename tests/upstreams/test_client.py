"""The client in memory, in both eras: opening and requests."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from tests.upstreams.clients import ScriptedLink, error, opened, result, sample
from tests.upstreams.conftest import ERAS
from waypost import Hub, RemoteError
from waypost.testing import MemoryLink
from waypost.upstreams.client import Client, open_client
from waypost.upstreams.jsonrpc import Reply
from waypost.version import __version__
from waypost.wire.params import CLIENT_CAPABILITIES, CLIENT_INFO, LOG_LEVEL, PROTOCOL_VERSION
from waypost.wire.versions import ALL, LATEST_LEGACY, V2026_07_28

# Opening


@pytest.mark.parametrize("version", ALL)
def test_opening_returns_the_server_info(version: str) -> None:
    async def scenario() -> None:
        async with opened(sample(), version) as client:
            assert (client.server_info.name, client.server_info.version) == ("sample", "3.2.1")
            assert client.version == version

    asyncio.run(scenario())


def test_a_session_uses_the_version_of_the_server() -> None:
    async def scenario() -> None:
        async with opened(sample(), "2023-01-01") as client:
            assert client.version == LATEST_LEGACY
            await client.ping()

    asyncio.run(scenario())


@pytest.mark.parametrize("version", ERAS)
def test_a_client_introduces_itself_with_its_capabilities(version: str) -> None:
    def answer(message: dict[str, Any]) -> list[Any]:
        if "id" not in message:
            return []
        return [result(message, {"protocolVersion": LATEST_LEGACY, "serverInfo": {"name": "x", "version": "1"}})]

    async def scenario() -> None:
        link = ScriptedLink(answer)
        client = Client(link, version=version, capabilities={"roots": {}}, name="probe", log_level="error")
        await client.open()
        params = link.sent[0]["params"]
        info = {"name": "probe", "version": __version__}
        if version == V2026_07_28:
            assert params["_meta"] == {
                PROTOCOL_VERSION: version,
                CLIENT_CAPABILITIES: {"roots": {}},
                CLIENT_INFO: info,
                LOG_LEVEL: "error",
            }
        else:
            assert params == {"protocolVersion": version, "capabilities": {"roots": {}}, "clientInfo": info}
            assert link.sent[1]["method"] == "notifications/initialized"

    asyncio.run(scenario())


def test_without_a_version_the_newest_common_one_is_used() -> None:
    async def scenario() -> None:
        hub = sample()
        await hub.start()
        client = await open_client(MemoryLink(hub.engine))
        assert client.version == V2026_07_28
        await client.close()

    asyncio.run(scenario())


def test_a_server_of_the_older_era_gets_a_session() -> None:
    def answer(message: dict[str, Any]) -> list[Any]:
        if message["method"] == "server/discover":
            return [error(message, -32601, "Method not found")]
        if message["method"] == "initialize":
            return [result(message, {"protocolVersion": "2025-06-18", "serverInfo": {"name": "old", "version": "1"}})]
        return []

    async def scenario() -> None:
        client = await open_client(ScriptedLink(answer))
        assert (client.version, client.server_info.name) == ("2025-06-18", "old")

    asyncio.run(scenario())


def test_a_configured_version_has_no_fallback() -> None:
    async def scenario() -> None:
        link = ScriptedLink(lambda message: [error(message, -32601, "Method not found")])
        with pytest.raises(RemoteError, match="Method not found"):
            await open_client(link, version=V2026_07_28)
        assert [message["method"] for message in link.sent] == ["server/discover"]

    asyncio.run(scenario())


def test_a_failed_opening_closes_the_link() -> None:
    async def scenario() -> None:
        link = ScriptedLink(lambda message: [error(message, -32603, "Internal error")])
        with pytest.raises(RemoteError, match="Internal error"):
            await open_client(link)
        assert link.closed

    asyncio.run(scenario())


# Asking


@pytest.mark.parametrize("version", ERAS)
def test_everything_a_hub_offers_can_be_used(version: str) -> None:
    async def scenario() -> None:
        async with opened(sample(), version) as client:
            assert (await client.call_tool("add", {"a": 1, "b": 2})).structured == {"result": 3}
            assert [row.uri for row in await client.list_resources()] == ["docs://readme"]
            assert [row.uri_template for row in await client.list_resource_templates()] == ["notes://{number}"]
            assert [row.name for row in await client.list_prompts()] == ["greet"]
            assert (await client.read_resource("notes://7")).text == "note 7"
            assert (await client.get_prompt("greet", {"name": "Ada"})).text == "Greet Ada."
            assert await client.complete({"type": "ref/prompt", "name": "greet"}, "name", "A") == []

    asyncio.run(scenario())


@pytest.mark.parametrize("version", ERAS)
@pytest.mark.parametrize("page_size", [1, 2, 3, 100])
def test_lists_are_read_page_after_page(page_size: int, version: str) -> None:
    hub = Hub("pages", version="1", page_size=page_size)

    def same() -> str:
        return "same"

    for number in range(5):
        hub.tool(same, name=f"tool_{number}") if number == 0 else hub.add(same, name=f"tool_{number}")

    async def scenario() -> None:
        async with opened(hub, version) as client:
            assert [row.name for row in await client.list_tools()] == [f"tool_{number}" for number in range(5)]

    asyncio.run(scenario())


@pytest.mark.parametrize("version", ERAS)
def test_concurrent_requests_get_their_own_answers(version: str) -> None:
    async def scenario() -> None:
        async with opened(sample(), version) as client:
            sums = await asyncio.gather(*(client.call_tool("add", {"a": n, "b": n}) for n in range(20)))
            assert [reply.structured.result for reply in sums] == [n * 2 for n in range(20)]

    asyncio.run(scenario())


@pytest.mark.parametrize("version", ERAS)
def test_a_tool_that_fails_is_an_answer(version: str) -> None:
    async def scenario() -> None:
        async with opened(sample(), version) as client:
            reply = await client.call_tool("refuse")
            assert (reply.is_error, reply.text) == (True, "Not today.")

    asyncio.run(scenario())


@pytest.mark.parametrize(("version", "code"), [(LATEST_LEGACY, -32002), (V2026_07_28, -32602)])
def test_an_error_is_raised_with_its_code_and_data(version: str, code: int) -> None:
    async def scenario() -> None:
        async with opened(sample(), version) as client:
            with pytest.raises(RemoteError, match="Resource not found: docs://gone") as caught:
                await client.read_resource("docs://gone")
            assert caught.value.code == code
            assert caught.value.data == {"uri": "docs://gone"}

    asyncio.run(scenario())


@pytest.mark.parametrize("version", ERAS)
def test_log_messages_below_the_chosen_level_are_left_out(version: str) -> None:
    async def scenario() -> None:
        async with opened(sample(), version) as client:
            heard: list[Reply] = []
            client.listen_to(heard.append)
            await client.set_log_level("warning")
            await client.call_tool("chatter")
            assert [note.params.data for note in heard] == ["loud"]

    asyncio.run(scenario())
