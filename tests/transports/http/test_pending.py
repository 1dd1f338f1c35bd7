"""Clients that send endless headers, or half of a request: they are refused, and others are served."""

from __future__ import annotations

import asyncio
import socket
from contextlib import AsyncExitStack, suppress
from typing import Any

import pytest
import uvicorn

from tests.protocol.conftest import until
from tests.transports.http.test_connection import both_ways, call, request, response, served
from waypost.settings import Limits
from waypost.transports.http.fast_uvicorn import HEAD_END

pytestmark = [pytest.mark.anyio, pytest.mark.usefixtures("no_stalls")]
FLOOD = 60_000_000
QUICK = Limits(header_timeout_ms=200, body_timeout_ms=200)


async def flood(port: int, beginning: bytes, piece: bytes) -> tuple[int, bytes]:
    """Send a beginning and then one piece again and again; return the number of bytes sent and the answer."""
    reader, writer = await asyncio.open_connection("127.0.0.1", port)
    answer, sent = asyncio.create_task(reader.read()), 0
    writer.write(beginning)
    with suppress(ConnectionError):
        while not answer.done() and sent < FLOOD:
            writer.write(piece)
            await writer.drain()
            sent += len(piece)
    with suppress(ConnectionError):
        async with asyncio.timeout(60):
            await answer
    writer.close()
    return sent, b"" if answer.exception() else answer.result()


async def is_served(port: int) -> bool:
    """Whether a normal client is answered."""
    reader, writer = await asyncio.open_connection("127.0.0.1", port)
    writer.write(request())
    _, body = await response(reader)
    writer.close()
    return b'"result":3' in body


@pytest.mark.parametrize(
    ("beginning", "piece"),
    [
        (b"POST /mcp HTTP/1.1\r\nHost: 127.0.0.1\r\nX: ", b"x" * 65_536),
        (b"POST /mcp HTTP/1.1\r\nHost: 127.0.0.1\r\n", b"a: b\r\n" * 10_000),
        (b"POST /", b"x" * 65_536),
    ],
    ids=["one header", "many headers", "the path"],
)
@both_ways
async def test_a_head_without_end_is_answered_431_long_before_it_was_all_sent(
    is_plain: bool, beginning: bytes, piece: bytes
) -> None:
    async with served(is_plain=is_plain) as (port, _):
        sent, answer = await flood(port, beginning, piece)
        assert await is_served(port)
    assert sent < FLOOD / 2
    assert answer.startswith(b"HTTP/1.1 431 Request Header Fields Too Large\r\n")
    assert b"over the limit of 65536 bytes (maxHeaderBytes)" in answer


@both_ways
async def test_a_head_that_comes_whole_is_held_to_the_limit_too(is_plain: bool) -> None:
    async with served(is_plain=is_plain) as (port, _):
        for size, status in ((60_000, b"200"), (70_000, b"431")):
            reader, writer = await asyncio.open_connection("127.0.0.1", port)
            writer.write(request(f"X-Long: {'x' * size}"))
            head, _ = await response(reader)
            assert head.startswith(b"HTTP/1.1 " + status)
            writer.close()


@pytest.mark.parametrize("piece", [b"t: " + b"x" * 1000 + b"\r\n", b"x" * 65_536], ids=["many", "one"])
async def test_trailers_without_end_are_refused(piece: bytes) -> None:
    head = request("Transfer-Encoding: chunked").partition(HEAD_END)[0].replace(b"Content-Length", b"X-Length")
    async with served(is_plain=False) as (port, _):
        sent, _ = await flood(port, head + HEAD_END + b"3\r\nabc\r\n0\r\nt: ", piece)
        assert await is_served(port)
    assert sent < FLOOD / 2


