"""Document stores for skills and prompts: the store of the hub, or the state of an engine."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

import pytest

from tests.contract.conftest import asynchronous
from tests.documents.desk import SHELVES, Engine, desk
from waypost.documents.records import DocumentStore, Kind
from waypost.documents.stores import HubDocumentStore, Scopes, StateDocumentStore
from waypost.errors import InvocationFailed
from waypost.stores.sqlite import SqliteDatabase
from waypost.stores.store import Store

ROW = {"id": "a", "skill": "# A", "registered_at": "2026-01-01T00:00:00+00:00"}
KINDS: tuple[Kind, ...] = ("skills", "prompts")
on_each_shelf = pytest.mark.parametrize("kind_of_shelf", SHELVES)


@on_each_shelf
@pytest.mark.parametrize("kind", KINDS)
@asynchronous
async def test_a_document_store_puts_gets_and_removes(kind_of_shelf: str, kind: Kind) -> None:
    async with desk(kind_of_shelf) as it:
        shelf: DocumentStore = it.shelf
        assert await shelf.get(kind, "a") is None
        await shelf.put(kind, "a", {"n": 1})
        await shelf.put(kind, "a", {"n": 2})

        assert await shelf.get(kind, "a") == {"n": 2}
        assert await shelf.all(kind) == [{"n": 2}]
        assert await shelf.all("prompts" if kind == "skills" else "skills") == []
        assert await shelf.remove(kind, "a") is True
        assert await shelf.remove(kind, "a") is False


@on_each_shelf
@asynchronous
async def test_many_writers_of_one_key_all_succeed(kind_of_shelf: str) -> None:
    async with desk(kind_of_shelf) as it:
        await asyncio.gather(*(it.shelf.put("skills", "a", {"n": n}) for n in range(20)))

        assert await it.shelf.get("skills", "a") in [{"n": n} for n in range(20)]
        assert sum(await asyncio.gather(*(it.shelf.remove("skills", "a") for _ in range(5)))) >= 1
        assert await it.shelf.get("skills", "a") is None


@asynchronous
async def test_a_store_lists_more_than_one_page(tmp_path: Path) -> None:
    store = Store(SqliteDatabase(tmp_path / "store.db"))
    shelf = HubDocumentStore(store)
    await asyncio.gather(*(shelf.put("skills", f"s{n:05}", {**ROW, "id": f"s{n:05}"}) for n in range(1201)))

    assert [row["id"] for row in await shelf.all("skills")] == [f"s{n:05}" for n in range(1201)]
    await store.close()


@asynchronous
async def test_keys_longer_than_the_limit_of_the_store_do_not_collide() -> None:
    async with desk() as it:
        await it.shelf.put("skills", "a" * 600 + "b", {"n": 1})
        await it.shelf.put("skills", "a" * 600 + "c", {"n": 2})

        assert await it.shelf.get("skills", "a" * 600 + "b") == {"n": 1}
        assert await it.shelf.remove("skills", "a" * 600 + "c")
        assert await it.shelf.all("skills") == [{"n": 1}]


@asynchronous
async def test_registered_skills_survive_a_restart(tmp_path: Path) -> None:
    for wanted in ([], ["a"]):
        store = Store(SqliteDatabase(tmp_path / "store.db"))
        async with desk(HubDocumentStore(store)) as it:  # each round needs a new store
            assert [row["id"] for row in (await it.call("skills::list"))["skills"]] == wanted
            await it.skill("a")
        await store.close()


@asynchronous
async def test_the_state_is_kept_in_the_configured_scopes() -> None:
    async with desk("state", scopes=Scopes("docs", "commands")) as it:
        await it.skill("a", sender="ann")
        await it.prompt("p")

        assert list(it.engine.state) == [("docs", "a"), ("commands", "p")]
        kept = it.engine.state["docs", "a"]
        assert set(kept) == {"id", "skill", "registered_at", "owner"}
        assert set(it.engine.state["commands", "p"]) >= {
            "name",
            "description",
            "arguments",
            "function_id",
            "registered_at",
        }


@pytest.mark.parametrize(
    "answer",
    [
        [ROW, "odd", None, {"id": 5}],
        {"items": [{"key": "a", "value": ROW}, "odd", {"key": "b"}, {"value": {"id": "b"}}]},
        {"value": [ROW, 7]},
    ],
)
@asynchronous
async def test_three_shapes_of_lists_are_accepted_and_invalid_rows_are_skipped(answer: Any) -> None:
    async with desk("state") as it:
        it.engine.functions["state::list"] = lambda _: answer

        assert [row["id"] for row in (await it.call("skills::list"))["skills"]] == ["a"]


@pytest.mark.parametrize("answer", [None, "odd", {}, {"items": 5}, {"value": {}}])
@asynchronous
async def test_a_list_of_no_known_shape_is_empty(answer: Any) -> None:
    async with desk("state") as it:
        it.engine.functions["state::list"] = lambda _: answer

        assert await it.call("skills::list") == {"skills": []}


@asynchronous
async def test_registering_fills_a_wiped_state_again() -> None:
    async with desk("state") as it:
        await it.skill("a")
        it.engine.state.clear()
        assert await it.call("skills::list") == {"skills": []}

        await it.skill("a")
        assert [row["id"] for row in (await it.call("skills::list"))["skills"]] == ["a"]


@asynchronous
async def test_an_engine_without_state_fails_calls() -> None:
    engine = Engine()
    del engine.functions["state::get"]

    with pytest.raises(InvocationFailed, match=r"state::get not found"):
        await StateDocumentStore(engine).get("skills", "a")
