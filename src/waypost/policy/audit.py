"""The audit: records on their way to the store or a file, chained by digests, and their verification."""

from __future__ import annotations

import asyncio
import hashlib
import logging
import os
import secrets
import sys
import time
from collections import deque
from collections.abc import Callable, Coroutine
from itertools import islice
from pathlib import Path
from typing import Any, Final, Literal, Protocol

import msgspec

from waypost.errors import Busy, StaleVersion, StoreError
from waypost.stores.audit import RETENTION_S, AuditEntry, Block
from waypost.stores.store import Store

Sink = Literal["store", "file", "stderr", "none"]

FILE: Final = "audit.jsonl"
MAX_WAITING_RECORDS: Final = 20_000
BATCH_RECORDS: Final = 500
BATCH_WINDOW_S: Final = 0.05
"""How long records are collected, so that one commit holds many."""
MAX_RETRY_DELAY_S: Final = 5.0
_log: Final = logging.getLogger(__name__)
_encode: Final = msgspec.json.Encoder().encode


class Record(msgspec.Struct, frozen=True, rename="camel", omit_defaults=True):
    """The record of one decision, and of the execution if there was one."""

    at: float
    principal: str
    caller_type: str
    capability: str
    decision: str
    action: str = "call"
    reason: str = ""
    rule: str = ""
    caller: str = ""
    depth: int = 0
    run: str = ""
    arguments: str = ""
    """The SHA-256 of the arguments, never the arguments."""
    duration_ms: float = 0.0
    outcome: str = ""


class ChainedRecord(Record, frozen=True):
    """A record with the digest and the time of the entry before it, which is kept for the retention time."""

    previous: str = ""
    previous_at: float = 0.0


class Writer(Protocol):
    """Where records go."""

    async def write(self, records: list[Record]) -> None:
        """Keep records, in order."""


class StoreWriter:
    """Records as a chain in the store."""

    def __init__(self, store: Store) -> None:
        self._store = store
        self._chain = secrets.token_hex(8)
        self._last: AuditEntry | None = None
        self._begin: Record | None = None

    async def write(self, records: list[Record]) -> None:
        """Add records to the chain; what fails is written again under the same numbers."""
        audit = self._store.audit
        if self._last is None:
            if self._begin is None:
                ends = await ends_of(audit_of=self._store)
                self._begin = Record(records[0].at, "hub", "console", "audit", "allow", "begin", _encode(ends).decode())
            records = [self._begin, *records]
        entries = self._entries(records)
        last = entries[-1]
        while entries:
            try:
                await audit.append(*entries)
                break
            except StaleVersion:
                left = _behind(await audit.last(self._chain), entries)
                if left is None:
                    self._chain, self._last, self._begin = secrets.token_hex(8), None, None
                    raise
                entries = left
        self._last = last

    def _entries(self, records: list[Record]) -> list[AuditEntry]:
        last, entries = self._last, []
        for record in records:
            number, digest, at = (0, "", 0.0) if last is None else (last.number, last.digest, last.at)
            last = chained(self._chain, number + 1, record, digest, at)
            entries.append(last)
        return entries


def _behind(last: AuditEntry | None, entries: list[AuditEntry]) -> list[AuditEntry] | None:
    """The entries that are left to write, where the first were written although the store reported a failure."""
    for place, entry in enumerate(entries, 1):
        if last is not None and (entry.number, entry.digest) == (last.number, last.digest):
            return entries[place:]
    return None


def chained(chain: str, number: int, record: Record, before: str, before_at: float = 0.0) -> AuditEntry:
    """A record as the next entry of a chain."""
    text = _encode(ChainedRecord(**msgspec.structs.asdict(record), previous=before, previous_at=before_at))
    return AuditEntry(
        chain=chain,
        number=number,
        at=record.at,
        principal=record.principal,
        capability=record.capability,
        decision=record.decision,
        value=msgspec.Raw(text),
        digest=_digest(chain, number, text),
    )


def digest_of(entry: AuditEntry) -> str:
    """What ties an entry that was read to all before it."""
    return _digest(entry.chain, entry.number, _encode(entry.value))


def _digest(chain: str, number: int, text: bytes) -> str:
    return hashlib.sha256(b"%b %d %b" % (chain.encode(), number, text)).hexdigest()


async def all_chains(store: Store) -> list[str]:
    """The names of all chains."""
    chains: list[str] = []
    while page := await store.audit.chains(chains[-1] if chains else ""):
        chains += page
    return chains


async def ends_of(audit_of: Store) -> dict[str, list[Any]]:
    """The last number, digest and time of each chain."""
    ends: dict[str, list[Any]] = {}
    for chain in await all_chains(audit_of):
        last = await audit_of.audit.last(chain)
        if last is not None:
            ends[chain] = [last.number, last.digest, last.at]
    return ends


def _private(path: str, flags: int) -> int:
    return os.open(path, flags, 0o600)


class LineWriter:
    """Records as lines of JSON, in a file of the data directory or on stderr."""

    def __init__(self, data: Path | None) -> None:
        self._data = data

    async def write(self, records: list[Record]) -> None:
        """Add lines."""
        await asyncio.to_thread(self._write, b"".join(_encode(record) + b"\n" for record in records))

    def _write(self, lines: bytes) -> None:
        if self._data is None:
            sys.stderr.write(lines.decode())
            return
        self._data.mkdir(parents=True, exist_ok=True)
        with open(self._data / FILE, "ab", opener=_private) as file:
            file.write(lines)


