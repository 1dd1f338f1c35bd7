"""The audit: records on their way to the store or a file, chained by digests, and their verification."""

from __future__ import annotations

import asyncio
import hashlib
import hmac
import logging
import os
import secrets
import sys
import time
from collections import defaultdict, deque
from collections.abc import Callable, Coroutine
from contextlib import suppress
from functools import cached_property
from itertools import chain as concatenate
from itertools import islice
from pathlib import Path
from typing import Any, Final, Literal, Protocol

import msgspec

from waypost.capabilities.principals import ANONYMOUS
from waypost.errors import Busy, StaleVersion, StoreError
from waypost.policy.anchors import Anchors
from waypost.stores.audit import DEFAULT_RETENTION_S, AuditEntry, Block
from waypost.stores.directory import Secret, derive_key
from waypost.stores.store import Store

Sink = Literal["store", "file", "stderr", "none"]

FILE: Final = "audit.jsonl"
HUB: Final = "hub"
"""The principal and the way in of what the hub does by itself."""
Via = Literal["cli", "api", "console", "mcp", "worker", "file", "hub"]
"""The way in of an administrative act."""
AdministrativeAction = Literal[
    "key.created",
    "key.revoked",
    "skill.created",
    "skill.loaded",
    "skill.unloaded",
    "document.published",
    "document.removed",
    "workflow.defined",
    "workflow.removed",
    "upstream.approved",
    "upstream.restarted",
    "upstream.login",
    "upstream.logout",
    "session.ended",
    "task.cancelled",
    "catalog.hidden",
    "catalog.shown",
    "policy.changed",
    "breaker.reset",
    "config.reloaded",
    "console.signed_in",
    "console.refused",
    "api.refused",
    "worker.refused",
]
PRUNE_INTERVAL_S: Final = 600.0
"""How often the size of the entries in the store is looked at, while there are new ones."""
REFUSAL_WINDOW_S: Final = 60.0
MAX_REFUSAL_SOURCES: Final = 100
"""How many sources of refused requests have records of their own in a window."""
KEYED: Final = "audit.keyed"
"""The action of the record with the ends of all chains that were written before digests had a key."""
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


class Writer(Protocol):
    """Where records go."""

    async def write(self, records: list[Record]) -> None:
        """Keep records, in order."""


class Mac:
    """HMAC-SHA256 (RFC 2104) under one key of at most 64 bytes.

    The two padded blocks of the key are hashed once. `hmac.digest` does it for each message, which takes longer than a
    record of a call.
    """

    def __init__(self, key: bytes) -> None:
        block = key.ljust(64, b"\0")
        self._inner = hashlib.sha256(bytes(byte ^ 0x36 for byte in block))
        self._outer = hashlib.sha256(bytes(byte ^ 0x5C for byte in block))

    def hexdigest(self, message: bytes) -> str:
        """The code of a message."""
        inner, outer = self._inner.copy(), self._outer.copy()
        inner.update(message)
        outer.update(inner.digest())
        return outer.hexdigest()


class Head(msgspec.Struct, frozen=True):
    """The last entry of a chain, kept apart from the chain and signed, so that a cut at the end of the chain shows."""

    chain: str
    number: int
    digest: str
    at: float
    signature: str = ""


Ends = dict[str, tuple[int, str, float]]
"""The last number, digest and time of each chain."""


