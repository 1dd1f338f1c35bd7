import asyncio
import gc
from typing import Any

import pytest

from tests.protocol.conftest import Json, assorted_hub, asynchronous, cancelled, idle, request, stateless, until
from tests.transports.http.conftest import EVENTS, Call, browsing
from waypost import Context, Hub
from waypost.transports.http import endpoint
from waypost.wire.params import LOG_LEVEL, LOG_LEVELS
from waypost.wire.versions import LEGACY, V2025_11_25


class Staged:
    """A hub whose tool logs, waits, logs again, and returns."""

    def __init__(self) -> None:
        self.hub = Hub("staged", version="1")
        self.entered = asyncio.Event()
        self.release = asyncio.Event()
        self.ended: list[str] = []

        @self.hub.tool
        async def stage(close: bool, ctx: Context) -> str:
            """Say one, wait, say two."""
            try:
                await ctx.log("error", "one")
                self.entered.set()
                if close:
                    await ctx.close_stream()
                await self.release.wait()
                await ctx.log("error", "two")
            except asyncio.CancelledError:
                self.ended.append("cancelled")
                raise
            self.ended.append("answered")
            return "done"

        @self.hub.tool
        async def silent() -> str:
            """Wait without a word."""
            self.entered.set()
            try:
                await self.release.wait()
            except asyncio.CancelledError:
                self.ended.append("cancelled")
                raise
            self.ended.append("answered")
            return "done"


def stage(*, close: bool = False) -> Json:
    return {"name": "stage", "arguments": {"close": close}}


SILENT: Json = {"name": "silent", "arguments": {}}


def said(call: Call) -> list[Any]:
    return [
        message["params"]["data"] if "method" in message else message["result"]["content"][0]["text"]
        for message in call.messages()
    ]


@asynchronous
async def test_a_response_without_earlier_messages_is_json() -> None:
    async with browsing(assorted_hub()) as web:
        visitor = await web.session()
        for call in (await visitor.post(request(1, "tools/list")), await web.modern("tools/list")):
            assert call.status == 200
            assert call.headers["content-type"] == "application/json"


@pytest.mark.parametrize("modern", [False, True])
@asynchronous
async def test_a_message_before_the_response_makes_it_a_stream(modern: bool) -> None:
    params = {"name": "chatter", "arguments": {"levels": ["error", "alert"]}}
    async with browsing(assorted_hub()) as web:
        if modern:
            call = await web.open_modern(stateless("r", "tools/call", params, **{LOG_LEVEL: "error"})).done()
        else:
            call = await (await web.session()).post(request("r", "tools/call", params))
        assert call.status == 200
        assert call.headers["content-type"] == EVENTS
        assert call.headers["cache-control"] == "no-cache, no-transform"
        assert call.headers["x-accel-buffering"] == "no"
        assert said(call) == ["at error", "at alert", "said"]
        assert call.messages()[-1]["id"] == "r"
        assert [message for message in call.messages() if "id" in message] == [call.messages()[-1]]


@asynchronous
async def test_a_stateless_stream_has_neither_ids_nor_retries() -> None:
    params = {"name": "count", "arguments": {"values": [0, 50, 100]}}
    async with browsing(assorted_hub()) as web:
        call = await web.open_modern(stateless(1, "tools/call", params, progressToken=7)).done()
        assert [event.event for event in call.events()] == ["message"] * 4
        assert all(event.id is None and event.retry is None for event in call.events())
        assert [message["params"]["progress"] for message in call.messages()[:-1]] == [0, 50, 100]


@pytest.mark.parametrize("level", [None, *LOG_LEVELS])
@asynchronous
async def test_a_stateless_request_decides_the_log_level_of_its_stream(level: str | None) -> None:
    params = {"name": "chatter", "arguments": {"levels": LOG_LEVELS}}
    meta = {} if level is None else {LOG_LEVEL: level}
    async with browsing(assorted_hub()) as web:
        call = await web.open_modern(stateless(1, "tools/call", params, **meta)).done()
        logged_levels = tuple(message["params"]["level"] for message in call.messages()[:-1])
        assert logged_levels == (() if level is None else LOG_LEVELS[LOG_LEVELS.index(level) :])
        assert call.is_stream == (level is not None)


