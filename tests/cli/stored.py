"""A store with records, and changes to it."""

from __future__ import annotations

import asyncio
import time
from contextlib import closing
from pathlib import Path

import apsw
import pytest

from waypost.stores import urls
from waypost.stores.instances import InstanceRecord
from waypost.stores.sessions import SessionRecord
from waypost.stores.store import Store
from waypost.stores.tasks import TaskRecord

LOOKING = [["check"], ["backup", "--to", "copy.db"], ["vacuum"]]


def fill(file: Path, old: int = 0) -> None:
    """Create a store with an instance, two tasks, a session, and a number of expired tasks."""

    async def scenario() -> None:
        store = Store(urls.create_database(f"sqlite:///{file}", Path("/")))
        instance = InstanceRecord(id="i", version=1, definition="d", principal="p", state="s", status="running")
        await store.instances.start(instance, time.time(), {})
        for number in range(2):
            await store.tasks.save(task(f"new-{number}", time.time() + 600))
        await asyncio.gather(*(store.tasks.save(task(f"old-{number}", 1.0)) for number in range(old)))
        await store.sessions.save(
            SessionRecord(
                id="s",
                version="2025-11-25",
                principal="p",
                client_info={"name": "c", "version": "1"},
                client_capabilities={},
                log_level=0,
                assigns={},
                subscriptions=[],
            )
        )
        await store.close()

    asyncio.run(scenario())


def task(task_id: str, expires_at: float) -> TaskRecord:
    """A completed task."""
    return TaskRecord(
        id=task_id,
        principal="p",
        status="completed",
        created_at="",
        updated_at="",
        ttl_ms=1000,
        poll_ms=500,
        expires_at=expires_at,
        result={"text": "x" * 1000},
    )


def change(file: Path, *statements: str) -> None:
    """Execute statements on a store that no hub would execute."""
    with closing(apsw.Connection(str(file))) as connection:
        for statement in statements:
            connection.execute(statement)


@pytest.fixture
def file(project: Path) -> Path:
    """The store of the hubs in the project, with records."""
    file = project / ".waypost" / "waypost.db"
    fill(file)
    return file
