"""Where documents are stored, and the collections that read and write them under the rules of access."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Coroutine, Sequence
from dataclasses import dataclass
from typing import Any, Final, Generic, TypeAlias

from waypost.documents.records import (
    OPERATOR,
    Access,
    Asker,
    Data,
    DocumentStore,
    Kind,
    Op,
    Owners,
    R,
    Record,
    Source,
    SourceDocument,
    Trigger,
    from_stored,
    list_stored,
    now,
    to_stored,
)
from waypost.documents.uris import INDEX, NotThere, did_you_mean, quoted, refused
from waypost.errors import InvocationFailed, PolicyDenied, ProtocolError, StaleVersion, WaypostError, shorten
from waypost.loops import KeyLocks, start_task
from waypost.stores.database import shorten_key
from waypost.stores.records import Document, Documents
from waypost.stores.store import Store
from waypost.suggestions import preselect
from waypost.workers.frames import UNKNOWN

_PAGE_SIZE: Final = 500
_KINDS: Final[tuple[Kind, ...]] = ("skills", "prompts")


class HubDocumentStore:
    """Documents in the hub's store; the last write wins, whichever replica makes it."""

    def __init__(self, store: Store) -> None:
        self._store = store

    async def get(self, kind: Kind, key: str) -> Data | None:
        """Return the value of a key."""
        found = await self._documents(kind).get(shorten_key(key))
        return None if found is None else _value(found)

    async def put(self, kind: Kind, key: str, value: Data) -> None:
        """Write a value over any earlier one."""
        documents, row = self._documents(kind), shorten_key(key)
        while True:
            found = await documents.get(row)
            try:
                await documents.put(row, value, 0 if found is None else found.version)
            except StaleVersion:
                continue  # another replica was first
            return

    async def remove(self, kind: Kind, key: str) -> bool:
        """Remove a key; return whether it existed."""
        documents, row = self._documents(kind), shorten_key(key)
        while (found := await documents.get(row)) is not None:
            try:
                await documents.remove(row, found.version)
            except StaleVersion:
                continue  # another replica was first
            return True
        return False

    async def all(self, kind: Kind) -> list[Data]:
        """Return all values."""
        documents, rows, after = self._documents(kind), [], ""
        while page := await documents.page(after, _PAGE_SIZE):
            rows += [value for value in map(_value, page) if value is not None]
            after = page[-1].id
        return rows

    async def revision(self) -> object:
        """Return how often replicas have changed any."""
        revisions = await self._store.revisions()
        return [revisions.get(kind, 0) for kind in _KINDS]

    def _documents(self, kind: Kind) -> Documents:
        store = self._store
        return store.skills if kind == "skills" else store.prompts


def _value(document: Document) -> Data | None:
    return document.value if isinstance(document.value, dict) else None


@dataclass(frozen=True, slots=True)
class Scopes:
    """The scope of each kind in the state."""

    skills: str = "skills"
    prompts: str = "prompts"


class StateDocumentStore:
    """Documents in the state of an engine: `state::get`, `set`, `delete` and `list`."""

    def __init__(self, trigger: Trigger, scopes: Scopes | None = None, within: float = 10.0) -> None:
        self._trigger = trigger
        self._scopes = scopes or Scopes()
        self._within = within

    async def get(self, kind: Kind, key: str) -> Data | None:
        """Return the value of a key."""
        found = await self._state("get", kind, key=key)
        return found if isinstance(found, dict) else None

    async def put(self, kind: Kind, key: str, value: Data) -> None:
        """Write a value over any earlier one."""
        await self._state("set", kind, key=key, value=value)

    async def remove(self, kind: Kind, key: str) -> bool:
        """Remove a key; return whether it existed."""
        if await self._state("get", kind, key=key) is None:
            return False
        await self._state("delete", kind, key=key)
        return True

    async def all(self, kind: Kind) -> list[Data]:
        """Return all values."""
        return [row for row in _rows(await self._state("list", kind)) if isinstance(row, dict)]

    async def revision(self) -> object:
        """Return None: the state has no revision."""
        return None

    async def _state(self, verb: str, kind: Kind, **rest: Any) -> Any:
        return await self._trigger(f"state::{verb}", {"scope": getattr(self._scopes, kind), **rest}, self._within)


