"""Writing the audit: in order, in chains of the store or as lines."""

from __future__ import annotations

import asyncio
import json
import re
import stat
from pathlib import Path
from typing import get_args

import pytest

from tests.policy.records import chains_in, entries, kept, log_to, record, verify, written
from tests.protocol.conftest import asynchronous, in_session, request
from waypost import Hub
from waypost.capabilities.capability import GATEWAY_TOOLS
from waypost.policy import audit as audits
from waypost.policy.audit import FILE, AuditChains, Record, writer
from waypost.stores.directory import Secret
from waypost.stores.sqlite import SqliteDatabase
from waypost.stores.store import Store


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
async def test_two_writers_have_two_chains() -> None:
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
async def test_a_chain_begins_with_the_ends_of_the_existing_chains() -> None:
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
        hub = Hub("h", version="1", audit="store", store="sqlite:///store.db", data_dir=tmp_path)
        hub.tool(lambda: "x", name="x")
        async with in_session(hub) as peer:
            await peer.result(request(1, "tools/call", {"name": "x", "arguments": {}}))

    store = Store(SqliteDatabase(tmp_path / "store.db"))
    verdict = await AuditChains(store, Secret(tmp_path), tmp_path).verify()
    assert (verdict.chains, verdict.entries, verdict.problems) == (3, 6, [])
    await store.close()


@asynchronous
async def test_a_stopped_hub_has_written_all_records(tmp_path: Path) -> None:
    hub = Hub("h", version="1", audit="store", store=Store(SqliteDatabase(tmp_path / "store.db")), data_dir=tmp_path)
    hub.tool(lambda: "x", name="x")
    async with in_session(hub) as peer:
        for number in range(20):
            await peer.result(request(number, "tools/call", {"name": "x", "arguments": {}}))

    store = Store(SqliteDatabase(tmp_path / "store.db"))
    [chain] = (await entries(store)).values()
    assert len(kept(chain)) == 20
    await store.close()


@asynchronous
async def test_all_records_are_written_while_the_log_is_flushed_in_between() -> None:
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
    """Let a hub answer two calls and stop."""
    hub.tool(lambda: "x", name="x")
    hub.tool(lambda: "y", name="y", permissions=["nobody"])

    async def calls() -> None:
        async with in_session(hub) as peer:
            await peer.ask(request(1, "tools/call", {"name": "x", "arguments": {"secret": "hunter2"}}))
            await peer.ask(request(2, "tools/call", {"name": "y", "arguments": {}}))

    asyncio.run(calls())


def parse_entries(lines: str) -> list[tuple[str, str, str]]:
    shown = [json.loads(line) for line in lines.splitlines() if line.startswith("{")]
    return [(one["capability"], one["decision"], one["outcome"]) for one in shown]


def test_the_audit_may_be_lines_in_a_file_of_its_owner_alone(tmp_path: Path) -> None:
    for _ in range(2):
        hub = Hub("h", version="1", audit="file", data_dir=tmp_path / "data")
        served(hub)

    file = tmp_path / "data" / FILE
    assert parse_entries(file.read_text()) == [("x", "allow", "ok"), ("y", "deny", "denied")] * 2
    assert stat.S_IMODE(file.stat().st_mode) == 0o600
    assert "hunter2" not in file.read_text()


def test_the_audit_may_be_lines_on_stderr(capsys: pytest.CaptureFixture[str]) -> None:
    served(Hub("h", version="1", audit="stderr"))

    out, err = capsys.readouterr()
    assert parse_entries(err) == [("x", "allow", "ok"), ("y", "deny", "denied")]
    assert out == ""


def test_without_an_audit_there_is_no_writer() -> None:
    assert writer("none", chains_in(Store(SqliteDatabase())), Path()) is None


def test_every_action_is_documented() -> None:
    source = Path(audits.__file__).parents[1]
    written = "\n".join(file.read_text() for file in source.rglob("*.py"))
    of_components = set(
        re.findall(r'"((?:workflow|approval|transition|outcome|capability)\.(?!html")[a-z_]+)"', written)
    )
    of_components -= {"workflow.id", *GATEWAY_TOOLS}
    outcomes = set(re.findall(r'outcome="([a-z]+)"|_fail\([^)"]*"([a-z]+)"', written))
    moves = {f"transition.{word}" for pair in outcomes for word in pair if word} - {"transition.ok"}
    table = (source.parents[1] / "docs" / "audit.md").read_text().partition("### Actions")[2].partition("\n## ")[0]
    documented = set(re.findall(r"`([a-z]+(?:\.[a-z_]+)?)`", table))

    known = {*get_args(audits.AdministrativeAction), *of_components, audits.KEYED, "begin", "call", "read", "prompt"}
    assert known - documented == set()
    assert {"transition.failed", "transition.halted", "transition.rejected", "transition.expired"} <= moves
    assert {one for one in documented if "." in one} - known - moves == set()
