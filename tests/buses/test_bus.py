"""The contract of the bus, over every adapter: publishing, refusals, closing."""

from __future__ import annotations

import asyncio
import logging

import pytest

from tests.buses.conftest import DEADLINE, OpenBus, Recorder, echo, on_bus
from waypost.buses import Bus
from waypost.buses.bus import MAX_MESSAGE_BYTES, MAX_WAITING_MESSAGES
from waypost.errors import NoHolder, WaypostError

NO_SUBJECTS = ["", ".", "a.", ".a", "a..b", "a b", "a.\tb", "a\n", "a.\x00", "a.\x1f", "é .x"]
NO_PATTERNS = [*NO_SUBJECTS, ">.a", "a.>.b", "a*", "*a", "a.b>", ">>", "**"]
WILD = ["*", ">", "a.*", "a.>", "*.a"]


# Publishing


@on_bus
async def test_each_subscriber_gets_every_message_once_and_in_order(bus: Bus) -> None:
    first, second = Recorder(), Recorder()
    await bus.subscribe("news.today", first)
    await bus.subscribe("news.today", second)
    sent = [("news.today", str(number).encode()) for number in range(100)]
    for subject, message in sent:
        await bus.publish(subject, message)
    assert await first.have(100) == sent
    assert await second.have(100) == sent


@on_bus
async def test_a_message_that_arrives_as_the_backlog_is_emptied_is_delivered(bus: Bus) -> None:
    for turns in range(6):
        recorder = Recorder()
        await bus.subscribe("news", recorder)
        await bus.publish("news", b"first")
        for _ in range(turns):
            await asyncio.sleep(0)
        await bus.publish("news", b"second")
        await recorder.have(2)


@on_bus
async def test_a_late_subscriber_gets_only_later_messages(bus: Bus) -> None:
    await bus.publish("news", b"before")
    recorder = Recorder()
    await bus.subscribe("news", recorder)
    await bus.publish("news", b"after")
    assert await recorder.have(1) == [("news", b"after")]


@on_bus
async def test_a_subscriber_gets_no_messages_of_other_subjects(bus: Bus) -> None:
    recorder = Recorder()
    await bus.subscribe("a.b", recorder)
    for other in ("a", "a.b.c", "b.a", "A.b", "a.c"):
        await bus.publish(other, b"not for you")
    await bus.publish("a.b", b"for you")
    assert await recorder.have(1) == [("a.b", b"for you")]


@on_bus
async def test_a_star_matches_one_word(bus: Bus) -> None:
    recorder = Recorder()
    await bus.subscribe("a.*.c", recorder)
    for subject in ("a.c", "a.b.b.c", "a.b.c", "a.x.c", "a.b.d"):
        await bus.publish(subject, b"")
    await bus.publish("a.end.c", b"")
    assert [subject for subject, _ in await recorder.have(3)] == ["a.b.c", "a.x.c", "a.end.c"]


@on_bus
async def test_an_angle_bracket_matches_one_or_more_words(bus: Bus) -> None:
    recorder = Recorder()
    await bus.subscribe("a.>", recorder)
    for subject in ("a", "b.a", "a.b", "a.b.c.d"):
        await bus.publish(subject, b"")
    await bus.publish("a.end", b"")
    assert [subject for subject, _ in await recorder.have(3)] == ["a.b", "a.b.c.d", "a.end"]


@on_bus
async def test_a_receiver_with_two_subscriptions_gets_a_message_twice(bus: Bus) -> None:
    recorder = Recorder()
    await bus.subscribe("a", recorder)
    await bus.subscribe("*", recorder)
    await bus.publish("a", b"x")
    assert await recorder.have(2) == [("a", b"x")] * 2


@on_bus
async def test_an_ended_subscription_gets_no_messages(bus: Bus) -> None:
    ended, goes_on = Recorder(), Recorder()
    subscription = await bus.subscribe("a", ended)
    await bus.subscribe("a", goes_on)
    await bus.publish("a", b"before")
    await ended.have(1)
    await subscription.end()
    await bus.publish("a", b"after")
    await goes_on.have(2)
    assert ended.received == [("a", b"before")]


@on_bus
async def test_ending_a_subscription_waits_for_messages_that_arrived(bus: Bus) -> None:
    go, dealt_with = asyncio.Event(), list[bytes]()

    async def slow(_subject: str, message: bytes) -> None:
        await go.wait()
        dealt_with.append(message)

    subscription = await bus.subscribe("a", slow)
    for message in (b"1", b"2"):
        await bus.publish("a", message)
    ending = asyncio.create_task(subscription.end())
    await asyncio.sleep(0)
    go.set()
    await ending
    assert dealt_with == [b"1", b"2"]


@on_bus
async def test_a_subscription_can_be_ended_twice(bus: Bus) -> None:
    for subscription in (
        await bus.subscribe("a", Recorder()),
        await bus.subscribe("*", Recorder()),
        await bus.serve("a", echo),
    ):
        await subscription.end()
        await subscription.end()


@on_bus
async def test_a_subscriber_may_end_its_own_subscription(bus: Bus) -> None:
    recorder = Recorder()

    async def once(subject: str, message: bytes) -> None:
        recorder(subject, message)
        await subscription.end()

    subscription = await bus.subscribe("a", once)
    await bus.publish("a", b"1")
    await recorder.have(1)
    await bus.publish("a", b"2")
    witness = Recorder()
    await bus.subscribe("b", witness)
    await bus.publish("b", b"")
    await witness.have(1)
    assert recorder.received == [("a", b"1")]


