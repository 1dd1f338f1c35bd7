"""Streams of another process: replay of stored events, and the end of unanswered requests."""

import asyncio
import time
from collections.abc import Coroutine
from pathlib import Path
from typing import Any

import pytest

from tests.protocol.conftest import Json, asynchronous, notification, request
from tests.transports.http.conftest import Visitor, browsing
from waypost import Context, Hub
from waypost.protocol.relay import Liveness
from waypost.protocol.streams import new_generation, replay, stream_name
from waypost.stores.sessions import StoredEvent
from waypost.stores.sqlite import SqliteDatabase
from waypost.stores.store import Store
from waypost.wire.messages import RequestId, decode, encode
from waypost.wire.versions import LATEST_LEGACY

HOLDER = "0123456789abcdef"
BEFORE, NOW = new_generation("s", HOLDER), new_generation("s", HOLDER)
LOST = {"code": -32603, "message": "The hub was stopped before this was answered."}
NEWS = notification("notifications/message", {"level": "error", "data": "news"})
ASKED: Json = {"jsonrpc": "2.0", "id": "hub-1", "method": "roots/list"}


class Shared(SqliteDatabase):
    """A database that reports to be shared with other hubs."""

    @property
    def is_shared(self) -> bool:
        return True


async def stored(name: str, *said: Json, database: SqliteDatabase | None = None) -> Store:
    """A store with the events of a stream."""
    store = Store(database or SqliteDatabase())
    later = time.time() + 60
    await store.events.append(
        [StoredEvent("s", name, number, later, encode(message).decode()) for number, message in enumerate(said, 1)]
    )
    return store


class Host:
    """A store, and work in the background."""

    def __init__(self, store: Store) -> None:
        self.store = store
        self._running: set[asyncio.Task[Any]] = set()

    def background(self, work: Coroutine[Any, Any, Any]) -> asyncio.Task[Any]:
        """Run a coroutine in the background."""
        task = asyncio.ensure_future(work)
        self._running.add(task)
        return task


async def left(store: Store, name: str, after: int) -> list[tuple[int, Any]] | None:
    """The numbered messages that a client gets after a given one."""
    host = Host(store)
    stream = await replay(host, Liveness(host), "s", NOW, name, after)
    if stream is None:
        return None
    return [(event.number, decode(event.message)) async for event in stream.follow(after) if event is not None]


@pytest.mark.parametrize("request_id", [7, -1, "r", "7", "é/?_-=", ""])
@asynchronous
async def test_a_request_of_an_ended_process_is_answered_with_an_error(request_id: RequestId) -> None:
    name = stream_name(BEFORE, 1, request_id)
    answer = {"jsonrpc": "2.0", "id": request_id, "error": LOST}
    store = await stored(name, NEWS, ASKED)
    assert await left(store, name, 0) == [(1, NEWS), (2, ASKED), (3, answer)]
    assert await left(store, name, 2) == [(3, answer)]
    assert await left(await stored(name), name, 0) == [(1, answer)]


@pytest.mark.parametrize("answer", [{"result": {}}, {"error": {"code": -1, "message": "no"}}])
@asynchronous
async def test_a_request_that_was_answered_keeps_its_answer(answer: Json) -> None:
    name = stream_name(BEFORE, 1, 7)
    response = {"jsonrpc": "2.0", "id": 7, **answer}
    store = await stored(name, NEWS, response)
    assert await left(store, name, 0) == [(1, NEWS), (2, response)]
    assert await left(store, name, 2) == []


@asynchronous
async def test_no_error_is_added_for_a_request_of_this_process() -> None:
    name = stream_name(NOW, 1, 7)
    assert await left(await stored(name, NEWS), name, 0) == [(1, NEWS)]


@asynchronous
async def test_a_request_that_another_hub_runs_is_answered_when_that_hub_answers() -> None:
    name, response = stream_name(BEFORE, 1, 7), {"jsonrpc": "2.0", "id": 7, "result": {}}
    store = await stored(name, NEWS, database=Shared())
    await store.tasks.keep_holder(HOLDER, time.time() + 60)
    reading = asyncio.ensure_future(left(store, name, 0))
    later = [StoredEvent("s", name, 2, time.time() + 60, encode(response).decode())]
    await store.events.append(later)
    assert await reading == [(1, NEWS), (2, response)]


@asynchronous
async def test_a_request_of_a_dead_hub_is_answered_with_an_error() -> None:
    name, answer = stream_name(BEFORE, 1, 7), {"jsonrpc": "2.0", "id": 7, "error": LOST}
    store = await stored(name, NEWS, database=Shared())
    assert await left(store, name, 0) == [(1, NEWS), (2, answer)]
    await store.tasks.keep_holder(HOLDER, time.time() + 0.5)
    assert await left(store, name, 1) == [(2, answer)]
    assert await left(await stored(name, database=Shared()), name, 1) == [(2, answer)]


@pytest.mark.parametrize("name", ["s{life}1", "s{life}1.", "s{life}1.%", "s{life}1.e30=", "s{life}1.x", "s1.Nw==", ""])
@asynchronous
async def test_an_unknown_stream_is_not_replayed(name: str) -> None:
    name = name.format(life=BEFORE)
    assert await left(await stored("other", NEWS), name, 0) is None


@asynchronous
async def test_a_stream_of_another_session_is_not_replayed() -> None:
    name = stream_name(new_generation("another", HOLDER), 1, 7)
    assert await left(await stored("other", NEWS), name, 0) is None


@pytest.mark.parametrize("request_id", [None, "r" * 100])
@asynchronous
async def test_a_stream_without_a_usable_request_id_ends_without_an_error(request_id: RequestId | None) -> None:
    name = stream_name(BEFORE, 1, request_id)
    assert len(name) < 40
    assert await left(await stored(name, NEWS), name, 0) == [(1, NEWS)]


@asynchronous
async def test_a_client_of_a_killed_hub_gets_the_error_from_the_next_hub(tmp_path: Path) -> None:
    def hub() -> Hub:
        made = Hub("hub", version="1", store=f"sqlite:///{tmp_path}/hub.db")

        @made.tool
        async def wait(ctx: Context) -> str:
            """Say so, and wait."""
            await ctx.log("error", "waiting")
            await asyncio.Event().wait()
            return "never"

        return made

    async with browsing(hub()) as web, browsing(hub()) as later:
        visitor = await web.session()
        call = visitor.open(request("r", "tools/call", {"name": "wait"}))
        await call.until(lambda: len(call.events()) > 0)
        primed = call.events()[0].id
        again = await Visitor(later, visitor.id, LATEST_LEGACY).listen(primed).done()
        assert again.messages()[-1] == {"jsonrpc": "2.0", "id": "r", "error": LOST}
