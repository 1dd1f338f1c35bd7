"""Where documents are stored, and the collections that read and write them under the rules of access."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass
from typing import Any, Final, Generic, TypeAlias

from waypost.documents.ports import (
    OPERATOR,
    Access,
    Asker,
    Data,
    DocumentStore,
    Kind,
    NotThere,
    Op,
    Owners,
    Source,
    SourceDocument,
    Trigger,
    Turns,
    quoted,
    refused,
)
from waypost.documents.records import R, Record, from_stored, list_stored, now, to_stored
from waypost.documents.uris import INDEX, did_you_mean
from waypost.errors import InvocationFailed, PolicyDenied, ProtocolError, StaleVersion, WaypostError, shorten
from waypost.stores.records import Document, Documents, shorten_key
from waypost.stores.store import Store
from waypost.suggestions import preselect
from waypost.workers.frames import UNKNOWN

_PAGE: Final = 500
_KINDS: Final[tuple[Kind, ...]] = ("skills", "prompts")


class HubDocumentStore:
    """A shelf over the documents of a store; the last who writes wins, on whichever hub."""

    def __init__(self, store: Store) -> None:
        self._store = store

    async def get(self, kind: Kind, key: str) -> Data | None:
        """What is kept under a key."""
        found = await self._documents(kind).get(shorten_key(key))
        return None if found is None else _value(found)

    async def put(self, kind: Kind, key: str, value: Data) -> None:
        """Keep something, whatever was there before."""
        documents, place = self._documents(kind), shorten_key(key)
        while True:
            found = await documents.get(place)
            try:
                await documents.put(place, value, 0 if found is None else found.version)
            except StaleVersion:
                continue  # another hub was first
            return

    async def remove(self, kind: Kind, key: str) -> bool:
        """Keep it no more; whether there was anything."""
        documents, place = self._documents(kind), shorten_key(key)
        while (found := await documents.get(place)) is not None:
            try:
                await documents.remove(place, found.version)
            except StaleVersion:
                continue  # another hub was first
            return True
        return False

    async def all(self, kind: Kind) -> list[Data]:
        """Everything that is kept."""
        documents, rows, after = self._documents(kind), [], ""
        while page := await documents.page(after, _PAGE):
            rows += [value for value in map(_value, page) if value is not None]
            after = page[-1].id
        return rows

    async def mark(self) -> object:
        """How often hubs on this store have changed any."""
        revisions = await self._store.revisions()
        return [revisions.get(kind, 0) for kind in _KINDS]

    def _documents(self, kind: Kind) -> Documents:
        store = self._store
        return store.skills if kind == "skills" else store.prompts


def _value(document: Document) -> Data | None:
    return document.value if isinstance(document.value, dict) else None


@dataclass(frozen=True, slots=True)
class Scopes:
    """Where in the state each kind is kept."""

    skills: str = "skills"
    prompts: str = "prompts"


class StateDocumentStore:
    """A shelf over `state::get`, `set`, `delete` and `list`."""

    def __init__(self, trigger: Trigger, scopes: Scopes | None = None, within: float = 10.0) -> None:
        self._trigger = trigger
        self._scopes = scopes or Scopes()
        self._within = within

    async def get(self, kind: Kind, key: str) -> Data | None:
        """What is kept under a key."""
        found = await self._state("get", kind, key=key)
        return found if isinstance(found, dict) else None

    async def put(self, kind: Kind, key: str, value: Data) -> None:
        """Keep something, whatever was there before."""
        await self._state("set", kind, key=key, value=value)

    async def remove(self, kind: Kind, key: str) -> bool:
        """Keep it no more; whether there was anything."""
        if await self._state("get", kind, key=key) is None:
            return False
        await self._state("delete", kind, key=key)
        return True

    async def all(self, kind: Kind) -> list[Data]:
        """Everything that is kept."""
        return [row for row in _rows(await self._state("list", kind)) if isinstance(row, dict)]

    async def mark(self) -> object:
        """The state has no number that moves with it."""
        return None

    async def _state(self, verb: str, kind: Kind, **rest: Any) -> Any:
        return await self._trigger(f"state::{verb}", {"scope": getattr(self._scopes, kind), **rest}, self._within)


def _rows(answer: Any) -> list[Any]:
    """The values of a list, in each of the three shapes that engines answer in."""
    if isinstance(answer, list):
        return answer
    if not isinstance(answer, dict):
        return []
    if isinstance(answer.get("items"), list):
        return [item.get("value") for item in answer["items"] if isinstance(item, dict)]
    return answer["value"] if isinstance(answer.get("value"), list) else []


_log: Final = logging.getLogger(__name__)


class LayeredDocumentStore:
    """What is kept on a shelf, and what sources have.

    Of two under one id the source's is shown, unless an operator put the other there.
    """

    def __init__(self, shelf: DocumentStore, sources: Sequence[Source]) -> None:
        self._shelf = shelf
        self._sources = sources
        self._seen: dict[str, Data] | None = None
        """What sources had last, and since when."""
        self._left_out: set[str] = set()

    async def get(self, kind: Kind, key: str) -> Data | None:
        """What a source has under a key, or what is kept."""
        found = await self._shelf.get(kind, key)
        if kind != "skills" or _is_operators(found) or not self._has(key):
            return found
        return self._borrowed().get(key, found)

    async def put(self, kind: Kind, key: str, value: Data) -> None:
        """Keep something, whatever was there before."""
        await self._shelf.put(kind, key, value)

    async def remove(self, kind: Kind, key: str) -> bool:
        """Keep it no more; whether there was anything."""
        return await self._shelf.remove(kind, key)

    async def all(self, kind: Kind) -> list[Data]:
        """Everything that sources have, and everything else that is kept."""
        kept = await self._shelf.all(kind)
        if kind != "skills":
            return kept
        borrowed = self._borrowed()
        left_out = {key for row in kept if (key := row.get("id")) in borrowed and not _is_operators(row)}
        for key in sorted(left_out - self._left_out):
            _log.warning("skills: %s is left out as long as the hub itself has another of that name", key)
        self._left_out = left_out
        kept = [row for row in kept if row.get("id") not in left_out]
        known = {row.get("id") for row in kept}
        return kept + [row for key, row in borrowed.items() if key not in known]

    async def mark(self) -> object:
        """That of what is kept, and what sources have."""
        kept = await self._shelf.mark()
        return None if kept is None else (kept, [tuple(source.documents()) for source in self._sources])

    def _has(self, key: str) -> bool:
        return any(document.id == key for source in self._sources for document in source.documents())

    def _borrowed(self) -> dict[str, Data]:
        seen: dict[str, Data] = {}
        for source in self._sources:
            for document in source.documents():
                if document.id not in seen and document.id != INDEX:
                    seen[document.id] = self._row(document)
        self._seen = seen
        return seen

    def _row(self, document: SourceDocument) -> Data:
        before = (self._seen or {}).get(document.id)
        now_there = (document.body, document.owner, document.uri)
        if before is not None and (before["skill"], before["owner"], before["home"]) == now_there:
            return before
        return {
            "id": document.id,
            "skill": document.body,
            "registered_at": now(),
            "owner": document.owner,
            "borrowed": True,
            "home": document.uri,
        }


def _is_operators(row: Data | None) -> bool:
    return row is not None and row.get("owner") == OPERATOR


async def ask(
    trigger: Trigger, function_id: str, payload: Any, within: float, by: Asker, namespace: str | None = None
) -> Any:
    """What a function answers; that the caller may not, or cannot, is the caller's own affair and told as it is."""
    shown = shorten(function_id)
    try:
        async with asyncio.timeout(within):
            return await trigger(function_id, payload, within, by, namespace)
    except TimeoutError:
        raise refused(f"trigger {shown}: it did not answer within {within:g} s") from None
    except (PolicyDenied, ProtocolError):
        raise
    except InvocationFailed as error:
        kind = NotThere if error.code == UNKNOWN else InvocationFailed
        raise kind(f"trigger {shown}: {error.message}", stacktrace=error.stacktrace) from None
    except WaypostError as error:
        raise refused(f"trigger {shown}: {error.message}") from None


