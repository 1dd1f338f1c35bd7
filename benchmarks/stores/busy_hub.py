"""Fills the store of a hub as years of use would: instances in all states, one of them with a long history, audit."""

from __future__ import annotations

import asyncio
from contextlib import closing
from pathlib import Path
from typing import Final, NamedTuple

import apsw

from benchmarks.stores import moves
from waypost import Hub
from waypost.capabilities.context import DetachedCaller
from waypost.capabilities.principals import FROM_OUTSIDE, Principal
from waypost.config.models import Workflow
from waypost.kinds import convert
from waypost.stores.audit import AuditEntry

DEFINITION: Final = "release"
LONG: Final = "wf_" + "f" * 24
"""The instance with the long history; its id is the last, so that it is the newest."""
APPROVALS: Final = 20
MODEL: Final = convert(
    {
        "title": "Release",
        "initialState": "draft",
        "inputSchema": {"type": "object", "properties": {"service": {"type": "string"}}},
        "states": {
            "draft": {"transitions": {"build": {"target": "review"}}},
            "review": {
                "transitions": {
                    "ship": {"target": "shipped", "executor": {"kind": "human", "presents": {"service": "$.input"}}},
                    "revise": {"target": "draft"},
                }
            },
            "shipped": {"terminal": True},
        },
    },
    Workflow,
)
_STATES: Final = (("draft", "waiting_for_action"), ("review", "waiting_for_action"), ("shipped", "succeeded"))
_CALLER: Final = DetachedCaller(Principal("ci"), FROM_OUTSIDE)
_BLOCK: Final = 1_000
_SECONDS_APART: Final = 0.0004
_PRINCIPALS: Final = ("ci", "ada", "grace", "agent")


class Size(NamedTuple):
    """How much there is."""

    instances: int
    events: int
    entries: int


async def fill(hub: Hub, database: Path, size: Size) -> None:
    """Have so many instances, events of one of them, and entries of the audit; the hub is started and stopped."""
    await hub.store.open()
    await hub.start()
    engine = hub.workflows.engine
    await engine.begin(DEFINITION, {"service": "shop"}, _CALLER, workflow_id=LONG)
    for number in range(APPROVALS):
        name = f"wf_{'e' * 16}{number:08x}"
        await engine.begin(DEFINITION, {"service": f"shop-{number}"}, _CALLER, workflow_id=name)
        await engine.submit(name, 1, "build", {}, _CALLER)
        await engine.submit(name, 2, "ship", {}, _CALLER)
    await _append_entries(hub, size.entries)
    await asyncio.to_thread(_copy_instances, database, size)
    await hub.stop()


async def _append_entries(hub: Hub, count: int) -> None:
    began = hub.store.now() - count * _SECONDS_APART
    for start in range(0, count, _BLOCK):
        await hub.store.audit.append(
            *(_entry(number, began + number * _SECONDS_APART) for number in range(start, min(start + _BLOCK, count))),
            head=lambda last: {"number": last.number},
        )


def _entry(number: int, at: float) -> AuditEntry:
    principal, tool = _PRINCIPALS[number % len(_PRINCIPALS)], f"lookup_{number % 10_000:05d}"
    decision = "deny" if number % 50 == 0 else "allow"
    value = {
        "at": at,
        "principal": principal,
        "capability": tool,
        "decision": decision,
        "outcome": "ok" if decision == "allow" else "denied",
        "durationMs": 1.5,
    }
    return AuditEntry(
        chain="bench",
        number=number + 1,
        at=at,
        principal=principal,
        capability=tool,
        decision=decision,
        value=value,
        digest="0" * 64,
    )


def _copy_instances(database: Path, size: Size) -> None:
    """Write copies of a real instance and of its first event, without the engine."""
    with closing(apsw.Connection(str(database))) as connection:
        connection.set_busy_timeout(60_000)  # the hub runs, and may write at this moment
        connection.execute("PRAGMA synchronous = OFF")
        connection.execute("BEGIN IMMEDIATE")
        (body,) = next(connection.execute("SELECT body FROM instances WHERE id = ?", (LONG,)))
        (entry,) = next(connection.execute("SELECT body FROM history WHERE instance = ?", (LONG,)))
        names = [moves.name_of(number) for number in range(size.instances)]
        connection.executemany(
            moves.START,
            (
                (name, DEFINITION, _PRINCIPALS[number % len(_PRINCIPALS)], *_STATES[number % len(_STATES)], body)
                for number, name in enumerate(names)
            ),
        )
        connection.executemany(moves.ENTER, ((name, 1, moves.STARTED_AT, entry) for name in names))
        events = ((LONG, number, moves.MOVED_AT, entry) for number in range(2, size.events + 1))
        connection.executemany(moves.ENTER, events)
        connection.execute("UPDATE instances SET version = ? WHERE id = ?", (max(size.events, 1), LONG))
        connection.execute("COMMIT")
