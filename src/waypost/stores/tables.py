"""The tables as the newest migration leaves them; a table's key comes first."""

from __future__ import annotations

from typing import Final

from waypost.stores.statements import INTEGER, REAL, TEXT, Table

SESSIONS: Final = Table("sessions", id=TEXT, version=INTEGER, principal=TEXT, expires_at=REAL, body=TEXT)
TASKS: Final = Table(
    "tasks", id=TEXT, version=INTEGER, principal=TEXT, holder=TEXT, status=TEXT, expires_at=REAL, body=TEXT
)
EVENTS: Final = Table("events", keys=3, session=TEXT, stream=TEXT, number=INTEGER, expires_at=REAL, message=TEXT)
INSTANCES: Final = Table(
    "instances",
    id=TEXT,
    version=INTEGER,
    reservation=TEXT,
    reserved_until=REAL,
    reserved=TEXT,
    definition=TEXT,
    principal=TEXT,
    state=TEXT,
    status=TEXT,
    due_at=REAL,
    body=TEXT,
)
HISTORY: Final = Table("history", keys=2, instance=TEXT, version=INTEGER, at=REAL, body=TEXT)
NOTES: Final = Table("notes", keys=2, instance=TEXT, id=TEXT, at=REAL, body=TEXT)
REQUESTS: Final = Table("requests", keys=2, scope=TEXT, key=TEXT, digest=TEXT, expires_at=REAL, answer=TEXT)
STATE: Final = Table("state", keys=2, scope=TEXT, key=TEXT, version=INTEGER, value=TEXT)
AUDIT: Final = Table("audit", keys=2, chain=TEXT, number=INTEGER, at=REAL, size=INTEGER, denials=INTEGER, entries=TEXT)
JOBS: Final = Table(
    "jobs",
    keys=2,
    queue=TEXT,
    id=TEXT,
    version=INTEGER,
    status=TEXT,
    due_at=REAL,
    attempts=INTEGER,
    reason=TEXT,
    body=TEXT,
)
HOLDERS: Final = Table("holders", id=TEXT, expires_at=REAL)


def _documents(name: str) -> Table:
    return Table(name, id=TEXT, version=INTEGER, body=TEXT)


SKILLS: Final = _documents("skills")
PROMPTS: Final = _documents("prompts")
EXECUTABLES: Final = _documents("executables")
DEFINITIONS: Final = _documents("definitions")
KEYS: Final = _documents("keys")
POLICIES: Final = _documents("policies")
REVISIONS: Final = Table("revisions", kind=TEXT, number=INTEGER)
"""How often the documents of a table were changed, or the values of a scope."""

ALL: Final = (
    SESSIONS,
    TASKS,
    EVENTS,
    INSTANCES,
    HISTORY,
    NOTES,
    REQUESTS,
    STATE,
    AUDIT,
    JOBS,
    HOLDERS,
    SKILLS,
    PROMPTS,
    EXECUTABLES,
    DEFINITIONS,
    KEYS,
    POLICIES,
    REVISIONS,
)
