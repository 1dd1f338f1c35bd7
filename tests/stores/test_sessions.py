import asyncio
from collections.abc import Callable
from pathlib import Path
from typing import Any

import msgspec
import pytest

from waypost.stores.sessions import FileSessions, MemorySessions, SessionRecord, SessionStore
from waypost.wire.versions import LATEST_LEGACY

RECORD = SessionRecord(
    id="session-0001",
    version=LATEST_LEGACY,
    principal="ada",
    client_info={"name": "tester", "version": "1"},
    client_capabilities={"roots": {}},
    log_level=3,
    assigns={"word": "plügh", "nested": {"list": [1, None, True]}},
    subscriptions=["docs://readme"],
)

Make = Callable[[Path], SessionStore]
STORES = pytest.mark.parametrize("make", [lambda _: MemorySessions(), FileSessions], ids=["memory", "file"])


def changed(**what: Any) -> SessionRecord:
    return msgspec.structs.replace(RECORD, **what)


@STORES
def test_what_is_saved_is_loaded_and_the_last_save_wins(make: Make, tmp_path: Path) -> None:
    async def run() -> None:
        store = make(tmp_path / "deep" / "sessions")
        assert await store.load(RECORD.id) is None
        await store.save(RECORD)
        assert await store.load(RECORD.id) == RECORD
        await store.save(changed(log_level=7))
        assert await store.load(RECORD.id) == changed(log_level=7)
        assert await store.load("session-0002") is None

    asyncio.run(run())


@STORES
def test_what_is_deleted_is_gone_and_may_be_deleted_twice(make: Make, tmp_path: Path) -> None:
    async def run() -> None:
        store = make(tmp_path)
        other = changed(id="session-0002")
        await store.save(RECORD)
        await store.save(other)
        await store.delete(RECORD.id)
        await store.delete(RECORD.id)
        assert await store.load(RECORD.id) is None
        assert await store.load(other.id) == other

    asyncio.run(run())


@STORES
@pytest.mark.parametrize(
    "name", ["", "../secret01", "/etc/passwd", "a" * 500, "short", "sess\0ion01", "..........", "é" * 9]
)
def test_an_id_that_is_none_finds_nothing(make: Make, tmp_path: Path, name: str) -> None:
    async def run() -> None:
        (tmp_path / "secret01.json").write_bytes(msgspec.json.encode(RECORD))
        store = make(tmp_path / "sessions")
        assert await store.load(name) is None
        await store.delete(name)
        assert (tmp_path / "secret01.json").exists()

    asyncio.run(run())


def test_a_file_is_not_written_for_an_id_that_is_none(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match="no session id"):
        asyncio.run(FileSessions(tmp_path).save(changed(id="../secret01")))
    assert list(tmp_path.iterdir()) == []


def test_memory_forgets_those_that_were_not_saved_for_longest() -> None:
    async def run() -> None:
        store = MemorySessions(kept=2)
        ids = [f"session-000{number}" for number in range(3)]
        await store.save(changed(id=ids[0]))
        await store.save(changed(id=ids[1]))
        await store.save(changed(id=ids[0]))
        await store.save(changed(id=ids[2]))
        found = [await store.load(session_id) is not None for session_id in ids]
        assert found == [True, False, True]

    asyncio.run(run())


@pytest.mark.parametrize("content", [b"", b"{", b"[]", b"{}", b"null", b'{"id": 5}', b"\xff"])
def test_a_damaged_file_is_no_session(tmp_path: Path, content: bytes) -> None:
    (tmp_path / f"{RECORD.id}.json").write_bytes(content)
    assert asyncio.run(FileSessions(tmp_path).load(RECORD.id)) is None


def test_files_are_shared_and_nothing_else_is_left_behind(tmp_path: Path) -> None:
    async def run() -> None:
        await FileSessions(tmp_path).save(RECORD)
        assert await FileSessions(tmp_path).load(RECORD.id) == RECORD

    asyncio.run(run())
    assert [file.name for file in tmp_path.iterdir()] == [f"{RECORD.id}.json"]


def test_saving_at_the_same_time_leaves_one_whole_record(tmp_path: Path) -> None:
    async def run() -> None:
        stores = [FileSessions(tmp_path) for _ in range(4)]
        saves = [store.save(changed(log_level=level)) for level in range(8) for store in stores]
        await asyncio.gather(*saves)
        found = await stores[0].load(RECORD.id)
        assert found is not None
        assert changed(log_level=found.log_level) == found

    asyncio.run(run())


def test_saves_one_after_the_other_never_fail(tmp_path: Path) -> None:
    async def run() -> None:
        store = FileSessions(tmp_path)
        for level in range(8):
            await store.save(changed(log_level=level))
        assert await store.load(RECORD.id) == changed(log_level=7)

    asyncio.run(run())
