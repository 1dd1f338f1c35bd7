"""Keys and values that databases like to get wrong are the same on every adapter."""

from __future__ import annotations

import asyncio
import random
from collections.abc import Awaitable, Callable
from contextlib import suppress
from typing import Any

import pytest

from tests.contract.conftest import on_store
from tests.contract.samples import (
    IN_ORDER,
    KEYS,
    NO_KEYS,
    NOW,
    VALUES,
    audited,
    event,
    head_of,
    instance,
    session,
    task,
)
from waypost.errors import StoreError
from waypost.stores.audit import FIRST
from waypost.stores.instances import Reservation
from waypost.stores.store import Store
from waypost.stores.tasks import RequestRecord

Ask = Callable[[Store, str], Awaitable[Any]]

BY_KEY: dict[str, Ask] = {
    "session": lambda store, key: store.sessions.load(key),
    "events of a session": lambda store, key: store.events.after(key, "a", 0),
    "events of a stream": lambda store, key: store.events.after("s", key, 0),
    "task": lambda store, key: store.tasks.load(key),
    "instance": lambda store, key: store.instances.get(key),
    "history": lambda store, key: store.instances.history(key),
    "notes": lambda store, key: store.instances.notes(key),
    "request": lambda store, key: store.requests.get("s", key),
    "request of a scope": lambda store, key: store.requests.get(key, "k"),
    "value": lambda store, key: store.state.get("s", key),
    "value of a scope": lambda store, key: store.state.get(key, "k"),
    "values of a scope": lambda store, key: store.state.page(key),
    "document": lambda store, key: store.skills.get(key),
}
"""Questions for what is under a key."""

BY_TEXT: dict[str, Ask] = {
    "revision": lambda store, key: store.sessions.revision(key),
    "tasks of a principal": lambda store, key: store.tasks.page(key, None, 10),
    "tasks of all": lambda store, key: store.tasks.find(key, "", "failed", 10),
    "tasks of all of a principal": lambda store, key: store.tasks.find("", key, "", 10),
    "tasks of a holder": lambda store, key: store.tasks.held(key),
    "holder": lambda store, key: store.tasks.is_holder_alive(key, NOW),
    "instances of a principal": lambda store, key: store.instances.page(principal=key),
    "instances of a definition": lambda store, key: store.instances.page(definition=key),
    "chain": lambda store, key: store.audit.chain(key),
    "decision": lambda store, key: store.audit.latest(decision=key),
    "job": lambda store, key: store.jobs.get("q", key),
    "job of a queue": lambda store, key: store.jobs.get(key, "j"),
    "jobs of a queue": lambda store, key: store.jobs.page(key),
    "next job": lambda store, key: store.jobs.next_due(key),
    "lease": lambda store, key: store.jobs.lease(key, NOW, NOW, 10),
}
"""Questions for what belongs to something that has a name."""

ADDS: dict[str, Ask] = {
    "session": lambda store, key: store.sessions.save(session(id=key)),
    "task": lambda store, key: store.tasks.save(task(id=key)),
    "instance": lambda store, key: store.instances.start(instance(id=key), NOW, 1),
    "request": lambda store, key: store.requests.put(RequestRecord("s", key, "d", 1)),
    "replaced request": lambda store, key: store.requests.replace(RequestRecord("s", key, "d", 1)),
    "request of a scope": lambda store, key: store.requests.put(RequestRecord(key, "k", "d", 1)),
    "request of a start": lambda store, key: store.instances.start(instance(), NOW, 1, RequestRecord("s", key, "d", 1)),
    "value": lambda store, key: store.state.put("s", key, 1),
    "value of a scope": lambda store, key: store.state.put(key, "k", 1),
    "document": lambda store, key: store.skills.put(key, 1),
    "chain": lambda store, key: store.audit.append(audited(chain=key), head=head_of),
    "job": lambda store, key: store.jobs.add("q", key, 1, NOW),
    "job of a queue": lambda store, key: store.jobs.add(key, "j", 1, NOW),
}
"""Everything that adds something under a key."""

