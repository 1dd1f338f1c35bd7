"""A thousand concurrent calls through several servers leave nothing behind."""

from __future__ import annotations

import asyncio
import gc
from collections.abc import Awaitable, Callable
from pathlib import Path

import psutil  # type: ignore[import-untyped]
import pytest

from tests.gateway.importers import imports_of, write
from tests.interop.behind import everything, python
from tests.interop.sdk_upstream import server
from tests.upstreams.conftest import until
from tests.upstreams.pools import listening
from waypost import Hub
from waypost.testing import TestClient, connect

pytestmark = pytest.mark.timeout(300)

CALLS = 1000
AT_ONCE = 32
WITHIN = 90.0
OWN = psutil.Process()


def held() -> tuple[int, int]:
    """The number of children and of open descriptors, including sockets, of this process."""
    return len(OWN.children(recursive=True)), OWN.num_fds()


async def in_turn(work: Callable[[int], Awaitable[None]]) -> None:
    """Make all calls with limited concurrency."""
    numbers = iter(range(CALLS))

    async def some() -> None:
        for number in numbers:
            await work(number)

    await asyncio.gather(*(some() for _ in range(AT_ONCE)))


async def spread(client: TestClient, number: int) -> None:
    """One call to one of the servers."""
    kind = number % 4
    if kind == 3:
        answer = await client.call_tool("every.echo", {"message": str(number)})
        assert answer.text == f"Echo: {number}"
        return
    name = ("sdk", "fast", "far")[kind]
    answer = await client.call_tool(f"{name}.add", {"a": number, "b": 1})
    assert answer.text == str(number + 1)


def test_a_thousand_calls_leave_no_process_no_socket_and_no_task(tmp_path: Path) -> None:
    programs = {"sdk": python("sdk_upstream"), "fast": python("fastmcp_upstream"), "every": everything()}

    async def through_a_hub(url: str) -> None:
        connections = {**programs, "far": {"kind": "mcp", "url": url}}
        hub = Hub.from_config(write(tmp_path, connections, [{"connection": name} for name in connections]))
        try:
            async with connect(hub) as client:
                await imports_of(hub).wait_until_listed()
                assert len(OWN.children()) >= len(programs)
                await in_turn(lambda number: spread(client, number))
        finally:
            await hub.stop()

    async def scenario() -> None:
        async with asyncio.timeout(WITHIN), listening(server.streamable_http_app()) as url:
            tasks, before = asyncio.all_tasks(), held()
            await through_a_hub(url)
            # The server in this process has to notice the end of its connections as well.
            await until(lambda: asyncio.all_tasks() <= tasks)
            gc.collect()
            await until(lambda: all(now <= then for now, then in zip(held(), before, strict=True)))

    asyncio.run(scenario())
