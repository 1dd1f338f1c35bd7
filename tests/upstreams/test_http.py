"""The HTTP link: against a served hub in both eras, and against servers that are no hub at all."""

from __future__ import annotations

import asyncio
import json
import socket
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from tests.upstreams.conftest import DEADLINE, answering, response, served, until
from waypost import Context, Hub, RemoteError
from waypost.protocol import routing
from waypost.testing import TestClient
from waypost.upstreams.client import Client, connected
from waypost.upstreams.header_values import header_value
from waypost.upstreams.http import HttpLink
from waypost.wire.versions import ALL, LATEST_LEGACY, V2026_07_28

ERAS = [LATEST_LEGACY, V2026_07_28]
PATIENCE = 1.0
"""Far more than a local server needs, far less than a request that nobody answers would wait."""


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


@asynccontextmanager
async def opened(url: str, version: str, **options: Any) -> AsyncIterator[TestClient]:
    async with asyncio.timeout(DEADLINE):
        client = TestClient(HttpLink(url), version=version, patience=PATIENCE, **options)
        await client.open()
        try:
            yield client
        finally:
            await client.close()


# A served hub


@pytest.mark.parametrize("version", ALL)
def test_a_served_hub_is_used_in_every_version(version: str) -> None:
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


def test_without_a_version_the_newest_is_spoken_over_http() -> None:
    async def scenario() -> None:
        async with served(sample()) as url:
            client = await connected(HttpLink(url))
            assert client.version == V2026_07_28
            await client.close()

    asyncio.run(scenario())


@pytest.mark.parametrize("version", ERAS)
def test_what_comes_before_the_answer_arrives_as_events(version: str) -> None:
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
def test_a_name_that_no_header_can_carry_arrives(title: str, version: str) -> None:
    async def scenario() -> None:
        async with served(sample()) as url, opened(url, version) as client:
            assert (await client.read_resource(f"notes://{title}")).text == f"about {title}"

    asyncio.run(scenario())


@pytest.mark.parametrize("version", ERAS)
@pytest.mark.parametrize("region", ["eu", "Zürich"])
def test_arguments_that_a_tool_wants_in_headers_are_sent_there(region: str, version: str) -> None:
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


def test_changes_are_heard_on_a_stream_that_ends_when_it_is_left() -> None:
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
def test_an_answer_that_takes_too_long_is_given_up_at_the_server_too(version: str) -> None:
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
            client = Client(HttpLink(url), version=version, patience=1.0)
            await client.open()
            with pytest.raises(RemoteError, match="did not answer"):
                await client.call_tool("wait")
            async with asyncio.timeout(PATIENCE):
                await stopped.wait()
            await client.close()

    asyncio.run(scenario())