@pytest.mark.parametrize("version", LEGACY)
@asynchronous
async def test_streams_of_a_session_have_event_ids_and_in_the_newest_version_a_retry_time(version: str) -> None:
    params = {"name": "chatter", "arguments": {"levels": ["error"]}}
    async with browsing(assorted_hub()) as web:
        visitor = await web.session(version)
        events = (await visitor.post(request(1, "tools/call", params))).events()
        primed = version == V2025_11_25
        assert len(events) == 2 + primed
        if primed:
            assert events[0].data == ""
            assert events[0].id
            assert int(events[0].retry or "") > 0
        assert len({event.id for event in events}) == len(events)
        assert all(event.id for event in events)


@asynchronous
async def test_a_call_of_a_session_stays_on_its_own_stream() -> None:
    params = {"name": "chatter", "arguments": {"levels": ["error"]}}
    async with browsing(assorted_hub()) as web:
        visitor = await web.session()
        general = await visitor.listen().started()
        first, second = visitor.open(request(1, "tools/call", params)), visitor.open(request(2, "tools/call", params))
        for number, call in ((1, first), (2, second)):
            assert [message.get("id") for message in (await call.done()).messages()] == [None, number]
        assert general.body == b""


@asynchronous
async def test_a_client_that_leaves_a_stateless_call_cancels_it() -> None:
    for name, params in (("silent", SILENT), ("stage", stage())):
        staged = Staged()
        async with browsing(staged.hub) as web:
            call = web.open_modern(stateless(1, "tools/call", params, **{LOG_LEVEL: "error"}))
            await staged.entered.wait()
            await call.disconnect()
            assert staged.ended == ["cancelled"], name


@asynchronous
async def test_a_client_that_leaves_a_call_of_its_session_does_not_cancel_it() -> None:
    for params in (SILENT, stage()):
        staged = Staged()
        async with browsing(staged.hub) as web:
            visitor = await web.session()
            call = visitor.open(request(1, "tools/call", params))
            await staged.entered.wait()
            call.leave()
            # Longer than the server takes to notice that a client is gone.
            await asyncio.wait([call.task], timeout=0.3)
            assert staged.ended == []
            staged.release.set()
            await call.task
            assert staged.ended == ["answered"]


@asynchronous
async def test_a_client_that_lost_its_stream_gets_the_rest_and_the_answer() -> None:
    staged = Staged()
    async with browsing(staged.hub) as web:
        visitor = await web.session()
        call = visitor.open(request("r", "tools/call", stage()))
        primed, first = await call.event(), await call.event()
        assert first.message["params"]["data"] == "one"
        call.leave()
        again = visitor.listen(first.id)
        await again.started()
        staged.release.set()
        await again.done()
        assert said(again) == ["two", "done"]
        assert again.messages()[-1]["id"] == "r"
        whole = await visitor.listen(primed.id).done()
        assert said(whole) == ["one", "two", "done"]
        assert said(await visitor.listen(first.id).done()) == ["two", "done"]


@asynchronous
async def test_an_answer_that_came_while_the_client_was_away_waits_for_it() -> None:
    staged = Staged()
    async with browsing(staged.hub) as web:
        visitor = await web.session()
        call = visitor.open(request("r", "tools/call", stage()))
        primed = await call.event()
        await staged.entered.wait()
        call.leave()
        staged.release.set()
        await call.task
        assert said(await visitor.listen(primed.id).done()) == ["one", "two", "done"]


@asynchronous
async def test_another_session_cannot_take_up_a_stream() -> None:
    staged = Staged()
    async with browsing(staged.hub) as web:
        visitor, other = await web.session(), await web.session()
        call = visitor.open(request("r", "tools/call", stage()))
        primed = await call.event()
        assert (await other.listen(primed.id).done()).status == 400
        staged.release.set()
        assert said(await call.done()) == ["one", "two", "done"]


@asynchronous
async def test_a_handler_may_close_the_stream_of_its_client_to_be_resumed() -> None:
    staged = Staged()
    async with browsing(staged.hub) as web:
        visitor = await web.session()
        call = visitor.open(request("r", "tools/call", stage(close=True)))
        await call.until(lambda: call.complete)
        last = call.events()[-1].id
        assert [message for message in call.messages() if "id" in message] == []
        staged.release.set()
        again = await visitor.listen(last).done()
        assert said(call) + said(again) == ["one", "two", "done"]
        await call.done()


@pytest.mark.parametrize("version", [version for version in LEGACY if version != V2025_11_25])
@asynchronous
async def test_streams_that_cannot_be_resumed_are_not_closed(version: str) -> None:
    staged = Staged()
    async with browsing(staged.hub) as web:
        visitor = await web.session(version)
        call = visitor.open(request("r", "tools/call", stage(close=True)))
        await staged.entered.wait()
        staged.release.set()
        assert said(await call.done()) == ["one", "two", "done"]