class HeadFiles:
    """The heads of the chains that the processes of a data directory wrote to one store, a file for each chain.

    A writer of the database cannot change them. A file is written after the entries it names are durable, so one that
    is older than the chain, or was lost in a crash, never makes an intact chain look cut.
    """

    def __init__(self, data_dir: Path, store: Store) -> None:
        path = getattr(store.database, "path", None)  # relative, so that a data directory can be moved
        location = store.database.name if path is None else os.path.relpath(path, data_dir)
        self._directory = data_dir / "audit-heads" / hashlib.sha256(location.encode()).hexdigest()[:16]
        self._has_failed = False

    def read(self) -> list[Head]:
        """All heads that can be read."""
        found = []
        for file in sorted(self._directory.glob("*.json")):
            with suppress(OSError, msgspec.DecodeError):
                found.append(msgspec.json.decode(file.read_bytes(), type=Head))
        return found

    def write(self, head: Head) -> None:
        """Replace the head of a chain."""
        try:
            self._directory.mkdir(parents=True, exist_ok=True, mode=0o700)
            fresh = self._directory / f"{head.chain}.new"
            with open(fresh, "wb", opener=_private) as file:
                file.write(_encode(head))
            # A rename is atomic: a reader never finds a part of a head.
            fresh.replace(fresh.with_suffix(".json"))
        except OSError as error:
            if not self._has_failed:
                _log.warning("the head of the audit is kept only in the store: %s", error)
            self._has_failed = True

    def sweep(self, before: float) -> None:
        """Remove the heads of chains that ended before a time."""
        for head in self.read():
            if head.at < before:
                (self._directory / f"{head.chain}.json").unlink(missing_ok=True)


