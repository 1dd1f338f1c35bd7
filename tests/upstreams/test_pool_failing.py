"""Failing servers: their errors, and the recovery of sessions."""

from __future__ import annotations

import asyncio
import json
from pathlib import Path
from typing import Any

import pytest

from tests.upstreams.conftest import DEADLINE, answering, response, served, until
from tests.upstreams.pools import Asgi, Recorded, add, failure, listening, official_app, pooled
from tests.upstreams.programs import Rough
from waypost import Hub, RemoteError
from waypost.config.models import McpConnection
from waypost.upstreams.pool import Upstreams
from waypost.upstreams.transport import UpstreamUnavailable
from waypost.upstreams.upstream import Limits

# Failing


@pytest.mark.parametrize(
    ("tool", "message"),
    [
        ("refuse", 'The connection "up" answered: Not like this.'),
        ("nonsense", 'The connection "up" answered: The server\'s response is not MCP.'),
        ("ask", '"ask" of the connection "up" requested input that this client does not support.'),
    ],
)
def test_an_invalid_answer_is_a_remote_error_and_the_session_stays_open(
    tool: str, message: str, tmp_path: Path
) -> None:
    rough = Rough(tmp_path)

    async def scenario() -> None:
        async with pooled(rough.connection) as pool:
            with pytest.raises(RemoteError) as caught:
                await pool.call_tool("up", tool, {}, {})
            assert caught.value.message == message
            await pool.call_tool("up", "pid", {}, {})
            assert len(rough.numbers()) == 1

    asyncio.run(scenario())


def test_a_ping_of_the_server_is_answered(tmp_path: Path) -> None:
    async def scenario() -> None:
        async with pooled(Rough(tmp_path).connection) as pool:
            result = await pool.call_tool("up", "ping-me", {}, {})
            assert result["structuredContent"] == {"jsonrpc": "2.0", "id": "p", "result": {}}

    asyncio.run(scenario())


def test_malformed_notifications_do_not_disturb_a_session(tmp_path: Path) -> None:
    rough = Rough(tmp_path)

    async def scenario() -> None:
        async with pooled(rough.connection, call=30.0) as pool:
            assert await pool.call_tool("up", "malform", {}, {}) == {"content": [], "isError": False}
            await pool.call_tool("up", "pid", {}, {})
            assert len(rough.numbers()) == 1

    asyncio.run(scenario())


def test_a_crash_fails_running_calls_and_the_next_call_restarts_the_server(tmp_path: Path) -> None:
    rough = Rough(tmp_path)

    async def scenario() -> None:
        async with pooled(rough.connection) as pool:
            waiting = [asyncio.ensure_future(pool.call_tool("up", "wait", {}, {})) for _ in range(5)]
            await until(lambda: rough.methods().count("tools/call") == 5)
            with pytest.raises(UpstreamUnavailable, match='"up" ended with the exit code 3') as caught:
                await pool.call_tool("up", "crash", {}, {})
            assert caught.value.delivered
            assert {type(await failure(call)) for call in waiting} == {UpstreamUnavailable}
            await pool.call_tool("up", "pid", {}, {})
            assert len(rough.numbers()) == 2
            assert rough.methods().count("tools/call") == 7

    asyncio.run(scenario())


def test_a_call_that_takes_too_long_is_a_timeout_and_is_cancelled_at_the_server(tmp_path: Path) -> None:
    rough = Rough(tmp_path)

    async def scenario() -> None:
        async with pooled(rough.connection, call=0.5) as pool:
            with pytest.raises(TimeoutError, match=r'The connection "up" did not answer within 0.5 s'):
                await pool.call_tool("up", "wait", {}, {})
            await until(lambda: "notifications/cancelled" in rough.methods())
            await pool.call_tool("up", "pid", {}, {})

    asyncio.run(scenario())


def test_a_cancelled_call_is_cancelled_at_the_server(tmp_path: Path) -> None:
    rough = Rough(tmp_path)

    async def scenario() -> None:
        async with pooled(rough.connection) as pool:
            call = asyncio.ensure_future(pool.call_tool("up", "wait", {}, {}))
            await until(lambda: "tools/call" in rough.methods())
            call.cancel()
            await until(lambda: "notifications/cancelled" in rough.methods())
            assert call.cancelled()
            await pool.call_tool("up", "pid", {}, {})
            assert len(rough.numbers()) == 1

    asyncio.run(scenario())


@pytest.mark.parametrize("sessions_only", [False, True])
def test_a_cancelled_call_does_not_wait_for_a_server_over_http(sessions_only: bool) -> None:
    hub = Hub("slow", version="1")
    started, stopped = asyncio.Event(), asyncio.Event()

    @hub.tool
    async def wait() -> str:
        """Wait."""
        started.set()
        try:
            await asyncio.Event().wait()
        finally:
            stopped.set()
        return "never"

    async def scenario() -> None:
        app = Recorded(hub.asgi(), sessions_only=sessions_only)
        async with listening(app) as url, pooled(McpConnection(url=url)) as pool:
            call = asyncio.ensure_future(pool.call_tool("up", "wait", {}, {}))
            await started.wait()
            call.cancel()
            await stopped.wait()
            assert call.cancelled()

    asyncio.run(scenario())


