"""Calls that send much to clients that do not read: the memory and rows for them are bounded in bytes."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

import pytest

from tests.protocol.conftest import asynchronous, request, until
from tests.transports.http.conftest import Visitor, browsing
from tests.transports.http.guarded import KEYS, READER, WRITER, sign_in
from waypost import Context, Hub
from waypost.identity import Authentication
from waypost.stores.database import Query

pytestmark = pytest.mark.usefixtures("no_stalls")
KIB = 1024
PER_SESSION = 400 * KIB
TOTAL = 1000 * KIB
RESULT = 100 * KIB


def wordy(**options: Any) -> Hub:
    """A hub whose tools return and log large texts."""
    limits = {
        "max_stream_bytes": 200 * KIB,
        "max_session_stream_bytes": PER_SESSION,
        "max_total_stream_bytes": TOTAL,
    }
    hub = Hub("wordy", version="1", auth=Authentication(KEYS), **{**limits, **options})
    hub.go = asyncio.Event()  # type: ignore[attr-defined]  # only here

    @hub.tool
    async def large(ctx: Context) -> str:
        await ctx.log("error", "begun")
        await hub.go.wait()  # type: ignore[attr-defined]
        return "r" * RESULT

    @hub.tool
    async def chatty(ctx: Context) -> str:
        await ctx.log("error", "begun")
        await hub.go.wait()  # type: ignore[attr-defined]
        for _ in range(20):
            await ctx.log("error", "m" * 50 * KIB)
        return "done"

    return hub


def held(hub: Hub) -> int:
    """How many bytes the streams of all sessions hold in memory."""
    streams = [stream for session in hub.engine.sessions for stream in session.streams._streams.values()]
    return sum(len(event.message) for stream in streams for event in stream._events)


async def abandon(visitor: Visitor, tool: str, request_id: int) -> str:
    """Call a tool and leave when it has begun; returns the last event that was read."""
    call = visitor.open(request(request_id, "tools/call", {"name": tool, "arguments": {}}))
    assert (await call.event()).data == ""
    begun = await call.event()
    call.leave()
    assert begun.id is not None
    return begun.id


async def over(hub: Hub) -> None:
    """Wait until all calls have ended."""
    hub.go.set()  # type: ignore[attr-defined]  # see above
    await until(lambda: not any(session.running for session in hub.engine.sessions))


@pytest.mark.parametrize("tool", ["large", "chatty"])
@asynchronous
async def test_the_memory_of_abandoned_calls_is_bounded(tool: str) -> None:
    hub = wordy()
    async with browsing(hub) as web:
        for _ in range(6):
            greedy = await sign_in(web, READER)
            for number in range(10):
                await abandon(greedy, tool, number)
        await over(hub)
        assert max(session.streams.size for session in hub.engine.sessions) <= PER_SESSION + RESULT
        assert held(hub) == sum(session.streams.size for session in hub.engine.sessions)
        assert held(hub) == hub.engine.sessions.stream_memory.total <= TOTAL + RESULT
        for session in tuple(hub.engine.sessions):
            hub.engine.sessions.close(session, "closed")
        assert hub.engine.sessions.stream_memory.total == 0


@asynchronous
async def test_responses_that_end_together_do_not_wait_for_clients_that_have_left(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    hub = wordy()
    async with browsing(hub) as web:
        greedy = await sign_in(web, READER)
        for number in range(20):
            await abandon(greedy, "large", number)
        await until(lambda: not any(session.streams.has_reader for session in hub.engine.sessions))
        memory, peak = hub.engine.sessions.stream_memory, 0

        def resize(*given: Any) -> None:
            nonlocal peak
            type(memory).resize(memory, *given)
            peak = max(peak, memory.total)

        monkeypatch.setattr(memory, "resize", resize)  # to see how much is held between two turns of the loop
        await over(hub)
        assert peak <= PER_SESSION + 2 * RESULT


@asynchronous
async def test_other_tasks_run_between_unread_messages() -> None:
    hub = wordy()
    turns, used = 0, []

    @hub.tool
    async def hasty(ctx: Context) -> str:
        await ctx.log("error", "begun")
        await hub.go.wait()  # type: ignore[attr-defined]  # see above
        before = turns
        for _ in range(50):
            await ctx.log("error", "m")
        used.append(turns - before)
        return "done"

    async with browsing(hub) as web:
        await abandon(await sign_in(web, READER), "hasty", 1)
        hub.go.set()  # type: ignore[attr-defined]  # see above
        while not used:
            turns += 1
            await asyncio.sleep(0)
    assert used[0] >= 49


@asynchronous
async def test_abandoned_calls_of_one_key_take_no_memory_from_another() -> None:
    hub = wordy()
    async with browsing(hub) as web:
        careful = await sign_in(web, WRITER)
        last = await abandon(careful, "large", 1)
        for _ in range(6):
            greedy = await sign_in(web, READER)
            lasts = [await abandon(greedy, "large", number) for number in range(10)]
        await over(hub)
        resumed = await careful.listen(last).done()
        assert resumed.messages()[-1]["result"]["content"][0]["text"] == "r" * RESULT
        dropped = (await greedy.listen(lasts[0]).done()).messages()[-1]
        assert dropped["id"] == 0
        assert "maxSessionStreamBytes" in dropped["error"]["message"]
        newest = (await greedy.listen(lasts[-1]).done()).messages()[-1]
        assert len(newest["result"]["content"][0]["text"]) == RESULT


@pytest.mark.parametrize("tool", ["large", "chatty"])
@asynchronous
async def test_the_stored_events_of_abandoned_calls_are_bounded(tool: str, tmp_path: Path) -> None:
    hub = wordy(data_dir=tmp_path)
    async with browsing(hub) as web:
        careful = await sign_in(web, WRITER)
        await abandon(careful, "large", 1)
        for _ in range(6):
            greedy = await sign_in(web, READER)
            for number in range(10):
                await abandon(greedy, tool, number)
        await over(hub)
        recorder = hub.engine.sessions._recorder
        assert recorder._waiting_bytes <= TOTAL + RESULT
        await until(lambda: not recorder._is_writing)
        rows = await hub.core.store.database.read(
            Query("SELECT session, SUM(LENGTH(message)) FROM events GROUP BY session")
        )
        sizes = {row[0]: row[1] for row in rows}
        assert max(sizes.values()) <= PER_SESSION + RESULT
        assert recorder.total == sum(sizes.values()) <= TOTAL + RESULT
        assert sizes[careful.id] > RESULT
        assert held(hub) <= TOTAL + RESULT


@asynchronous
async def test_a_reader_that_keeps_up_gets_every_message() -> None:
    hub = wordy()
    hub.go.set()  # type: ignore[attr-defined]  # see above
    async with browsing(hub) as web:
        visitor = await sign_in(web, READER)
        call = await visitor.post(request(1, "tools/call", {"name": "chatty", "arguments": {}}))
        logs = [message for message in call.messages() if message.get("method") == "notifications/message"]
        assert len(logs) == 21
        assert call.messages()[-1]["result"]["content"][0]["text"] == "done"


@asynchronous
async def test_a_long_id_does_not_keep_a_response_longer() -> None:
    hub = wordy()
    async with browsing(hub) as web:
        greedy = await sign_in(web, READER)
        for number in range(20):
            call = greedy.open(request(f"{number}{'x' * 100}", "tools/call", {"name": "large", "arguments": {}}))
            await call.event()
            await call.event()
            call.leave()
        await over(hub)
        assert held(hub) <= PER_SESSION + RESULT
