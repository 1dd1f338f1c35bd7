"""The audit on its way to where it is kept: in chains, in order, and not lost while the store is away."""

from __future__ import annotations

import asyncio
import json
import stat
from collections.abc import Awaitable, Callable, Coroutine
from pathlib import Path
from typing import Any

import pytest

from tests.protocol.conftest import asynchronous, in_session, request, until
from waypost import Hub
from waypost.errors import Busy
from waypost.policy import audit as audits
from waypost.policy.audit import FILE, AuditLog, Record, StoreWriter, writer
from waypost.policy.verification import verify
from waypost.stores.audit import AuditEntry
from waypost.stores.database import Point
from waypost.stores.sqlite import SqliteDatabase
from waypost.stores.store import Store


def record(number: int, **values: Any) -> Record:
    return Record(1000.0 + number, "ann", "mcp", f"tool{number}", "allow", **values)


def log_to(store: Store) -> AuditLog:
    return AuditLog(StoreWriter(lambda: store), asyncio.create_task)


async def written(store: Store, *records: Record) -> None:
    """Write records as one process would."""
    log = log_to(store)
    for one in records:
        log.add(one)
    await log.written()


async def entries(store: Store) -> dict[str, list[AuditEntry]]:
    return {chain: await store.audit.chain(chain) for chain in await store.audit.chains()}


def kept(chain: list[AuditEntry]) -> list[str]:
    """The capabilities of a chain's entries, without its beginning."""
    return [entry.capability for entry in chain if entry.value.get("action") != "begin"]


def blocked(tmp_path: Path) -> tuple[Store, Callable[[], None]]:
    """A store that cannot be used until a file that is in its way is gone."""
    obstacle = tmp_path / "data"
    obstacle.write_text("in the way")
    return Store(SqliteDatabase(obstacle / "store.db")), obstacle.unlink


@asynchronous
async def test_records_become_a_chain_without_gaps_in_their_order() -> None:
    store = Store(SqliteDatabase())
    await written(store, *(record(number) for number in range(900)))

    [chain] = (await entries(store)).values()
    assert [entry.number for entry in chain] == list(range(1, 902))
    assert chain[0].value["action"] == "begin"
    assert kept(chain) == [f"tool{number}" for number in range(900)]
    assert len({entry.digest for entry in chain}) == 901
    assert (await verify(store)).problems == []
    await store.close()


@asynchronous
async def test_an_entry_holds_what_the_record_says() -> None:
    store = Store(SqliteDatabase())
    await written(store, record(1, reason="because", rule="r", depth=2, run="wf_1", outcome="ok", duration_ms=1.5))

    [entry] = await store.audit.latest(1)
    assert (entry.at, entry.principal, entry.capability, entry.decision) == (1001.0, "ann", "tool1", "allow")
    said = {key: value for key, value in entry.value.items() if not key.startswith("previous")}
    assert said == {
        "at": 1001.0,
        "principal": "ann",
        "callerType": "mcp",
        "capability": "tool1",
        "decision": "allow",
        "reason": "because",
        "rule": "r",
        "depth": 2,
        "run": "wf_1",
        "outcome": "ok",
        "durationMs": 1.5,
    }
    await store.close()


@asynchronous
async def test_the_latest_of_one_decision_can_be_asked_for() -> None:
    store = Store(SqliteDatabase())
    denied = Record(2000.0, "bob", "mcp", "deploy", "deny", reason="no", outcome="denied")
    await written(store, record(1), denied, record(2))

    assert [entry.capability for entry in await store.audit.latest(10, decision="deny")] == ["deploy"]
    await store.close()


@asynchronous
async def test_two_who_write_have_two_chains() -> None:
    store = Store(SqliteDatabase())
    await asyncio.gather(
        written(store, *(record(number) for number in range(300))),
        written(store, *(record(number) for number in range(300))),
    )

    chains = list((await entries(store)).values())
    assert [len(kept(chain)) for chain in chains] == [300, 300]
    assert (await verify(store)).problems == []
    await store.close()


@asynchronous
async def test_a_chain_begins_with_the_ends_of_those_that_are_there() -> None:
    store = Store(SqliteDatabase())
    await written(store, record(1), record(2))
    [(older, chain)] = (await entries(store)).items()
    await written(store, record(3))

    [newer] = [chain for name, chain in (await entries(store)).items() if name != older]
    assert json.loads(newer[0].value["reason"])[older][:2] == [3, chain[-1].digest]
    assert (await verify(store)).problems == []
    await store.close()


@asynchronous
async def test_a_hub_that_starts_again_writes_a_new_chain(tmp_path: Path) -> None:
    for _ in range(3):
        hub = Hub("h", version="1", audit="store", store="sqlite:///store.db")
        hub.settle_in(tmp_path)
        hub.tool(lambda: "x", name="x")
        async with in_session(hub) as peer:
            await peer.result(request(1, "tools/call", {"name": "x", "arguments": {}}))

    store = Store(SqliteDatabase(tmp_path / "store.db"))
    verdict = await verify(store)
    assert (verdict.chains, verdict.entries, verdict.problems) == (3, 6, [])
    await store.close()


