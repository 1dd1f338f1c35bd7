"""The official client, whose requests go to two replicas strictly in turn."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from itertools import cycle
from typing import Any

import mcp_types as types
import pytest
import uvicorn
from mcp import Client

from tests.interop.official import text_of
from tests.nats import nats_url as nats_url
from tests.postgres import postgres_server as postgres_server
from tests.postgres import postgres_url as postgres_url
from tests.protocol.replica_pair import Pair, running_pair
from tests.protocol.replica_pair import settings as settings
from waypost.settings import Settings
from waypost.transports.http.server import listen

pytestmark = pytest.mark.anyio


@asynccontextmanager
async def served_in_turn(pair: Pair) -> AsyncIterator[str]:
    """The address of a balancer that alternates between the two hubs."""
    turns = cycle([pair.a.web.app, pair.b.web.app])

    async def balance(scope: Any, receive: Any, send: Any) -> None:
        await next(turns)(scope, receive, send)

    socket = listen("127.0.0.1", 0)
    socket.listen()
    server = uvicorn.Server(uvicorn.Config(balance, lifespan="off", log_config=None, timeout_graceful_shutdown=1))
    serving = asyncio.create_task(server._serve([socket]))
    try:
        async with asyncio.timeout(30):
            yield f"http://127.0.0.1:{socket.getsockname()[1]}/mcp"
    finally:
        server.should_exit = True
        await serving
        socket.close()


async def test_a_client_works_with_alternating_replicas(postgres_url: str, settings: Settings) -> None:
    async def accept(context: Any, params: types.ElicitRequestParams) -> types.ElicitResult:
        return types.ElicitResult(action="accept", content={"name": "Ada"})

    async with (
        running_pair(postgres_url, settings) as pair,
        served_in_turn(pair) as url,
        Client(url, mode="legacy", elicitation_callback=accept) as client,
    ):
        for _ in range(6):
            assert text_of(await client.call_tool("greet")) == "Hello, Ada!"
