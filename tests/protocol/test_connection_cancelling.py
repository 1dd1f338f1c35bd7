"""A cancelled request is stopped and never answered."""

import asyncio

import pytest

from tests.protocol.conftest import (
    Json,
    asynchronous,
    cancelled,
    idle,
    in_session,
    notification,
    request,
    stateless,
    until,
)
from tests.protocol.waiting import Waiting, call
from waypost import Hub


@pytest.mark.parametrize("modern", [False, True])
@asynchronous
async def test_a_cancelled_request_stops_and_is_never_answered(modern: bool) -> None:
    waiting = Waiting()
    make = stateless if modern else request
    async with in_session(waiting.hub) as peer:
        peer.send(make(1, "tools/call", call("wait")))
        await until(lambda: waiting.entered)
        peer.send(cancelled(1))
        await until(lambda: waiting.stopped)
        assert "result" in await peer.ask(make(2, "tools/call", call("quick")))
        assert [message["id"] for message in peer.responses()[1:]] == [2]


@pytest.mark.parametrize("modern", [False, True])
@asynchronous
async def test_a_cancellation_right_after_its_request_is_effective(modern: bool) -> None:
    waiting = Waiting()
    make = stateless if modern else request
    async with in_session(waiting.hub) as peer:
        peer.send(make(1, "tools/call", call("wait")))
        peer.send(cancelled(1))
        waiting.release.set()
        await peer.ask(make(2, "tools/call", call("quick")))
        await idle()
        assert [message["id"] for message in peer.responses()[1:]] == [2]


@pytest.mark.parametrize("modern", [False, True])
@asynchronous
async def test_of_several_requests_with_one_id_the_latest_that_still_runs_is_cancelled(modern: bool) -> None:
    hub = Hub("twins", version="1")
    running: list[int] = []

    @hub.tool
    async def wait(number: int) -> str:
        """Wait for ever."""
        running.append(number)
        try:
            await asyncio.Event().wait()
        finally:
            running.remove(number)
        return "never"

    make = stateless if modern else request
    async with in_session(hub) as peer:
        for number in (1, 2, 3):
            peer.send(make(1, "tools/call", {"name": "wait", "arguments": {"number": number}}))
        await until(lambda: len(running) == 3)
        for left in range(2, -1, -1):
            peer.send(cancelled(1))
            await until(lambda left=left: len(running) == left)  # type: ignore[misc]  # mypy infers no type of `left`
            assert running == [1, 2][:left]


@pytest.mark.parametrize("modern", [False, True])
@asynchronous
async def test_a_handler_that_outlives_its_cancellation_is_still_not_answered(modern: bool) -> None:
    hub = Hub("stubborn", version="1")
    entered = asyncio.Event()
    ended = asyncio.Event()

    @hub.tool
    async def stubborn() -> str:
        """Answer anyway."""
        entered.set()
        try:
            await asyncio.Event().wait()
        except asyncio.CancelledError:
            ended.set()
        return "here I am"

    make = stateless if modern else request
    async with in_session(hub) as peer:
        peer.send(make(1, "tools/call", call("stubborn")))
        await entered.wait()
        peer.send(cancelled(1))
        await ended.wait()
        await peer.ask(make(2, "tools/list"))
        assert [message["id"] for message in peer.responses()[1:]] == [2]


@pytest.mark.parametrize("modern", [False, True])
@asynchronous
async def test_a_handler_that_fails_when_cancelled_is_not_answered_either(modern: bool) -> None:
    hub = Hub("failing", version="1")
    entered = asyncio.Event()

    @hub.resource("a://x")
    async def fail() -> str:
        """Fail at the end."""
        entered.set()
        try:
            await asyncio.Event().wait()
        except asyncio.CancelledError:
            raise ValueError("could not clean up") from None
        return "never"

    make = stateless if modern else request
    async with in_session(hub) as peer:
        peer.send(make(1, "resources/read", {"uri": "a://x"}))
        await entered.wait()
        peer.send(cancelled(1))
        await idle()
        await peer.ask(make(2, "resources/list"))
        assert [message["id"] for message in peer.responses()[1:]] == [2]


@pytest.mark.parametrize("modern", [False, True])
@pytest.mark.parametrize(
    "params",
    [{"requestId": 99}, {"requestId": "1"}, {"requestId": None}, {"requestId": 1.5}, {"reason": "bored"}, {}, None],
)
@asynchronous
async def test_cancelling_an_unknown_request_has_no_effect(params: Json | None, modern: bool) -> None:
    waiting = Waiting()
    make = stateless if modern else request
    async with in_session(waiting.hub) as peer:
        peer.send(make(1, "tools/call", call("wait")))
        await until(lambda: waiting.entered)
        peer.send(notification("notifications/cancelled", params))
        waiting.release.set()
        assert "result" in await peer.response(1)
        peer.send(cancelled(1))
        assert "result" in await peer.ask(make(2, "tools/call", call("quick")))
