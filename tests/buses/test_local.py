"""The bus of one process: matching, turns of responders, and nothing left of ended subscriptions."""

from __future__ import annotations

import asyncio
import re

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.buses.conftest import DEADLINE, Recorder
from waypost.buses import LocalBus
from waypost.buses.bus import check_subject
from waypost.errors import DeadlineExceeded, WaypostError

WORDS = st.sampled_from(["a", "b", "c"])
SUBJECTS = st.lists(WORDS, min_size=1, max_size=5).map(".".join)
PATTERNS = st.tuples(st.lists(st.sampled_from(["a", "b", "*"]), max_size=4), st.sampled_from(["", ">", "a", "*"])).map(
    lambda parts: ".".join([*parts[0], parts[1]]).strip(".")
)


def model(pattern: str) -> re.Pattern[str]:
    """A pattern as a regular expression."""
    text = re.escape(pattern).replace(r"\*", r"[^.]+")
    return re.compile(re.sub(r">$", ".+", text))


@given(PATTERNS.filter(bool), st.lists(SUBJECTS, max_size=20))
def test_a_pattern_matches_what_its_regular_expression_does(pattern: str, subjects: list[str]) -> None:
    async def run() -> list[str]:
        bus, recorder = LocalBus(), Recorder()
        await bus.subscribe(pattern, recorder)
        for subject in subjects:
            await bus.publish(subject, b"")
        await bus.close()
        return [subject for subject, _ in recorder.received]

    expected = [subject for subject in subjects if model(pattern).fullmatch(subject)]
    assert asyncio.run(run()) == expected


@given(st.text(max_size=12))
def test_a_subject_is_words_without_spaces_and_wildcards(text: str) -> None:
    is_one = all(
        word and not any(char in "*>" or char.isspace() or ord(char) < 32 for char in word) for word in text.split(".")
    )
    if is_one:
        assert check_subject(text) == text
    else:
        with pytest.raises(WaypostError):
            check_subject(text)


def test_responders_take_turns() -> None:
    async def run() -> list[bytes]:
        bus = LocalBus()

        async def first(_question: bytes) -> bytes:
            return b"first"

        async def second(_question: bytes) -> bytes:
            return b"second"

        await bus.serve("a", first)
        await bus.serve("a", second)
        return [await bus.request("a", b"", within=60) for _ in range(4)]

    assert asyncio.run(run()) in ([b"first", b"second"] * 2, [b"second", b"first"] * 2)


def is_empty(bus: LocalBus) -> bool:
    """Whether it has no subscriber and no responder left."""
    return not (bus._exact or bus._patterns or bus._responders)


def test_ended_subscriptions_and_holders_leave_nothing_behind() -> None:
    async def run() -> None:
        bus = LocalBus()
        for _ in range(100):
            members = [
                await bus.subscribe("a.b", Recorder()),
                await bus.subscribe("a.b", Recorder()),
                await bus.subscribe("a.>", Recorder()),
                await bus.serve("worker", lambda question: asyncio.sleep(0, question)),
            ]
            await bus.publish("a.b", b"x")
            assert await bus.request("worker", b"x", within=60) == b"x"
            for member in members:
                await member.end()
                assert not member._running
        assert is_empty(bus)
        await bus.publish("nobody.is.there", b"")
        assert is_empty(bus)

    asyncio.run(run())


def test_closing_leaves_nothing_and_the_bus_can_be_used_again() -> None:
    async def run() -> None:
        bus, recorder = LocalBus(), Recorder()
        await bus.subscribe("a", recorder)
        await bus.subscribe("*", recorder)
        await bus.serve("a", lambda question: asyncio.sleep(0, question))
        await bus.close()
        assert is_empty(bus)
        await bus.subscribe("a", recorder)
        await bus.publish("a", b"again")
        assert await recorder.have(1) == [("a", b"again")]
        await bus.close()
        assert asyncio.all_tasks() == {asyncio.current_task()}

    asyncio.run(run())


def test_a_request_that_times_out_cancels_its_responder() -> None:
    async def run() -> str:
        bus, stopped = LocalBus(), asyncio.Event()

        async def never(_question: bytes) -> bytes:
            try:
                await asyncio.Event().wait()
            except asyncio.CancelledError:
                stopped.set()
                raise
            return b""

        await bus.serve("a", never)
        with pytest.raises(DeadlineExceeded):
            await bus.request("a", b"", within=0.01)
        async with asyncio.timeout(DEADLINE):
            await stopped.wait()
            await bus.close()
        return "stopped"

    assert asyncio.run(run()) == "stopped"