def _rows(answer: Any) -> list[Any]:
    """Return the values of a list, in each of the three shapes that engines answer."""
    if isinstance(answer, list):
        return answer
    if not isinstance(answer, dict):
        return []
    if isinstance(answer.get("items"), list):
        return [item.get("value") for item in answer["items"] if isinstance(item, dict)]
    return answer["value"] if isinstance(answer.get("value"), list) else []


_log: Final = logging.getLogger(__name__)


class LayeredDocumentStore:
    """A store as it is read together with the skills of sources, which are read-only.

    Of two skills with one id the source's is shown, unless an operator published the stored one.
    """

    def __init__(self, store: DocumentStore, sources: Sequence[Source]) -> None:
        self._store = store
        self._sources = sources
        self._seen: dict[str, Data] | None = None
        """The rows of the sources when they were last read; `registered_at` is when a document was first seen."""
        self._left_out: set[str] = set()

    async def get(self, kind: Kind, key: str) -> Data | None:
        """Return the skill of a source, or the stored value."""
        found = await self._store.get(kind, key)
        if (
            kind != "skills"
            or _is_from_operator(found)
            or not any(document.id == key for source in self._sources for document in source.documents())
        ):
            return found
        return self._read_sources().get(key, found)

    async def all(self, kind: Kind) -> list[Data]:
        """Return the skills of the sources, and all other stored values."""
        stored = await self._store.all(kind)
        if kind != "skills":
            return stored
        from_sources = self._read_sources()
        left_out = {key for row in stored if (key := row.get("id")) in from_sources and not _is_from_operator(row)}
        for key in sorted(left_out - self._left_out):
            _log.warning("skills: %s is left out while a folder of the hub has another of that name", key)
        self._left_out = left_out
        stored = [row for row in stored if row.get("id") not in left_out]
        known = {row.get("id") for row in stored}
        return stored + [row for key, row in from_sources.items() if key not in known]

    async def revision(self) -> object:
        """Return the revision of the store and the documents of the sources."""
        stored = await self._store.revision()
        return None if stored is None else (stored, [tuple(source.documents()) for source in self._sources])

    def _read_sources(self) -> dict[str, Data]:
        seen: dict[str, Data] = {}
        for source in self._sources:
            for document in source.documents():
                if document.id not in seen and document.id != INDEX:
                    seen[document.id] = self._row(document)
        self._seen = seen
        return seen

    def _row(self, document: SourceDocument) -> Data:
        # An unchanged document keeps its time: by another one it would count, and be announced, as changed.
        before = (self._seen or {}).get(document.id)
        current = (document.body, document.owner, document.uri)
        if before is not None and (before["skill"], before["owner"], before["source_uri"]) == current:
            return before
        return {
            "id": document.id,
            "skill": document.body,
            "registered_at": now(),
            "owner": document.owner,
            "from_source": True,
            "source_uri": document.uri,
        }


def _is_from_operator(row: Data | None) -> bool:
    return row is not None and row.get("owner") == OPERATOR


async def call_function(
    trigger: Trigger, function_id: str, payload: Any, within: float, by: Asker, namespace: str | None = None
) -> Any:
    """Return a function's answer; policy and protocol errors are about the caller and pass unchanged."""
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
"""Called after every change was written, with the new record."""
IsFree: TypeAlias = Callable[[Kind, str], bool]
"""Returns whether no other resource or prompt of the hub has an id or name."""

_NOUNS: Final[dict[Kind, str]] = {"skills": "skill", "prompts": "prompt"}


