"""A hub that starts restores the workflows and skills in its store, after one query."""

from __future__ import annotations

import os
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest

from tests.contract.conftest import asynchronous
from tests.hub.samples import empty, ids
from waypost.config.models import State, Transition, Workflow
from waypost.stores.database import Query, Row
from waypost.stores.sqlite import SqliteDatabase
from waypost.stores.store import Store
from waypost.testing import connect

FLOW = Workflow(
    initial_state="open",
    states={"open": State(transitions={"close": Transition(target="done")}), "done": State(terminal=True)},
)


class Watched(SqliteDatabase):
    """A database file that records its reads."""

    def __init__(self, path: Path) -> None:
        super().__init__(path)
        self.steps = 0
        self.reads: list[str] = []

    async def schema_version(self) -> int:
        self.steps += 1
        return await super().schema_version()

    async def read(self, query: Query, *given: Any) -> Sequence[Row]:
        self.reads.append(query.sqlite)
        return await super().read(query, *given)


async def leave(path: Path, *, workflow: bool = False, skill: bool = False) -> None:
    """Fill the store as an earlier process would have."""
    hub = empty(store=f"sqlite:///{path}", workers=False)
    async with connect(hub):
        await hub.store.open()
        if workflow:
            await hub.workflows.stored.create("kept", FLOW)
        if skill:
            await hub.documents.skills.register("mail", "# Mail")
    await hub.stop()


async def restarted(path: Path) -> tuple[Watched, list[str], list[str]]:
    """The store of a hub that starts, and the workflows and skills that the hub has then."""
    database = Watched(path)
    hub = empty(store=Store(database), workers=False)
    async with connect(hub):
        workflows = [name for name in ids(hub) if name.startswith("workflow:")]
        skills = [uri for uri in ids(hub, "resources") if uri == "iii://mail"]
    await hub.stop()
    return database, workflows, skills


@asynchronous
async def test_an_empty_store_is_read_once(tmp_path: Path) -> None:
    await leave(tmp_path / "hub.db")
    database, workflows, skills = await restarted(tmp_path / "hub.db")

    assert (workflows, skills) == ([], [])
    assert (database.steps, len(database.reads)) == (1, 1)


@pytest.mark.parametrize(("workflow", "skill"), [(True, False), (False, True), (True, True)])
@asynchronous
async def test_stored_workflows_and_skills_are_found_with_one_query(
    tmp_path: Path, workflow: bool, skill: bool
) -> None:
    await leave(tmp_path / "hub.db", workflow=workflow, skill=skill)
    database, workflows, skills = await restarted(tmp_path / "hub.db")

    assert workflows == ["workflow:kept"] * workflow
    assert skills == ["iii://mail"] * skill
    assert database.steps == 1
    assert sum("EXISTS" in read for read in database.reads) == 1


@asynchronous
async def test_a_missing_store_is_neither_read_nor_created(tmp_path: Path) -> None:
    database, _, _ = await restarted(tmp_path / "hub.db")

    assert (database.steps, database.reads) == (1, [])
    assert os.listdir(tmp_path) == []