class AuditChains:
    """The chains in a store, under keys that are derived from the hub's secret.

    A process writes a chain of its own. Each entry has a keyed digest over itself and the digest before it. A writer of
    the database that does not have the secret can neither change an entry nor write a chain again from an entry on.
    """

    def __init__(
        self,
        store: Store,
        secret: Secret,
        data_dir: Path | None = None,
        anchors: Anchors | None = None,
        max_bytes: int | None = None,
        retention: float = DEFAULT_RETENTION_S,
    ) -> None:
        is_durable = store.database.is_durable
        self._store = store
        # What ends with the process needs no key that outlives it, and no file for it.
        self._secret = secret if is_durable else Secret(Path(), secrets.token_bytes(32))
        self._files = HeadFiles(data_dir, store) if is_durable and data_dir is not None else None
        self._anchors = anchors or Anchors(store, None)
        self._max_bytes = max_bytes
        self._retention = retention
        self._prune_at = 0.0
        self._chain = secrets.token_hex(8)
        self._last: AuditEntry | None = None
        self._beginning: list[Record] = []

    @cached_property
    def _macs(self) -> tuple[Mac, Mac]:
        """For entries, and for heads; reads the secret."""
        secret = self._secret.read()
        return Mac(derive_key(secret, "audit chain")), Mac(derive_key(secret, "audit heads"))

    async def write(self, records: list[Record]) -> None:
        """Add records to the chain; what fails is written again under the same numbers."""
        audit = self._store.audit
        if self._last is None:
            if not self._beginning:
                # The first use reads the secret of the hub, or creates its file.
                await asyncio.to_thread(lambda: self._macs)
                self._beginning = await self._begin(records[0].at)
            records = [*self._beginning, *records]
        entries = self._entries(records)
        last = entries[-1]
        while entries:
            try:
                await audit.append(*entries, head=self._sign)
                break
            except StaleVersion:
                left = _behind(await audit.last(self._chain), entries)
                if left is None:
                    # Another writer has the same chain. This one begins a new chain when the caller tries again.
                    self._chain, self._last, self._beginning = secrets.token_hex(8), None, []
                    raise
                entries = left
        self._last = last
        self._anchors.note(last)
        if self._max_bytes is not None and time.monotonic() >= self._prune_at:
            self._prune_at = time.monotonic() + PRUNE_INTERVAL_S
            await self._prune(self._max_bytes)
        if self._files is not None:
            await asyncio.to_thread(self._files.write, self._sign(last))

    async def _prune(self, max_bytes: int) -> None:
        """Delete the oldest entries where all together are too large; a failure is logged."""
        try:
            if freed := await self._store.audit.prune(max_bytes, self._make_checkpoint):
                _log.warning("the audit is larger than %d bytes; the oldest %d were deleted", max_bytes, freed)
        except (StoreError, Busy) as error:
            # Not raised: the records are durable by now, and a writer that sees a failure would write them again.
            _log.warning("the audit may be larger than %d bytes; old entries were not deleted: %s", max_bytes, error)

    async def sweep(self) -> int:
        """Delete the entries that are older than the retention; returns how many."""
        await asyncio.to_thread(lambda: self._macs)
        return await self._store.audit.sweep(self._store.now() - self._retention, self._make_checkpoint)

    async def _begin(self, at: float) -> list[Record]:
        """The first records of a chain: the ends of all others, and of those that were written before there was a key.

        The latter are on record once, by the first chain with a key: what is written without the key afterwards was not
        written by a hub.
        """
        audit, mac = self._store.audit, self._macs[0]
        ends: Ends = {}
        unkeyed: Ends = {}
        for chain in await self._all_chains():
            last = await audit.last(chain)
            if last is not None:
                ends[chain] = (last.number, last.digest, last.at)
                if last.digest == digest_of(last, None) != digest_of(last, mac):
                    unkeyed[chain] = ends[chain]
        # A head shows that an earlier chain with a key has recorded the ends of those without one.
        has_key = bool(await audit.heads())
        if self._files is not None:
            has_key = has_key or bool(await asyncio.to_thread(self._files.read))
            await asyncio.to_thread(self._files.sweep, at - self._retention)
        began = [Record(at, HUB, HUB, "audit", "allow", "begin", _encode(ends).decode())]
        if unkeyed and not has_key:
            began.append(Record(at, HUB, HUB, "audit", "allow", KEYED, _encode(unkeyed).decode()))
        return began

    def _entries(self, records: list[Record]) -> list[AuditEntry]:
        last, entries = self._last, []
        for record in records:
            number, digest, at = (0, "", 0.0) if last is None else (last.number, last.digest, last.at)
            last = chained(self._chain, number + 1, record, digest, at, self._macs[0])
            entries.append(last)
        return entries

    def _sign(self, entry: AuditEntry) -> Head:
        head = Head(entry.chain, entry.number, entry.digest, entry.at)
        return msgspec.structs.replace(head, signature=self._signature(head))

    def _signature(self, head: Head) -> str:
        return self._macs[1].hexdigest(_encode([head.chain, head.number, head.digest, head.at]))

    def _make_checkpoint(self, chain: str, number: int) -> str:
        """The proof that a holder of the secret deleted the entries of a chain up to a number."""
        return self._macs[1].hexdigest(_encode(["pruned", chain, number]))

    async def _read_checkpoints(self) -> tuple[dict[str, int], list[str]]:
        """The number up to which entries of each chain were deleted, and what is wrong with the proofs."""
        pruned: dict[str, int] = {}
        problems: list[str] = []
        for chain, (number, proof) in (await self._store.audit.checkpoints()).items():
            if proof == self._make_checkpoint(chain, number):
                pruned[chain] = number
            else:
                problems.append(f"The checkpoint of chain {chain} was changed: its signature is wrong.")
        return pruned, problems

    async def _all_chains(self) -> list[str]:
        """The names of all chains."""
        chains: list[str] = []
        while page := await self._store.audit.chains(chains[-1] if chains else ""):
            chains += page
        return chains

    async def verify(self) -> Verdict:
        """Verify every entry of every chain, and that no chain is shorter than its head says."""
        await asyncio.to_thread(lambda: self._macs)
        while True:
            before = await self._store.audit.checkpoints()
            verdict = await self._verify()
            # What a hub deletes while it is read looks as if it was missing; then everything is read again.
            if not verdict.problems or await self._store.audit.checkpoints() == before:
                return verdict

    async def _verify(self) -> Verdict:
        # Heads and claims are read before the entries: a hub may be writing, and entries only ever become more.
        heads, problems = await self._read_heads()
        pruned, wrong = await self._read_checkpoints()
        problems += wrong
        chains = await self._all_chains()
        claims = {chain: await self._read_claims(chain) for chain in chains}
        unkeyed = {name: end for _, ends in claims.values() for name, end in ends.items()}
        named: _Named = defaultdict(set)
        for name, end in concatenate.from_iterable(ends.items() for ends, _ in claims.values()):
            named[name, end[0]].add(end[1])
        for anchor in (anchors := await self._anchors.read()):
            named[anchor.chain, anchor.number].add(anchor.digest)
        problems += filter(None, [await asyncio.to_thread(self._anchors.find_problem, anchor) for anchor in anchors])
        for head in heads.values():
            named[head.chain, head.number].add(head.digest)
        # Earlier versions deleted entries after the default time without a checkpoint.
        over = time.time() - max(self._retention, DEFAULT_RETENTION_S)
        check = _Check(self._macs[0], over, named, unkeyed, pruned, problems)
        for chain in chains:
            while blocks := await self._store.audit.blocks(chain, check.ends.get(chain, 0)):
                check.read(chain, blocks)
            if chain not in heads and check.has_key(chain):
                problems.append(f"The head of chain {chain} is missing; entries may have been cut off its end.")
        check.compare_ends(claims, heads)
        for anchor in anchors:
            reached = max(check.ends.get(anchor.chain, 0), pruned.get(anchor.chain, 0))
            if 0 < reached < anchor.number:
                problems.append(f"Entry {anchor.number} of chain {anchor.chain} is missing: a time stamp names it.")
        return Verdict(len(check.ends), check.entries, problems, len(anchors))

    async def _read_heads(self) -> tuple[dict[str, Head], list[str]]:
        """The latest head of each chain, of those in the store and in files, and what is wrong with them."""
        problems: list[str] = []
        found: dict[str, Head] = {}
        kept = [] if self._files is None else await asyncio.to_thread(self._files.read)
        for chain, value in (await self._store.audit.heads()).items():
            try:
                kept.append(msgspec.convert(value, Head))
            except msgspec.ValidationError:
                problems.append(f"The head of chain {chain} cannot be read: it was changed.")
        for head in kept:
            if not hmac.compare_digest(head.signature, self._signature(head)):
                problems.append(f"The head of chain {head.chain} was changed: its signature is wrong.")
            elif head.chain not in found or found[head.chain].number < head.number:
                found[head.chain] = head
        return found, problems

    async def _read_claims(self, chain: str) -> tuple[Ends, Ends]:
        """The ends of other chains that a chain begins with, and of those that were written without a key."""
        ends: Ends = {}
        unkeyed: Ends = {}
        for entry in await self._store.audit.chain(chain, 0, 2):
            said = _said(entry)
            with suppress(msgspec.MsgspecError, TypeError):
                if said.get("action") == "begin" and entry.number == 1:
                    ends = msgspec.json.decode(said.get("reason", ""), type=Ends)
                elif said.get("action") == KEYED and entry.digest == digest_of(entry, self._macs[0]):
                    unkeyed = msgspec.json.decode(said.get("reason", ""), type=Ends)
        return ends, unkeyed


