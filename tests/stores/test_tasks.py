import asyncio
from typing import Any

import msgspec
import pytest

from waypost.stores.tasks import MemoryTasks, TaskRecord

RECORD = TaskRecord(
    id="task-1",
    principal="ada",
    status="working",
    created_at="2026-08-01T10:00:00.000Z",
    updated_at="2026-08-01T10:00:00.000Z",
    ttl_ms=60_000,
    poll_ms=500,
)


def changed(**what: Any) -> TaskRecord:
    return msgspec.structs.replace(RECORD, **what)


def test_what_is_saved_is_loaded_and_the_last_save_wins() -> None:
    async def run() -> None:
        store = MemoryTasks()
        assert await store.load(RECORD.id) is None
        await store.save(RECORD)
        assert await store.load(RECORD.id) == RECORD
        await store.save(changed(status="completed", result={"content": []}))
        assert await store.load(RECORD.id) == changed(status="completed", result={"content": []})
        assert await store.load("task-2") is None

    asyncio.run(run())


def test_what_is_deleted_is_gone_and_may_be_deleted_twice() -> None:
    async def run() -> None:
        store = MemoryTasks()
        await store.save(RECORD)
        await store.save(changed(id="task-2"))
        await store.delete(RECORD.id)
        await store.delete(RECORD.id)
        assert await store.load(RECORD.id) is None
        assert await store.load("task-2") == changed(id="task-2")

    asyncio.run(run())


def test_a_page_has_one_principals_tasks_in_order_behind_the_last_one_seen() -> None:
    async def run() -> None:
        store = MemoryTasks()
        for key in ("c", "a", "d", "b"):
            await store.save(changed(id=key))
        await store.save(changed(id="bb", principal="grace"))

        async def page(principal: str, after: str | None, limit: int) -> str:
            return " ".join(record.id for record in await store.page(principal, after, limit))

        assert await page("ada", None, 10) == "a b c d"
        assert await page("ada", None, 3) == "a b c"
        assert await page("ada", "c", 3) == "d"
        assert await page("ada", "bb", 3) == "c d"
        assert await page("ada", "d", 3) == ""
        assert await page("grace", None, 3) == "bb"
        assert await page("nobody", None, 3) == ""

    asyncio.run(run())


@pytest.mark.parametrize(
    ("status", "over"),
    [("working", False), ("input_required", False), ("completed", True), ("failed", True), ("cancelled", True)],
)
def test_a_task_is_over_once_it_has_ended(status: str, over: bool) -> None:
    assert changed(status=status).is_over is over


def test_a_record_survives_json() -> None:
    asked = {"who-1": {"method": "elicitation/create", "params": {"message": "Who?"}}}
    record = changed(status="input_required", input_requests=asked)
    assert msgspec.json.decode(msgspec.json.encode(record), type=TaskRecord) == record
