"""The audit: decisions and executions in append-only chains.

Each process writes a chain of its own, so that no process waits for another; numbers in a chain have no gaps. Entries
that were appended together are one row: a block, keyed by the number of its first entry and found by the time of its
latest, with the entries as lines of JSON. A row per call would cost several times as much.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import Any, Final

import msgspec

from waypost.errors import StaleVersion, StoreError
from waypost.stores.database import (
    INTEGER,
    TEXT,
    Change,
    Database,
    Query,
    check_key,
    delete,
    delete_where,
    from_json,
    insert,
    page,
    select,
    to_json,
)
from waypost.stores.schema import AUDIT, STATE

DEFAULT_RETENTION_S: Final = 90 * 24 * 3600.0
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
_MIN_BLOCKS_READ: Final = 2
"""In the first query of a scan: a page of entries rarely needs more, and reading a block costs more than a query."""
_MAX_ENTRIES_READ: Final = 20_000
"""In one bounded scan, whatever the size of its blocks."""


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

    def as_row(self) -> dict[str, Any]:
        """The entry as operators see it."""
        return {"chain": self.chain, "number": self.number, **self.value, "digest": self.digest}


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

_HEADS: Final = "audit heads"
"""The scope of the state that heads are kept under, by chain."""
# A second writer of the same chain finds the number taken: its fence fails, and the chain does not fork.
_APPEND: Final = Change(insert(AUDIT, "skip"), insert(STATE, "replace"))
_PAGE_OF_STATE: Final = page(STATE, "scope")
_REMOVE: Final = Change(delete(STATE))
_CHAINS: Final = Query("SELECT DISTINCT chain FROM audit WHERE chain > ? ORDER BY chain LIMIT ?")
# The block with a number may begin before it, so the search begins at the last block that does.
_FROM: Final = select(
    AUDIT,
    "chain = ? AND number >= coalesce((SELECT max(number) FROM audit WHERE chain = ? AND number <= ?), 0)",
    order=["number"],
    limit=True,
)
_LATEST_FIRST: Final = ("at DESC", "chain DESC", "number DESC")
_BEFORE: Final = select(AUDIT, "(at, chain, number) < (?, ?, ?)", order=_LATEST_FIRST, limit=True)
# `denials > 0` is the condition of the partial index `audit_of_denials`, which holds few of the rows.
_DENIALS_BEFORE: Final = select(
    AUDIT, "denials > 0 AND (at, chain, number) < (?, ?, ?)", order=_LATEST_FIRST, limit=True
)
_LAST: Final = select(AUDIT, "chain = ?", order=["number DESC LIMIT 1"])
_PRUNED: Final = "audit pruned"
"""The scope of the state that checkpoints are kept under, by chain."""
_CHECKPOINT: Final = Change(insert(STATE, "replace"))
# Limited, so that other writes get their turn between two deletions.
_CUT: Final = Change(delete_where(AUDIT, "chain = ? AND number <= ?", [TEXT, INTEGER], limit=1000))
_BYTES: Final = Query("SELECT coalesce(sum(octet_length(entries)), 0) FROM audit", is_slow=True)
_OLDEST: Final = Query(
    "SELECT chain, number, size, octet_length(entries) FROM audit ORDER BY at, chain, number LIMIT ?"
)
_FIRST_SINCE: Final = Query("SELECT min(number) FROM audit WHERE chain = ? AND at >= ?")
_OLDER: Final = Query(
    "SELECT chain, number, size FROM audit WHERE at < ? ORDER BY at, chain, number LIMIT ?", is_slow=True
)


class Audit:
    """Entries by chain and number."""

    def __init__(self, database: Database) -> None:
        self._database = database

    async def append(self, *entries: AuditEntry, head: Callable[[AuditEntry], Any]) -> None:
        """Append entries to a chain; `StaleVersion` when a block with their number exists.

        With each block its head is written in the same transaction: the value that `head` makes of its last entry.
        """
        for block in _blocks(entries):
            last = block[-1]
            kept = (_HEADS, last.chain, last.number, to_json(head(last)))
            if not await self._database.write(_APPEND, _row(block), kept):
                raise StaleVersion(f"The audit chain {last.chain} has an entry with that number already.")

    async def heads(self) -> dict[str, Any]:
        """The head of each chain."""
        return {chain: value for chain, (_, value) in (await self._versions(_HEADS)).items()}

    async def checkpoints(self) -> dict[str, tuple[int, Any]]:
        """For each chain that was pruned, the number of the last entry that was deleted, and its checkpoint."""
        return await self._versions(_PRUNED)

    async def _versions(self, scope: str) -> dict[str, tuple[int, Any]]:
        found: dict[str, tuple[int, Any]] = {}
        while rows := await self._database.read(_PAGE_OF_STATE, scope, next(reversed(found), ""), 1000):
            found |= {row[1]: (row[2], from_json(row[3])) for row in rows}
        return found

    async def prune(self, max_bytes: int, checkpoint: Callable[[str, int], Any]) -> int:
        """Delete the oldest blocks where all together are larger than `max_bytes`; returns the number of bytes.

        Before the first entries of a chain are deleted, what `checkpoint` makes of the chain and the number of the last
        of them is written: after a crash in between, entries may be missing that are still there.
        """
        ((total,),) = await self._database.read(_BYTES)
        # A tenth more than necessary, so that not every record is followed by a deletion.
        goal = int(total) - max_bytes * 9 // 10 if total > max_bytes else 0
        freed = 0
        while freed < goal and (rows := await self._database.read(_OLDEST, 1000)):
            ends: dict[str, int] = {}
            for chain, number, size, length in rows:
                if freed < goal:
                    ends[chain] = max(ends.get(chain, 0), number + size - 1)
                    freed += length
            await self._cut(ends, checkpoint)
        return freed

    async def _cut(self, ends: Mapping[str, int], checkpoint: Callable[[str, int], Any]) -> None:
        """Delete the entries of chains up to a number each."""
        for chain, end in ends.items():
            await self._database.write(_CHECKPOINT, (_PRUNED, chain, end, to_json(checkpoint(chain, end))))
            while await self._database.write(_CUT, (chain, end)):
                pass

    async def latest(self, limit: int = 100, before: Place = LAST, decision: str | None = None) -> list[AuditEntry]:
        """Entries of all chains, the latest first, older than `before`; all, or those of one decision."""
        return (await self.scan(limit, before, decision))[0]

    async def scan(
        self,
        limit: int,
        before: Place,
        decision: str | None,
        keeps: Callable[[AuditEntry], bool] | None = None,
        max_blocks: int | None = None,
        words: Sequence[str] = (),
    ) -> tuple[list[AuditEntry], Place | None]:
        """Entries that `keeps` accepts, the latest first, and where the next page begins; None at the end.

        With `max_blocks` it reads about so many, or a bounded number of entries, and returns what it found, so that a
        filter with few matches costs several short requests, and not one that reads the whole audit. Entries that
        cannot have all `words`, parts of their strings, are not decoded.
        """
        # As JSON writes them, because lines are searched before they are decoded.
        parts = [_encoder.encode(word).decode()[1:-1] for word in words]
        # Text that is no Unicode cannot be encoded, and matches nothing.
        if decision is not None and decision.isascii():
            parts.append(_encoder.encode(decision).decode())
        query = _DENIALS_BEFORE if decision == _DENY else _BEFORE
        found: list[AuditEntry] = []
        end: Place | None = None
        # A block is found by its latest entry: one that ends after `before` may have entries from before it.
        place, blocks, entries = (before[0] + 2 * _MAX_BLOCK_SECONDS, "", 0), 0, 0
        most = _MIN_BLOCKS_READ
        while True:
            rows = await self._database.read(query, *place, most)
            blocks += most
            entries += sum(row[3] for row in rows)
            # The blocks after one have nothing later than the time of the first of them.
            for row, latest in zip(rows, [row[2] for row in (*rows[1:], *rows[-1:])], strict=True):
                found += [
                    entry
                    for entry in _entries_with(row, parts)
                    if entry.place < before and decision in (None, entry.decision) and (keeps is None or keeps(entry))
                ]
                place = end = (row[2], row[0], row[1])
                # Blocks of several chains overlap: an entry is sure of its place when no further block has a later one.
                if sum(entry.at > latest for entry in found) >= limit:
                    break
            else:
                if len(rows) < most:
                    end = None
                elif place >= before or max_blocks is None or (blocks < max_blocks and entries < _MAX_ENTRIES_READ):
                    most = min(2 * most, _MAX_BLOCKS_READ)
                    continue
                else:
                    # The blocks of the next page may have entries between those found before this place.
                    found = [entry for entry in found if entry.place >= place]
            break
        found.sort(key=lambda entry: entry.place, reverse=True)
        if len(found) > limit or (len(found) == limit and end is not None):
            return found[:limit], found[limit - 1].place
        return found, end

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

    async def sweep(self, before: float, checkpoint: Callable[[str, int], Any]) -> int:
        """Delete blocks whose entries are all older than that; returns the number of entries.

        The checkpoints stay: they prove that the entries were deleted, also where entries are kept for longer later.
        """
        swept = 0
        while rows := await self._database.read(_OLDER, before, 1000):
            ends: dict[str, int] = {}
            fresh: dict[str, int | None] = {}
            for chain, number, size in rows:
                if chain not in fresh:  # a clock that was set back leaves older entries behind younger ones
                    fresh[chain] = (await self._database.read(_FIRST_SINCE, chain, before))[0][0]
                youngest = fresh[chain]
                if youngest is None or number < youngest:
                    ends[chain] = max(ends.get(chain, 0), number + size - 1)
                    swept += size
            if not ends:
                break
            await self._cut(ends, checkpoint)
        for chain, head in (await self.heads()).items() if swept else ():
            if isinstance(head, dict) and head.get("at", before) < before:
                await self._database.write(_REMOVE, (_HEADS, chain))
        return swept


def _blocks(entries: Iterable[AuditEntry]) -> Iterator[list[AuditEntry]]:
    """Entries in as few blocks as possible."""
    block: list[AuditEntry] = []
    for entry in entries:
        # A clock that is set may go either way from the first entry, so each way has half of what a block may span.
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
    chain, number, at, size, denials, _ = row
    return Block(chain, number, at, size, denials, _entries_with(row, ()))


def _entries_with(row: Any, parts: Sequence[str]) -> list[AuditEntry]:
    """The entries of a row whose lines have all of these parts."""
    chain, number, *_, text = row
    if not all(part in text for part in parts):
        return []
    # Not splitlines: it also splits at characters that JSON strings may contain.
    lines = enumerate(text.removesuffix("\n").split("\n"), number)
    return [_entry(chain, place, line) for place, line in lines if all(part in line for part in parts)]


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
