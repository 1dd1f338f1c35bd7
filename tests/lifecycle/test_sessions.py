"""Sessions: what is sent to one is handled in order, and each ends for a reason."""

from __future__ import annotations

import asyncio
import threading
from typing import Any

import pytest

from tests.lifecycle.hubs import expire, only_session, plain, talking
from tests.protocol.conftest import asynchronous, idle, until
from tests.transports.http.conftest import browsing
from waypost.capabilities.context import Session
from waypost.errors import CallError
from waypost.testing import connect
from waypost.wire.versions import LATEST_LEGACY


@asynchronous
async def test_a_session_handles_one_thing_at_a_time_in_the_order_it_was_sent() -> None:
    hub = plain()
    steps: list[str] = []
    gate = asyncio.Event()

    async def take(what: str) -> str:
        steps.append(f"begin {what}")
        await gate.wait()
        await asyncio.sleep(0)
        steps.append(f"end {what}")
        return what

    @hub.on("event")
    async def on_event(event: str, session: Session) -> None:
        await take(event)

    @hub.on("call")
    async def on_call(asked: str, session: Session) -> str:
        return await take(asked)

    @hub.on("cast")
    async def on_cast(asked: str, session: Session) -> None:
        await take(asked)

    async with talking(hub):
        session_id = only_session(hub).id
        tasks = [asyncio.create_task(hub.send(session_id, "event"))]
        await idle()
        tasks.append(asyncio.create_task(hub.call(session_id, "call")))
        await idle()
        await hub.cast(session_id, "cast")
        await idle()
        assert steps == ["begin event"]
        gate.set()
        assert await asyncio.gather(*tasks) == [None, "call"]
        await until(lambda: len(steps) == 6)
    expected = ("event", "call", "cast")
    assert steps == [f"{edge} {what}" for what in expected for edge in ("begin", "end")]


@asynchronous
async def test_sessions_do_not_wait_for_each_other() -> None:
    hub = plain()
    gate = asyncio.Event()

    @hub.on("call")
    async def on_call(asked: str, session: Session) -> str:
        if asked == "wait":
            await gate.wait()
        return asked

    async with talking(hub), connect(hub, LATEST_LEGACY):
        first, second = [session.id for session in hub.engine.sessions]
        waiting = asyncio.create_task(hub.call(first, "wait"))
        await idle()
        assert await hub.call(second, "go") == "go"
        assert not waiting.done()
        gate.set()
        assert await waiting == "wait"


@asynchronous
async def test_a_crash_in_a_session_hook_reaches_only_its_caller() -> None:
    hub = plain()
    seen: list[Any] = []

    @hub.on("call")
    async def on_call(asked: Any, session: Session) -> Any:
        if asked == "crash":
            raise RuntimeError("broken")
        return asked

    @hub.on("event")
    def on_event(event: Any, session: Session) -> None:
        seen.append(event)

    async with talking(hub) as client:
        session_id = only_session(hub).id
        with pytest.raises(RuntimeError, match="broken"):
            await hub.call(session_id, "crash")
        assert await hub.call(session_id, "fine") == "fine"
        await hub.send(session_id, "event")
        assert seen == ["event"]
        await client.ping()


@asynchronous
async def test_a_crash_in_a_cast_does_not_affect_the_session() -> None:
    hub = plain()
    casts: list[Any] = []

    @hub.on("cast")
    async def on_cast(asked: Any, session: Session) -> None:
        casts.append(asked)
        if asked == "crash":
            raise RuntimeError("broken")

    async with talking(hub) as client:
        session_id = only_session(hub).id
        await hub.cast(session_id, "crash")
        await hub.cast(session_id, "fine")
        await until(lambda: casts == ["crash", "fine"])
        await client.ping()


@asynchronous
async def test_without_hooks_sending_to_a_session_does_nothing() -> None:
    hub = plain()
    async with talking(hub):
        session_id = only_session(hub).id
        await hub.send(session_id, "event")
        await hub.cast(session_id, "cast")
        assert await hub.call(session_id, "call") is None


@pytest.mark.parametrize("way", ["send", "call", "cast"])
def test_sending_to_a_session_that_does_not_exist_says_so(way: str) -> None:
    @asynchronous
    async def run() -> None:
        hub = plain()
        async with talking(hub):
            with pytest.raises(CallError, match="nobody"):
                await getattr(hub, way)("nobody", 1)

    run()


@asynchronous
async def test_sessions_can_be_reached_from_another_thread() -> None:
    hub = plain()
    home = threading.get_ident()
    threads: list[int] = []

    @hub.on("call")
    async def on_call(asked: Any, session: Session) -> Any:
        threads.append(threading.get_ident())
        return asked * 2

    @hub.on("event")
    async def on_event(event: Any, session: Session) -> None:
        threads.append(threading.get_ident())

    @hub.on("cast")
    async def on_cast(asked: Any, session: Session) -> None:
        threads.append(threading.get_ident())

    async def outside(session_id: str) -> Any:
        await hub.send(session_id, 1)
        await hub.cast(session_id, 1)
        return await hub.call(session_id, 21)

    async with talking(hub):
        session_id = only_session(hub).id
        assert await asyncio.to_thread(lambda: asyncio.run(outside(session_id))) == 42
    assert threads == [home] * 3


@asynchronous
async def test_a_session_ends_for_a_reason() -> None:
    hub = plain()
    reasons: list[tuple[str, str]] = []

    @hub.on("terminate")
    async def on_terminate(reason: str, session: Session) -> None:
        reasons.append((session.id, reason))

    async with browsing(hub) as web:
        closed, expired, kept = [await web.session() for _ in range(3)]
        assert (await closed.delete()).status == 204
        expire(hub, expired.id)
        await until(lambda: len(reasons) == 2)
    assert reasons == [(closed.id, "closed"), (expired.id, "expired"), (kept.id, "shutdown")]


@asynchronous
async def test_a_crash_in_terminate_does_not_keep_the_hub_from_stopping() -> None:
    hub = plain()

    @hub.on("terminate")
    async def on_terminate(reason: str, session: Session) -> None:
        raise RuntimeError("broken")

    async with talking(hub) as client:
        await client.ping()
    assert len(hub.engine.sessions) == 0