@asynchronous
async def test_what_a_hub_did_last_is_on_record_when_it_has_stopped(tmp_path: Path) -> None:
    hub = Hub("h", version="1", audit="store", store=Store(SqliteDatabase(tmp_path / "store.db")))
    hub.tool(lambda: "x", name="x")
    async with in_session(hub) as peer:
        for number in range(20):
            await peer.result(request(number, "tools/call", {"name": "x", "arguments": {}}))

    store = Store(SqliteDatabase(tmp_path / "store.db"))
    [chain] = (await entries(store)).values()
    assert len(kept(chain)) == 20
    await store.close()


@asynchronous
async def test_while_the_store_is_away_records_wait(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
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
async def test_a_store_that_goes_away_in_the_middle_leaves_no_gap() -> None:
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
async def test_a_commit_nobody_heard_of_breaks_no_chain(
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
async def test_a_hub_stops_soon_though_its_store_is_away(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    store, _ = blocked(tmp_path)
    hub = Hub("h", version="1", audit="store", store=store)
    hub.tool(lambda: "x", name="x")
    async with asyncio.timeout(10), in_session(hub) as peer:
        result = await peer.result(request(1, "tools/call", {"name": "x", "arguments": {}}))
    assert result["content"][0]["text"] == "x"
    assert "the audit is not written" in caplog.text


@asynchronous
async def test_a_hub_that_is_stopped_and_started_again_goes_on_recording(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    is_away = False

    def at(point: Point) -> None:
        if is_away and point == "begun":
            raise OSError("gone")

    hub = Hub("h", version="1", audit="store", store=Store(SqliteDatabase(tmp_path / "store.db", at=at)))
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
    assert (await verify(hub.store)).problems == []
    await hub.store.close()


@asynchronous
async def test_what_could_not_be_written_before_a_stop_is_written_after_a_start(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(audits, "_MOST_WAITING", 3)
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
async def test_a_log_that_was_stopped_writes_again_once_somebody_looks_for_room(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(audits, "_MOST_WAITING", 1)
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
    monkeypatch.setattr(audits, "_MOST_WAITING", 3)
    store, come_back = blocked(tmp_path)
    log = log_to(store)
    for number in range(3):
        log.check_room()
        log.add(record(number))
    with pytest.raises(Busy, match=r"^The audit cannot be written, so nothing is done .*; try again later\.$"):
        log.check_room()

    come_back()
    await log.written()
    log.check_room()
    await store.close()


@asynchronous
async def test_every_record_that_is_waited_for_is_written() -> None:
    store = Store(SqliteDatabase())
    log = log_to(store)
    for number in range(30):
        log.add(record(number))
        if number % 7 == 0:
            await log.written()
    await log.written()

    [chain] = (await entries(store)).values()
    assert len(kept(chain)) == 30
    await store.close()


def served(hub: Hub) -> None:
    """Have a hub answer two calls and stop."""
    hub.tool(lambda: "x", name="x")
    hub.tool(lambda: "y", name="y", permissions=["nobody"])

    async def calls() -> None:
        async with in_session(hub) as peer:
            await peer.ask(request(1, "tools/call", {"name": "x", "arguments": {"secret": "hunter2"}}))
            await peer.ask(request(2, "tools/call", {"name": "y", "arguments": {}}))

    asyncio.run(calls())


def told(lines: str) -> list[tuple[str, str, str]]:
    shown = [json.loads(line) for line in lines.splitlines() if line.startswith("{")]
    return [(one["capability"], one["decision"], one["outcome"]) for one in shown]


def test_the_audit_may_be_lines_in_a_file_of_its_owner_alone(tmp_path: Path) -> None:
    for _ in range(2):
        hub = Hub("h", version="1", audit="file")
        hub.settle_in(tmp_path / "data")
        served(hub)

    file = tmp_path / "data" / FILE
    assert told(file.read_text()) == [("x", "allow", "ok"), ("y", "deny", "denied")] * 2
    assert stat.S_IMODE(file.stat().st_mode) == 0o600
    assert "hunter2" not in file.read_text()


def test_the_audit_may_be_lines_on_stderr(capsys: pytest.CaptureFixture[str]) -> None:
    served(Hub("h", version="1", audit="stderr"))

    out, err = capsys.readouterr()
    assert told(err) == [("x", "allow", "ok"), ("y", "deny", "denied")]
    assert out == ""


@asynchronous
async def test_a_file_that_cannot_be_written_is_tried_again(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    obstacle = tmp_path / "data"
    await asyncio.to_thread(obstacle.write_text, "in the way")
    lines = writer("file", lambda: Store(SqliteDatabase()), lambda: obstacle)
    assert lines is not None
    log = AuditLog(lines, asyncio.create_task)
    log.add(record(1))
    await until(lambda: "the audit is not written" in caplog.text)
    await asyncio.to_thread(obstacle.unlink)
    await log.written()

    assert '"tool1"' in await asyncio.to_thread((obstacle / FILE).read_text)


def test_no_audit_is_no_writer() -> None:
    assert writer("none", lambda: Store(SqliteDatabase()), Path) is None


@asynchronous
async def test_whatever_a_writer_fails_with_the_next_record_is_tried() -> None:
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