@pytest.mark.parametrize(
    "part",
    [request()[:50], request("Expect: nothing")[:-1], request()[: request().index(HEAD_END) + 4]],
    ids=["half a head", "all but the last byte", "only the head"],
)
@both_ways
async def test_a_request_that_does_not_arrive_in_time_is_answered_408(is_plain: bool, part: bytes) -> None:
    async with served(is_plain=is_plain, limits=QUICK) as (port, server):
        for is_first in (True, False):
            reader, writer = await asyncio.open_connection("127.0.0.1", port)
            if not is_first:  # by now the head was seen, and this connection had a request before
                writer.write(request())
                await response(reader)
            writer.write(part)
            head, body = await response(reader)
            assert head.startswith(b"HTTP/1.1 408 Request Timeout\r\n")
            assert b"connection: close" in head.lower()
            assert b"TimeoutMs" in body
            await until(lambda: not server.server_state.connections)
            writer.close()


@both_ways
async def test_a_request_sent_byte_by_byte_times_out(is_plain: bool) -> None:
    async with served(is_plain=is_plain, limits=QUICK) as (port, _):
        reader, writer = await asyncio.open_connection("127.0.0.1", port)
        answer = asyncio.create_task(response(reader))
        for byte in request():
            if answer.done():
                break
            writer.write(bytes((byte,)))
            await asyncio.wait((answer,), timeout=0.02)
        head, _ = await answer
        assert head.startswith(b"HTTP/1.1 408")
        writer.close()


@both_ways
async def test_a_connection_that_sends_nothing_is_closed_without_an_answer(is_plain: bool) -> None:
    async with served(is_plain=is_plain, limits=QUICK) as (port, _):
        reader, writer = await asyncio.open_connection("127.0.0.1", port)
        with suppress(ConnectionError):
            assert await asyncio.wait_for(reader.read(), 60) == b""
        writer.close()


async def test_line_ends_before_a_request_do_not_keep_a_connection_open() -> None:
    async with served(is_plain=False, limits=QUICK) as (port, server):
        reader, writer = await asyncio.open_connection("127.0.0.1", port)
        writer.write(request())
        await response(reader)
        writer.write(b"\r\n")
        await until(lambda: not server.server_state.connections)
        writer.close()


@both_ways
async def test_connections_with_half_a_request_make_room_for_others(is_plain: bool) -> None:
    limits = Limits(max_pending_connections=20)
    async with served(is_plain=is_plain, limits=limits) as (port, server), AsyncExitStack() as stack:
        for number in range(100):
            _, writer = await asyncio.open_connection("127.0.0.1", port)
            stack.callback(writer.close)
            writer.write((request()[:50], request()[:-1], b"")[number % 3])
        await until(lambda: 0 < len(server.server_state.connections) <= 20)
        assert await is_served(port)
        assert len(server.server_state.connections) <= 21


@both_ways
async def test_clients_that_all_connect_at_once_are_all_answered(is_plain: bool) -> None:
    limits = Limits(max_pending_connections=20, header_timeout_ms=60_000)  # the last of them writes late
    async with served(is_plain=is_plain, limits=limits) as (port, server), AsyncExitStack() as stack:
        clients = await asyncio.gather(*(asyncio.open_connection("127.0.0.1", port) for _ in range(60)))
        for _, writer in clients:
            stack.callback(writer.close)
        await until(lambda: len(server.server_state.connections) == 60)
        for reader, writer in clients:
            writer.write(request())
            _, body = await response(reader)
            assert b'"result":3' in body


@both_ways
async def test_a_machine_with_many_half_requests_loses_its_own_and_not_those_of_another(is_plain: bool) -> None:
    limits = Limits(max_pending_connections=10)
    async with served(is_plain=is_plain, limits=limits) as (port, server), AsyncExitStack() as stack:
        reader, slow = await asyncio.open_connection("127.0.0.1", port, local_addr=("127.0.0.2", 0))
        slow.write(request()[:-1])
        for _ in range(40):
            _, writer = await asyncio.open_connection("127.0.0.1", port)
            stack.callback(writer.close)
            writer.write(request()[:50])
        await until(lambda: 0 < len(server.server_state.connections) <= 11)
        slow.write(request()[-1:])
        _, body = await response(reader)
        assert b'"result":3' in body
        slow.close()


