"""Connections, with and without shortcuts: requests in whatever pieces they come, and the timer of each connection."""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from itertools import pairwise
from typing import Any

import msgspec
import pytest
import uvicorn
from hypothesis import given, settings
from hypothesis import strategies as st
from uvicorn.protocols.http.httptools_impl import HttpToolsProtocol
from uvicorn.server import ServerState

from tests.protocol.conftest import until
from waypost import Hub
from waypost.settings import Limits
from waypost.transports.http.asgi import Receive, Scope, Send
from waypost.transports.http.fast_uvicorn import FastConnection, FastRequest
from waypost.transports.http.server import listen, make_config

pytestmark = pytest.mark.anyio
both_ways = pytest.mark.parametrize("is_plain", [False, True], ids=["fast", "plain"])
KEPT = 2
META = (
    b'"_meta":{"io.modelcontextprotocol/protocolVersion":"2026-07-28",'
    b'"io.modelcontextprotocol/clientInfo":{"name":"t","version":"1"},'
    b'"io.modelcontextprotocol/clientCapabilities":{}}'
)


def call(a: int, b: int) -> bytes:
    arguments = b'{"a":%d,"b":%d}' % (a, b)
    return b'{"jsonrpc":"2.0","id":1,"method":"tools/call","params":{"name":"add","arguments":%b,%b}}' % (
        arguments,
        META,
    )


def request(*more: str, body: bytes = call(1, 2)) -> bytes:
    lines = (
        "POST /mcp HTTP/1.1",
        "Host: 127.0.0.1",
        "Content-Type: application/json",
        "Accept: application/json, text/event-stream",
        "MCP-Protocol-Version: 2026-07-28",
        "Mcp-Method: tools/call",
        "Mcp-Name: add",
        f"Content-Length: {len(body)}",
    )
    return "\r\n".join([*lines, *more, "", ""]).encode() + body


@asynccontextmanager
async def served(
    *, is_plain: bool, started: asyncio.Event | None = None, limits: Limits | None = None
) -> AsyncIterator[tuple[int, uvicorn.Server]]:
    """A hub on a server that keeps idle connections for a second."""
    limits = limits or Limits()
    hub = Hub("connected", version="1", **msgspec.structs.asdict(limits))

    @hub.tool
    async def add(a: float, b: float) -> float:
        if started is not None:
            started.set()
            await asyncio.Event().wait()
        return a + b

    listening = listen("127.0.0.1", 0)
    listening.listen()  # a client that connects before the server is ready waits for it
    config = make_config(hub.asgi(), limits, is_plain=is_plain, timeout_keep_alive=KEPT, timeout_graceful_shutdown=5)
    server = uvicorn.Server(config)
    serving = asyncio.create_task(server._serve([listening]))
    try:
        yield listening.getsockname()[1], server
    finally:
        server.should_exit = True
        await serving
        listening.close()


def has_part_of_request(connection: Any) -> bool:
    """Whether a connection waits for the rest of a request."""
    return bool(getattr(connection, "_received", b"")) or not connection.cycle.response_complete


async def response(reader: asyncio.StreamReader) -> tuple[bytes, bytes]:
    head = await asyncio.wait_for(reader.readuntil(b"\r\n\r\n"), 60)
    length = int(head.lower().partition(b"content-length: ")[2].split(b"\r\n")[0])
    return head, await reader.readexactly(length)


@both_ways
async def test_requests_that_come_together_are_answered_one_after_another(is_plain: bool) -> None:
    async with served(is_plain=is_plain) as (port, _):
        reader, writer = await asyncio.open_connection("127.0.0.1", port)
        writer.write(request() * 3)
        for _ in range(3):
            head, body = await response(reader)
            assert head.startswith(b"HTTP/1.1 200 OK\r\ncontent-type: application/json\r\n")
            assert b'"result":3' in body
        writer.close()


@both_ways
async def test_a_known_head_says_nothing_about_the_body(is_plain: bool) -> None:
    async with served(is_plain=is_plain) as (port, _):
        reader, writer = await asyncio.open_connection("127.0.0.1", port)
        for number in (1, 2, 3):
            writer.write(request(body=call(number, 5)))
            _, body = await response(reader)
            assert b'"result":%d' % (number + 5) in body
        writer.close()