@asynchronous
async def test_streams_of_stateless_clients_are_not_closed() -> None:
    staged = Staged()
    async with browsing(staged.hub) as web:
        call = web.open_modern(stateless("r", "tools/call", stage(close=True), **{LOG_LEVEL: "error"}))
        await staged.entered.wait()
        staged.release.set()
        assert said(await call.done()) == ["one", "two", "done"]


@asynchronous
async def test_a_cancelled_call_of_a_session_ends_without_an_answer() -> None:
    for params in (SILENT, stage()):
        staged = Staged()
        async with browsing(staged.hub) as web:
            visitor = await web.session()
            call = visitor.open(request(1, "tools/call", params))
            await staged.entered.wait()
            assert (await visitor.post(cancelled(1))).status == 202
            await call.done()
            assert staged.ended == ["cancelled"]
            assert [message for message in call.messages() if "id" in message] == []


@asynchronous
async def test_another_session_cannot_cancel_a_call() -> None:
    staged = Staged()
    async with browsing(staged.hub) as web:
        visitor, other = await web.session(), await web.session()
        call = visitor.open(request(1, "tools/call", SILENT))
        await staged.entered.wait()
        assert (await other.post(cancelled(1))).status == 202
        staged.release.set()
        assert said(await call.done()) == ["done"]


@pytest.mark.parametrize("modern", [False, True])
@asynchronous
async def test_a_long_silence_becomes_a_stream_with_signs_of_life(
    modern: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(endpoint, "KEEP_ALIVE_S", 0.02)
    staged = Staged()
    async with browsing(staged.hub) as web:
        if modern:
            call = web.open_modern(stateless(1, "tools/call", SILENT))
        else:
            call = (await web.session()).open(request(1, "tools/call", SILENT))
        await until(lambda: call.body.count(b": keep-alive\n\n") >= 2)
        assert call.is_stream
        staged.release.set()
        assert said(await call.done()) == ["done"]
        assert [event.comment for event in call.events() if event.comment][:2] == ["keep-alive", "keep-alive"]


@asynchronous
async def test_an_idle_session_stream_shows_signs_of_life(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(endpoint, "KEEP_ALIVE_S", 0.02)
    async with browsing(assorted_hub()) as web:
        stream = (await web.session()).listen()
        await until(lambda: stream.body.count(b": keep-alive\n\n") >= 2)


@pytest.mark.parametrize("modern", [False, True])
@asynchronous
async def test_a_burst_of_messages_arrives_whole(modern: bool) -> None:
    hub = Hub("burst", version="1")

    @hub.tool
    async def burst(ctx: Context) -> str:
        """Say a lot at once."""
        for number in range(3000):
            await ctx.log("error", str(number))
        return "done"

    params: Json = {"name": "burst", "arguments": {}}
    async with browsing(hub) as web:
        if modern:
            call = await web.open_modern(stateless(1, "tools/call", params, **{LOG_LEVEL: "error"})).done()
        else:
            call = await (await web.session()).post(request(1, "tools/call", params))
        assert said(call) == [*(str(number) for number in range(3000)), "done"]


@pytest.mark.parametrize("spoke_before", [False, True])
@pytest.mark.parametrize("modern", [False, True])
@asynchronous
async def test_messages_after_the_response_are_dropped(modern: bool, spoke_before: bool) -> None:
    hub = Hub("late", version="1")
    answered = asyncio.Event()
    late: list[asyncio.Task[None]] = []
    trouble: list[dict[str, Any]] = []
    asyncio.get_running_loop().set_exception_handler(lambda _, context: trouble.append(context))

    @hub.tool
    async def leave_work(ctx: Context) -> str:
        """Answer first, talk later."""

        async def talk() -> None:
            await answered.wait()
            await ctx.log("error", "too late")

        if spoke_before:
            await ctx.log("error", "in time")
        late.append(asyncio.create_task(talk()))
        return "done"

    params: Json = {"name": "leave_work", "arguments": {}}
    async with browsing(hub) as web:
        if modern:
            call = await web.open_modern(stateless(1, "tools/call", params, **{LOG_LEVEL: "error"})).done()
        else:
            call = await (await web.session()).post(request(1, "tools/call", params))
        answered.set()
        await asyncio.gather(*late)
        late.clear()
        await idle()
        gc.collect()
        assert said(call) == (["in time"] if spoke_before else []) + ["done"]
        assert trouble == []