def test_a_server_that_stops_reading_is_replaced_and_the_call_made_there(tmp_path: Path) -> None:
    rough = Rough(tmp_path)

    async def scenario() -> None:
        async with pooled(rough.connection) as pool:
            await pool.call_tool("up", "deafen", {}, {})
            first = rough.numbers()[0]
            patience = 1.0
            while True:
                try:
                    async with asyncio.timeout(patience):
                        result = await pool.call_tool("up", "pid", {}, {})
                    break
                except TimeoutError:
                    patience *= 2  # the next server may take longer to start
            assert result["structuredContent"]["pid"] != first

    asyncio.run(scenario())


# Recovering over HTTP


@pytest.mark.parametrize("status", [404, 400])
def test_a_session_that_expired_is_replaced_and_the_call_made_once(status: int) -> None:
    async def scenario() -> None:
        app = Recorded(official_app(), sessions_only=True)
        async with listening(app) as url, pooled(McpConnection(url=url)) as pool:
            assert await add(pool) == 3
            app.inner = Forgetful(app.inner, status)
            assert await asyncio.gather(*(add(pool, 1, number) for number in range(5))) == [1, 2, 3, 4, 5]

    asyncio.run(scenario())


class Forgetful:
    """A proxy app that forgets the existing sessions."""

    def __init__(self, app: Asgi, status: int) -> None:
        self._app = app
        self._status = status
        self._known: set[bytes] = set()

    async def __call__(self, scope: Any, receive: Any, send: Any) -> None:
        session = dict(scope["headers"]).get(b"mcp-session-id")

        async def sent(message: Any) -> None:
            self._known.update(value for name, value in message.get("headers", ()) if name == b"mcp-session-id")
            await send(message)

        if session is None or session in self._known:
            await self._app(scope, receive, sent)
            return
        await send({"type": "http.response.start", "status": self._status, "headers": []})
        await send({"type": "http.response.body", "body": b"Session not found"})


class Aged:
    """A proxy app that no longer supports the newest era."""

    def __init__(self, app: Asgi) -> None:
        self._app = app

    async def __call__(self, scope: Any, receive: Any, send: Any) -> None:
        if dict(scope["headers"]).get(b"mcp-protocol-version") != b"2026-07-28":
            await self._app(scope, receive, send)
            return
        asked = json.loads((await receive())["body"])["id"]
        error = {"code": -32022, "message": "Unsupported", "data": {"supported": ["2025-11-25"]}}
        body = json.dumps({"jsonrpc": "2.0", "id": asked, "error": error}).encode()
        await send({"type": "http.response.start", "status": 400, "headers": [(b"content-type", b"application/json")]})
        await send({"type": "http.response.body", "body": body})


def test_a_server_that_drops_the_newest_era_gets_a_session() -> None:
    async def scenario() -> None:
        app = Recorded(official_app())
        async with listening(app) as url, pooled(McpConnection(url=url)) as pool:
            assert await add(pool) == 3
            app.inner = Aged(app.inner)
            assert await add(pool) == 3
            assert app.versions[-1] == "2025-11-25"

    asyncio.run(scenario())


def test_an_address_with_a_key_is_not_shown() -> None:
    async def refuse(_body: bytes, writer: asyncio.StreamWriter) -> None:
        writer.write(response(b"no", status="403 Forbidden", kind="text/plain"))
        await writer.drain()

    async def scenario() -> None:
        async with answering(refuse) as url, pooled(McpConnection(url=f"{url}?key=hush")) as pool:
            with pytest.raises(RemoteError, match='"up" answered 403') as caught:
                await add(pool)
            assert "hush" not in caught.value.message

    asyncio.run(scenario())


def test_a_restarted_server_is_used_again() -> None:
    async def scenario() -> None:
        async with listening(official_app()) as url:
            pool = Upstreams({"up": McpConnection(url=url)}, Limits(first_pause=0.01, longest_pause=0.01))
            assert await add(pool) == 3
        with pytest.raises(UpstreamUnavailable, match='"up" cannot be reached'):
            await add(pool)
        async with listening(official_app(), int(url.split(":")[2].split("/")[0])):
            async with asyncio.timeout(DEADLINE):
                while True:
                    try:
                        assert await add(pool) == 3
                        break
                    except UpstreamUnavailable:
                        await asyncio.sleep(0)
            await pool.stop()

    asyncio.run(scenario())


def test_a_hub_over_http_is_called_in_the_newest_era() -> None:
    hub = Hub("inner", version="1")

    @hub.tool(name="add")
    def plus(a: int, b: int) -> int:
        """Add."""
        return a + b

    async def scenario() -> None:
        async with served(hub) as url, pooled(McpConnection(url=url)) as pool:
            assert await asyncio.gather(*(add(pool, 1, number) for number in range(50))) == list(range(1, 51))

    asyncio.run(scenario())
