"""While the audit cannot be written, records wait, and calls are refused once too many wait."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Coroutine
from pathlib import Path
from typing import Any

import pytest

from tests.policy.records import blocked, chains_in, entries, kept, log_to, record, verify
from tests.protocol.conftest import asynchronous, in_session, request, until
from waypost import Hub
from waypost.errors import Busy
from waypost.policy import audit as audits
from waypost.policy.audit import FILE, AuditLog, Record, writer
from waypost.stores.database import Point
from waypost.stores.sqlite import SqliteDatabase
from waypost.stores.store import Store


@asynchronous
async def test_records_wait_while_the_store_is_unavailable(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    store, come_back = blocked(tmp_path)
    log = log_to(store)
    for number in range(5):
        log.add(record(number))
    await until(lambda: "the audit is not written" in caplog.text)
    log.add(record(5))
    come_back()
    await log.written()

    [chain] = (await entries(store)).values()
    assert kept(chain) == [f"tool{number}" for number in range(6)]
    assert (await verify(store)).problems == []
    await store.close()


@asynchronous
async def test_a_store_that_fails_between_two_records_leaves_no_gap() -> None:
    is_away = False

    def at(point: Point) -> None:
        if is_away and point == "begun":
            raise OSError("gone")

    store = Store(SqliteDatabase(at=at))
    log = log_to(store)
    log.add(record(0))
    await log.written()
    is_away = True
    log.add(record(1))
    await asyncio.sleep(0.05)
    log.add(record(2))
    is_away = False
    await log.written()

    [chain] = (await entries(store)).values()
    assert kept(chain) == ["tool0", "tool1", "tool2"]
    assert (await verify(store)).problems == []
    await store.close()


@pytest.mark.parametrize("lost", [1, 2])
@pytest.mark.parametrize("grows", [False, True])
@asynchronous
async def test_an_unacknowledged_commit_does_not_break_the_chain(
    lost: int, grows: bool, caplog: pytest.LogCaptureFixture
) -> None:
    commits = 0

    def at(point: Point) -> None:
        nonlocal commits
        if point == "committed":
            commits += 1
            if commits == lost:
                raise OSError("the answer was lost")

    store = Store(SqliteDatabase(at=at))
    log = log_to(store)
    if lost == 2:
        log.add(record(0))
        await log.written()
    log.add(record(1))
    await until(lambda: "the audit is not written" in caplog.text)
    if grows:
        log.add(record(2))
    await log.written()

    found = [name for chain in (await entries(store)).values() for name in kept(chain)]
    assert {"tool1"} | ({"tool2"} if grows else set()) <= set(found)
    assert (await verify(store)).problems == []
    await store.close()


@asynchronous
async def test_records_are_written_once_although_the_deletion_of_old_entries_fails(
    caplog: pytest.LogCaptureFixture,
) -> None:
    is_away = fails_after_a_commit = False

    def at(point: Point) -> None:
        nonlocal is_away
        if is_away and point == "begun":
            raise OSError("gone")
        is_away = fails_after_a_commit and point == "committed"

    store = Store(SqliteDatabase(at=at))
    chains = chains_in(store)
    log = AuditLog(chains, asyncio.create_task)
    log.add(record(0))
    await log.written()
    fails_after_a_commit = True
    chains._max_bytes = 1
    log.add(record(1))
    await until(lambda: "gone" in caplog.text)
    is_away = fails_after_a_commit = False
    await log.written()

    [chain] = (await entries(store)).values()
    assert kept(chain) == ["tool0", "tool1"]
    assert (await verify(store)).problems == []
    await store.close()


@asynchronous
async def test_a_hub_stops_although_its_store_is_unavailable(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    store, _ = blocked(tmp_path)
    hub = Hub("h", version="1", audit="store", store=store, data_dir=tmp_path / "hub")
    hub.tool(lambda: "x", name="x")
    async with asyncio.timeout(60), in_session(hub) as peer:
        result = await peer.result(request(1, "tools/call", {"name": "x", "arguments": {}}))
    assert result["content"][0]["text"] == "x"
    assert "the audit is not written" in caplog.text


@asynchronous
async def test_a_restarted_hub_continues_to_write_the_audit(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    is_away = False

    def at(point: Point) -> None:
        if is_away and point == "begun":
            raise OSError("gone")

    hub = Hub(
        "h", version="1", audit="store", store=Store(SqliteDatabase(tmp_path / "store.db", at=at)), data_dir=tmp_path
    )
    hub.tool(lambda: "x", name="x")
    call = request(1, "tools/call", {"name": "x", "arguments": {}})
    async with in_session(hub) as peer:
        await peer.result(call)

    await hub.start()
    is_away = True
    async with in_session(hub) as peer:
        await peer.result(call)
        await until(lambda: "the audit is not written" in caplog.text)
        is_away = False
        assert hub.guard.audit is not None
        await hub.guard.audit.written()

    [chain] = (await entries(hub.store)).values()
    assert kept(chain) == ["x", "x"]
    assert (await hub.runtime.core.chains.verify()).problems == []
    await hub.store.close()


@asynchronous
async def test_records_that_could_not_be_written_before_a_stop_are_written_after_a_start(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(audits, "MAX_WAITING_RECORDS", 3)
    store, come_back = blocked(tmp_path)
    log = log_to(store)
    for number in range(3):
        log.add(record(number))
    log.stop()
    await log.written()
    with pytest.raises(Busy):
        log.check_room()
    await log.written()

    come_back()
    log.start()
    await log.written()
    log.check_room()
    [chain] = (await entries(store)).values()
    assert kept(chain) == ["tool0", "tool1", "tool2"]
    await store.close()


@asynchronous
async def test_a_stopped_log_writes_again_after_a_check_for_room(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(audits, "MAX_WAITING_RECORDS", 1)
    store, come_back = blocked(tmp_path)
    log = log_to(store)
    log.add(record(0))
    log.stop()
    await log.written()

    come_back()
    with pytest.raises(Busy):
        log.check_room()
    await log.written()
    log.check_room()
    await store.close()


@asynchronous
async def test_calls_fail_when_too_many_records_wait(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(audits, "MAX_WAITING_RECORDS", 3)
    store, come_back = blocked(tmp_path)
    log = log_to(store)
    for number in range(3):
        log.check_room()
        log.add(record(number))
    with pytest.raises(
        Busy, match=r"^The audit cannot be written, and no call runs without its record; try again later\.$"
    ):
        log.check_room()

    come_back()
    await log.written()
    log.check_room()
    await store.close()


@asynchronous
async def test_writing_to_a_file_is_retried(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    obstacle = tmp_path / "data"
    await asyncio.to_thread(obstacle.write_text, "in the way")
    lines = writer("file", chains_in(Store(SqliteDatabase())), obstacle)
    assert lines is not None
    log = AuditLog(lines, asyncio.create_task)
    log.add(record(1))
    await until(lambda: "the audit is not written" in caplog.text)
    await asyncio.to_thread(obstacle.unlink)
    await log.written()

    assert '"tool1"' in await asyncio.to_thread((obstacle / FILE).read_text)


@asynchronous
async def test_an_unexpected_error_of_the_writer_does_not_prevent_the_next_write() -> None:
    class Broken:
        def __init__(self) -> None:
            self.tries = 0

        async def write(self, records: list[Record]) -> None:
            self.tries += 1
            raise RuntimeError("a bug")

    broken = Broken()
    background: Callable[[Coroutine[Any, Any, Any]], asyncio.Task[Any]] = asyncio.create_task
    log = AuditLog(broken, background)
    for number in range(2):
        log.add(record(number))
        with pytest.raises(RuntimeError):
            await _end_of(log)
    assert broken.tries == 2


def _end_of(log: AuditLog) -> Awaitable[Any]:
    assert log._writing is not None
    return log._writing
