"""The audit: what was decided and done, in chains that only grow.

Each process that writes has a chain of its own, so that none waits for another; numbers in a chain have no gaps.
"""

from __future__ import annotations

from typing import Any, Final

import msgspec

from waypost.errors import StaleVersion
from waypost.stores.database import Database
from waypost.stores.records import checked, decoded, encoded
from waypost.stores.statements import REAL, Change, Query, delete_where, insert, page, select
from waypost.stores.tables import AUDIT


class AuditEntry(msgspec.Struct, frozen=True, kw_only=True):
    """One entry; `digest` covers it and the digest of the one before."""

    chain: str
    number: int
    at: float
    principal: str
    capability: str
    decision: str
    value: Any
    digest: str


KEPT: Final = 90 * 24 * 3600.0
"""Seconds an entry is kept."""

Place = tuple[float, str, int]
"""Where an entry stands among all chains: its time, chain and number."""

FIRST: Final[Place] = (0.0, "", 0)
LAST: Final[Place] = (float("inf"), "", 0)

_APPEND: Final = Change(insert(AUDIT, "skip"), bulk=True)
_CHAINS: Final = Query("SELECT DISTINCT chain FROM audit WHERE chain > ? ORDER BY chain LIMIT ?")
_CHAIN: Final = page(AUDIT, "chain")
_BEFORE: Final = select(
    AUDIT, "(at, chain, number) < (?, ?, ?)", order=["at DESC", "chain DESC", "number DESC"], limit=True
)
_DECIDED_BEFORE: Final = select(
    AUDIT,
    "decision = ? AND (at, chain, number) < (?, ?, ?)",
    order=["at DESC", "chain DESC", "number DESC"],
    limit=True,
)
_DENIALS_BEFORE: Final = select(
    AUDIT,
    "decision = 'deny' AND (at, chain, number) < (?, ?, ?)",
    order=["at DESC", "chain DESC", "number DESC"],
    limit=True,
)
_LAST: Final = select(AUDIT, "chain = ?", order=["number DESC LIMIT 1"])
_SWEEP: Final = Change(delete_where(AUDIT, "at < ?", [REAL], limit=1000))


class Audit:
    """All chains."""

    def __init__(self, database: Database) -> None:
        self._database = database

    async def append(self, *entries: AuditEntry) -> None:
        """Add the next entries of a chain; `StaleVersion` when a number is taken."""
        if await self._database.write(_APPEND, *map(_row, entries)) != len(entries):
            raise StaleVersion(f"The audit chain {entries[0].chain} has such an entry already.")

    async def latest(self, limit: int = 100, before: Place = LAST, decision: str | None = None) -> list[AuditEntry]:
        """Entries of all chains, the latest first, older than `before`; all, or those of one decision."""
        if decision is None:
            rows = await self._database.read(_BEFORE, *before, limit)
        elif decision == "deny":
            rows = await self._database.read(_DENIALS_BEFORE, *before, limit)
        else:
            rows = await self._database.read(_DECIDED_BEFORE, decision, *before, limit)
        return [_entry(row) for row in rows]

    async def chains(self, after: str = "", limit: int = 1000) -> list[str]:
        """The chains there are, in order, behind `after`."""
        return [row[0] for row in await self._database.read(_CHAINS, after, limit)]

    async def last(self, chain: str) -> AuditEntry | None:
        """The newest entry of a chain."""
        rows = await self._database.read(_LAST, chain)
        return _entry(rows[0]) if rows else None

    async def chain(self, chain: str, after: int = 0, limit: int = 1000) -> list[AuditEntry]:
        """Entries of a chain in order, behind a number."""
        return [_entry(row) for row in await self._database.read(_CHAIN, chain, after, limit)]

    async def sweep(self, before: float) -> int:
        """Forget entries older than that."""
        return await self._database.write(_SWEEP, (before,))


def _row(entry: AuditEntry) -> tuple[Any, ...]:
    return (
        checked(entry.chain),
        entry.number,
        entry.at,
        entry.principal,
        entry.capability,
        entry.decision,
        bytes(entry.value).decode() if isinstance(entry.value, msgspec.Raw) else encoded(entry.value),
        entry.digest,
    )


def _said(text: str) -> Any:
    """What an entry says; nothing, if somebody made it unreadable."""
    try:
        return decoded(text)
    except msgspec.DecodeError:
        return {}


def _entry(row: Any) -> AuditEntry:
    return AuditEntry(
        chain=row[0],
        number=row[1],
        at=row[2],
        principal=row[3],
        capability=row[4],
        decision=row[5],
        value=_said(row[6]),
        digest=row[7],
    )