def writer(sink: Sink, store: Store, data: Path) -> Writer | None:
    """Where records go, by name."""
    match sink:
        case "store":
            return StoreWriter(store)
        case "file":
            return LineWriter(data)
        case "stderr":
            return LineWriter(None)
        case _:
            return None


class AuditLog:
    """Records on their way to where they are kept."""

    def __init__(self, writer: Writer, background: Callable[[Coroutine[Any, Any, Any]], asyncio.Task[Any]]) -> None:
        self._writer = writer
        self._background = background
        self._waiting: deque[Record] = deque()
        self._writing: asyncio.Task[Any] | None = None
        self._stopping = False

    def check_room(self) -> None:
        """Raise `Busy` where a record could not be kept."""
        if len(self._waiting) >= MAX_WAITING_RECORDS:
            self._go_on()
            raise Busy("The audit cannot be written, and no call runs without its record; try again later.")

    def add(self, record: Record) -> None:
        """Add a record; it is written in the background."""
        self._waiting.append(record)
        self._go_on()

    def _go_on(self) -> None:
        if self._writing is None or self._writing.done():
            self._writing = self._background(self._write())

    async def written(self) -> None:
        """Wait until all records so far are written."""
        if self._writing is not None:
            await asyncio.wait({self._writing})

    def start(self) -> None:
        """Write what comes, and what was left when it was stopped, until it is written."""
        self._stopping = False
        if self._waiting:
            self._go_on()

    def stop(self) -> None:
        """Try once to write what waits; what cannot be written is logged, and lost unless it is started again."""
        self._stopping = True

    async def _write(self) -> None:
        pause = 0.1
        while self._waiting:
            if len(self._waiting) < BATCH_RECORDS and not self._stopping:
                await asyncio.sleep(BATCH_WINDOW_S)
            some = list(islice(self._waiting, BATCH_RECORDS))
            try:
                await self._writer.write(some)
            except (StoreError, Busy, OSError) as error:
                _log.error("the audit is not written: %s", error)
                if self._stopping:
                    return
                await asyncio.sleep(pause)
                pause = min(2 * pause, MAX_RETRY_DELAY_S)
                continue
            for _ in some:
                self._waiting.popleft()


_Ends = dict[str, tuple[int, str, float]]


class Verdict(msgspec.Struct, frozen=True):
    """How much was verified, and what is wrong with it."""

    chains: int
    entries: int
    problems: list[str]


async def verify(store: Store) -> Verdict:
    """Verify every entry of every chain."""
    over = time.time() - RETENTION_S
    chains = await all_chains(store)
    claims = [(chain, await _claimed(store, chain)) for chain in chains]
    named = {(other, end[0]): end[1] for _, ends in claims for other, end in ends.items()}
    problems: list[str] = []
    ends: dict[str, int] = {}
    entries = 0
    for chain in chains:
        last: AuditEntry | None = None
        while blocks := await store.audit.blocks(chain, ends.get(chain, 0)):
            for block in blocks:
                found = []
                for entry in block.entries:
                    found.append(_problem(entry, last, over, named.get((chain, entry.number), entry.digest)))
                    last = entry
                if block.is_misfiled and not any(found):
                    found.append(_misfiled(block))
                problems += filter(None, found)
                entries += len(block.entries)
            ends[chain] = max(block.entries[-1].number for block in blocks)
    problems += [problem for chain, said in claims for problem in _missing_ends(chain, said, ends, over)]
    return Verdict(len(ends), entries, problems)


async def _claimed(store: Store, chain: str) -> _Ends:
    """The ends of other chains that a chain begins with, if its beginning is there and can be read."""
    first = await store.audit.chain(chain, 0, 1)
    try:
        return msgspec.json.decode(_said(first[0])["reason"], type=_Ends)
    except (msgspec.MsgspecError, KeyError, TypeError, IndexError):
        return {}


def _said(entry: AuditEntry) -> dict[str, Any]:
    return entry.value if isinstance(entry.value, dict) else {}


def _problem(entry: AuditEntry, before: AuditEntry | None, over: float, digest: str) -> str | None:
    place, said = f"Entry {entry.number} of chain {entry.chain}", _said(entry)
    if entry.digest != digest_of(entry):
        return f"{place} was changed: its digest is wrong."
    if entry.digest != digest:
        return f"{place} is not the one that another chain names."
    columns = (entry.at, entry.principal, entry.capability, entry.decision)
    if columns != tuple(said.get(name) for name in ("at", "principal", "capability", "decision")):
        return f"{place} was changed: what it is found by differs from what it says."
    if before is None:
        is_expired = entry.number == 1 or said.get("previousAt", 0.0) < over
        return None if is_expired else f"{place} is the first that is left: those before it are missing."
    if entry.number != before.number + 1:
        return f"{place} follows {before.number}: entries between them are missing."
    if said.get("previous", "") != before.digest:
        return f"{place} does not follow the one before it: one of them was replaced."
    return None


def _misfiled(block: Block) -> str:
    place = f"Entry {block.number} of chain {block.chain} and those written with it"
    return f"{place} were changed: what they are found by differs from what they say."


def _missing_ends(chain: str, said: _Ends, ends: dict[str, int], over: float) -> list[str]:
    """The entries of other chains that were there when a chain began, and are missing within their retention time."""
    return [
        f"Chain {other} ended at {number} when chain {chain} began; now it ends at {ends.get(other, 0)}."
        for other, (number, _, at) in said.items()
        if ends.get(other, 0) < number and (other in ends or at >= over)
    ]
