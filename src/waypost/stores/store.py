"""The store: everything that outlives a request, in the words of the hub.

`Store` is the port the rest of the house uses, one part a domain. Each part says what it does in a few statements
written once (`statements.py`, `schema.py`); `Database` is the port below it, which `sqlite.py` and `postgres.py`
implement. Every change of a record is fenced by its version; every list is read in pages by key.
"""

from __future__ import annotations

import asyncio
import logging
import time
from pathlib import Path
from typing import Final, NamedTuple

from waypost.errors import StoreError
from waypost.stores import schema
from waypost.stores.audit import RETENTION_S as AUDIT_KEPT
from waypost.stores.audit import Audit
from waypost.stores.database import Database
from waypost.stores.instances import Instances
from waypost.stores.jobs import Jobs
from waypost.stores.records import Documents, State
from waypost.stores.sessions import EventLog, SessionStore
from waypost.stores.statements import Query
from waypost.stores.tasks import Requests, TaskStore

_log: Final = logging.getLogger(__name__)

_COUNTED: Final = ("instances", "tasks", "sessions")
_COUNTS: Final = Query(
    "SELECT (SELECT count(*) FROM instances), (SELECT count(*) FROM tasks), (SELECT count(*) FROM sessions)"
)
_REVISIONS: Final = Query("SELECT kind, number FROM revisions")
_PING: Final = Query("SELECT 1")
_PATIENCE: Final = 2.0
_GAPS: Final = Query(
    "SELECT i.id, i.version, count(h.version), coalesce(max(h.version), 0) FROM instances i "
    "LEFT JOIN history h ON h.instance = i.id GROUP BY i.id, i.version "
    "HAVING count(h.version) <> i.version OR coalesce(max(h.version), 0) <> i.version ORDER BY i.id LIMIT 100"
)
_ORPHANS: Final = Query(
    "SELECT DISTINCT instance FROM history WHERE instance NOT IN (SELECT id FROM instances) ORDER BY instance LIMIT 100"
)


class Store:
    """All domains over one database."""

    def __init__(self, database: Database) -> None:
        self.database = database
        self.sessions = SessionStore(database)
        self.tasks = TaskStore(database)
        self.events = EventLog(database)
        self.instances = Instances(database)
        self.requests = Requests(database)
        self.state = State(database)
        self.audit = Audit(database)
        self.jobs = Jobs(database)
        self.skills = Documents(database, schema.SKILLS)
        self.prompts = Documents(database, schema.PROMPTS)
        self.executables = Documents(database, schema.EXECUTABLES)
        self.definitions = Documents(database, schema.DEFINITIONS)
        self.keys = Documents(database, schema.KEYS)
        self.policies = Documents(database, schema.POLICIES)

    async def open(self) -> None:
        """Make sure the store can be used."""
        await self.database.open()

    @property
    def is_open(self) -> bool:
        """Whether anybody used it."""
        return self.database.is_open

    async def close(self) -> None:
        """Finish what waits and let go of the database."""
        await self.database.close()

    async def health(self) -> str:
        """`ok` or `unavailable`; the log says why."""
        try:
            async with asyncio.timeout(_PATIENCE):
                await self.database.read(_PING)
        except StoreError as error:
            _log.warning("the store is not well: %s", error.message)
            return "unavailable"
        except TimeoutError:
            _log.warning("the store is not well: it did not answer within %g s", _PATIENCE)
            return "unavailable"
        return "ok"

    async def sweep(self) -> int:
        """Forget everything whose time is over; how much that was."""
        now, swept = time.time(), 0
        for part in (self.sessions, self.tasks, self.events, self.requests):
            while some := await part.sweep(now):
                swept += some
        while some := await self.audit.sweep(now - AUDIT_KEPT):
            swept += some
        return swept

    async def check(self) -> list[str]:
        """Everything that is wrong with the store, one sentence each."""
        found = await self.database.check()
        if found:
            return found
        for instance, version, entries, newest in await self.database.read(_GAPS):
            found.append(
                f"Instance {instance} is at version {version}, but its history has {entries} entries up to {newest}."
            )
        for (instance,) in await self.database.read(_ORPHANS):
            found.append(f"There is a history of {instance}, but no such instance.")
        return found

    async def counts(self) -> dict[str, int]:
        """How much there is of what grows."""
        rows = await self.database.read(_COUNTS)
        return dict(zip(_COUNTED, rows[0], strict=True))

    async def revisions(self) -> dict[str, int]:
        """How often documents of each kind, and values of scopes that are counted, were changed, by whichever hub.

        Kinds that never were are left out.
        """
        return {row[0]: row[1] for row in await self.database.read(_REVISIONS)}

    async def vacuum(self) -> int:
        """Forget what is over and give its room back; how much was forgotten."""
        swept = await self.sweep()
        await self.database.vacuum()
        return swept

    async def backup(self, target: Path) -> None:
        """Write everything, as it is at one moment, into a new SQLite file."""
        await self.database.backup(target)


WORKFLOW_PREFIX: Final = "workflow:"
"""How the ids of those begin that people made; the ids of the others are digests."""
_BEHIND: Final = "workflow;"
"""What sorts right behind everything that begins so."""
_LEFT: Final = Query(
    "SELECT EXISTS (SELECT 1 FROM definitions WHERE id > ? AND id < ?), "
    "EXISTS (SELECT 1 FROM skills) OR EXISTS (SELECT 1 FROM prompts)"
)


class Persisted(NamedTuple):
    """What of earlier days a store holds."""

    workflows: bool
    """Whether people made workflows."""
    content: bool
    """Whether somebody published skills or prompts."""


async def detect_persisted(store: Store) -> Persisted:
    """One look at what an earlier process left in a store; a store that is not there yet is not made for that."""
    try:
        if store.database.is_durable and await store.database.schema_version():
            ((workflows, content),) = await store.database.read(_LEFT, WORKFLOW_PREFIX, _BEHIND)
            return Persisted(bool(workflows), bool(content))
    except StoreError as error:
        _log.warning("what was made earlier was not looked for: %s", error.message)
    return Persisted(workflows=False, content=False)