def test_a_slow_subscriber_loses_the_oldest_messages(open_bus: OpenBus, caplog: pytest.LogCaptureFixture) -> None:
    too_many, go = 10, asyncio.Event()

    async def scenario(bus: Bus) -> list[bytes]:
        dealt_with, last = list[bytes](), asyncio.Event()

        async def slow(_subject: str, message: bytes) -> None:
            await go.wait()
            dealt_with.append(message)
            if message == b"last":
                last.set()

        await bus.subscribe("a", slow)
        for number in range(MAX_WAITING_MESSAGES + too_many):
            await bus.publish("a", str(number).encode())
        await bus.publish("a", b"last")
        go.set()
        await last.wait()
        return dealt_with

    async def run() -> list[bytes]:
        async with asyncio.timeout(DEADLINE), open_bus() as bus:
            return await scenario(bus)

    with caplog.at_level(logging.WARNING, "waypost.buses"):
        dealt_with = asyncio.run(run())
    assert MAX_WAITING_MESSAGES <= len(dealt_with) <= MAX_WAITING_MESSAGES + 1
    assert dealt_with[-2:] == [str(MAX_WAITING_MESSAGES + too_many - 1).encode(), b"last"]
    assert any("loses some" in record.message for record in caplog.records)


def test_a_failing_subscriber_is_logged_and_gets_the_next_message(
    open_bus: OpenBus, caplog: pytest.LogCaptureFixture
) -> None:
    async def run() -> None:
        recorder = Recorder()

        def fails_at_first(subject: str, message: bytes) -> None:
            recorder(subject, message)
            if len(recorder.received) == 1:
                raise ValueError("not that one")

        async with asyncio.timeout(DEADLINE), open_bus() as bus:
            await bus.subscribe("a", fails_at_first)
            await bus.publish("a", b"1")
            await bus.publish("a", b"2")
            assert await recorder.have(2) == [("a", b"1"), ("a", b"2")]

    with caplog.at_level(logging.ERROR, "waypost.buses"):
        asyncio.run(run())
    (record,) = caplog.records
    assert record.exc_info is not None
    assert "not that one" in str(record.exc_info[1])


@on_bus
async def test_a_slow_subscriber_does_not_delay_others(bus: Bus) -> None:
    go, recorder = asyncio.Event(), Recorder()

    async def slow(_subject: str, _message: bytes) -> None:
        await go.wait()

    await bus.subscribe("a", slow)
    await bus.subscribe("a", recorder)
    for _ in range(10):
        await bus.publish("a", b"")
    await recorder.have(10)
    go.set()


# Refusals


@on_bus
async def test_the_largest_message_passes_and_a_larger_one_is_refused(bus: Bus) -> None:
    recorder = Recorder()
    await bus.subscribe("a", recorder)
    await bus.serve("a", echo)
    await bus.publish("a", b"x" * MAX_MESSAGE_BYTES)
    assert len((await recorder.have(1))[0][1]) == MAX_MESSAGE_BYTES
    with pytest.raises(WaypostError, match="too large"):
        await bus.publish("a", b"x" * (MAX_MESSAGE_BYTES + 1))
    with pytest.raises(WaypostError, match="too large"):
        await bus.request("a", b"x" * (MAX_MESSAGE_BYTES + 1), within=60)


@on_bus
async def test_a_response_that_is_too_large_fails_the_request(bus: Bus) -> None:
    async def talks(_question: bytes) -> bytes:
        return b"x" * (MAX_MESSAGE_BYTES + 1)

    await bus.serve("worker", talks)
    with pytest.raises(WaypostError, match="too large"):
        await bus.request("worker", b"", within=60)


@on_bus
async def test_an_invalid_subject_is_refused(bus: Bus) -> None:
    for subject in (*NO_SUBJECTS, *WILD, *NO_PATTERNS):
        with pytest.raises(WaypostError, match="is not a subject"):
            await bus.publish(subject, b"")
        with pytest.raises(WaypostError, match="is not a subject"):
            await bus.serve(subject, echo)
        with pytest.raises(WaypostError, match="is not a subject"):
            await bus.request(subject, b"", within=60)


@on_bus
async def test_an_invalid_pattern_is_refused(bus: Bus) -> None:
    for pattern in NO_PATTERNS:
        with pytest.raises(WaypostError, match="is not a subject"):
            await bus.subscribe(pattern, Recorder())


# Closing


def test_closing_a_bus_waits_for_running_subscribers_and_responders(open_bus: OpenBus) -> None:
    async def run() -> list[str]:
        go, began, done = asyncio.Event(), asyncio.Event(), list[str]()

        async def slow(_subject: str, _message: bytes) -> None:
            await go.wait()
            done.append("heard")

        async def answers(_question: bytes) -> bytes:
            began.set()
            await go.wait()
            done.append("answered")
            return b""

        async with open_bus() as bus:
            await bus.subscribe("a", slow)
            await bus.subscribe(">", slow)
            await bus.serve("b", answers)
            await bus.publish("a", b"")
            question = asyncio.create_task(bus.request("b", b"", within=60))
            await began.wait()
            closing = asyncio.create_task(bus.close())
            await asyncio.sleep(0)
            assert not closing.done()
            go.set()
            await closing
            assert await question == b""
            with pytest.raises(NoHolder):
                await bus.request("b", b"", within=60)
        return sorted(done)

    assert asyncio.run(run()) == ["answered", "heard", "heard"]
