"""The store: everything that outlives a request.

`Store` is what the rest of the package uses, with one attribute per domain. A domain is a few SQL statements, written
once for all engines (`database.py`, `schema.py`). `Database` is the port below, which an engine (`sqlite.py`,
`postgres.py`) implements. Every change of a record is conditional on its version; every list is read in pages by key.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Final, NamedTuple

from waypost.errors import StaleVersion, StoreError
from waypost.stores import schema
from waypost.stores.audit import Audit
from waypost.stores.database import PROOF_CHARS, Database, Query
from waypost.stores.instances import PROXY_RETENTION_S, Instances
from waypost.stores.records import Documents, Jobs, State
from waypost.stores.secrets import StoredSecrets
from waypost.stores.sessions import EventLog, SessionStore
from waypost.stores.tasks import RequestRecord, Requests, TaskStore

_log: Final = logging.getLogger(__name__)

_COUNTED: Final = ("instances", "tasks", "sessions")
_COUNTS: Final = Query(
    "SELECT (SELECT count(*) FROM instances), (SELECT count(*) FROM tasks), (SELECT count(*) FROM sessions)",
    is_slow=True,
)
_REVISIONS: Final = Query("SELECT kind, number FROM revisions")
_PING: Final = Query("SELECT 1")
_HEALTH_TIMEOUT_S: Final = 2.0
_PROBE: Final = "health"
"""The row that a health check writes after a failed write; it has expired, and is swept. It is large, since a full disk
may have room for a small one."""
_REMOVED: Final = "secrets removed"
"""The scope of the state that says for which secrets earlier rows were looked through."""
_GAPS: Final = Query(
    "SELECT i.id, i.version, count(h.version), coalesce(max(h.version), 0) FROM instances i "
    "LEFT JOIN history h ON h.instance = i.id GROUP BY i.id, i.version "
    "HAVING count(h.version) <> i.version OR coalesce(max(h.version), 0) <> i.version ORDER BY i.id LIMIT 100",
    is_slow=True,
)
_ORPHANS: Final = Query(
    "SELECT DISTINCT instance FROM history WHERE instance NOT IN (SELECT id FROM instances) "
    "ORDER BY instance LIMIT 100",
    is_slow=True,
)


class Store:
    """All domains over one database, which opens itself on first use."""

    def __init__(self, database: Database) -> None:
        secrets = StoredSecrets()
        self.database = database
        self.on_change: Callable[[str, str], None] | None = None
        """Called with the kind and id of each document, or scope and key of each counted value, that was changed."""
        self.sessions = SessionStore(database)
        self.tasks = TaskStore(database, secrets)
        self.events = EventLog(database, secrets)
        self.instances = Instances(database)
        self.requests = Requests(database, secrets)
        self.state = State(database, self._changed)
        self.audit = Audit(database)
        self.jobs = Jobs(database)
        self.skills = Documents(database, schema.SKILLS, self._changed)
        self.prompts = Documents(database, schema.PROMPTS, self._changed)
        self.executables = Documents(database, schema.EXECUTABLES, self._changed)
        self.definitions = Documents(database, schema.DEFINITIONS, self._changed)
        self.keys = Documents(database, schema.KEYS, self._changed)

    def _changed(self, kind: str, record: str) -> None:
        if self.on_change is not None:
            self.on_change(kind, record)

    def set_secrets(self, secrets: Sequence[str]) -> None:
        """Store what tools answer without these values."""
        self.tasks.secrets.set(secrets)

    async def remove_secrets(self, key: bytes) -> int:
        """Hide the secrets in what earlier versions stored, once for each set of them; returns how many rows had any.

        `key` is for a digest of the secrets, by which the store remembers that it was done.
        """
        secrets = self.tasks.secrets
        done = secrets.digest(key)
        if await self.state.get(_REMOVED, done) is not None:
            return 0
        changed = await secrets.remove_from(self.database)
        if changed:
            # Deleted rows stay readable in the file of the database until it is written anew.
            await self.database.vacuum()
        with suppress(StaleVersion):
            # Another replica may have recorded the same.
            await self.state.put(_REMOVED, done, changed)
        return changed

    async def open(self) -> None:
        """Open the database now, so that a problem shows before the first use."""
        await self.database.open()

    @property
    def is_open(self) -> bool:
        """Whether the database was used and not closed since."""
        return self.database.is_open

    def now(self) -> float:
        """The time by the clock of the database, which all replicas share."""
        return self.database.now()

    async def close(self) -> None:
        """Finish waiting writes and close the database."""
        await self.database.close()

    async def health(self) -> str:
        """`ok` or `unavailable`; the log says why."""
        try:
            async with asyncio.timeout(_HEALTH_TIMEOUT_S):
                await self.database.read(_PING)
                if self.database.is_failing:  # a full disk or a locked file may still be read
                    await self.requests.replace(RequestRecord(_PROBE, _PROBE, "", "x" * PROOF_CHARS, 1.0))
        except StoreError as error:
            _log.warning("store health check failed: %s", error)
            return "unavailable"
        except TimeoutError:
            _log.warning("store health check failed: no answer within %g s", _HEALTH_TIMEOUT_S)
            return "unavailable"
        return "ok"

    async def sweep(self) -> int:
        """Delete everything that has expired but the audit, which needs the hub's secret; returns how many records."""
        await self.open()
        now, swept = self.now(), 0
        for part in (self.sessions, self.tasks, self.events, self.requests):
            # In portions, so that other writes get their turn.
            while some := await part.sweep(now):
                swept += some
        while some := await self.instances.sweep(now - PROXY_RETENTION_S):
            swept += some
        return swept

    async def check(self) -> list[str]:
        """Check the database and that each instance has its whole history; one sentence per problem."""
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
        """The number of instances, tasks and sessions."""
        rows = await self.database.read(_COUNTS)
        return dict(zip(_COUNTED, rows[0], strict=True))

    async def revisions(self) -> dict[str, int]:
        """How often documents of each kind, and values of counted scopes, were changed by any replica.

        Kinds without a change are left out. Replicas poll this to notice each other's changes.
        """
        return {row[0]: row[1] for row in await self.database.read(_REVISIONS)}

    async def vacuum(self) -> int:
        """Delete what has expired and return its disk space; returns how many records."""
        swept = await self.sweep()
        await self.database.vacuum()
        return swept

    async def backup(self, target: Path) -> None:
        """Write a consistent copy of everything into a new SQLite file."""
        await self.database.backup(target)


