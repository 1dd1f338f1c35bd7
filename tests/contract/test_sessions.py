"""Sessions, the log of their events, tasks, and live holders."""

from __future__ import annotations

import time

import pytest

from tests.contract.conftest import on_store
from tests.contract.samples import NOW, event, session, task
from waypost.errors import StaleVersion
from waypost.stores.sessions import SESSION_TTL_S
from waypost.stores.store import Store


@on_store
async def test_a_session_is_loaded_as_it_was_saved_last(store: Store) -> None:
    assert await store.sessions.load("session-0001") is None
    assert await store.sessions.revision("session-0001") == 0

    first = await store.sessions.save(session())
    second = await store.sessions.save(session(log_level=7, revision=1))

    assert (first.revision, second.revision) == (1, 2)
    assert await store.sessions.load("session-0001") == second == session(log_level=7, revision=2)
    assert await store.sessions.revision("session-0001") == 2


@on_store
@pytest.mark.parametrize("revision", [0, 1, 3])
async def test_a_session_that_was_saved_since_is_not_overwritten(store: Store, revision: int) -> None:
    await store.sessions.save(session())
    kept = await store.sessions.save(session(log_level=7, revision=1))

    with pytest.raises(StaleVersion, match="was changed since"):
        await store.sessions.save(session(log_level=1, revision=revision))
    assert await store.sessions.load("session-0001") == kept


@on_store
async def test_a_session_that_is_not_there_cannot_be_changed(store: Store) -> None:
    with pytest.raises(StaleVersion):
        await store.sessions.save(session(revision=1))
    assert await store.sessions.load("session-0001") is None


@on_store
async def test_a_deleted_session_is_gone_with_its_events_and_may_be_deleted_again(store: Store) -> None:
    other = await store.sessions.save(session(id="session-0002"))
    await store.sessions.save(session())
    await store.events.append([event(1, session="session-0001"), event(1, session="session-0002")])

    for _ in range(2):
        await store.sessions.delete("session-0001")

    assert await store.sessions.load("session-0001") is None
    assert await store.sessions.load("session-0002") == other
    assert await store.events.after("session-0001", "a", 0) == []
    assert await store.events.after("session-0002", "a", 0) == [(1, b'{"n":1}')]
    assert (await store.sessions.save(session())).revision == 1


@on_store
async def test_unused_sessions_are_swept_and_recently_saved_ones_are_not(store: Store) -> None:
    await store.sessions.save(session())

    assert await store.sessions.sweep(time.time()) == 0
    assert await store.sessions.sweep(time.time() + SESSION_TTL_S + 60) == 1
    assert await store.sessions.load("session-0001") is None


@on_store
async def test_events_come_back_in_order_behind_a_number(store: Store) -> None:
    await store.events.append([])
    await store.events.append([event(number) for number in (3, 1, 10, 2)])
    await store.events.append([event(5, stream="b"), event(6, session="t")])

    assert [number for number, _ in await store.events.after("s", "a", 0)] == [1, 2, 3, 10]
    assert await store.events.after("s", "a", 2) == [(3, b'{"n":3}'), (10, b'{"n":10}')]
    assert [number for number, _ in await store.events.after("s", "a", 0, limit=2)] == [1, 2]
    assert await store.events.after("s", "a", 10) == []
    assert await store.events.after("s", "c", 0) == []


@on_store
async def test_an_event_whose_number_is_taken_stays_as_it_is(store: Store) -> None:
    await store.events.append([event(1)])
    await store.events.append([event(1)._replace(message="other"), event(2)])

    assert await store.events.after("s", "a", 0) == [(1, b'{"n":1}'), (2, b'{"n":2}')]


@on_store
async def test_many_events_are_kept_and_swept_when_their_time_is_over(store: Store) -> None:
    await store.events.append([event(number, expires_at=NOW + number % 2) for number in range(1, 1201)])

    assert len(await store.events.after("s", "a", 0)) == 1000
    assert await store.events.sweep(NOW) == 0
    assert await store.events.sweep(NOW + 0.5) == 600
    assert [number for number, _ in await store.events.after("s", "a", 1190)] == [1191, 1193, 1195, 1197, 1199]


@on_store
async def test_a_task_is_loaded_as_it_was_saved_last(store: Store) -> None:
    assert await store.tasks.load("task-1") is None

    first = await store.tasks.save(task())
    second = await store.tasks.save(task(status="completed", holder="", result={"x": [1]}, version=1))

    assert (first.version, second.version) == (1, 2)
    assert await store.tasks.load("task-1") == second
    assert second.is_over


@on_store
@pytest.mark.parametrize("version", [0, 1, 3])
async def test_a_task_that_was_saved_since_is_not_overwritten(store: Store, version: int) -> None:
    await store.tasks.save(task())
    kept = await store.tasks.save(task(status="completed", version=1))

    with pytest.raises(StaleVersion, match="task-1"):
        await store.tasks.save(task(status="failed", version=version))
    assert await store.tasks.load("task-1") == kept


@on_store
async def test_tasks_are_paged_by_principal_in_the_order_of_their_ids(store: Store) -> None:
    for task_id in ("c", "a", "B", "b"):
        await store.tasks.save(task(id=task_id))
    await store.tasks.save(task(id="aa", principal="bob"))

    assert [found.id for found in await store.tasks.page("ada", None, 10)] == ["B", "a", "b", "c"]
    assert [found.id for found in await store.tasks.page("ada", "a", 1)] == ["b"]
    assert [found.id for found in await store.tasks.page("bob", None, 10)] == ["aa"]
    assert await store.tasks.page("eve", None, 10) == []


@on_store
async def test_the_tasks_of_a_holder_are_listed_with_their_versions(store: Store) -> None:
    await store.tasks.save(task(id="a"))
    await store.tasks.save(await store.tasks.save(task(id="b")))
    await store.tasks.save(task(id="c", holder="hub-2"))
    await store.tasks.save(task(id="d", holder=""))

    assert await store.tasks.held("hub-1") == {"a": 1, "b": 2}
    assert await store.tasks.held("hub-3") == {}
    assert await store.tasks.held("") == {}


@on_store
async def test_expired_tasks_are_swept(store: Store) -> None:
    await store.tasks.save(task(id="old", expires_at=NOW))
    await store.tasks.save(task(id="new", expires_at=NOW + 10))

    assert await store.tasks.sweep(NOW + 5) == 1
    assert await store.tasks.load("old") is None
    assert await store.tasks.load("new") is not None


@on_store
async def test_a_holder_is_alive_until_its_deadline_or_until_it_leaves(store: Store) -> None:
    await store.tasks.keep_holder("hub-1", NOW)
    assert await store.tasks.is_holder_alive("hub-1", NOW)
    assert not await store.tasks.is_holder_alive("hub-1", NOW + 1)

    await store.tasks.keep_holder("hub-1", NOW + 10)
    assert await store.tasks.is_holder_alive("hub-1", NOW + 1)
    assert not await store.tasks.is_holder_alive("hub-2", NOW)

    for _ in range(2):
        await store.tasks.remove_holder("hub-1")
    assert not await store.tasks.is_holder_alive("hub-1", NOW)


@on_store
async def test_holders_that_are_gone_are_swept(store: Store) -> None:
    await store.tasks.keep_holder("old", NOW)
    await store.tasks.keep_holder("new", NOW + 10)

    assert await store.tasks.sweep(NOW + 5) == 1
    assert await store.tasks.sweep(NOW + 5) == 0
    assert await store.tasks.is_holder_alive("new", NOW + 5)
