import asyncio
from collections.abc import Coroutine
from contextlib import aclosing
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.protocol.conftest import asynchronous, idle, until
from waypost.loops import start_task
from waypost.protocol.streams import MAX_EVENTS, EventStream, Recorder
from waypost.settings import Limits
from waypost.stores.store import Store
from waypost.stores.urls import create_database


def number(value: int) -> bytes:
    return str(value).encode()


class Reader:
    """Follows a stream and records its events."""

    def __init__(self, stream: EventStream, after: int = 0, heartbeat: float | None = None) -> None:
        self.got: list[int] = []
        self.beats = 0
        self.may_go_on = asyncio.Event()
        self.may_go_on.set()
        self._stream = stream
        self._heartbeat = heartbeat
        self.task = asyncio.create_task(self._read(after))

    async def _read(self, after: int) -> None:
        async for event in self._stream.follow(after, self._heartbeat):
            if event is None:
                self.beats += 1
                continue
            assert event.message == number(event.number)
            self.got.append(event.number)
            await self.may_go_on.wait()


def filled(count: int, kept: int = MAX_EVENTS) -> EventStream:
    stream = EventStream("s", kept)
    for value in range(1, count + 1):
        stream.append(number(value))
    return stream


@asynchronous
async def test_a_reader_gets_stored_events_and_then_new_ones() -> None:
    stream = filled(2)
    reader = Reader(stream)
    await idle()
    stream.append(number(3))
    await idle()
    assert reader.got == [1, 2, 3]
    assert stream.has_reader
    stream.close()
    await reader.task
    assert not stream.has_reader


@pytest.mark.parametrize("after", range(6))
@asynchronous
async def test_a_returning_reader_gets_only_the_events_it_missed(after: int) -> None:
    stream = filled(5)
    stream.close()
    reader = Reader(stream, after)
    await reader.task
    assert reader.got == list(range(after + 1, 6))


@asynchronous
async def test_a_closed_stream_accepts_no_more_events() -> None:
    stream = filled(1)
    stream.close()
    stream.append(number(2))
    reader = Reader(stream)
    await reader.task
    assert reader.got == [1]


@asynchronous
async def test_a_reader_gets_the_remaining_events_of_a_closed_stream() -> None:
    stream = EventStream("s")
    reader = Reader(stream)
    await idle()
    for value in (1, 2, 3):
        stream.append(number(value))
    stream.close()
    await reader.task
    assert reader.got == [1, 2, 3]
    assert stream.delivered == 3


@asynchronous
async def test_a_later_reader_takes_over_and_the_former_gets_nothing_more() -> None:
    stream = filled(3)
    former = Reader(stream)
    await idle()
    later = Reader(stream, after=1)
    later.may_go_on.clear()
    await idle()
    assert former.task.done()
    assert former.got == [1, 2, 3]
    later.may_go_on.set()
    stream.append(number(4))
    await idle()
    assert former.got == [1, 2, 3]
    assert later.got == [2, 3, 4]
    stream.close()
    await later.task


@asynchronous
async def test_an_event_that_arrives_with_a_takeover_goes_to_one_reader() -> None:
    stream = EventStream("s")
    former = Reader(stream)
    await idle()
    later = Reader(stream)
    later.may_go_on.clear()
    stream.append(number(1))
    await idle()
    assert former.got + later.got == [1]
    later.may_go_on.set()
    stream.close()
    await later.task


@asynchronous
async def test_a_released_reader_ends_and_may_come_back() -> None:
    stream = filled(2)
    reader = Reader(stream)
    await idle()
    stream.release()
    await reader.task
    assert not stream.has_reader
    stream.append(number(3))
    again = Reader(stream, after=reader.got[-1])
    await idle()
    assert again.got == [3]
    stream.close()
    await again.task


@asynchronous
async def test_a_reader_that_stops_early_is_removed() -> None:
    stream = filled(3)
    async with aclosing(stream.follow(0)) as events:  # type: ignore[type-var]  # it is a generator
        async for _ in events:
            break
    assert not stream.has_reader


@asynchronous
async def test_heartbeats_are_sent_without_events_and_lose_no_event() -> None:
    stream = EventStream("s")
    reader = Reader(stream, heartbeat=0.001)
    await until(lambda: reader.beats >= 3)
    stream.append(number(1))
    await until(lambda: reader.got)
    stream.close()
    await reader.task
    assert reader.got == [1]


@asynchronous
async def test_without_a_reader_the_oldest_events_are_dropped() -> None:
    stream = filled(10, kept=4)
    stream.close()
    reader = Reader(stream)
    await reader.task
    assert reader.got == [7, 8, 9, 10]


