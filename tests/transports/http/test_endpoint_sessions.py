"""Sessions: how they are opened, found, ended and kept apart."""

import asyncio
import time
from typing import Any

import pytest

from tests.protocol.conftest import assorted_hub, asynchronous, initialization, notification, request
from tests.transports.http.conftest import EVENTS, Headers, Web, browsing, code
from waypost import Context, Hub
from waypost.wire.versions import LEGACY


@pytest.mark.parametrize("version", LEGACY)
@asynchronous
async def test_initialize_opens_a_session_whose_id_is_visible_text(version: str) -> None:
    async with browsing(assorted_hub()) as web:
        call = await web.post(initialization(version))
        assert call.status == 200
        assert call.json["result"]["protocolVersion"] == version
        assert all(0x21 <= ord(character) <= 0x7E for character in call.headers["mcp-session-id"])


@asynchronous
async def test_a_refused_initialize_opens_no_session() -> None:
    async with browsing(assorted_hub()) as web:
        call = await web.post(request(1, "initialize", {}))
        assert call.status == 200
        assert code(call) == -32602
        assert "mcp-session-id" not in call.headers
        assert len(web.hub.engine.sessions) == 0


@pytest.mark.parametrize("method", ["tools/list", "no/such/method", "tools/call"])
@asynchronous
async def test_a_request_without_a_session_id_is_refused_as_not_initialized(method: str) -> None:
    async with browsing(assorted_hub()) as web:
        call = await web.post(request(5, method))
        assert call.status == 400
        assert call.json["error"] == {"code": -32600, "message": "Server not initialized"}
        assert call.json["id"] == 5


@asynchronous
async def test_ping_needs_no_session() -> None:
    async with browsing(assorted_hub()) as web:
        call = await web.post(request(1, "ping"))
        assert (call.status, call.json["result"]) == (200, {})


@asynchronous
async def test_everything_else_needs_a_session_id() -> None:
    async with browsing(assorted_hub()) as web:
        calls = [
            await web.post(notification("notifications/initialized")),
            await web.post({"jsonrpc": "2.0", "id": 1, "result": {}}),
            await web.post([request(1, "ping")]),
            await web.open("GET", headers={"accept": EVENTS}).done(),
            await web.open("DELETE").done(),
        ]
        assert [call.status for call in calls] == [400] * 5


async def everything_of(web: Web, session_id: str) -> list[int]:
    headers: Headers = {"mcp-session-id": session_id}
    calls = [
        await web.post(request(1, "tools/list"), headers),
        await web.post(request(1, "ping"), headers),
        await web.post(notification("notifications/initialized"), headers),
        await web.post({"jsonrpc": "2.0", "id": 1, "result": {}}, headers),
        await web.open("GET", headers={**headers, "accept": EVENTS}).done(),
        await web.open("DELETE", headers=headers).done(),
    ]
    return [call.status for call in calls]


@pytest.mark.parametrize("session_id", ["unknown", "", "A" * 5000, "ünï", "../../etc/passwd"])
@asynchronous
async def test_an_unknown_session_is_not_found(session_id: str) -> None:
    async with browsing(assorted_hub()) as web:
        assert await everything_of(web, session_id) == [404] * 6


@asynchronous
async def test_a_session_of_another_hub_is_not_found() -> None:
    async with browsing(assorted_hub()) as here, browsing(assorted_hub()) as there:
        visitor = await there.session()
        assert await everything_of(here, visitor.id) == [404] * 6
        assert (await visitor.ask("ping"))["result"] == {}


@asynchronous
async def test_a_deleted_session_is_not_found_any_more_and_its_streams_end() -> None:
    async with browsing(assorted_hub()) as web:
        visitor, other = await web.session(), await web.session()
        stream = visitor.listen()
        await stream.started()
        gone = await visitor.delete()
        assert 200 <= gone.status < 300
        await stream.done()
        assert await everything_of(web, visitor.id) == [404] * 6
        assert (await other.ask("tools/list"))["result"]["tools"]


def expire(hub: Hub) -> None:
    """Expire every session."""
    hub.engine.sessions._clock = lambda: time.monotonic() + 1801
    hub.engine.sessions.sweep()
    assert len(hub.engine.sessions) == 0
    hub.engine.sessions._clock = time.monotonic


