"""Limits over real connections: idle ones, sessions of one key among those of others, and streams that are not read."""

from __future__ import annotations

import asyncio
import json
import logging
import socket
from collections import deque
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import aiohttp
import pytest
import uvicorn

from tests.protocol.conftest import Json, initialization, request, until
from tests.transports.http.conftest import BOTH, EVENTS
from tests.transports.http.guarded import KEYS, READER, WRITER, bearer
from tests.transports.http.test_connection import both_ways, call
from tests.transports.http.test_connection import request as raw_request
from waypost import Context, Hub
from waypost.identity import Authentication
from waypost.transports.http.server import listen, make_config

pytestmark = [pytest.mark.anyio, pytest.mark.usefixtures("no_stalls")]
KIB = 1024


@asynccontextmanager
async def listening(hub: Hub, *, is_plain: bool = False) -> AsyncIterator[int]:
    """Serve a hub on a port of its own."""
    listener = listen("127.0.0.1", 0)
    listener.listen()
    server = uvicorn.Server(make_config(hub.asgi(), hub.settings.limits, is_plain=is_plain, timeout_keep_alive=60))
    serving = asyncio.create_task(server._serve([listener]))
    try:
        async with asyncio.timeout(30):
            yield listener.getsockname()[1]
    finally:
        server.should_exit = True
        await serving
        listener.close()


