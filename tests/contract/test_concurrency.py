"""Concurrent writers: one of several racing writes wins, and a failing write does not affect others."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from tests.contract.conftest import Place, asynchronous, on_store, opened
from tests.contract.samples import NOW, instance
from waypost.errors import Busy, StaleVersion, StoreError
from waypost.stores.database import MAX_QUEUED_WRITES
from waypost.stores.instances import Reservation
from waypost.stores.store import Store
from waypost.stores.tasks import RequestRecord


def wins(outcomes: list[Any]) -> list[Any]:
    """The results of the writes that succeeded; all others must have failed with `StaleVersion`."""
    assert all(isinstance(outcome, StaleVersion) for outcome in outcomes if isinstance(outcome, BaseException))
    return [outcome for outcome in outcomes if not isinstance(outcome, BaseException)]


@on_store
async def test_of_a_hundred_racing_moves_exactly_one_happens(store: Store) -> None:
    await store.instances.start(instance(), NOW, 0)

    moves = (store.instances.commit(instance(state=f"by {n}"), NOW, n) for n in range(100))
    outcomes = await asyncio.gather(*moves, return_exceptions=True)

    assert wins(outcomes) == [2]
    winner = next(n for n, outcome in enumerate(outcomes) if outcome == 2)
    found = await store.instances.get("i1")
    assert found is not None
    assert (found.version, found.state) == (2, f"by {winner}")
    assert [entry.value for entry in await store.instances.history("i1")] == [0, winner]


@on_store
async def test_of_racing_reservations_starts_and_puts_exactly_one_happens(store: Store) -> None:
    started = await asyncio.gather(
        *(store.instances.start(instance(state=f"{n}"), NOW, n) for n in range(50)), return_exceptions=True
    )
    assert len(wins(started)) == 1
    reserved = await asyncio.gather(*(store.instances.reserve("i1", 1, Reservation(f"t{n}", NOW)) for n in range(50)))
    assert sum(reserved) == 1
    documents = await asyncio.gather(*(store.skills.put("a", n) for n in range(50)), return_exceptions=True)
    assert len(wins(documents)) == 1
    values = await asyncio.gather(*(store.state.put("s", "k", n) for n in range(50)), return_exceptions=True)
    assert len(wins(values)) == 1
    added = await asyncio.gather(*(store.jobs.add("q", "j", n, NOW) for n in range(50)))
    assert sum(added) == 1
    answered = await asyncio.gather(*(store.requests.put(RequestRecord("s", "k", "d", n)) for n in range(50)))
    assert sum(answered) == 1
    assert await store.check() == []


@on_store
async def test_writes_of_one_turn_are_done_in_their_order(store: Store) -> None:
    await store.instances.start(instance(), NOW, 1)

    versions = await asyncio.gather(
        *(store.instances.commit(instance(version=version), NOW, version + 1) for version in range(1, 41))
    )

    assert versions == list(range(2, 42))
    assert [entry.value for entry in await store.instances.history("i1")] == list(range(1, 42))


@on_store
async def test_a_row_may_be_added_changed_removed_and_added_in_one_turn(store: Store) -> None:
    outcomes = await asyncio.gather(
        store.skills.put("a", 1),
        store.skills.put("b", 1),
        store.skills.put("a", 2, 1),
        store.skills.put("a", "late", 1),
        store.skills.remove("a", 2),
        store.skills.put("a", 3),
        store.prompts.put("a", 9),
        return_exceptions=True,
    )

    assert [isinstance(outcome, StaleVersion) for outcome in outcomes] == [False] * 3 + [True] + [False] * 3
    assert [(found.id, found.version, found.value) for found in await store.skills.page()] == [("a", 1, 3), ("b", 1, 1)]


@on_store
@pytest.mark.parametrize("place_of_bad", [0, 31, 63])
async def test_a_write_with_a_taken_request_id_does_not_affect_others(store: Store, place_of_bad: int) -> None:
    await store.requests.put(RequestRecord("s", "taken", "d", 1))

    def request(number: int) -> RequestRecord:
        return RequestRecord("s", "taken" if number == place_of_bad else f"k{number}", "d", number)

    outcomes = await asyncio.gather(
        *(store.instances.start(instance(id=f"i{n:02}"), NOW, n, request(n)) for n in range(64)),
        return_exceptions=True,
    )

    assert isinstance(outcomes[place_of_bad], StoreError)
    assert [outcome for number, outcome in enumerate(outcomes) if number != place_of_bad] == [None] * 63
    kept = [found.id for found in await store.instances.page()]
    assert kept == [f"i{n:02}" for n in range(64) if n != place_of_bad]
    assert await store.check() == []


@on_store
async def test_of_concurrent_moves_with_one_request_id_one_succeeds(store: Store) -> None:
    await asyncio.gather(*(store.instances.start(instance(id=f"i{n:02}"), NOW, 0) for n in range(20)))

    same = RequestRecord("s", "same", "d", 1)
    outcomes = await asyncio.gather(
        *(store.instances.commit(instance(id=f"i{n:02}"), NOW, n, request=same) for n in range(20)),
        return_exceptions=True,
    )

    assert [outcome for outcome in outcomes if not isinstance(outcome, StoreError)] == [2]
    assert sorted(found.version for found in await store.instances.page()) == [1] * 19 + [2]
    assert await store.check() == []


@on_store
@pytest.mark.parametrize("bad", [{"state": "\ud800"}, {"state": object()}], ids=["surrogate", "object"])
async def test_a_write_that_cannot_be_bound_does_not_affect_others(store: Store, bad: dict[str, Any]) -> None:
    def made(number: int) -> Any:
        return instance(id=f"i{number:02}", **(bad if number == 20 else {}))

    outcomes = await asyncio.gather(
        *(store.instances.start(made(n), NOW, n) for n in range(64)), return_exceptions=True
    )

    assert isinstance(outcomes[20], StoreError)
    assert [outcome for number, outcome in enumerate(outcomes) if number != 20] == [None] * 63
    assert len(await store.instances.page()) == 63
    assert await store.instances.history("i20") == []


@on_store
async def test_a_cancelled_write_does_not_affect_others(store: Store) -> None:
    await store.open()
    waiting = [asyncio.ensure_future(store.skills.put(f"{n:02}", n)) for n in range(30)]
    await asyncio.sleep(0)
    for task in waiting[::3]:
        task.cancel()

    outcomes = await asyncio.gather(*waiting, return_exceptions=True)

    cancelled = [n for n, outcome in enumerate(outcomes) if isinstance(outcome, asyncio.CancelledError)]
    assert cancelled == list(range(0, 30, 3))
    kept = {found.id for found in await store.skills.page()}
    assert kept >= {f"{n:02}" for n in range(30) if n % 3}
    assert await store.health() == "ok"


@on_store
async def test_a_cancelled_read_does_not_affect_others(store: Store) -> None:
    await store.skills.put("a", 1)
    asking = [asyncio.ensure_future(store.skills.get("a")) for _ in range(30)]
    await asyncio.sleep(0)
    for task in asking[::2]:
        task.cancel()

    answers = await asyncio.gather(*asking, return_exceptions=True)

    assert all(answer is not None and not isinstance(answer, BaseException) for answer in answers[1::2])
    assert await store.health() == "ok"


@on_store
async def test_writes_beyond_the_queue_limit_are_refused_as_busy(store: Store) -> None:
    await store.open()
    outcomes = await asyncio.gather(
        *(store.tasks.keep_holder(f"h{n % 100}", NOW) for n in range(MAX_QUEUED_WRITES + 5)), return_exceptions=True
    )

    refused = [outcome for outcome in outcomes if outcome is not None]
    assert len(refused) == 5
    assert all(isinstance(outcome, Busy) and "try again later" in outcome.message for outcome in refused)
    await store.tasks.keep_holder("after", NOW)
    assert await store.tasks.is_holder_alive("after", NOW)


@asynchronous
async def test_stores_at_one_location_see_each_others_writes(lasting_place: Place) -> None:
    async with opened(lasting_place.store()) as one, opened(lasting_place.store()) as other:
        await one.instances.start(instance(), NOW, 0)
        assert await other.instances.get("i1") == instance()

        moves = (store.instances.commit(instance(state=f"by {n}"), NOW, n) for n in range(25) for store in (one, other))
        assert wins(await asyncio.gather(*moves, return_exceptions=True)) == [2]
        assert await one.instances.get("i1") == await other.instances.get("i1")
        assert await one.check() == await other.check() == []