@asynchronous
async def test_a_reader_that_falls_behind_by_a_full_log_is_removed() -> None:
    stream = EventStream("s", max_events=4)
    reader = Reader(stream)
    reader.may_go_on.clear()
    await idle()
    for value in range(1, 20):
        stream.append(number(value))
        await idle()
    assert not stream.has_reader
    reader.may_go_on.set()
    await reader.task
    assert reader.got == [1]


@asynchronous
async def test_a_sender_waits_for_a_slow_reader_and_continues_when_it_catches_up() -> None:
    stream = EventStream("s")
    reader = Reader(stream)
    reader.may_go_on.clear()
    await idle()
    sent = 0

    async def send() -> None:
        nonlocal sent
        for value in range(1, 901):
            await stream.send(number(value))
            sent = value

    sender = asyncio.create_task(send())
    await idle()
    assert 1 <= sent < 900
    reader.may_go_on.set()
    await sender
    stream.close()
    await reader.task
    assert reader.got == list(range(1, 901))


@asynchronous
async def test_a_waiting_sender_continues_when_the_reader_leaves() -> None:
    stream = EventStream("s")
    reader = Reader(stream)
    reader.may_go_on.clear()
    await idle()

    async def send() -> None:
        for value in range(1, 901):
            await stream.send(number(value))

    sender = asyncio.create_task(send())
    await idle()
    assert not sender.done()
    stream.release()
    await sender
    reader.may_go_on.set()
    await reader.task


ACTIONS = st.lists(
    st.one_of(
        st.tuples(st.just("append"), st.integers(1, 5)),
        st.tuples(st.just("follow"), st.just(0)),
        st.tuples(st.just("leave"), st.just(0)),
        st.tuples(st.just("release"), st.just(0)),
        st.tuples(st.just("turn"), st.integers(1, 4)),
    ),
    max_size=40,
)


class Visits:
    """Successive readers of one stream, each of which continues where the last one stopped."""

    def __init__(self) -> None:
        self.stream = EventStream("s")
        self.seen: list[int] = []
        self.appended = 0
        self.readers: list[asyncio.Task[None]] = []

    async def follow(self) -> None:
        async for event in self.stream.follow(self.seen[-1] if self.seen else 0):
            if event is not None:
                self.seen.append(event.number)
                await asyncio.sleep(0)

    async def play(self, action: str, count: int) -> None:
        match action:
            case "append":
                for _ in range(count):
                    self.appended += 1
                    self.stream.append(number(self.appended))
            case "follow":
                self.readers.append(asyncio.create_task(self.follow()))
            case "leave" if self.readers:
                self.readers[-1].cancel()
            case "release":
                self.stream.release()
            case "turn":
                for _ in range(count):
                    await asyncio.sleep(0)

    async def finish(self) -> None:
        self.stream.close()
        await idle()
        await asyncio.gather(*self.readers, return_exceptions=True)
        await self.follow()


@settings(max_examples=300, deadline=None)
@given(ACTIONS)
def test_successive_readers_see_every_event_once_and_in_order(actions: list[tuple[str, int]]) -> None:
    @asynchronous
    async def scenario() -> None:
        visits = Visits()
        for action, count in actions:
            await visits.play(action, count)
        await visits.finish()
        assert visits.seen == list(range(1, visits.appended + 1))

    scenario()


@asynchronous
async def test_a_replaced_reader_cannot_release_its_successor() -> None:
    stream, first, second = EventStream("g"), object(), object()
    early = stream.follow(0, None, first)
    stream.append(b"one")
    assert (await anext(early)) is not None
    late = stream.follow(1, None, second)
    stream.append(b"two")
    heard = await anext(late)
    assert heard is not None
    assert heard.message == b"two"
    stream.release(first)
    assert stream.has_reader
    stream.release(second)
    assert not stream.has_reader


class RecordingHost:
    """What a recorder needs of the engine: a store, and tasks in the background."""

    def __init__(self, store: Store) -> None:
        self.store = store
        self.tasks: set[asyncio.Task[Any]] = set()

    def background(self, work: Coroutine[Any, Any, Any]) -> asyncio.Task[Any]:
        return start_task(work, self.tasks)


@asynchronous
async def test_a_stream_over_its_limit_is_recorded_from_there_on_where_a_session_has_no_other(tmp_path: Path) -> None:
    store = Store(create_database(f"sqlite:///{tmp_path / 'hub.db'}", tmp_path, 5.0))
    await store.open()
    host = RecordingHost(store)
    recorder = Recorder(host, 60.0, Limits(max_stream_bytes=100, max_total_stream_bytes=500))
    record = recorder.for_session("session")
    assert record is not None
    for value in range(1, 41):
        record("stream", value, b"x" * 60)
    await until(lambda: not host.tasks)

    assert [event[0] for event in await store.events.after("session", "stream", 0, limit=100)][-1:] == [40]
    assert recorder.total <= 500
    recorder.forget("session")
    assert recorder.total == 0
    await store.close()
