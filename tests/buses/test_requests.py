"""The contract of the bus, over every adapter: requests to the holder of a name."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable

import pytest

from tests.buses.conftest import Recorder, echo, on_bus
from waypost.buses import Bus
from waypost.errors import DeadlineExceeded, NoHolder, RemoteError, ToolError


@on_bus
async def test_a_request_is_answered_by_the_holder_of_the_name(bus: Bus) -> None:
    await bus.serve("worker.1", echo)
    assert await bus.request("worker.1", b"hello", within=60) == b"hello"


@on_bus
async def test_a_request_to_a_name_without_a_holder_fails_at_once(bus: Bus) -> None:
    began = time.monotonic()
    with pytest.raises(NoHolder, match=r"worker\.1"):
        await bus.request("worker.1", b"", within=100)
    assert time.monotonic() - began < 80


@on_bus
async def test_a_name_has_no_holder_after_its_holder_ended(bus: Bus) -> None:
    held = await bus.serve("worker.1", echo)
    await held.end()
    with pytest.raises(NoHolder):
        await bus.request("worker.1", b"", within=60)


@on_bus
async def test_a_subscriber_of_a_name_is_not_its_holder(bus: Bus) -> None:
    recorder = Recorder()
    await bus.subscribe("worker.1", recorder)
    with pytest.raises(NoHolder):
        await bus.request("worker.1", b"", within=60)
    assert recorder.received == []


@on_bus
async def test_several_holders_share_the_requests(bus: Bus) -> None:
    def named(name: bytes) -> Callable[[bytes], object]:
        async def answers(_question: bytes) -> bytes:
            return name

        return answers

    for name in (b"a", b"b", b"c"):
        await bus.serve("worker", named(name))  # type: ignore[arg-type]  # an async function of bytes
    answers = [await bus.request("worker", b"", within=60) for _ in range(60)]
    assert set(answers) == {b"a", b"b", b"c"}


@on_bus
async def test_a_holder_answers_requests_concurrently(bus: Bus) -> None:
    all_waiting, waiting = asyncio.Event(), list[bytes]()

    async def answers(question: bytes) -> bytes:
        waiting.append(question)
        if len(waiting) == 20:
            all_waiting.set()
        await all_waiting.wait()
        return question

    await bus.serve("worker", answers)
    questions = [str(number).encode() for number in range(20)]
    assert await asyncio.gather(*(bus.request("worker", one, within=60) for one in questions)) == questions


@on_bus
async def test_a_request_without_a_response_in_time_fails(bus: Bus) -> None:
    async def never(_question: bytes) -> bytes:
        await asyncio.sleep(0.3)
        return b"too late"

    await bus.serve("worker", never)
    with pytest.raises(DeadlineExceeded, match="worker"):
        await bus.request("worker", b"", within=0.02)


@on_bus
async def test_an_error_of_the_holder_reaches_the_requester(bus: Bus) -> None:
    async def refuses(_question: bytes) -> bytes:
        raise ToolError("Not today.")

    async def breaks(_question: bytes) -> bytes:
        raise KeyError("lamp")

    await bus.serve("refuses", refuses)
    await bus.serve("breaks", breaks)
    with pytest.raises(RemoteError, match=r"^Not today\.$"):
        await bus.request("refuses", b"", within=60)
    with pytest.raises(RemoteError, match="KeyError: 'lamp'"):
        await bus.request("breaks", b"", within=60)


@on_bus
async def test_a_holder_that_failed_answers_the_next_request(bus: Bus) -> None:
    async def fails_at_first(question: bytes) -> bytes:
        if question == b"1":
            raise ValueError
        return question

    await bus.serve("worker", fails_at_first)
    with pytest.raises(RemoteError):
        await bus.request("worker", b"1", within=60)
    assert await bus.request("worker", b"2", within=60) == b"2"