@both_ways
async def test_a_long_running_call_is_not_a_pending_request(is_plain: bool) -> None:
    started = asyncio.Event()
    async with served(is_plain=is_plain, started=started, limits=QUICK) as (port, server):
        _, writer = await asyncio.open_connection("127.0.0.1", port)
        writer.write(request() + request()[:50])  # half of the next one came already
        await asyncio.wait_for(started.wait(), 60)
        await asyncio.sleep(1.2)  # longer than any deadline, and the pause between two looks at them
        assert len(server.server_state.tasks) == 1
        writer.close()


@both_ways
async def test_a_body_that_takes_longer_than_the_headers_may_is_taken(is_plain: bool) -> None:
    limits = Limits(header_timeout_ms=100, body_timeout_ms=20_000)
    body = call(1, 2) + b" " * 100_000
    async with served(is_plain=is_plain, limits=limits) as (port, _):
        reader, writer = await asyncio.open_connection("127.0.0.1", port)
        whole = request(body=body)
        for start in range(0, len(whole), len(whole) // 4):
            writer.write(whole[start : start + len(whole) // 4])
            await writer.drain()
            await asyncio.sleep(0.3)
        _, answer = await response(reader)
        assert b'"result":3' in answer
        writer.close()


def ask_for(size: int) -> bytes:
    """A request whose response has at least `size` bytes."""
    body = call(1, 2).replace(b'"id":1', b'"id":"%b"' % (b"x" * size))
    return request(body=body)


async def not_reading(port: int, stack: AsyncExitStack, data: bytes, **more: Any) -> asyncio.StreamWriter:
    """A client that sends requests and reads nothing."""
    with socket.socket() as small:
        small.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
        small.setblocking(False)
        if "local_addr" in more:
            small.bind(more["local_addr"])
        await asyncio.get_running_loop().sock_connect(small, ("127.0.0.1", port))
        _, writer = await asyncio.open_connection(sock=small.dup())
    writer.transport.pause_reading()  # type: ignore[attr-defined]  # sockets have it
    stack.callback(writer.close)
    writer.write(data)
    return writer


def unread(server: uvicorn.Server) -> int:
    """How many bytes wait for clients that do not read."""
    connections: Any = server.server_state.connections
    return sum(one.transport.get_write_buffer_size() for one in connections)


@both_ways
async def test_responses_that_clients_do_not_read_are_bounded_in_bytes(is_plain: bool) -> None:
    limits = Limits(max_unread_bytes=10_000_000)
    async with served(is_plain=is_plain, limits=limits) as (port, server), AsyncExitStack() as stack:
        reader, slow = await asyncio.open_connection("127.0.0.1", port, local_addr=("127.0.0.2", 0), limit=1024)
        slow.transport.pause_reading()  # type: ignore[attr-defined]  # sockets have it
        slow.write(ask_for(4_000_000))
        for _ in range(12):
            await not_reading(port, stack, ask_for(4_000_000))
        await until(lambda: server.server_state.total_requests >= 13)
        assert unread(server) <= 14_000_000
        assert await is_served(port)
        slow.transport.resume_reading()  # type: ignore[attr-defined]
        head = await reader.readuntil(b"\r\n\r\n")
        assert head.startswith(b"HTTP/1.1 200")
        assert len(await reader.readexactly(4_000_000)) == 4_000_000
        slow.close()


@both_ways
async def test_a_client_that_reads_nothing_is_disconnected_after_a_while(is_plain: bool) -> None:
    limits = Limits(read_timeout_ms=300)
    async with served(is_plain=is_plain, limits=limits) as (port, server), AsyncExitStack() as stack:
        await not_reading(port, stack, ask_for(4_000_000))
        await until(lambda: unread(server) > 1_000_000)
        await until(lambda: not server.server_state.connections)
