"""The balancer sends a request to another replica only where it never began."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable
from contextlib import AsyncExitStack, asynccontextmanager
from typing import Final

import aiohttp
import pytest

from tests.chaos.balancer import Balancer, balancing
from tests.contract.conftest import asynchronous
from tests.ports import free_port

HEALTHY: Final = b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\nConnection: close\r\n\r\nok"
DRAINING: Final = b"HTTP/1.1 503 Service Unavailable\r\nRetry-After: 1\r\nContent-Length: 0\r\n\r\n"
FAILED: Final = b"HTTP/1.1 503 Service Unavailable\r\nContent-Length: 0\r\nConnection: close\r\n\r\n"
LOST: Final = b""
"""A replica that reads the request and ends the connection."""


@asynccontextmanager
async def replicas(*answers: bytes) -> AsyncIterator[tuple[Balancer, list[int]]]:
    """A balancer before replicas with these answers, and the indexes of the replicas asked, in order."""
    asked: list[int] = []

    def serve(place: int) -> Callable[[asyncio.StreamReader, asyncio.StreamWriter], asyncio.Task[None]]:
        async def answer(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
            head = await reader.readuntil(b"\r\n\r\n")
            if head.startswith(b"POST"):
                asked.append(place)
            writer.write(answers[place] if head.startswith(b"POST") else HEALTHY)
            writer.close()

        return lambda reader, writer: asyncio.ensure_future(answer(reader, writer))

    async with AsyncExitStack() as stack:
        balancer = await stack.enter_async_context(balancing())
        for place in range(len(answers)):
            server = await asyncio.start_server(serve(place), "127.0.0.1", 0)
            stack.callback(server.close)
            balancer.add(f"{place}", f"http://127.0.0.1:{server.sockets[0].getsockname()[1]}")
        yield balancer, asked


async def post(url: str) -> int:
    """The status of an answer."""
    async with aiohttp.request("POST", url, data=b"{}") as response:
        return response.status


@asynchronous
async def test_requests_go_to_all_replicas_in_turn() -> None:
    async with replicas(HEALTHY, HEALTHY, HEALTHY) as (balancer, asked):
        assert [await post(balancer.url) for _ in range(6)] == [200] * 6
        assert asked[:3] == asked[3:]
        assert sorted(asked[:3]) == [0, 1, 2]


@asynchronous
async def test_a_request_refused_by_a_draining_replica_goes_to_the_next() -> None:
    async with replicas(DRAINING, HEALTHY) as (balancer, asked):
        assert [await post(balancer.url) for _ in range(2)] == [200, 200]
        assert sorted(asked) == [0, 1, 1]


@asynchronous
async def test_a_request_that_no_replica_takes_is_refused() -> None:
    async with replicas(DRAINING) as (balancer, asked):
        balancer.add("gone", f"http://127.0.0.1:{free_port()}")
        assert await post(balancer.url) == 503
        assert asked == [0]


@asynchronous
async def test_a_request_that_may_have_begun_is_not_sent_again() -> None:
    async with replicas(LOST, LOST) as (balancer, asked):
        with pytest.raises(aiohttp.ClientError):
            await post(balancer.url)
        assert len(asked) == 1
    async with replicas(FAILED, FAILED) as (balancer, asked):
        assert await post(balancer.url) == 503
        assert len(asked) == 1
