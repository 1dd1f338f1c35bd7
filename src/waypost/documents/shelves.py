"""Where records are kept: in the store, or in the state of an engine that workers share."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Final

from waypost.documents.ports import Data, Kind, Trigger
from waypost.errors import StaleVersion
from waypost.stores.records import Document, Documents, shorten_key
from waypost.stores.store import Store

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
