"""A hub that starts has what was made and published while an earlier process ran, after one look at its store."""

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
    """A database in a file that knows what it was asked."""

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
    """What an earlier process left in its store."""
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
async def test_a_store_that_keeps_nothing_is_asked_once(tmp_path: Path) -> None:
    await leave(tmp_path / "hub.db")
    database, workflows, skills = await restarted(tmp_path / "hub.db")

    assert (workflows, skills) == ([], [])
    assert (database.steps, len(database.reads)) == (1, 1)


@pytest.mark.parametrize(("workflow", "skill"), [(True, False), (False, True), (True, True)])
@asynchronous
async def test_what_was_left_is_there_again_after_one_look(tmp_path: Path, workflow: bool, skill: bool) -> None:
    await leave(tmp_path / "hub.db", workflow=workflow, skill=skill)
    database, workflows, skills = await restarted(tmp_path / "hub.db")

    assert workflows == ["workflow:kept"] * workflow
    assert skills == ["iii://mail"] * skill
    assert database.steps == 1
    assert sum("EXISTS" in read for read in database.reads) == 1


@asynchronous
async def test_a_store_that_is_not_there_is_neither_read_nor_made(tmp_path: Path) -> None:
    database, _, _ = await restarted(tmp_path / "hub.db")

    assert (database.steps, database.reads) == (1, [])
    assert os.listdir(tmp_path) == []