WORKFLOW_PREFIX: Final = "workflow:"
"""The prefix of ids of definitions that people created; ids of others are digests."""
_AFTER_WORKFLOWS: Final = "workflow;"
"""Sorts right after every id with the prefix: `;` is the character after `:`."""
_PERSISTED: Final = Query(
    "SELECT EXISTS (SELECT 1 FROM definitions WHERE id > ? AND id < ?), "
    "EXISTS (SELECT 1 FROM skills) OR EXISTS (SELECT 1 FROM prompts), "
    "EXISTS (SELECT 1 FROM state WHERE scope = ?)"
)
HIDDEN_SCOPE: Final = "catalog.hidden"
"""The scope of the state with what operators hide."""


class Persisted(NamedTuple):
    """What an earlier process left in a store."""

    workflows: bool
    """Whether there are workflows that people created."""
    content: bool
    """Whether there are published skills or prompts."""
    hidden: bool
    """Whether operators hide anything."""


async def detect_persisted(store: Store) -> Persisted:
    """What an earlier process left in a store; a store that does not exist is not created for that."""
    try:
        if store.database.is_durable and await store.database.schema_version():
            places = (WORKFLOW_PREFIX, _AFTER_WORKFLOWS, HIDDEN_SCOPE)
            ((workflows, content, hidden),) = await store.database.read(_PERSISTED, *places)
            return Persisted(bool(workflows), bool(content), bool(hidden))
    except StoreError as error:
        _log.warning("reading persisted definitions failed: %s", error)
    return Persisted(workflows=False, content=False, hidden=False)
