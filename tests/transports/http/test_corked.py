"""Responses in one go, and connections that are let go when nothing comes over them."""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import pytest
import uvicorn

from waypost import Hub
from waypost.transports.http.corked import CorkedProtocol, _head
from waypost.transports.http.server import listen

pytestmark = pytest.mark.anyio
KEPT = 1
CALL = (
    b'{"jsonrpc":"2.0","id":1,"method":"tools/call","params":{"name":"add","arguments":{"a":1,"b":2},"_meta":'
    b'{"io.modelcontextprotocol/protocolVersion":"2026-07-28",'
    b'"io.modelcontextprotocol/clientInfo":{"name":"t","version":"1"},'
    b'"io.modelcontextprotocol/clientCapabilities":{}}}}'
)
LINES = (
    "Host: 127.0.0.1",
    "Content-Type: application/json",
    "Accept: application/json, text/event-stream",
    "MCP-Protocol-Version: 2026-07-28",
    "Mcp-Method: tools/call",
    "Mcp-Name: add",
    f"Content-Length: {len(CALL)}",
)


def request(*more: str) -> bytes:
    return "\r\n".join(["POST /mcp HTTP/1.1", *LINES, *more, "", ""]).encode() + CALL


@asynccontextmanager
async def served() -> AsyncIterator[int]:
    """A hub on a server that keeps idle connections for a second."""
    hub = Hub("corked", version="1")

    @hub.tool
    async def add(a: float, b: float) -> float:
        return a + b

    listening = listen("127.0.0.1", 0)
    listening.listen()  # who connects before the server is ready waits for it
    config = uvicorn.Config(
        hub.asgi(),
        http=CorkedProtocol,
        ws="none",
        log_config=None,
        access_log=False,
        server_header=False,
        date_header=False,
        timeout_keep_alive=KEPT,
    )
    server = uvicorn.Server(config)
    serving = asyncio.create_task(server._serve([listening]))
    try:
        yield listening.getsockname()[1]
    finally:
        server.should_exit = True
        await serving
        listening.close()


async def response(reader: asyncio.StreamReader) -> tuple[bytes, bytes]:
    head = await asyncio.wait_for(reader.readuntil(b"\r\n\r\n"), 10)
    length = int(head.lower().partition(b"content-length: ")[2].split(b"\r\n")[0])
    return head, await reader.readexactly(length)


async def test_requests_that_come_together_are_answered_one_after_another() -> None:
    async with served() as port:
        reader, writer = await asyncio.open_connection("127.0.0.1", port)
        writer.write(request() * 3)
        for _ in range(3):
            head, body = await response(reader)
            assert head.startswith(b"HTTP/1.1 200 OK\r\ncontent-type: application/json\r\n")
            assert b'"result":3' in body
        writer.close()


async def test_a_connection_that_is_to_be_closed_is_closed_behind_its_answer() -> None:
    async with served() as port:
        reader, writer = await asyncio.open_connection("127.0.0.1", port)
        writer.write(request("Connection: close"))
        head, _ = await response(reader)
        assert b"connection: close" in head
        assert await asyncio.wait_for(reader.read(), 10) == b""
        writer.close()


async def test_a_connection_is_kept_while_it_is_used_and_let_go_a_while_after() -> None:
    async with served() as port:
        reader, writer = await asyncio.open_connection("127.0.0.1", port)
        began = time.monotonic()
        while time.monotonic() - began < KEPT * 1.3:  # the timer of the first answer rings in between
            writer.write(request())
            await response(reader)
            await asyncio.sleep(0.05)
        last = time.monotonic()
        assert await asyncio.wait_for(reader.read(), 10) == b""
        assert time.monotonic() - last > KEPT * 0.5
        writer.close()


@pytest.mark.parametrize("header", [(b"x", b"a\r\nb: c"), (b"a b", b"x")])
def test_a_header_that_would_be_two_is_not_sent_that_way(header: tuple[bytes, bytes]) -> None:
    assert _head(200, (header,)) is None