CHANGES: dict[str, Ask] = {
    "session": lambda store, key: store.sessions.save(session(id=key, revision=1)),
    "task": lambda store, key: store.tasks.save(task(id=key, version=1)),
    "instance": lambda store, key: store.instances.commit(instance(id=key), NOW, 1),
    "token": lambda store, key: store.instances.commit(instance(id="none"), NOW, 1, token=key),
    "settled instance": lambda store, key: store.instances.settle(instance(id=key), NOW, 1),
    "value": lambda store, key: store.state.put("s", key, 1, 1),
    "removed value": lambda store, key: store.state.remove("s", key, 1),
    "document": lambda store, key: store.skills.put(key, 1, 1),
    "removed document": lambda store, key: store.skills.remove(key, 1),
}
"""Everything that changes what has to be there."""

IDS = [repr(key[:4]) for key in NO_KEYS]


@on_store
@pytest.mark.parametrize("key", NO_KEYS, ids=IDS)
async def test_an_invalid_key_finds_nothing(store: Store, key: str) -> None:
    await store.instances.start(instance(), NOW, 1)

    assert {name: found for name, ask in BY_KEY.items() if (found := await ask(store, key))} == {}


@on_store
@pytest.mark.parametrize("key", NO_KEYS, ids=IDS)
async def test_a_name_that_cannot_be_one_finds_nothing_or_is_refused(store: Store, key: str) -> None:
    for ask in BY_TEXT.values():
        with suppress(StoreError):
            assert not await ask(store, key)


@on_store
@pytest.mark.parametrize("key", NO_KEYS, ids=IDS)
async def test_nothing_is_added_under_an_invalid_key(store: Store, key: str) -> None:
    for add in ADDS.values():
        with pytest.raises(StoreError, match="cannot be"):
            await add(store, key)
    assert await store.instances.page() == []


@on_store
@pytest.mark.parametrize("key", NO_KEYS, ids=IDS)
async def test_a_record_with_an_invalid_key_cannot_be_changed(store: Store, key: str) -> None:
    for change in CHANGES.values():
        with pytest.raises(StoreError):
            await change(store, key)


@on_store
async def test_pages_are_in_the_byte_order_of_any_keys(store: Store) -> None:
    shuffled = random.Random(5).sample(KEYS, len(KEYS))
    await asyncio.gather(*(store.skills.put(key, key) for key in shuffled))
    await asyncio.gather(*(store.state.put("scope", key, key) for key in shuffled))
    await asyncio.gather(*(store.state.put(key, "k", key) for key in shuffled))
    await asyncio.gather(*(store.instances.start(instance(id=key), NOW, key) for key in shuffled))
    await asyncio.gather(*(store.tasks.save(task(id=key)) for key in shuffled))
    await asyncio.gather(*(store.jobs.add("q", key, key, NOW) for key in shuffled))
    await asyncio.gather(*(store.audit.append(audited(chain=key), head=head_of) for key in shuffled))

    assert [found.id for found in await store.skills.page()] == IN_ORDER
    assert [found.key for found in await store.state.page("scope")] == IN_ORDER
    assert await store.state.scopes() == sorted([*KEYS, "scope", "audit heads"], key=str.encode)
    assert [found.id for found in await store.instances.page()] == IN_ORDER
    assert [found.id for found in await store.instances.page(principal="ada")] == IN_ORDER
    assert [found.id for found in await store.instances.page(definition="order")] == IN_ORDER
    assert [found.id for found in await store.tasks.page("ada", None, 100)] == IN_ORDER
    assert [found.id for found in await store.tasks.find("", "ada", "working", 100)] == IN_ORDER
    assert [found.id for found in await store.tasks.find(IN_ORDER[0], "", "", 2)] == IN_ORDER[1:3]
    assert await store.tasks.find("", "bob", "", 100) == []
    assert [found.id for found in await store.jobs.page("q")] == IN_ORDER
    assert [found.id for found in await store.jobs.lease("q", NOW, NOW, 100)] == IN_ORDER
    assert await store.audit.chains() == IN_ORDER
    assert [found.chain for found in await store.audit.latest()] == IN_ORDER[::-1]