def _behind(last: AuditEntry | None, entries: list[AuditEntry]) -> list[AuditEntry] | None:
    """The entries that are left to write, where the first were written although the store reported a failure."""
    for place, entry in enumerate(entries, 1):
        if last is not None and (entry.number, entry.digest) == (last.number, last.digest):
            return entries[place:]
    return None


def chained(chain: str, number: int, record: Record, before: str, before_at: float, mac: Mac) -> AuditEntry:
    """A record as the next entry of a chain, with the digest and the time of the entry before it."""
    text = _encode(record)
    if before:  # written into the text: a struct with two more fields takes longer than all the rest
        text = b'%b,"previous":"%b","previousAt":%b}' % (text[:-1], before.encode(), _encode(before_at))
    return AuditEntry(
        chain=chain,
        number=number,
        at=record.at,
        principal=record.principal,
        capability=record.capability,
        decision=record.decision,
        value=msgspec.Raw(text),
        digest=mac.hexdigest(_message(chain, number, text)),
    )


def digest_of(entry: AuditEntry, mac: Mac | None) -> str:
    """The digest of an entry that was read; without a key, as versions before 0.2 wrote it."""
    message = _message(entry.chain, entry.number, _encode(entry.value))
    return hashlib.sha256(message).hexdigest() if mac is None else mac.hexdigest(message)


