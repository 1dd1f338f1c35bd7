"""Records to store, and values and keys that are hard to store."""

from __future__ import annotations

from typing import Any, Final

import msgspec

from waypost.stores.audit import AuditEntry
from waypost.stores.instances import InstanceRecord
from waypost.stores.sessions import SessionRecord, StoredEvent
from waypost.stores.tasks import TaskRecord

NOW: Final = 1_800_000_000.0

VALUES: Final[tuple[Any, ...]] = (
    None,
    True,
    "",
    "nul \0 inside",
    "\u0001\u001f\u007f\u2028\ufffe",
    "e\u0301 is not é; 😀 \U0001d518 \U0010ffff",
    9_223_372_036_854_775_807,
    -9_223_372_036_854_775_808,
    18_446_744_073_709_551_615,
    1e308,
    5e-324,
    -0.5,
    [],
    {},
    {"": {"\0": [[[[["deep"]]]]], "ключ": None}},
    ["x" * 200_000],
)
"""JSON that databases like to get wrong."""

KEYS: Final = (
    "!",
    "A",
    "Z",
    "a",
    "a b",
    "a'b\"c;--",
    "aa",
    "b",
    "z",
    "ä",
    "a\u0308",
    "ß",
    "\ud7ff",
    "\ue000",
    "\uffff",
    "𐀀",
    "😀",
    "x" * 512,
    "😀" * 128,
    " ",
    "\t\n",
    "%_",
    "\\",
)
"""Keys whose order depends on who sorts them."""

IN_ORDER: Final = sorted(KEYS, key=str.encode)

NO_KEYS: Final = ("", "\0", "a\0b", "\ud800", "a\udfff", "x" * 513)
"""What is no key."""

SESSION: Final = SessionRecord(
    id="session-0001",
    version="2025-11-25",
    principal="ada",
    client_info={"name": "tester", "version": "1"},
    client_capabilities={"roots": {}},
    log_level=3,
    assigns={"word": "plügh", "nested": {"list": [1, None, True]}},
    subscriptions=["docs://readme"],
)
TASK: Final = TaskRecord(
    id="task-1",
    principal="ada",
    status="working",
    created_at="2026-08-01T10:00:00.000Z",
    updated_at="2026-08-01T10:00:00.000Z",
    ttl_ms=60_000,
    poll_ms=500,
    expires_at=NOW,
    holder="hub-1",
)
INSTANCE: Final = InstanceRecord(
    id="i1", version=1, definition="order", principal="ada", state="new", status="open", value={"n": 0}
)
ENTRY: Final = AuditEntry(
    chain="hub-1",
    number=1,
    at=NOW,
    principal="ada",
    capability="tool:add",
    decision="allowed",
    value={"why": "rule 1"},
    digest="d1",
)


def session(**changes: Any) -> SessionRecord:
    """The session with something else."""
    return msgspec.structs.replace(SESSION, **changes)


def task(**changes: Any) -> TaskRecord:
    """The task with something else."""
    return msgspec.structs.replace(TASK, **changes)


def instance(**changes: Any) -> InstanceRecord:
    """The instance with something else."""
    return msgspec.structs.replace(INSTANCE, **changes)


def audited(**changes: Any) -> AuditEntry:
    """The entry with something else."""
    return msgspec.structs.replace(ENTRY, **changes)


def event(number: int, *, session: str = "s", stream: str = "a", expires_at: float = NOW) -> StoredEvent:
    """A message of a stream."""
    return StoredEvent(session, stream, number, expires_at, f'{{"n":{number}}}')


def head_of(entry: AuditEntry) -> int:
    """A stand-in for the head of a chain that is not verified."""
    return entry.number


def checkpoint_of(chain: str, number: int) -> str:
    """A value to keep for entries that are deleted."""
    return f"{chain} {number}"