class Collection(Generic[R]):
    """The records of one kind."""

    def __init__(
        self,
        kind: Kind,
        record: type[R],
        store: DocumentStore | LayeredDocumentStore,
        own: DocumentStore,
        owners: Owners,
        access: Access,
        written: Written,
        is_free: IsFree,
    ) -> None:
        self.kind = kind
        self.owners = owners
        self.access = access
        self._record: type[R] = record
        self._store = store
        self._own = own
        """The same without the skills of sources; all changes are written there."""
        self._written = written
        self._is_free = is_free
        # What is checked must still hold when it is written.
        self._locks = KeyLocks()
        self._changes: set[asyncio.Task[bool]] = set()
        self._known: dict[str, tuple[str, ...]] | None = None
        """The keys that were last read, with the names that rules match; used only for suggestions."""

    async def find(self, key: str) -> R | None:
        """Return the record of a key."""
        return from_stored(await self._store.get(self.kind, key), self._record)

    async def exists(self, key: str) -> bool:
        """Return whether a key has a record."""
        return await self.find(key) is not None

    async def all(self) -> list[R]:
        """Return all valid records, sorted by key."""
        records = list_stored(await self._store.all(self.kind), self._record)
        self._known = {record.key: record.names for record in records}
        return records

    async def list_visible(self, by: Asker) -> list[R]:
        """Return all records that a caller may see, sorted by key."""
        return [record for record in await self.all() if self.access.shows_all(record.names, by)]

    def is_visible(self, key: str) -> bool:
        """Return whether clients see the record of a key, and nothing else in its place."""
        return self._is_free(self.kind, key)

    async def put(self, record: R, owner: str) -> str:
        """Write a record, over an earlier one if there is any; return the owner of that, if it is another."""
        key = record.key
        async with self._locks[key]:
            before = await self.find(key)
            self.owners.check(_NOUNS[self.kind], before, owner)
            if not self.is_visible(key):
                raise refused(
                    f"There is a {_NOUNS[self.kind]} {quoted(key)} already in the hub itself; choose another name"
                )
            await self._complete(self._put(record))
        replaced = "" if before is None or before.owner in (None, record.owner) else before.owner
        if replaced:
            _log.warning("%s: %s of %s is replaced by that of %s", self.kind, key, replaced, owner or "a worker")
        return replaced or ""

    async def remove(self, key: str, owner: str) -> bool:
        """Remove a record, also one that a skill of a source hides; return whether it existed."""
        async with self._locks[key]:
            shown = await self.find(key)
            stored = from_stored(await self._own.get(self.kind, key), self._record)
            self.owners.check(_NOUNS[self.kind], stored or shown, owner)
            return await self._complete(self._remove(key, is_shown=shown is not None and not shown.from_source))

    async def hint(self, key: str, by: Asker) -> str:
        """Return a question that suggests keys similar to an unknown one, of those that the caller may see."""
        try:
            known = {one.key: one.names for one in await self.all()} if self._known is None else self._known
        except WaypostError:
            return ""
        # Evaluating the rules for every key would be too slow. What is hidden must not be suggested.
        return did_you_mean(key, [one for one in preselect(key, known) if self.access.shows_all(known[one], by)])

    async def _put(self, record: R) -> bool:
        await self._own.put(self.kind, record.key, to_stored(record))
        if self._known is not None:
            self._known[record.key] = record.names
        self._written(self.kind, "register", record.key, record)
        return True

    async def _remove(self, key: str, *, is_shown: bool) -> bool:
        # From the store alone: a skill of a source with this key cannot be removed, and is shown again.
        removed = await self._own.remove(self.kind, key)
        self._known = None  # a skill of a source under this key may be visible again
        if removed and is_shown:
            self._written(self.kind, "unregister", key, None)
        return removed

    async def _complete(self, change: Coroutine[Any, Any, bool]) -> bool:
        """Complete a change even if its caller is cancelled: what was written must also be announced."""
        return await asyncio.shield(start_task(change, self._changes))