@asynchronous
async def test_an_expired_session_comes_back_when_its_client_does() -> None:
    async with browsing(assorted_hub()) as web:
        visitor = await web.session()
        await visitor.ask("logging/setLevel", {"level": "alert"})
        expire(web.hub)
        chatter = {"name": "chatter", "arguments": {"levels": ["error", "emergency"]}}
        call = await visitor.post(request(1, "tools/call", chatter))
        assert [message["params"]["level"] for message in call.messages()[:-1]] == ["emergency"]


@asynchronous
async def test_an_expired_session_that_the_hub_refuses_is_not_found() -> None:
    hub = assorted_hub()

    @hub.on("session_expired")
    def refuse(session_id: str, session: Any) -> None:
        raise RuntimeError("too late")

    async with browsing(hub) as web:
        visitor = await web.session()
        expire(hub)
        assert await everything_of(web, visitor.id) == [404] * 6


@asynchronous
async def test_an_expired_session_that_finds_no_room_is_refused_and_nothing_breaks() -> None:
    async with browsing(assorted_hub(max_sessions=1)) as web:
        visitor = await web.session()
        expire(web.hub)
        other = await web.session()
        call = visitor.open(request(1, "tools/list"))
        await call.task
        assert call.status in (404, 503)
        assert call.json["error"]["message"]
        assert (await other.ask("ping"))["result"] == {}


@asynchronous
async def test_deleting_a_session_stops_its_calls() -> None:
    hub = Hub("hub", version="1")
    entered, stopped = asyncio.Event(), asyncio.Event()

    @hub.tool
    async def wait() -> str:
        """Wait."""
        entered.set()
        try:
            await asyncio.Event().wait()
        finally:
            stopped.set()
        return "never"

    async with browsing(hub) as web:
        visitor = await web.session()
        call = visitor.open(request(1, "tools/call", {"name": "wait"}))
        await entered.wait()
        await visitor.delete()
        await stopped.wait()
        (answer,) = (await call.done()).messages()
        assert (answer["id"], answer["error"]) == (1, {"code": -32603, "message": "Session terminating"})


@asynchronous
async def test_calls_of_a_deleted_session_are_answered_with_an_error_on_their_streams() -> None:
    hub = Hub("hub", version="1")

    @hub.tool
    async def wait(ctx: Context) -> str:
        """Say so, and wait."""
        await ctx.log("error", "waiting")
        await asyncio.Event().wait()
        return "never"

    async with browsing(hub) as web:
        visitor = await web.session()
        calls = [visitor.open(request(number, "tools/call", {"name": "wait"})) for number in (1, 2)]
        last = [[await call.event() for _ in range(2)][-1].id for call in calls]
        calls[0].leave()
        again = await visitor.listen(last[0]).started()
        await visitor.delete()
        for number, call in ((1, again), (2, calls[1])):
            answer = (await call.done()).messages()[-1]
            assert (answer["id"], answer["error"]["message"]) == (number, "Session terminating")


@asynchronous
async def test_the_session_limit_is_not_the_clients_mistake() -> None:
    async with browsing(assorted_hub(max_sessions=1)) as web:
        await web.session()
        call = web.open_post(initialization(request_id="mine"))
        await call.task
        assert call.status == 503
        assert call.json["id"] == "mine"
        assert "1 sessions" in call.json["error"]["message"]
        assert "mcp-session-id" not in call.headers


@asynchronous
async def test_sessions_do_not_see_each_other() -> None:
    hub = assorted_hub()

    @hub.tool
    async def remember(word: str, ctx: Context) -> str:
        """Remember a word."""
        before = ctx.session.assigns.get("word", "")
        await ctx.session.put("word", word)
        return str(before)

    async with browsing(hub) as web:
        first, second = await web.session(), await web.session()
        said = []
        for visitor, word in ((first, "a"), (second, "b"), (first, "c"), (second, "d")):
            answer = await visitor.ask("tools/call", {"name": "remember", "arguments": {"word": word}})
            said.append(answer["result"]["content"][0]["text"])
        assert said == ["", "", "a", "b"]