@both_ways
async def test_a_connection_that_is_to_be_closed_is_closed_behind_its_answer(is_plain: bool) -> None:
    async with served(is_plain=is_plain) as (port, _):
        for _ in range(2):  # the second time the head was seen
            reader, writer = await asyncio.open_connection("127.0.0.1", port)
            writer.write(request("Connection: close"))
            head, _ = await response(reader)
            assert b"connection: close" in head.lower()
            assert await asyncio.wait_for(reader.read(), 60) == b""
            writer.close()


@both_ways
async def test_a_connection_is_kept_while_it_is_used_and_closed_when_idle(is_plain: bool) -> None:
    async with served(is_plain=is_plain) as (port, _):
        reader, writer = await asyncio.open_connection("127.0.0.1", port)
        began = time.monotonic()
        while time.monotonic() - began < KEPT * 1.3:  # the timer of the first answer rings in between
            last = time.monotonic()
            writer.write(request())
            await response(reader)
            await asyncio.sleep(0.05)
        assert await asyncio.wait_for(reader.read(), 60) == b""
        assert time.monotonic() - last > KEPT * 0.5
        writer.close()


@both_ways
async def test_half_a_request_is_still_answered_when_the_server_stops(is_plain: bool) -> None:
    async with served(is_plain=is_plain) as (port, server):
        reader, writer = await asyncio.open_connection("127.0.0.1", port)
        writer.write(request())
        await response(reader)
        writer.write(request()[:-1])
        connections = server.server_state.connections
        await until(lambda: any(has_part_of_request(one) for one in connections))
        server.should_exit = True
        await until(lambda: not server.servers[0].is_serving())
        writer.write(request()[-1:])
        _, body = await response(reader)
        assert b'"result":3' in body
        assert await asyncio.wait_for(reader.read(), 60) == b""
        writer.close()


@both_ways
async def test_a_request_is_cancelled_when_its_client_disconnects(is_plain: bool) -> None:
    started = asyncio.Event()
    async with served(is_plain=is_plain, started=started) as (port, server):
        for _ in range(2):  # the second time the head was seen
            _, writer = await asyncio.open_connection("127.0.0.1", port)
            writer.write(request())
            await asyncio.wait_for(started.wait(), 60)
            started.clear()
            writer.close()
            await until(lambda: not server.server_state.tasks)


@both_ways
async def test_an_upgrade_header_is_ignored(is_plain: bool) -> None:
    async with served(is_plain=is_plain) as (port, _):
        reader, writer = await asyncio.open_connection("127.0.0.1", port)
        for _ in range(2):
            writer.write(request("Connection: Upgrade, HTTP2-Settings", "Upgrade: h2c", "HTTP2-Settings: AAMAAABk"))
            head, body = await response(reader)
            assert head.startswith(b"HTTP/1.1 200 OK")
            assert b'"result":3' in body
        writer.close()


@both_ways
async def test_a_client_that_expects_100_continue_is_refused_a_large_body_before_it_sends_it(is_plain: bool) -> None:
    async with served(is_plain=is_plain) as (port, _):
        reader, writer = await asyncio.open_connection("127.0.0.1", port)
        large = request("Expect: 100-continue", body=b"x" * 5_000_000)
        writer.write(large[: large.index(b"\r\n\r\n") + 4])
        head, body = await response(reader)
        assert head.startswith(b"HTTP/1.1 413")
        assert b"maxBodyBytes" in body
        writer.close()


class Wire:
    """A transport that records the bytes written."""

    def __init__(self) -> None:
        self.written = b""
        self.is_closed = False

    def write(self, data: bytes) -> None:
        self.written += data

    def close(self) -> None:
        self.is_closed = True

    def is_closing(self) -> bool:
        return self.is_closed

    def get_extra_info(self, name: str, default: Any = None) -> Any:
        return ("127.0.0.1", 1) if name in ("peername", "sockname") else default

    def pause_reading(self) -> None: ...
    def resume_reading(self) -> None: ...


SEEN: list[type] = []


async def echo(scope: Scope, receive: Receive, send: Send) -> None:
    """Answer with everything that a request says."""
    body, more = b"", True
    while more:
        event = await receive()
        if event["type"] == "http.disconnect":
            return
        body, more = body + event["body"], event["more_body"]
    SEEN.append(type(getattr(send, "__self__", None)))
    answer = repr(
        (scope["method"], scope["path"], scope["query_string"], scope["http_version"], scope["headers"], body)
    )
    await send({"type": "http.response.start", "status": 200, "headers": [(b"content-length", b"%d" % len(answer))]})
    await send({"type": "http.response.body", "body": answer.encode()})