def test_headers_go_along_with_every_message() -> None:
    seen: list[bytes] = []

    async def scenario() -> None:
        async def answer(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
            head = await reader.readuntil(b"\r\n\r\n")
            seen.append(head)
            writer.write(response(b"", status="401 Unauthorized", kind="text/plain"))
            writer.close()

        server = await asyncio.start_server(answer, "127.0.0.1", 0)
        url = f"http://127.0.0.1:{server.sockets[0].getsockname()[1]}/mcp"
        link = HttpLink(url, {"Authorization": "Bearer secret"})
        with pytest.raises(RemoteError, match=r"401.*Unauthorized"):
            await Client(link, patience=PATIENCE).open()
        await link.close()
        server.close()
        await server.wait_closed()

    asyncio.run(scenario())
    assert b"Authorization: Bearer secret\r\n" in seen[0]


# Servers that are no hub


NOT_ALLOWED = b'{"jsonrpc": "2.0", "id": null, "error": {"code": -32600, "message": "This Host is not allowed here."}}'
NO_SESSION = b'{"jsonrpc": "2.0", "id": null, "error": {"code": -32600, "message": "There is no such session."}}'


def a_port_without_a_server() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


async def refusal(url: str, version: str) -> RemoteError:
    """What opening a server says when it fails, which it must do without waiting."""
    link = HttpLink(url)
    try:
        with pytest.raises(RemoteError) as caught:
            await Client(link, version=version, patience=PATIENCE).open()
    finally:
        await link.close()
    assert caught.value.code != -32001, "it waited for an answer that cannot come"
    return caught.value


@pytest.mark.parametrize("version", ERAS)
def test_a_server_that_is_not_there_is_one_sentence(version: str) -> None:
    url = f"http://127.0.0.1:{a_port_without_a_server()}/mcp"

    error = asyncio.run(refusal(url, version))

    assert error.message.startswith(f"{url} cannot be reached: ")
    assert "\n" not in error.message


@pytest.mark.parametrize("version", ERAS)
@pytest.mark.parametrize("url", ["http:///mcp", "http://no host/mcp", "http://127.0.0.1:99999/mcp"])
def test_a_url_that_leads_nowhere_is_one_sentence(url: str, version: str) -> None:
    error = asyncio.run(refusal(url, version))

    assert url in error.message


@pytest.mark.parametrize("version", ERAS)
@pytest.mark.parametrize(
    ("answer", "said"),
    [
        (response(b"<html>Hello</html>", kind="text/html"), "text/html"),
        (response(b"<html>Oops</html>", status="500 Internal Server Error", kind="text/html"), "500"),
        (response(b"Bad gateway", status="502 Bad Gateway", kind="text/plain"), "502"),
        (response(b'{"detail": "Not Found"}', status="404 Not Found"), "404"),
        (response(b"not json", status="200 OK"), ""),
        (response(b'{"some": "json"}'), ""),
        (response(b"", status="202 Accepted"), ""),
        (response(b"", status="204 No Content"), ""),
        (response(b": hello\n\n", kind="text/event-stream"), ""),
        (
            response(NOT_ALLOWED, status="403 Forbidden"),
            "This Host is not allowed here",
        ),
        (b"HTTP/1.1 200 OK\r\nContent-Type: application/json\r\nContent-Length: 100\r\n\r\n{", ""),
        (b"SSH-2.0-OpenSSH_9.6\r\n\r\n", ""),
    ],
    ids=[
        "html",
        "html 500",
        "text 502",
        "json 404",
        "no json",
        "other json",
        "accepted",
        "nothing",
        "events without an answer",
        "an error without an id",
        "cut off",
        "not http",
    ],
)
def test_a_server_that_answers_something_else_is_an_error_at_once(answer: bytes, said: str, version: str) -> None:
    async def write(_body: bytes, writer: asyncio.StreamWriter) -> None:
        writer.write(answer)
        await writer.drain()

    async def scenario() -> None:
        async with asyncio.timeout(DEADLINE), answering(write) as url:
            error = await refusal(url, version)
            assert said in error.message
            assert error.message
            assert "\n" not in error.message

    asyncio.run(scenario())


def test_a_session_that_the_server_forgot_is_an_error_at_once() -> None:
    async def write(body: bytes, writer: asyncio.StreamWriter) -> None:
        message = json.loads(body) if body else {}
        if message.get("method") == "initialize":
            welcome = {
                "protocolVersion": LATEST_LEGACY,
                "capabilities": {},
                "serverInfo": {"name": "x", "version": "1"},
            }
            answer = response(json.dumps({"jsonrpc": "2.0", "id": message["id"], "result": welcome}).encode())
            writer.write(answer.replace(b"\r\n", b"\r\nMcp-Session-Id: abc\r\n", 1))
        else:
            writer.write(response(NO_SESSION, status="404 Not Found") if "id" in message else response(b""))
        await writer.drain()

    async def scenario() -> None:
        async with answering(write) as url, opened(url, LATEST_LEGACY) as client:
            with pytest.raises(RemoteError, match="no such session") as caught:
                await client.ping()
            assert caught.value.code != -32001

    asyncio.run(scenario())


@pytest.mark.parametrize("line_end", [b"\n", b"\r\n"])
def test_events_are_read_as_they_may_be_written(line_end: bytes) -> None:
    async def write(body: bytes, writer: asyncio.StreamWriter) -> None:
        answer = {"jsonrpc": "2.0", "id": json.loads(body)["id"], "result": {"a": 1, "b": 2}}
        first, second = json.dumps(answer, indent=1).encode().split(b"\n", 1)
        lines = [b": hello", b"id: 1", b"retry: 5", b"data:", b"", b"event: message", b"data:" + first]
        lines += [b"data: " + line for line in second.split(b"\n")]
        events = line_end.join([*lines, b"", b""])
        writer.write(response(events, kind="text/event-stream"))
        await writer.drain()

    async def scenario() -> None:
        async with answering(write) as url:
            link = HttpLink(url)
            reply = await Client(link, patience=PATIENCE).open()
            assert reply == {"a": 1, "b": 2}
            await link.close()

    asyncio.run(scenario())


def test_closing_twice_or_before_opening_does_no_harm() -> None:
    async def scenario() -> None:
        link = HttpLink("http://127.0.0.1:1/mcp")
        await link.close()
        await link.open(lambda _: None)
        await link.close()
        await link.close()

    asyncio.run(scenario())


def test_a_session_whose_server_has_gone_closes_quietly() -> None:
    async def scenario() -> None:
        async with served(sample()) as url:
            client = Client(HttpLink(url), version=LATEST_LEGACY)
            await client.open()
        await client.close()

    asyncio.run(scenario())


def test_a_stream_whose_server_has_gone_is_left_quietly() -> None:
    async def scenario() -> None:
        async with served(sample()) as url:
            client = Client(HttpLink(url))
            await client.open()
            stream = client.listen(toolsListChanged=True)
            await stream.__aenter__()
        await stream.__aexit__(None, None, None)
        await client.close()

    asyncio.run(scenario())


# Header values


@given(st.text())
@example("=?base64?eA==?=")
@example("=?base64?=")
@example(" padded ")
@example("tab\there")
@example("line\nbreak")
@example("")
@example("ümlaut")
def test_a_header_value_survives_the_trip(text: str) -> None:
    value = header_value(text)

    assert value.isascii()
    assert value.isprintable()
    assert routing.decode(value.encode(), b"mcp-name") == text


@given(st.text(alphabet=st.characters(min_codepoint=0x21, max_codepoint=0x7E), min_size=1))
def test_a_plain_name_is_sent_as_it_is(text: str) -> None:
    if not text.startswith("=?base64?"):
        assert header_value(text) == text