async def exchange(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> bytes:
    """Send one request and read its response; the connection stays open."""
    writer.write(raw_request())
    head = await reader.readuntil(b"\r\n\r\n")
    length = next(int(line.split(b":")[1]) for line in head.splitlines() if line.lower().startswith(b"content-length"))
    return head + await reader.readexactly(length)


def adding(**limits: Any) -> Hub:
    hub = Hub("adding", version="1", **limits)

    @hub.tool
    async def add(a: float, b: float) -> float:
        """Add."""
        return a + b

    return hub


@both_ways
async def test_of_too_many_idle_connections_the_oldest_is_closed(is_plain: bool) -> None:
    async with listening(adding(max_idle_connections=3), is_plain=is_plain) as port:
        connections = [await asyncio.open_connection("127.0.0.1", port) for _ in range(4)]
        for connection in connections[:3]:
            assert b"200 OK" in await exchange(*connection)
        assert b"200 OK" in await exchange(*connections[0])  # which is the youngest now

        assert b"200 OK" in await exchange(*connections[3])

        assert await connections[1][0].read() == b""
        for place in (0, 2, 3):
            assert b"200 OK" in await exchange(*connections[place])
        for _, writer in connections:
            writer.close()


class Person:
    """A client with a key and connections of its own."""

    def __init__(self, port: int, key: str) -> None:
        self.url = f"http://127.0.0.1:{port}/mcp"
        self.headers = {**bearer(key), "accept": BOTH, "content-type": "application/json"}
        self.http = aiohttp.ClientSession(
            connector=aiohttp.TCPConnector(limit=0), timeout=aiohttp.ClientTimeout(total=20), headers=self.headers
        )

    async def open_session(self) -> tuple[int, str]:
        async with self.http.post(self.url, data=json.dumps(initialization())) as response:
            return response.status, response.headers.get("mcp-session-id", "")

    async def ask(self, session: str, message: Json) -> int:
        async with self.http.post(self.url, data=json.dumps(message), headers={"mcp-session-id": session}) as response:
            await response.read()
            return response.status


@both_ways
async def test_sessions_of_one_key_make_room_for_those_of_another_over_sockets(is_plain: bool) -> None:
    hub = Hub("shared", version="1", auth=Authentication(KEYS), max_sessions=40)
    async with listening(hub, is_plain=is_plain) as port:
        greedy, other = Person(port, READER), Person(port, WRITER)
        async with greedy.http, other.http:
            opened = await asyncio.gather(*(greedy.open_session() for _ in range(60)))
            assert sorted(status for status, _ in opened) == [200] * 40 + [503] * 20
            found = [await other.open_session() for _ in range(20)]
            assert [status for status, _ in found] == [200] * 20
            assert [await other.ask(session, request(1, "ping")) for _, session in found] == [200] * 20
            assert (await greedy.open_session())[0] == 503
            assert len(hub.engine.sessions) == 40


@both_ways
async def test_the_memory_for_clients_that_do_not_read_is_bounded_over_sockets(is_plain: bool) -> None:
    total = 1_000 * KIB
    hub = Hub(
        "wordy",
        version="1",
        auth=Authentication(KEYS),
        max_stream_bytes=200 * KIB,
        max_session_stream_bytes=400 * KIB,
        max_total_stream_bytes=total,
    )

    @hub.tool
    async def large(ctx: Context) -> str:
        """Log, then return much."""
        await ctx.log("error", "begun")
        await gone.wait()
        return "r" * 100 * KIB

    gone = asyncio.Event()
    async with listening(hub, is_plain=is_plain) as port:
        greedy, other = Person(port, READER), Person(port, WRITER)
        async with greedy.http, other.http:
            for _ in range(5):
                _, session = await greedy.open_session()
                for number in range(10):
                    message = request(number, "tools/call", {"name": "large", "arguments": {}})
                    headers = {"mcp-session-id": session}
                    response = await greedy.http.post(greedy.url, data=json.dumps(message), headers=headers)
                    await response.content.readuntil(b"begun")
                    response.close()
            gone.set()
            await until(lambda: not any(session.running for session in hub.engine.sessions))
            memory = hub.engine.sessions.stream_memory
            assert 0 < memory.total <= total + 100 * KIB
            assert max(session.streams.size for session in hub.engine.sessions) <= 500 * KIB

            _, mine = await other.open_session()
            message = request(1, "tools/call", {"name": "large", "arguments": {}})
            headers = {"mcp-session-id": mine}
            async with other.http.post(other.url, data=json.dumps(message), headers=headers) as answer:
                assert b"r" * 100 * KIB in await answer.read()


async def test_each_request_is_one_line_of_the_log_where_the_setting_says_so(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO, "waypost.requests")
    hub = Hub("logged", version="1", auth=Authentication(KEYS, anonymous=False), request_log=True)
    async with listening(hub) as port:
        person = Person(port, READER)
        async with person.http:
            _, session = await person.open_session()
            await person.ask(session, request(1, "tools/list"))
            await person.ask(session, request(1, "no\nsuch method"))
            async with person.http.get(f"http://127.0.0.1:{port}/a%0Ab", headers={"authorization": "Bearer x"}) as gone:
                await gone.read()
            headers = {"mcp-session-id": session, "accept": EVENTS}
            async with person.http.get(person.url, headers=headers) as stream:
                assert stream.status == 200
    lines = [record.getMessage() for record in caplog.records if record.name == "waypost.requests"]
    words = [[*line.split(" ")[:-3], line.split(" ")[-1]] for line in lines]
    assert words[:2] == [
        ["POST", "/mcp", "initialize", "200", "reader"],
        ["POST", "/mcp", "tools/list", "200", "reader"],
    ]
    assert "'no\\nsuch method'" in lines[2]
    assert words[3] == ["GET", "/a%0Ab", "-", "404", "-"]
    assert words[4] == ["GET", "/mcp", "-", "200", "reader"]
    assert all("\n" not in line for line in lines)


async def test_without_the_setting_no_request_is_logged(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.DEBUG, "waypost.requests")
    async with listening(adding()) as port:
        reader, writer = await asyncio.open_connection("127.0.0.1", port)
        assert b"200 OK" in await exchange(reader, writer)
        writer.close()
    assert not [record for record in caplog.records if record.name == "waypost.requests"]


def with_results(size: int, begin: Any, **limits: Any) -> Hub:
    """A hub whose tool `add` returns a large text, and calls a function before."""
    hub = Hub("large", version="1", auth=Authentication(KEYS), **limits)

    @hub.tool
    async def add(a: float, b: float) -> str:
        """Add."""
        begin()
        return "r" * (size if a else 1)

    return hub


def asking(credential: str, a: int = 1) -> bytes:
    return raw_request(f"Authorization: Bearer {credential}", body=call(a, 2))


async def test_large_results_of_one_principal_are_made_in_turns() -> None:
    turn, made = 0, list[int]()

    def count() -> None:
        nonlocal turn
        turn += 1
        counting.append(asyncio.get_running_loop().call_soon(count))

    counting: deque[asyncio.Handle] = deque(maxlen=1)
    hub = with_results(KIB * KIB, lambda: made.append(turn))
    async with listening(hub) as port:
        clients = [await asyncio.open_connection("127.0.0.1", port, limit=16 * KIB * KIB) for _ in range(10)]
        count()
        for _, writer in clients:
            writer.write(asking(WRITER))
        for reader, writer in clients:
            assert (await reader.readuntil(b"\r\n\r\n")).startswith(b"HTTP/1.1 200")
            writer.close()
        counting[0].cancel()
    assert len(made) == 10
    assert sorted(set(made)) == made  # each in a turn of its own


async def test_a_principal_that_reads_nothing_waits_with_its_next_request_and_others_do_not() -> None:
    made: list[None] = []
    hub = with_results(8_000_000, lambda: made.append(None), max_unread_bytes=8 * KIB * KIB)
    async with listening(hub) as port:
        greedy = []
        for _ in range(5):
            client = socket.create_connection(("127.0.0.1", port))
            client.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4 * KIB)
            client.sendall(asking(WRITER))
            greedy.append(client)
        await until(lambda: made)
        reader, writer = await asyncio.open_connection("127.0.0.1", port)
        for number in range(1, 4):
            writer.write(asking(READER, 0))
            assert (await reader.readuntil(b"}}}}")).startswith(b"HTTP/1.1 200")
            assert len(made) == 1 + number
        for client in greedy:
            client.close()
        writer.close()