async def answered(protocol: type[HttpToolsProtocol], pieces: Sequence[bytes]) -> tuple[bytes, bool]:
    """The response to bytes that arrive in these pieces, one in each turn of the loop."""
    config = uvicorn.Config(echo, http=protocol, ws="none", log_config=None, access_log=False)
    config.load()
    wire = Wire()
    connection = protocol(config, ServerState(), {}, asyncio.get_running_loop())
    connection.connection_made(wire)  # type: ignore[arg-type]  # quacks like one
    for piece in pieces:
        if wire.is_closed:
            break
        connection.data_received(piece)
        await asyncio.sleep(0)
    for _ in range(50):
        await asyncio.sleep(0)
    connection.connection_lost(None)
    await asyncio.sleep(0)
    return wire.written, wire.is_closed


HEADS = [
    b"GET /a?b=c HTTP/1.1\r\nHost: x\r\n\r\n",
    b"POST /a HTTP/1.1\r\nHost: x\r\nContent-Length: 5\r\n\r\nhello",
    b"POST /a HTTP/1.1\r\nHost: x\r\nContent-Length: 5\r\n\r\nworld",
    b"POST /b%20c HTTP/1.1\r\nHost: x\r\nConnection: keep-alive\r\nContent-Length: 3\r\n\r\n\r\n\r",
    b"POST /a HTTP/1.1\r\nHost: x\r\nTransfer-Encoding: chunked\r\n\r\n3\r\nabc\r\n0\r\n\r\n",
    b"POST /a HTTP/1.1\r\nHost: x\r\nContent-Length: 40\r\n\r\nGET /other HTTP/1.1\r\nHost: y\r\n\r\n" + b"." * 8,
    b"POST /a HTTP/1.1\r\nHost: x\r\nContent-Length: 0\r\n\r\n",
    b"HEAD /a HTTP/1.1\r\nHost: x\r\n\r\n",
    b"\r\n\r\nGET /lines HTTP/1.1\r\nHost: x\r\n\r\n",
    b"POST /a HTTP/1.0\r\nHost: x\r\nContent-Length: 2\r\n\r\nhi",
    b"POST /a HTTP/1.1\r\nHost: x\r\nConnection: close\r\nContent-Length: 2\r\n\r\nhi",
    b"POST /a HTTP/1.1\r\nHost: x\r\nExpect: 100-continue\r\nContent-Length: 2\r\n\r\nhi",
    b"NONSENSE\r\n\r\n",
]


@given(
    st.lists(st.sampled_from(HEADS), min_size=1, max_size=6),
    st.lists(st.integers(0, 400), max_size=6),
)
@settings(deadline=None, max_examples=300)
def test_requests_cut_into_any_pieces_get_the_responses_of_the_plain_protocol(
    requests: list[bytes], cuts: list[int]
) -> None:
    whole = b"".join(requests)
    places = sorted({0, len(whole), *(cut % len(whole) for cut in cuts)})
    pieces = [whole[start:end] for start, end in pairwise(places)]

    async def compare() -> None:
        assert await answered(FastConnection, pieces) == await answered(HttpToolsProtocol, pieces)
        assert await answered(FastConnection, requests) == await answered(HttpToolsProtocol, requests)

    asyncio.run(compare())


async def test_a_request_that_was_seen_before_takes_the_short_way() -> None:
    again = b"POST /short HTTP/1.1\r\nHost: x\r\nContent-Length: 2\r\n\r\nhi"
    SEEN.clear()
    await answered(FastConnection, [again, again, again[:-2], again[-2:]])
    assert SEEN[1:] == [FastRequest, FastRequest]


async def test_the_chunks_of_one_read_are_handed_over_together(monkeypatch: pytest.MonkeyPatch) -> None:
    parts: list[int] = []
    take = HttpToolsProtocol.on_body

    def count(connection: HttpToolsProtocol, body: bytes) -> None:
        parts.append(len(body))
        take(connection, body)

    monkeypatch.setattr(HttpToolsProtocol, "on_body", count)
    head = b"POST /a HTTP/1.1\r\nHost: x\r\nTransfer-Encoding: chunked\r\n\r\n"
    chunks = b"1\r\nx\r\n" * 1_000
    written, _ = await answered(FastConnection, [head + chunks, chunks, chunks + b"0\r\n\r\n"])
    assert b"x" * 3_000 in written
    assert parts == [1_000, 1_000, 1_000]