def _message(chain: str, number: int, text: bytes) -> bytes:
    return b"%b %d %b" % (chain.encode(), number, text)


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


def writer(sink: Sink, chains: AuditChains, data: Path) -> Writer | None:
    """Where records go, by name."""
    match sink:
        case "store":
            return chains
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
        self.on_act: Callable[[Record], None] | None = None
        """Gets every record but those of calls."""

    def check_room(self) -> None:
        """Raise `Busy` where a record could not be kept."""
        if len(self._waiting) >= MAX_WAITING_RECORDS:
            self._go_on()
            raise Busy("The audit cannot be written, and no call runs without its record; try again later.")

    def add(self, record: Record) -> None:
        """Add a record; it is written in the background."""
        self._waiting.append(record)
        self._go_on()
        if self.on_act is not None and record.action != "call":
            self.on_act(record)

    def record_act(
        self, action: AdministrativeAction, principal: str, via: Via, subject: str, reason: str = "", caller: str = ""
    ) -> None:
        """Record an administrative act: the principal, the way in, and the object; refusals are denials."""
        decision, outcome = ("deny", "denied") if action.endswith(".refused") else ("allow", "ok")
        self.add(Record(time.time(), principal, via, subject, decision, action, reason, caller=caller, outcome=outcome))

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
            # They stay in the queue until they are written: after a failure they are the first again, in their order.
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


class Refusals:
    """Records refused requests, so that a flood of them cannot fill the audit.

    The first of a source, a principal at an address, is recorded at once. Those that follow within a minute are counted
    and become one record. Of more than a hundred sources in a minute the others are counted together.
    """

    def __init__(self, audit: AuditLog) -> None:
        self._audit = audit
        self._counts: dict[tuple[AdministrativeAction, str, Via, str], tuple[int, str]] = {}
        self._timer: asyncio.TimerHandle | None = None

    def add(self, action: AdministrativeAction, principal: str, via: Via, address: str, subject: str) -> None:
        """Record or count one refused request."""
        source = (action, principal, via, address)
        if source not in self._counts:
            if len(self._counts) >= MAX_REFUSAL_SOURCES:
                source = (action, ANONYMOUS.id, via, "")
            if source not in self._counts:
                self._audit.record_act(*source[:3], subject, caller=source[3])
                self._counts[source] = (0, "")
                if self._timer is None:
                    self._timer = asyncio.get_running_loop().call_later(REFUSAL_WINDOW_S, self.flush)
                return
        self._counts[source] = (self._counts[source][0] + 1, subject)

    def flush(self) -> None:
        """Record what was counted, and begin anew."""
        if self._timer is not None:
            self._timer.cancel()
        counts, self._counts, self._timer = self._counts, {}, None
        for (action, principal, via, address), (count, subject) in counts.items():
            if count:
                reason = f"{count} more within {REFUSAL_WINDOW_S:g} s"
                self._audit.record_act(action, principal, via, subject, reason, address)


class Verdict(msgspec.Struct, frozen=True, omit_defaults=True):
    """How much was verified, and what is wrong with it."""

    chains: int
    entries: int
    problems: list[str]
    anchors: int = 0
    """How many time stamps were checked."""


_Named = defaultdict[tuple[str, int], set[str]]
"""The digests that heads and other chains name for an entry, by its chain and number."""