@on_store
async def test_pages_of_any_size_cover_everything_once(store: Store) -> None:
    await asyncio.gather(*(store.skills.put(key, None) for key in KEYS))

    for size in (1, 2, 7):
        seen: list[str] = []
        while some := await store.skills.page(seen[-1] if seen else "", size):
            assert len(some) <= size
            seen += [found.id for found in some]
        assert seen == IN_ORDER


@on_store
async def test_two_long_keys_together_are_kept(store: Store) -> None:
    generator = random.Random(1)
    long = ["".join(chr(generator.randrange(0x4E00, 0x9FFF)) for _ in range(150)) for _ in range(4)]

    await store.state.put(long[0], long[1], 1)
    await store.instances.start(instance(id=long[0], principal=long[1], definition=long[2]), NOW, 1)
    await store.events.append([event(1, session=long[0], stream=long[1])])

    assert await store.state.get(long[0], long[1]) is not None
    assert len(await store.instances.page(principal=long[1])) == 1
    assert len(await store.events.after(long[0], long[1], 0)) == 1


@on_store
async def test_every_value_comes_back_as_it_was(store: Store) -> None:
    await store.skills.put("all", list(VALUES))
    await store.instances.start(instance(value=list(VALUES)), NOW, list(VALUES))
    await store.instances.reserve("i1", 1, Reservation("t", NOW, list(VALUES)))

    found = await store.skills.get("all")
    assert found is not None
    assert found.value == list(VALUES)
    started = await store.instances.get("i1")
    assert started is not None
    assert started.reservation is not None
    assert started.value == started.reservation.value == list(VALUES)
    assert (await store.instances.history("i1"))[0].value == list(VALUES)


@on_store
async def test_a_value_under_each_odd_key_comes_back(store: Store) -> None:
    for number, value in enumerate(VALUES):
        key = KEYS[number % len(KEYS)]
        await store.state.put("scope", key, value)
        await store.requests.put(RequestRecord("scope", key, "d", value))

    for number, value in enumerate(VALUES):
        key = KEYS[number % len(KEYS)]
        entry, request = await store.state.get("scope", key), await store.requests.get("scope", key)
        assert entry is not None
        assert request is not None
        assert entry.value == request.answer == value


class Unknown:
    """Something that is not JSON."""


def _endless() -> list[Any]:
    endless: list[Any] = []
    for _ in range(100_000):
        endless = [endless]
    return endless


NOT_JSON = {"object": Unknown(), "surrogate": "\ud800", "key": {"x": {Unknown(): 1}}, "deep": _endless()}


@on_store
@pytest.mark.parametrize("kind", NOT_JSON)
async def test_a_value_that_is_not_json_is_refused_and_nothing_is_kept(store: Store, kind: str) -> None:
    value = NOT_JSON[kind]
    for add in (
        store.skills.put("a", value),
        store.state.put("s", "k", value),
        store.jobs.add("q", "j", value, NOW),
        store.requests.put(RequestRecord("s", "k", "d", value)),
        store.instances.start(instance(value=value), NOW, 1),
        store.instances.start(instance(), NOW, value),
        store.audit.append(audited(value=value), head=head_of),
    ):
        with pytest.raises(StoreError, match="JSON"):
            await add
    assert await store.instances.get("i1") is None
    assert await store.audit.latest(1, FIRST) == []


@on_store
async def test_whole_numbers_of_any_size_come_back_or_are_refused(store: Store) -> None:
    for number in (2**63, 2**64 - 1, 2**64, -(2**63) - 1, 10**300):
        try:
            await store.skills.put(f"{number}", number)
        except StoreError:
            continue
        found = await store.skills.get(f"{number}")
        assert found is not None
        assert found.value == number
        assert isinstance(found.value, int)


@on_store
@pytest.mark.parametrize("number", [2**63, 2**80, -(2**70)])
async def test_a_version_no_database_can_count_to_is_refused(store: Store, number: int) -> None:
    await store.skills.put("a", 1)
    for change in (
        store.skills.put("a", 2, number),
        store.skills.remove("a", number),
        store.events.append([event(number)]),
        store.audit.append(audited(number=number), head=head_of),
    ):
        with pytest.raises(StoreError):
            await change
    kept = await store.skills.get("a")
    assert kept is not None
    assert kept.value == 1