Written: TypeAlias = Callable[[Kind, Op, str, Record | None], None]
"""Hears of every change after it was written, with what is there now."""
IsFree: TypeAlias = Callable[[Kind, str], bool]
"""Whether an id or name is not taken by something that stands elsewhere."""

_NOUNS: Final[dict[Kind, str]] = {"skills": "skill", "prompts": "prompt"}


class Collection(Generic[R]):
    """Records of one kind."""

    def __init__(
        self,
        kind: Kind,
        record: type[R],
        shelf: DocumentStore,
        kept: DocumentStore,
        owners: Owners,
        access: Access,
        written: Written,
        is_free: IsFree,
    ) -> None:
        self.kind = kind
        self.owners = owners
        self.access = access
        self._record: type[R] = record
        self._shelf = shelf
        self._kept = kept
        """The same without what stands elsewhere."""
        self._written = written
        self._is_free = is_free
        self._turns = Turns()
        self._changes: set[asyncio.Future[Any]] = set()
        self._known: dict[str, tuple[str, ...]] | None = None
        """The keys that were seen last, with what rules know them by; only hints are made of them."""

    async def find(self, key: str) -> R | None:
        """The record under a key."""
        return from_stored(await self._shelf.get(self.kind, key), self._record)

    async def all(self) -> list[R]:
        """Every record by its key; what cannot be read is left out."""
        records = list_stored(await self._shelf.all(self.kind), self._record)
        self._known = {record.key: record.names for record in records}
        return records

    async def shown(self, by: Asker) -> list[R]:
        """Every record that somebody finds in lists, by its key."""
        return [record for record in await self.all() if self.access.shows_all(record.names, by)]

    def stands(self, key: str) -> bool:
        """Whether what is kept under a key is what everybody finds there."""
        return self._is_free(self.kind, key)

    async def put(self, record: R, owner: str) -> None:
        """Add a record, or put it in the place of another of its owner."""
        key = record.key
        async with self._turns(key):
            await self._check(key, owner)
            if not self.stands(key):
                raise refused(
                    f"There is a {_NOUNS[self.kind]} {quoted(key)} already that stands elsewhere; choose another name"
                )
            await self._finished(self._put(record))

    async def remove(self, key: str, owner: str) -> bool:
        """Take a record out; whether there was one. It may be one that nobody finds, as another stands there."""
        async with self._turns(key):
            shown = await self.find(key)
            kept = from_stored(await self._kept.get(self.kind, key), self._record)
            self.owners.check(_NOUNS[self.kind], kept or shown, owner)
            return await self._finished(self._remove(key, is_shown=shown is not None and not shown.borrowed))

    async def hint(self, key: str, by: Asker) -> str:
        """Return a question that suggests keys similar to an unknown one, of those that the caller may see."""
        try:
            known = {one.key: one.names for one in await self.all()} if self._known is None else self._known
        except WaypostError:
            return ""
        # Asking the rules costs too much to be done for every key.
        return did_you_mean(key, [one for one in preselect(key, known) if self.access.shows_all(known[one], by)])

    async def _check(self, key: str, owner: str) -> None:
        self.owners.check(_NOUNS[self.kind], await self.find(key), owner)

    async def _put(self, record: R) -> bool:
        await self._shelf.put(self.kind, record.key, to_stored(record))
        if self._known is not None:
            self._known[record.key] = record.names
        self._written(self.kind, "register", record.key, record)
        return True

    async def _remove(self, key: str, *, is_shown: bool) -> bool:
        removed = await self._shelf.remove(self.kind, key)
        self._known = None  # what stands elsewhere under this key may be seen again
        if removed and is_shown:
            self._written(self.kind, "unregister", key, None)
        return removed

    async def _finished(self, change: Awaitable[bool]) -> bool:
        """Go on to the end with a change, so that what is written is told even if nobody waits for the answer."""
        going = asyncio.ensure_future(change)
        self._changes.add(going)
        going.add_done_callback(self._changes.discard)
        return await asyncio.shield(going)
