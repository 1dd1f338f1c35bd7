"""A collection of records on a shelf, and how handlers of workers are called for their content."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from typing import Any, Final, Generic, TypeAlias

from waypost.documents.access import Access, Owners
from waypost.documents.ports import Asker, DocumentStore, Kind, NotThere, Op, Trigger, Turns, quoted, refused
from waypost.documents.records import R, Record, from_stored, list_stored, to_stored
from waypost.documents.uris import did_you_mean
from waypost.errors import InvocationFailed, PolicyDenied, ProtocolError, WaypostError, shorten
from waypost.suggestions import preselect
from waypost.workers.frames import UNKNOWN


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
