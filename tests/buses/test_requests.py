"""The contract of the bus, over every adapter: questions to one who holds a name."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable

import pytest

from tests.buses.conftest import Ears, echo, on_bus
from waypost.buses import Bus
from waypost.errors import DeadlineExceeded, NoHolder, RemoteError, ToolError


@on_bus
async def test_a_question_is_answered_by_whoever_holds_the_name(bus: Bus) -> None:
    await bus.serve("worker.1", echo)
    assert await bus.request("worker.1", b"hello", within=60) == b"hello"


@on_bus
async def test_that_nobody_holds_a_name_is_known_at_once(bus: Bus) -> None:
    began = time.monotonic()
    with pytest.raises(NoHolder, match=r"worker\.1"):
        await bus.request("worker.1", b"", within=10)
    assert time.monotonic() - began < 8


@on_bus
async def test_nobody_holds_a_name_whose_holder_has_left(bus: Bus) -> None:
    held = await bus.serve("worker.1", echo)
    await held.end()
    with pytest.raises(NoHolder):
        await bus.request("worker.1", b"", within=10)


@on_bus
async def test_one_who_listens_to_a_name_does_not_hold_it(bus: Bus) -> None:
    ears = Ears()
    await bus.subscribe("worker.1", ears)
    with pytest.raises(NoHolder):
        await bus.request("worker.1", b"", within=10)
    assert ears.heard == []


@on_bus
async def test_several_holders_share_the_questions(bus: Bus) -> None:
    def named(name: bytes) -> Callable[[bytes], object]:
        async def answers(_question: bytes) -> bytes:
            return name

        return answers

    for name in (b"a", b"b", b"c"):
        await bus.serve("worker", named(name))  # type: ignore[arg-type]  # an async function of bytes
    answers = [await bus.request("worker", b"", within=60) for _ in range(60)]
    assert set(answers) == {b"a", b"b", b"c"}


@on_bus
async def test_many_questions_are_answered_side_by_side(bus: Bus) -> None:
    everybody, waiting = asyncio.Event(), list[bytes]()

    async def answers(question: bytes) -> bytes:
        waiting.append(question)
        if len(waiting) == 20:
            everybody.set()
        await everybody.wait()
        return question

    await bus.serve("worker", answers)
    questions = [str(number).encode() for number in range(20)]
    assert await asyncio.gather(*(bus.request("worker", one, within=60) for one in questions)) == questions


@on_bus
async def test_an_answer_that_takes_too_long_is_given_up(bus: Bus) -> None:
    async def never(_question: bytes) -> bytes:
        await asyncio.sleep(0.3)
        return b"too late"

    await bus.serve("worker", never)
    with pytest.raises(DeadlineExceeded, match="worker"):
        await bus.request("worker", b"", within=0.02)


@on_bus
async def test_what_went_wrong_with_an_answer_is_told(bus: Bus) -> None:
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
async def test_a_holder_that_failed_answers_the_next_question(bus: Bus) -> None:
    async def fails_at_first(question: bytes) -> bytes:
        if question == b"1":
            raise ValueError
        return question

    await bus.serve("worker", fails_at_first)
    with pytest.raises(RemoteError):
        await bus.request("worker", b"1", within=60)
    assert await bus.request("worker", b"2", within=60) == b"2"
