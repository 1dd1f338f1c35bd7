"""Every instance behaves like one register for all clients and stores."""

from __future__ import annotations

import asyncio
import itertools
import random
from collections import defaultdict
from collections.abc import Callable, Sequence

import pytest

from tests.contract.conftest import Place, asynchronous, opened
from tests.contract.linearizability import Operation, Outcome, Read, Register, Swap, count, is_linearizable
from tests.contract.samples import NOW, instance
from waypost.errors import StaleVersion
from waypost.stores.store import Store

CLIENTS = 8
STEPS = 25
INSTANCES = 4
START = (1, "start")


def read(invoked: int, returned: int, version: int, writer: str) -> Read:
    return Read(invoked, returned, (version, writer))


def swap(invoked: int, returned: int, expected: int, writer: str, outcome: Outcome = "ok") -> Swap:
    return Swap(invoked, returned, expected, writer, outcome)


GOOD: dict[str, list[Operation]] = {
    "nothing": [],
    "one after the other": [swap(1, 2, 1, "a"), read(3, 4, 2, "a"), swap(5, 6, 2, "b"), read(7, 8, 3, "b")],
    "a read during a swap sees either": [swap(1, 6, 1, "a"), read(2, 3, 1, "start"), read(4, 5, 2, "a")],
    "one of two wins": [swap(1, 4, 1, "a"), swap(2, 3, 1, "b", "refused"), read(5, 6, 2, "a")],
    "refused by a swap that returns later": [swap(2, 3, 1, "b", "refused"), swap(1, 9, 1, "a")],
    "unknown that happened": [swap(1, 2, 1, "a", "unknown"), read(5, 6, 2, "a")],
    "unknown that did not happen": [swap(1, 2, 1, "a", "unknown"), read(5, 6, 1, "start")],
    "unknown that happened late": [
        swap(1, 2, 1, "a", "unknown"),
        read(3, 4, 1, "start"),
        read(5, 6, 2, "a"),
        swap(7, 8, 2, "b"),
    ],
}
BAD: dict[str, list[Operation]] = {
    "both of two win": [swap(1, 4, 1, "a"), swap(2, 3, 1, "b")],
    "a lost write": [swap(1, 2, 1, "a"), read(3, 4, 1, "start")],
    "a read from the past": [swap(1, 9, 1, "a"), read(2, 3, 2, "a"), read(4, 5, 1, "start")],
    "a read from the future": [read(1, 2, 2, "a"), swap(3, 4, 1, "a")],
    "a writer nobody knows": [swap(1, 2, 1, "a"), read(3, 4, 2, "b")],
    "refused without a reason": [swap(1, 2, 1, "a", "refused"), read(3, 4, 1, "start")],
    "refused but done": [swap(1, 2, 1, "a", "refused"), read(3, 4, 2, "a")],
    "a gap": [swap(1, 2, 1, "a"), swap(3, 4, 3, "b")],
    "unknown that happened and then did not": [
        swap(1, 2, 1, "a", "unknown"),
        read(3, 4, 2, "a"),
        read(5, 6, 1, "start"),
    ],
    "unknown that happened twice": [swap(1, 2, 1, "a", "unknown"), read(5, 6, 3, "a")],
    "unknown that happened before it was asked for": [read(1, 2, 2, "a"), swap(3, 4, 1, "a", "unknown")],
}


@pytest.mark.parametrize("history", GOOD.values(), ids=GOOD)
def test_a_history_that_could_have_happened_is_accepted(history: list[Operation]) -> None:
    assert is_linearizable(history, START)


@pytest.mark.parametrize("history", BAD.values(), ids=BAD)
def test_a_history_that_cannot_have_happened_is_found(history: list[Operation]) -> None:
    assert not is_linearizable(history, START)


def test_the_register_at_the_end_has_to_fit_too() -> None:
    history: list[Operation] = [swap(1, 2, 1, "a")]

    assert is_linearizable(history, START, (2, "a"))
    assert not is_linearizable(history, START, START)
    assert is_linearizable([], START, START)


class Client:
    """A client that reads and moves instances, and records what it saw and when."""

    def __init__(self, name: str, store: Store, clock: Callable[[], int], seed: int) -> None:
        self.history: defaultdict[str, list[Operation]] = defaultdict(list)
        self._name = name
        self._store = store
        self._clock = clock
        self._random = random.Random(seed)

    async def run(self) -> None:
        for step in range(STEPS):
            name = f"i{self._random.randrange(INSTANCES)}"
            invoked = self._clock()
            found = await self._store.instances.get(name)
            assert found is not None
            self.history[name].append(Read(invoked, self._clock(), (found.version, found.state)))
            if self._random.random() < 0.8:
                await self._move(name, found.version, f"{self._name}.{step}")

    async def _move(self, name: str, version: int, writer: str) -> None:
        invoked = self._clock()
        move = asyncio.ensure_future(
            self._store.instances.commit(instance(id=name, version=version, state=writer), NOW, writer)
        )
        if self._random.random() < 0.1:
            for _ in range(self._random.randrange(8)):
                await asyncio.sleep(0)
            move.cancel()
        outcome: Outcome = "ok"
        try:
            await move
        except StaleVersion:
            outcome = "refused"
        except asyncio.CancelledError:
            outcome = "unknown"
        self.history[name].append(Swap(invoked, self._clock(), version, writer, outcome))


async def assert_linearizable(stores: Sequence[Store], seed: int) -> None:
    """Run clients on stores at one location, then check their histories."""
    clock = itertools.count().__next__
    for number in range(INSTANCES):
        await stores[0].instances.start(instance(id=f"i{number}", state="start"), NOW, "start")
    clients = [Client(f"c{n}", stores[n % len(stores)], clock, seed * 100 + n) for n in range(CLIENTS)]

    await asyncio.gather(*(client.run() for client in clients))

    for number in range(INSTANCES):
        name = f"i{number}"
        history = [operation for client in clients for operation in client.history[name]]
        end = await read_after_writes(stores, name)
        assert is_linearizable(history, START, end), f"seed {seed}, {name}: {history}"
        moves = end[0] - 1
        assert count(history, "ok") <= moves <= count(history, "ok") + count(history, "unknown")
        writers = [entry.value for entry in await stores[0].instances.history(name)]
        assert len(writers) == len(set(writers)) == end[0]
        assert {op.writer for op in history if isinstance(op, Swap) and op.outcome == "ok"} <= set(writers)
    assert await stores[0].check() == []


async def read_after_writes(stores: Sequence[Store], name: str) -> Register:
    """The instance once every store has written its queue."""
    for store in stores:
        await store.tasks.keep_holder("settled", NOW)
    found = await stores[0].instances.get(name)
    assert found is not None
    return found.version, found.state


@asynchronous
@pytest.mark.parametrize("seed", [1, 2])
async def test_each_instance_is_one_register(place: Place, seed: int) -> None:
    async with opened(place.store()) as store:
        await assert_linearizable([store], seed)


@asynchronous
@pytest.mark.parametrize("seed", [3, 4])
async def test_each_instance_is_one_register_for_two_stores_at_one_place(lasting_place: Place, seed: int) -> None:
    async with opened(lasting_place.store()) as one, opened(lasting_place.store()) as other:
        await assert_linearizable([one, other], seed)
