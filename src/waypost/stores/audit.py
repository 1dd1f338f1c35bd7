"""The audit: decisions and executions in append-only chains.

Each process writes a chain of its own, so that no process waits for another; numbers in a chain have no gaps. Entries
that were appended together are one row: a block, keyed by the number of its first entry and found by the time of its
latest, with the entries as lines of JSON. A row per call would cost several times as much.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from typing import Any, Final

import msgspec

from waypost.errors import StaleVersion, StoreError
from waypost.stores.database import Database
from waypost.stores.records import check_key
from waypost.stores.schema import AUDIT
from waypost.stores.statements import REAL, Change, Query, delete_where, insert, select

RETENTION_S: Final = 90 * 24 * 3600.0
"""How long entries are kept; a block is deleted when all of its entries are older."""

Place = tuple[float, str, int]
"""The position of an entry among all chains: its time, chain and number."""

FIRST: Final[Place] = (0.0, "", 0)
LAST: Final[Place] = (float("inf"), "", 0)

_DENY: Final = "deny"
_MAX_BLOCK_ENTRIES: Final = 1000
_MAX_BLOCK_SECONDS: Final = 0.5
"""Between the entries of a block, so that a query by time reads few blocks that it does not need."""
_MAX_BLOCKS_READ: Final = 8
"""In one query: a block may be large."""


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

    @property
    def place(self) -> Place:
        """Its position among all chains."""
        return self.at, self.chain, self.number


class Block(msgspec.Struct, frozen=True):
    """Entries that were written together, and the columns they are found by."""

    chain: str
    number: int
    at: float
    size: int
    denials: int
    entries: list[AuditEntry]

    @property
    def is_misfiled(self) -> bool:
        """Whether the columns contradict the entries, as after a manipulation."""
        return (self.at, self.size, self.denials) != _index_columns(self.entries)


class _Line(msgspec.Struct, frozen=True, array_like=True):
    """An entry as a line of its block."""

    at: float
    principal: str
    capability: str
    decision: str
    value: Any
    digest: str


_encoder: Final = msgspec.json.Encoder()
_decoder: Final = msgspec.json.Decoder(_Line)
_UNREADABLE: Final = _Line(0.0, "", "", "", {}, "")
"""Stands for a line that is not JSON of an entry, as after a manipulation."""

_APPEND: Final = Change(insert(AUDIT, "skip"), bulk=True)
_CHAINS: Final = Query("SELECT DISTINCT chain FROM audit WHERE chain > ? ORDER BY chain LIMIT ?")
_FROM: Final = select(
    AUDIT,
    "chain = ? AND number >= coalesce((SELECT max(number) FROM audit WHERE chain = ? AND number <= ?), 0)",
    order=["number"],
    limit=True,
)
_LATEST_FIRST: Final = ("at DESC", "chain DESC", "number DESC")
_BEFORE: Final = select(AUDIT, "(at, chain, number) < (?, ?, ?)", order=_LATEST_FIRST, limit=True)
_DENIALS_BEFORE: Final = select(
    AUDIT, "denials > 0 AND (at, chain, number) < (?, ?, ?)", order=_LATEST_FIRST, limit=True
)
_LAST: Final = select(AUDIT, "chain = ?", order=["number DESC LIMIT 1"])
_OVER: Final = Query("SELECT coalesce(sum(size), 0) FROM audit WHERE at < ?")
_SWEEP: Final = Change(delete_where(AUDIT, "at < ?", [REAL], limit=1000))


class Audit:
    """Entries by chain and number."""

    def __init__(self, database: Database) -> None:
        self._database = database

    async def append(self, *entries: AuditEntry) -> None:
        """Append entries to a chain; `StaleVersion` when a block with their number exists."""
        rows = [_row(block) for block in _blocks(entries)]
        if await self._database.write(_APPEND, *rows) != len(rows):
            raise StaleVersion(f"The audit chain {entries[0].chain} has an entry with that number already.")

    async def latest(self, limit: int = 100, before: Place = LAST, decision: str | None = None) -> list[AuditEntry]:
        """Entries of all chains, the latest first, older than `before`; all, or those of one decision."""
        query = _DENIALS_BEFORE if decision == _DENY else _BEFORE
        found: list[AuditEntry] = []
        place = (before[0] + 2 * _MAX_BLOCK_SECONDS, "", 0)
        while True:
            blocks = [_block(row) for row in await self._database.read(query, *place, _MAX_BLOCKS_READ)]
            for block in blocks:
                found += [
                    entry for entry in block.entries if entry.place < before and decision in (None, entry.decision)
                ]
            if len(blocks) < _MAX_BLOCKS_READ:
                break
            place = (blocks[-1].at, blocks[-1].chain, blocks[-1].number)
            if sum(entry.at > place[0] for entry in found) >= limit:  # blocks not read yet have nothing later
                break
        found.sort(key=lambda entry: entry.place, reverse=True)
        return found[:limit]

    async def chains(self, after: str = "", limit: int = 1000) -> list[str]:
        """The names of the chains, sorted, starting after `after`."""
        return [row[0] for row in await self._database.read(_CHAINS, after, limit)]

    async def last(self, chain: str) -> AuditEntry | None:
        """The newest entry of a chain."""
        rows = await self._database.read(_LAST, chain)
        return _block(rows[0]).entries[-1] if rows else None

    async def chain(self, chain: str, after: int = 0, limit: int = 1000) -> list[AuditEntry]:
        """Entries of a chain in order, after a number."""
        found: list[AuditEntry] = []
        number = after
        while len(found) < limit and (blocks := await self.blocks(chain, number, limit - len(found))):
            found += [entry for block in blocks for entry in block.entries if entry.number > after]
            number = max(number, blocks[-1].entries[-1].number)
        return found[:limit]

    async def blocks(self, chain: str, after: int = 0, limit: int = _MAX_BLOCKS_READ) -> list[Block]:
        """Up to `limit` blocks of a chain in order that have entries after a number; none at the end of the chain."""
        rows = await self._database.read(_FROM, chain, chain, after + 1, min(limit, _MAX_BLOCKS_READ) + 1)
        found = [block for block in map(_block, rows) if block.entries[-1].number > after]
        return found[:limit]

    async def sweep(self, before: float) -> int:
        """Delete blocks whose entries are all older than that; returns the number of entries."""
        ((entries,),) = await self._database.read(_OVER, before)
        while entries and await self._database.write(_SWEEP, (before,)):
            pass
        return int(entries)


def _blocks(entries: Iterable[AuditEntry]) -> Iterator[list[AuditEntry]]:
    """Entries in as few blocks as possible."""
    block: list[AuditEntry] = []
    for entry in entries:
        if block and (len(block) == _MAX_BLOCK_ENTRIES or abs(entry.at - block[0].at) > _MAX_BLOCK_SECONDS / 2):
            yield block
            block = []
        block.append(entry)
    yield block


def _index_columns(entries: Sequence[AuditEntry]) -> tuple[float, int, int]:
    """The columns a block is found by: the time of its latest entry, the number of entries, and of denials."""
    return max(entry.at for entry in entries), len(entries), sum(entry.decision == _DENY for entry in entries)


def _row(block: Sequence[AuditEntry]) -> tuple[Any, ...]:
    lines = [
        (entry.at, entry.principal, entry.capability, entry.decision, entry.value, entry.digest) for entry in block
    ]
    try:
        text = _encoder.encode_lines(lines).decode()
    except (TypeError, ValueError, OverflowError, RecursionError) as error:
        raise StoreError(f"A value cannot be stored as JSON: {error}.") from None
    return check_key(block[0].chain), block[0].number, *_index_columns(block), text


def _block(row: Any) -> Block:
    chain, number, at, size, denials, text = row
    # Not splitlines: it also splits at characters that JSON strings may contain.
    lines = text.removesuffix("\n").split("\n")
    entries = [_entry(chain, place, line) for place, line in enumerate(lines, number)]
    return Block(chain, number, at, size, denials, entries)


def _entry(chain: str, number: int, text: str) -> AuditEntry:
    try:
        line = _decoder.decode(text)
    except msgspec.DecodeError:
        line = _UNREADABLE
    return AuditEntry(
        chain=chain,
        number=number,
        at=line.at,
        principal=line.principal,
        capability=line.capability,
        decision=line.decision,
        value=line.value,
        digest=line.digest,
    )
