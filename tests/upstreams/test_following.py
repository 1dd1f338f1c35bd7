"""Change streams of servers are reopened when they end, as long as there is a session."""

from __future__ import annotations

import asyncio
import json
from typing import Any

from tests.protocol.conftest import asynchronous
from tests.upstreams.conftest import answering, response, until
from tests.upstreams.pools import Asgi, listening
from waypost import Hub
from waypost.config.models import Connection, McpConnection
from waypost.upstreams.client import Client
from waypost.upstreams.http import HttpTransport
from waypost.upstreams.jsonrpc import Reply
from waypost.upstreams.pool import Upstreams
from waypost.upstreams.upstream import Limits, Listener, follow_changes

CHANGED = "notifications/tools/list_changed"
OPENED = "notifications/subscriptions/acknowledged"


class RecordingListener(Listener):
    """A listener that records notifications."""

    wants_changes = True

    def __init__(self) -> None:
        self.methods: list[str] = []

    def on_notification(self, name: str, note: Reply) -> None:
        self.methods.append(note["method"])


class Cutting:
    """A proxy app whose streams can be cancelled."""

    def __init__(self, app: Asgi) -> None:
        self._app = app
        self.streams: list[asyncio.Task[None]] = []

    async def __call__(self, scope: Any, receive: Any, send: Any) -> None:
        if dict(scope.get("headers", ())).get(b"mcp-method") != b"subscriptions/listen":
            await self._app(scope, receive, send)
            return
        stream = asyncio.ensure_future(self._app(scope, receive, send))
        self.streams.append(stream)
        await asyncio.wait({stream})
        if stream.cancelled():
            await send({"type": "http.response.body", "body": b""})


@asynchronous
async def test_a_stream_that_ends_is_reopened_and_missed_changes_are_reported() -> None:
    hub = Hub("inner", version="1")
    cutting, ear = Cutting(hub.asgi()), RecordingListener()
    async with listening(cutting) as url:
        connections: dict[str, Connection] = {"up": McpConnection(url=url)}
        pool = Upstreams(connections, Limits(first_pause=0.01))
        pool.listener = ear
        await pool.list_tools("up")
        for number in range(1, 4):
            await until(lambda: ear.methods.count(OPENED) == number)  # noqa: B023  # evaluated within this iteration
            cutting.streams[-1].cancel()
        await until(lambda: ear.methods.count(CHANGED) == 3)
        hub.tool(name="new")(lambda: "news")
        await until(lambda: ear.methods.count(CHANGED) == 4)
        await pool.stop()
    assert len(cutting.streams) == 4


@asynchronous
async def test_a_server_without_change_streams_is_asked_once() -> None:
    async def refuse(body: bytes, writer: asyncio.StreamWriter) -> None:
        error = {"code": -32601, "message": "Method not found"}
        writer.write(response(json.dumps({"jsonrpc": "2.0", "id": json.loads(body)["id"], "error": error}).encode()))
        await writer.drain()

    async with answering(refuse) as url:
        link = HttpTransport(url)
        client = Client(link)
        await link.open(client.receive)
        await follow_changes(client, link, lambda: None, 0.01, 0.01)
        await client.close()
