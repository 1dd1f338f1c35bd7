"""The rules of the HTTP link: headers, redirects, limits, and the session stream."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import pytest

from tests.outbound.raw_http import OK, Converse, Server, Talk, always, once, speaking
from waypost.config.models import McpConnection
from waypost.errors import RemoteError
from waypost.outbound import http1
from waypost.upstreams import http
from waypost.upstreams.client import Client
from waypost.upstreams.http import HttpTransport, UpstreamHttpTransport
from waypost.upstreams.transport import UpstreamUnavailable
from waypost.wire.versions import LATEST_LEGACY, V2026_07_28

PATIENCE = 60.0


def said(message: dict[str, Any], *more: str) -> bytes:
    body = json.dumps(message).encode()
    head = ["HTTP/1.1 200 OK", "Content-Type: application/json", f"Content-Length: {len(body)}", *more, "", ""]
    return "\r\n".join(head).encode() + body


def sent_on(location: str, status: str = "307 Temporary Redirect") -> bytes:
    return f"HTTP/1.1 {status}\r\nLocation: {location}\r\nContent-Length: 0\r\n\r\n".encode()


def id_of(request: bytes) -> Any:
    return json.loads(request.partition(b"\r\n\r\n")[2])["id"]


def answering(seen: list[bytes]) -> Converse:
    """Answer every request with an empty result."""

    async def converse(talk: Talk) -> None:
        while True:
            seen.append(await talk.asked())
            await talk.say(said({"jsonrpc": "2.0", "id": id_of(seen[-1]), "result": {}}))

    return converse


@asynccontextmanager
async def linked(link: HttpTransport, version: str = V2026_07_28) -> AsyncIterator[Client]:
    client = Client(link, version=version, patience=PATIENCE)
    await link.open(client.receive)
    try:
        yield client
    finally:
        await client.close()


def upstream(server: Server, **headers: str) -> UpstreamHttpTransport:
    return UpstreamHttpTransport("up", McpConnection(url=f"{server.url}?key=secret", headers=headers))


# Headers


def test_a_request_has_one_head_with_unique_headers() -> None:
    seen: list[bytes] = []

    async def scenario() -> None:
        async with (
            speaking(answering(seen)) as server,
            linked(
                HttpTransport(server.url, {"X-Key": "ü", "ACCEPT": "a/b", "host": "evil", "Content-Length": "7"})
            ) as client,
        ):
            await client.request("tools/call", {"name": "größe", "arguments": {}})

    asyncio.run(scenario())
    head = seen[0].partition(b"\r\n\r\n")[0].split(b"\r\n")
    names = [line.partition(b":")[0].lower() for line in head[1:]]
    assert head[0] == b"POST /mcp HTTP/1.1"
    assert sorted(names) == sorted(set(names))
    assert "X-Key: ü".encode() in head
    assert b"ACCEPT: a/b" in head
    assert b"Mcp-Method: tools/call" in head
    assert b"Mcp-Name: =?base64?Z3LDtsOfZQ==?=" in head
    assert not any(b"evil" in line for line in head)


@pytest.mark.parametrize(("name", "value"), [("X-Key", "a\r\nX-Evil: 1"), ("X Key", "a"), ("", "a"), ("X-Ü", "a")])
def test_an_invalid_header_is_refused_without_showing_its_value(name: str, value: str) -> None:
    async def scenario() -> None:
        link = UpstreamHttpTransport("up", McpConnection(url="http://127.0.0.1:1/", headers={name: value}))
        with pytest.raises(UpstreamUnavailable, match="holds what no header may hold") as caught:
            await link.open(lambda _: None)
        assert "Evil" not in str(caught.value)
        assert not caught.value.delivered

    asyncio.run(scenario())


# Redirections


@pytest.mark.parametrize("status", ["307 Temporary Redirect", "308 Permanent Redirect"])
def test_a_redirect_within_the_server_is_followed_with_headers_and_body(status: str) -> None:
    seen: list[bytes] = []

    async def converse(talk: Talk) -> None:
        seen.append(await talk.asked())
        await talk.say(sent_on("/mcp/", status))
        await answering(seen)(talk)

    async def scenario() -> None:
        async with speaking(converse) as server, linked(HttpTransport(server.url, {"X-Key": "1"})) as client:
            await client.request("tools/list")
            assert server.connections == 1

    asyncio.run(scenario())
    first, second = seen
    assert second == first.replace(b"POST /mcp ", b"POST /mcp/ ")
    assert b"X-Key: 1\r\n" in second


def test_endless_redirects_are_followed_five_times() -> None:
    seen: list[bytes] = []

    async def converse(talk: Talk) -> None:
        while True:
            seen.append(await talk.asked())
            await talk.say(sent_on(f"/{len(seen)}"))

    async def scenario() -> None:
        async with speaking(converse) as server, linked(HttpTransport(server.url)) as client:
            with pytest.raises(RemoteError, match="answered 307, a redirect that is not followed"):
                await client.request("tools/list")

    asyncio.run(scenario())
    assert len(seen) == 6


@pytest.mark.parametrize("status", ["301 Moved", "302 Found", "303 See Other", "304 Not Modified"])
def test_a_redirect_that_would_drop_the_body_is_not_followed(status: str) -> None:
    async def scenario() -> None:
        async with speaking(always(sent_on("/there", status))) as server, linked(HttpTransport(server.url)) as client:
            with pytest.raises(RemoteError, match=f"answered {status[:3]}, a redirect that is not followed"):
                await client.request("tools/list")

    asyncio.run(scenario())


def test_nothing_is_sent_to_another_origin() -> None:
    elsewhere: list[bytes] = []

    async def scenario() -> None:
        async with speaking(answering(elsewhere)) as other:
            target = other.url.replace("127.0.0.1", "localhost")
            async with speaking(always(sent_on(target))) as server:
                async with linked(upstream(server, Authorization="Bearer secret")) as client:
                    with pytest.raises(RemoteError, match='"up" answered 307') as caught:
                        await client.request("tools/list")
                    assert "127.0.0.1" not in caught.value.message
                assert other.connections == 0

    asyncio.run(scenario())
    assert not elsewhere


# What goes wrong


def test_an_answer_over_the_limit_is_refused() -> None:
    huge = 64 * 1024 * 1024 + 1
    assert huge > http1.MAX_BODY_BYTES

    async def converse(talk: Talk) -> None:
        await talk.asked()
        await talk.say(f"HTTP/1.1 200 OK\r\nContent-Type: application/json\r\nContent-Length: {huge}\r\n\r\n".encode())
        await talk.ended()

    async def scenario() -> None:
        async with speaking(converse) as server, linked(upstream(server)) as client:
            with pytest.raises(RemoteError, match=r"^The server answered with more than 64 MiB, which is refused\.$"):
                await client.request("tools/list")

    asyncio.run(scenario())


def test_an_unfinished_response_times_out() -> None:
    async def converse(talk: Talk) -> None:
        await talk.asked()
        await talk.say(b"HTTP/1.1 200 OK\r\nContent-Type: application/json\r\nContent-Length: 100\r\n\r\n{")
        await talk.ended()

    async def scenario() -> None:
        async with speaking(converse) as server:
            # The request has to reach the server within it.
            client = Client(HttpTransport(server.url), patience=1)
            with pytest.raises(RemoteError, match=r"did not answer within 1 s"):
                await client.open()
            await server.left.wait()
            await client.close()

    asyncio.run(scenario())


@pytest.mark.parametrize(
    ("answer", "said_of_it", "is_delivered"),
    [
        (b"", "cannot be reached: the connection was closed without a response", True),
        (b"SSH-2.0\r\n\r\n", "cannot be reached: its response is not HTTP", True),
        (b"HTTP/1.1 503 Busy\r\nContent-Length: 0\r\n\r\n", "answered 503: Busy", True),
        (b"HTTP/1.1 429 Slow Down\r\nContent-Length: 0\r\n\r\n", "answered 429: Slow Down", True),
    ],
)
def test_an_unusable_response_is_an_unavailable_upstream(answer: bytes, said_of_it: str, is_delivered: bool) -> None:
    async def scenario() -> None:
        async with speaking(once(answer)) as server, linked(upstream(server)) as client:
            with pytest.raises(UpstreamUnavailable, match=said_of_it) as caught:
                await client.request("tools/list")
            assert caught.value.delivered is is_delivered
            assert "secret" not in str(caught.value)

    asyncio.run(scenario())


def test_requests_on_a_closed_link_are_errors() -> None:
    async def scenario() -> None:
        async with speaking(always(OK)) as server:
            link = upstream(server)
            client = Client(link, patience=PATIENCE)
            await link.open(lambda _: None)
            await link.close()
            with pytest.raises(UpstreamUnavailable, match='The connection "up" was closed') as caught:
                await client.request("tools/list")
            assert not caught.value.delivered
            with pytest.raises(UpstreamUnavailable, match="was closed"):
                await client.notify("notifications/initialized")

    asyncio.run(scenario())


# Streams


def test_an_answer_on_a_stream_is_returned_before_the_stream_ends() -> None:
    async def converse(talk: Talk) -> None:
        answer = {"jsonrpc": "2.0", "id": id_of(await talk.asked()), "result": {"a": 1}}
        await talk.say(b"HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\n\r\n")
        await talk.say(b"data: " + json.dumps(answer).encode() + b"\n\n")
        await talk.ended()

    async def scenario() -> None:
        async with speaking(converse) as server:
            async with linked(HttpTransport(server.url)) as client:
                assert await client.request("tools/list") == {"a": 1}
                assert server.open == 1
            await server.left.wait()

    asyncio.run(scenario())


def test_the_session_stream_is_reopened_until_it_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(http, "_REOPEN_STREAM_AFTER_S", 0.01)
    seen: list[bytes] = []
    heard: list[bytes] = []

    async def converse(talk: Talk) -> None:
        while True:
            request = await talk.asked()
            if request.startswith(b"POST"):
                await talk.say(said({"jsonrpc": "2.0", "id": id_of(request), "result": {}}, "Mcp-Session-Id: abc"))
                continue
            seen.append(request)
            if len(seen) == 3:
                await talk.say(b"HTTP/1.1 405 No\r\nContent-Length: 0\r\n\r\n")
                return
            await talk.say(b"HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\n\r\ndata: {}\n\n")
            return

    async def scenario() -> None:
        async with speaking(converse) as server:
            link = upstream(server)
            async with linked(link, LATEST_LEGACY) as client:
                await client.request("ping")
                link.receive = heard.append
                await link.follow(LATEST_LEGACY)

    asyncio.run(scenario())
    assert len(seen) == 3
    assert heard == [b"{}", b"{}"]
    assert b"GET /mcp?key=secret HTTP/1.1\r\n" in seen[0]
    assert b"Accept: text/event-stream\r\n" in seen[0]
    assert b"Mcp-Session-Id: abc\r\n" in seen[0]
    assert b"Content-Length" not in seen[0]
