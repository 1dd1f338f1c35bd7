"""The audit: what was decided and done, in chains that only grow.

Each process that writes has a chain of its own, so that none waits for another; numbers in a chain have no gaps.
Entries that were appended together are one row: a block, under the number of its first entry and the time of its
latest, with the entries as lines of JSON. One row a call would cost several times as much.
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
"""Seconds an entry is kept; some are kept a little longer, with the block they are in."""

Place = tuple[float, str, int]
"""Where an entry stands among all chains: its time, chain and number."""

FIRST: Final[Place] = (0.0, "", 0)
LAST: Final[Place] = (float("inf"), "", 0)

_DENY: Final = "deny"
_LARGEST: Final = 1000
_SPAN: Final = 0.5
"""The most seconds between the entries of a block, so that times of blocks say enough about times of entries."""
_AT_A_TIME: Final = 8
"""How many blocks are read at once; a block may be large."""


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
        """Where it stands among all chains."""
        return self.at, self.chain, self.number


class Block(msgspec.Struct, frozen=True):
    """Entries that were written together, and what they are found by."""

    chain: str
    number: int
    at: float
    size: int
    denials: int
    entries: list[AuditEntry]

    @property
    def is_misfiled(self) -> bool:
        """Whether it is found by something else than its entries say."""
        return (self.at, self.size, self.denials) != _filing(self.entries)


class _Line(msgspec.Struct, frozen=True, array_like=True):
    """An entry as its block has it."""

    at: float
    principal: str
    capability: str
    decision: str
    value: Any
    digest: str


_encoder: Final = msgspec.json.Encoder()
_decoder: Final = msgspec.json.Decoder(_Line)
_UNREADABLE: Final = _Line(0.0, "", "", "", {}, "")
"""What somebody made unreadable."""

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
    """All chains."""

    def __init__(self, database: Database) -> None:
        self._database = database

    async def append(self, *entries: AuditEntry) -> None:
        """Add the next entries of a chain; `StaleVersion` when a block begins with their number already."""
        rows = [_row(block) for block in _blocks(entries)]
        if await self._database.write(_APPEND, *rows) != len(rows):
            raise StaleVersion(f"The audit chain {entries[0].chain} has such an entry already.")

    async def latest(self, limit: int = 100, before: Place = LAST, decision: str | None = None) -> list[AuditEntry]:
        """Entries of all chains, the latest first, older than `before`; all, or those of one decision."""
        query = _DENIALS_BEFORE if decision == _DENY else _BEFORE
        found: list[AuditEntry] = []
        place = (before[0] + 2 * _SPAN, "", 0)
        while True:
            blocks = [_block(row) for row in await self._database.read(query, *place, _AT_A_TIME)]
            for block in blocks:
                found += [
                    entry for entry in block.entries if entry.place < before and decision in (None, entry.decision)
                ]
            if len(blocks) < _AT_A_TIME:
                break
            place = (blocks[-1].at, blocks[-1].chain, blocks[-1].number)
            if sum(entry.at > place[0] for entry in found) >= limit:  # blocks not read yet have nothing later
                break
        found.sort(key=lambda entry: entry.place, reverse=True)
        return found[:limit]

    async def chains(self, after: str = "", limit: int = 1000) -> list[str]:
        """The chains there are, in order, behind `after`."""
        return [row[0] for row in await self._database.read(_CHAINS, after, limit)]

    async def last(self, chain: str) -> AuditEntry | None:
        """The newest entry of a chain."""
        rows = await self._database.read(_LAST, chain)
        return _block(rows[0]).entries[-1] if rows else None

    async def chain(self, chain: str, after: int = 0, limit: int = 1000) -> list[AuditEntry]:
        """Entries of a chain in order, behind a number."""
        found: list[AuditEntry] = []
        number = after
        while len(found) < limit and (blocks := await self.blocks(chain, number, limit - len(found))):
            found += [entry for block in blocks for entry in block.entries if entry.number > after]
            number = max(number, blocks[-1].entries[-1].number)
        return found[:limit]

    async def blocks(self, chain: str, after: int = 0, limit: int = _AT_A_TIME) -> list[Block]:
        """Some blocks of a chain in order, at most `limit`, with entries behind a number; none, if there are none."""
        rows = await self._database.read(_FROM, chain, chain, after + 1, min(limit, _AT_A_TIME) + 1)
        found = [block for block in map(_block, rows) if block.entries[-1].number > after]
        return found[:limit]

    async def sweep(self, before: float) -> int:
        """Forget blocks all of whose entries are older than that; how many entries that were."""
        ((entries,),) = await self._database.read(_OVER, before)
        while entries and await self._database.write(_SWEEP, (before,)):
            pass
        return int(entries)


def _blocks(entries: Iterable[AuditEntry]) -> Iterator[list[AuditEntry]]:
    """Entries as few blocks as may be."""
    block: list[AuditEntry] = []
    for entry in entries:
        if block and (len(block) == _LARGEST or abs(entry.at - block[0].at) > _SPAN / 2):
            yield block
            block = []
        block.append(entry)
    yield block


def _filing(entries: Sequence[AuditEntry]) -> tuple[float, int, int]:
    """What a block is found by: the time of its latest entry, their number, and that of denials."""
    return max(entry.at for entry in entries), len(entries), sum(entry.decision == _DENY for entry in entries)


def _row(block: Sequence[AuditEntry]) -> tuple[Any, ...]:
    lines = [
        (entry.at, entry.principal, entry.capability, entry.decision, entry.value, entry.digest) for entry in block
    ]
    try:
        text = _encoder.encode_lines(lines).decode()
    except (TypeError, ValueError, OverflowError, RecursionError) as error:
        raise StoreError(f"A value cannot be stored as JSON: {error}.") from None
    return check_key(block[0].chain), block[0].number, *_filing(block), text


def _block(row: Any) -> Block:
    chain, number, at, size, denials, text = row
    # Not splitlines: JSON may hold what that takes for the end of a line.
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
