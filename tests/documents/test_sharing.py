"""Several hubs on one store notice each other's changes, and read the documents only after a change."""

from __future__ import annotations

import asyncio
import subprocess
import sys
from collections.abc import AsyncIterator, Sequence
from contextlib import AsyncExitStack, asynccontextmanager
from pathlib import Path

import pytest
from msgspec.structs import replace

from tests.contract.conftest import Place, asynchronous
from tests.contract.conftest import lasting_place as lasting_place
from tests.documents.desk import Desk, desk
from tests.documents.test_borrowing import Folder, document
from tests.postgres import postgres_server as postgres_server
from tests.postgres import postgres_url as postgres_url
from tests.stores.counted import CountedPostgres, CountedSqlite
from tests.worker.engine import working
from tests.workers.wire import hub_for_workers
from waypost.capabilities.capability import Priority
from waypost.capabilities.registry import Registry
from waypost.documents.records import Source
from waypost.documents.stores import HubDocumentStore
from waypost.runtime import runtime as runtime_module
from waypost.stores.database import Database
from waypost.stores.sqlite import SqliteDatabase
from waypost.stores.store import Store
from waypost.testing import connect


def counted(place: Place) -> CountedPostgres | CountedSqlite:
    """A database that counts its reads."""
    if isinstance(place.where, str):
        return CountedPostgres(place.where)
    assert place.where is not None
    return CountedSqlite(place.where)


@asynccontextmanager
async def beside(
    database: Database, registry: Registry | None = None, sources: Sequence[Source] = ()
) -> AsyncIterator[Desk]:
    """A registry that has loaded the documents of a store."""
    store = Store(database)
    async with AsyncExitStack() as stack:
        stack.push_async_callback(store.close)
        it = await stack.enter_async_context(desk(HubDocumentStore(store), registry=registry, sources=sources))
        await it.content.refresh()
        yield it


@asynchronous
async def test_documents_are_read_only_after_a_change_by_another_hub(lasting_place: Place) -> None:
    here = counted(lasting_place)
    async with beside(lasting_place.database()) as other, beside(here) as it:
        here.reads.clear()
        for _ in range(5):
            await it.content.refresh()
        assert here.reads == {"revisions": 5}
        assert it.changes == []

        await other.skill("a")
        await other.prompt("p")
        await it.content.refresh()
        assert sorted(it.changes) == [("prompts", "register", "p"), ("skills", "register", "a")]
        await other.skill("a", "# New")
        await it.content.refresh()
        await other.call("skills::unregister", {"id": "a"})
        await it.content.refresh()
        assert it.changes[2:] == [("skills", "register", "a"), ("skills", "unregister", "a")]
        here.reads.clear()
        await it.content.refresh()
        assert here.reads == {"revisions": 1}


@asynchronous
async def test_a_skill_that_was_removed_and_added_again_is_noticed(lasting_place: Place) -> None:
    async with beside(lasting_place.database()) as other, beside(lasting_place.database(), Registry()) as it:
        await other.skill("a", "# Old")
        await it.content.refresh()
        await other.call("skills::unregister", {"id": "a"})
        await other.skill("a", "# New")
        await it.content.refresh()

        assert it.changes == [("skills", "register", "a")] * 2


@asynchronous
async def test_a_changed_folder_is_read_without_a_change_in_the_store(tmp_path: Path) -> None:
    folder = Folder(document("pdf", "# PDF"))
    database = CountedSqlite(tmp_path / "store.db")
    async with beside(database, sources=[folder]) as it:
        folder.found = [document("pdf", "# New")]
        await it.content.refresh()
        assert it.changes == [("skills", "register", "pdf")]
        database.reads.clear()
        folder.found = list(folder.found)
        await it.content.refresh()
        assert database.reads == {"revisions": 1}


@asynchronous
async def test_a_stored_skill_takes_a_uri_as_soon_as_it_is_free(tmp_path: Path) -> None:
    registry = Registry()
    database = CountedSqlite(tmp_path / "store.db")
    async with beside(SqliteDatabase(tmp_path / "store.db")) as other, beside(database, registry) as it:
        await other.skill("a")
        await it.content.refresh()
        row = replace(registry.resource("iii://a"), priority=Priority.HUB)
        await it.content.stop()
        registry.add([row])
        await it.content.refresh()
        await it.content.refresh()
        database.reads.clear()
        await it.content.refresh()
        assert database.reads == {"revisions": 1}

        registry.remove([row])
        assert registry.resource("iii://a") is not row
        assert registry.resource("iii://a").id == "iii://a"


PUBLISHING = """
import asyncio, sys
from pathlib import Path
from waypost.stores.sqlite import SqliteDatabase
from waypost.stores.store import Store

async def publish():
    store = Store(SqliteDatabase(Path(sys.argv[1])))
    await store.skills.put("a", {"id": "a", "skill": "# A", "registered_at": "1"})
    await store.close()

asyncio.run(publish())
"""


@asynchronous
async def test_changes_of_another_process_in_the_same_file_are_noticed(tmp_path: Path) -> None:
    path = tmp_path / "store.db"
    async with beside(SqliteDatabase(path)) as it:
        command = [sys.executable, "-c", PUBLISHING, str(path)]
        await asyncio.to_thread(subprocess.run, command, check=True)
        await it.content.refresh()

        assert it.changes == [("skills", "register", "a")]


@asynchronous
async def test_hubs_on_one_server_read_only_revisions_until_a_document_changes(
    postgres_url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(runtime_module, "REFRESH_INTERVAL_S", 0.01)
    database = CountedPostgres(postgres_url)
    reads = database.reads
    first, second = hub_for_workers(store=postgres_url), hub_for_workers(store=Store(database))
    try:
        async with connect(first), connect(second) as client, working(first, "mailer") as worker:
            await worker.publish_skill("mail", "# Mail")
            await second.documents.refresh()
            assert (await client.read_resource("iii://mail")).text == "# Mail"
            reads.clear()
            await reads.until(lambda: reads["revisions"] > 4)
            assert {table: reads[table] for table in ("skills", "prompts", "keys")} == {
                "skills": 0,
                "prompts": 0,
                "keys": 0,
            }

            await reads.after(worker.publish_skill("more", "# More"))
            assert "iii://more" in [one["uri"] for one in await client.list_resources()]
            await reads.after(worker.trigger("skills::unregister", {"id": "more"}))
            assert "iii://more" not in [one["uri"] for one in await client.list_resources()]
    finally:
        await second.stop()
        await first.stop()