class _Check:
    """Entries as they are read, chain by chain, and what is wrong with them."""

    def __init__(
        self, mac: Mac, over: float, named: _Named, unkeyed: Ends, pruned: dict[str, int], problems: list[str]
    ) -> None:
        self._mac = mac
        self._over = over
        self._named = named
        self._unkeyed = unkeyed
        self._pruned = pruned
        self._problems = problems
        self._last: AuditEntry | None = None
        self.ends: dict[str, int] = {}
        self.entries = 0

    def has_key(self, chain: str) -> bool:
        """Whether a chain, the last one that was read, has entries that were written with the key."""
        last = self._last
        return last is not None and last.chain == chain and last.digest == digest_of(last, self._mac)

    def read(self, chain: str, blocks: list[Block]) -> None:
        """Check the next blocks of a chain."""
        for block in blocks:
            found = []
            for entry in block.entries:
                before = self._last if self._last is not None and self._last.chain == chain else None
                found.append(self._find_problem(entry, before))
                self._last = entry
            if block.is_misfiled and not any(found):
                place = f"Entry {block.number} of chain {chain} and those written with it"
                found.append(f"{place} were changed: what they are found by differs from what they say.")
            self._problems += filter(None, found)
            self.entries += len(block.entries)
        self.ends[chain] = max(block.entries[-1].number for block in blocks)

    def _find_problem(self, entry: AuditEntry, before: AuditEntry | None) -> str | None:
        place, said = f"Entry {entry.number} of chain {entry.chain}", _said(entry)
        if entry.digest != digest_of(entry, self._mac):
            if entry.digest != digest_of(entry, None):
                return f"{place} was changed: its digest is wrong."
            end = self._unkeyed.get(entry.chain)
            # Without the key, only entries that an entry with the key vouches for are accepted.
            if end is None or entry.number > end[0] or (entry.number == end[0] and entry.digest != end[1]):
                return f"{place} was written without the hub's secret."
        if self._named.get((entry.chain, entry.number), set()) - {entry.digest}:
            return f"{place} is not the one that the head or another chain names."
        columns = (entry.at, entry.principal, entry.capability, entry.decision)
        if columns != tuple(said.get(name) for name in ("at", "principal", "capability", "decision")):
            return f"{place} was changed: what it is found by differs from what it says."
        if before is None:
            is_first = entry.number <= self._pruned.get(entry.chain, 0) + 1
            return (
                None
                if is_first or said.get("previousAt", 0.0) < self._over
                else f"{place} is the first that is left: those before it are missing."
            )
        if entry.number != before.number + 1:
            return f"{place} follows {before.number}: entries between them are missing."
        if said.get("previous", "") != before.digest:
            return f"{place} does not follow the one before it: one of them was replaced."
        return None

    def compare_ends(self, claims: dict[str, tuple[Ends, Ends]], heads: dict[str, Head]) -> None:
        """Find entries that were there when another chain began, or when a head was written, and are missing now."""
        cut: set[str] = set()
        for chain, head in heads.items():
            end = max(self.ends.get(chain, 0), self._pruned.get(chain, 0))
            if end < head.number and (end or head.at >= self._over):
                cut.add(chain)
                these = f"Entry {head.number}" if end + 1 == head.number else f"Entries {end + 1} to {head.number}"
                verb = "is" if end + 1 == head.number else "are"
                self._problems.append(
                    f"{these} of chain {chain} {verb} missing: the head of the chain names {head.number}."
                )
        for chain, (said, _) in claims.items():
            for other, (number, _, at) in said.items():
                end = max(self.ends.get(other, 0), self._pruned.get(other, 0))
                if other not in cut and end < number and (end or at >= self._over):
                    self._problems.append(
                        f"Chain {other} ended at {number} when chain {chain} began; now it ends at {end}."
                    )


def _said(entry: AuditEntry) -> dict[str, Any]:
    return entry.value if isinstance(entry.value, dict) else {}
