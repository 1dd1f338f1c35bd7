"""The HTTP link against a served hub, in both eras."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from tests.upstreams.conftest import ERAS, response, served, until
from tests.upstreams.http_clients import PATIENCE, opened
from waypost import Context, Hub, RemoteError
from waypost.upstreams.client import Client, open_client
from waypost.upstreams.http import HttpTransport
from waypost.wire.versions import ALL, LATEST_LEGACY, V2026_07_28


def sample() -> Hub:
    hub = Hub("sample", version="1.0.0")

    @hub.tool
    async def add(a: int, b: int) -> int:
        """Add two numbers."""
        return a + b

    @hub.tool
    async def count(ctx: Context) -> str:
        """Report three steps."""
        for step in (1, 2, 3):
            await ctx.progress(step, 3)
        return "counted"

    @hub.tool
    async def shout(size: int, ctx: Context) -> str:
        """Say a lot, after a little."""
        await ctx.progress(1)
        return "a" * size

    @hub.tool(
        input_schema={
            "type": "object",
            "properties": {"region": {"type": "string", "x-mcp-header": "Region"}, "size": {"type": "integer"}},
        }
    )
    async def deploy(args: dict[str, Any]) -> str:
        """Deploy somewhere."""
        return str(args["region"])

    @hub.resource("notes://{title}", subscribable=True)
    async def note(title: str) -> str:
        return f"about {title}"

    return hub


@pytest.mark.parametrize("version", ALL)
def test_a_served_hub_works_in_every_version(version: str) -> None:
    async def scenario() -> None:
        async with served(sample()) as url, opened(url, version) as client:
            assert client.server_info.name == "sample"
            assert [row.name for row in await client.list_tools()] == ["add", "count", "deploy", "shout"]
            assert (await client.call_tool("add", {"a": 1, "b": 2})).text == "3"
            assert (await client.read_resource("notes://x")).text == "about x"
            with pytest.raises(RemoteError, match="Unknown tool: nothing") as caught:
                await client.call_tool("nothing")
            assert caught.value.code == -32602

    asyncio.run(scenario())


def test_without_a_version_the_newest_is_used_over_http() -> None:
    async def scenario() -> None:
        async with served(sample()) as url:
            client = await open_client(HttpTransport(url))
            assert client.version == V2026_07_28
            await client.close()

    asyncio.run(scenario())


@pytest.mark.parametrize("version", ERAS)
def test_progress_before_the_answer_arrives_as_events(version: str) -> None:
    async def scenario() -> None:
        async with served(sample()) as url, opened(url, version) as client:
            assert (await client.call_with_progress("count")).text == "counted"
            await client.assert_progress(1, 2, 3)

    asyncio.run(scenario())


@pytest.mark.parametrize("version", ERAS)
@pytest.mark.parametrize("size", [100_000, 1_000_000])
def test_a_long_answer_arrives_as_an_event(size: int, version: str) -> None:
    async def scenario() -> None:
        async with served(sample()) as url, opened(url, version) as client:
            result = await client.call_tool("shout", {"size": size}, meta={"progressToken": "p"})
            assert len(result.text) == size

    asyncio.run(scenario())


@pytest.mark.parametrize("version", ERAS)
@pytest.mark.parametrize("title", ["plain", "grüße", "日本語", "two words"])
def test_a_name_that_does_not_fit_a_header_arrives(title: str, version: str) -> None:
    async def scenario() -> None:
        async with served(sample()) as url, opened(url, version) as client:
            assert (await client.read_resource(f"notes://{title}")).text == f"about {title}"

    asyncio.run(scenario())


@pytest.mark.parametrize("version", ERAS)
@pytest.mark.parametrize("region", ["eu", "Zürich"])
def test_arguments_declared_as_headers_are_sent_as_headers(region: str, version: str) -> None:
    async def scenario() -> None:
        async with served(sample()) as url, opened(url, version) as client:
            await client.list_tools()
            assert (await client.call_tool("deploy", {"region": region, "size": 3})).text == region

    asyncio.run(scenario())


@pytest.mark.parametrize("version", [version for version in ALL if version != V2026_07_28])
def test_a_session_ends_with_its_client(version: str) -> None:
    hub = sample()

    async def scenario() -> None:
        async with served(hub) as url:
            async with opened(url, version) as client:
                await client.ping()
                assert len(hub.engine.sessions) == 1
            assert len(hub.engine.sessions) == 0

    asyncio.run(scenario())


def test_changes_arrive_on_a_listen_stream_that_ends_when_it_is_closed() -> None:
    hub = sample()

    async def scenario() -> None:
        async with served(hub) as url, opened(url, V2026_07_28) as client:
            async with client.listen(toolsListChanged=True) as honoured:
                assert honoured == {"toolsListChanged": True}
                await hub.notify_changed("tools")
                await client.assert_notification("tools/list_changed")
                assert (await client.call_tool("add", {"a": 1, "b": 2})).text == "3"
            await until(lambda: len(hub.engine.broadcast) == 0, PATIENCE)

    asyncio.run(scenario())


@pytest.mark.parametrize("version", ERAS)
def test_a_timeout_cancels_the_call_at_the_server(version: str) -> None:
    hub = sample()
    stopped = asyncio.Event()

    @hub.tool
    async def wait() -> str:
        try:
            await asyncio.Event().wait()
        finally:
            stopped.set()
        return "never"

    async def scenario() -> None:
        async with served(hub) as url:
            client = Client(HttpTransport(url), version=version)
            await client.open()
            client._timeout = 1.0  # for this call alone: the client has to open
            with pytest.raises(RemoteError, match="did not answer"):
                await client.call_tool("wait")
            async with asyncio.timeout(PATIENCE):
                await stopped.wait()
            await client.close()

    asyncio.run(scenario())


def test_headers_are_sent_with_every_message() -> None:
    seen: list[bytes] = []

    async def scenario() -> None:
        async def answer(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
            head = await reader.readuntil(b"\r\n\r\n")
            seen.append(head)
            writer.write(response(b"", status="401 Unauthorized", kind="text/plain"))
            writer.close()

        server = await asyncio.start_server(answer, "127.0.0.1", 0)
        url = f"http://127.0.0.1:{server.sockets[0].getsockname()[1]}/mcp"
        link = HttpTransport(url, {"Authorization": "Bearer secret"})
        with pytest.raises(RemoteError, match=r"401.*Unauthorized"):
            await Client(link, patience=PATIENCE).open()
        await link.close()
        server.close()
        await server.wait_closed()

    asyncio.run(scenario())
    assert b"Authorization: Bearer secret\r\n" in seen[0]


def test_closing_twice_or_before_opening_is_allowed() -> None:
    async def scenario() -> None:
        link = HttpTransport("http://127.0.0.1:1/mcp")
        await link.close()
        await link.open(lambda _: None)
        await link.close()
        await link.close()

    asyncio.run(scenario())


def test_a_session_closes_silently_after_its_server_has_stopped() -> None:
    async def scenario() -> None:
        async with served(sample()) as url:
            client = Client(HttpTransport(url), version=LATEST_LEGACY)
            await client.open()
        await client.close()

    asyncio.run(scenario())


def test_a_stream_closes_silently_after_its_server_has_stopped() -> None:
    async def scenario() -> None:
        async with served(sample()) as url:
            client = Client(HttpTransport(url))
            await client.open()
            stream = client.listen(toolsListChanged=True)
            await stream.__aenter__()
        await stream.__aexit__(None, None, None)
        await client.close()

    asyncio.run(scenario())
