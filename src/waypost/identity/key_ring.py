"""Keys that are made and revoked while the hub runs; the store has their hashes, callers the keys themselves."""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Iterable
from contextlib import suppress
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any, Final

import msgspec

from waypost.buses import Bus
from waypost.errors import DefinitionError, StoreError, UnknownCapability
from waypost.identity.keys import Key, Keys, digest, new_key
from waypost.runtime.component import Component
from waypost.stores import schema
from waypost.stores.records import Document
from waypost.stores.store import Store
from waypost.suggestions import did_you_mean

if TYPE_CHECKING:
    from waypost.runtime.core import Core

_log: Final = logging.getLogger(__name__)
PAGE_SIZE: Final = 1000
_KIND: Final = schema.KEYS.name


class KeyEntry(msgspec.Struct, frozen=True, rename="camel"):
    """What is known of a key."""

    id: str
    hash: str
    roles: tuple[str, ...] = ()
    permissions: tuple[str, ...] = ()
    scopes: tuple[str, ...] = ()
    expires_at: float | None = None
    created_at: float = 0.0
    revoked_at: float | None = None

    def is_good(self, now: float) -> bool:
        """Whether it is accepted."""
        return self.revoked_at is None and (self.expires_at is None or now < self.expires_at)

    def shown(self) -> dict[str, Any]:
        """What people may see of it."""
        return {**msgspec.to_builtins(self), "hash": self.hash[:15] + "…"}


class KeyRing(Component):
    """The keys in a store, added to and taken off those a hub accepts."""

    name = "keys"
    reads = (_KIND,)

    def __init__(self, keys: Keys, store: Store, clock: Callable[[], float] = time.time) -> None:
        self._keys = keys
        self._store = store
        self._clock = clock
        self._accepted: dict[str, str] = {}
        self._bus: Bus | None = None
        self._revision: int | None = None
        """How often keys had been changed when they were read last."""

    async def start(self, core: Core) -> None:
        """Accept the keys of the store; one in memory has none yet."""
        if core.store.database.is_durable:
            await self.refresh()
        self._keys.catch_up = self if core.store.database.is_shared else None
        self._bus = core.bus

    @property
    def is_due(self) -> bool:
        """Whether the bus is down, so that a key that another replica revokes is not announced here."""
        return self._bus is not None and self._bus.health != "ok"

    async def read(self) -> None:
        """Read what other replicas changed, as far as the store answers."""
        # While it does not, known callers go on: a key that was revoked meanwhile is refused when it answers again.
        if self._store.database.is_responding:
            with suppress(StoreError):
                await self.refresh()

    async def refresh(self) -> None:
        """Accept the good keys of the store and no others of its keys; they are read again only if any changed.

        A key whose time is over is refused by itself.
        """
        revision = (await self._store.revisions()).get(_KIND, 0)  # what changes from now on is read the next time
        if revision == self._revision:
            return
        now = self._clock()
        good = {entry.id: entry for entry in await self.entries() if entry.is_good(now)}
        for key_id, hashed in list(self._accepted.items()):
            if key_id not in good or good[key_id].hash != hashed:
                self._refuse(key_id)
        for entry in good.values():
            if entry.id not in self._accepted:
                try:
                    self._accept(entry)
                except DefinitionError as error:
                    _log.warning("a key in the store is not accepted: %s", error.message)
        self._revision = revision

    async def create(
        self,
        key_id: str,
        *,
        roles: Iterable[str] = (),
        permissions: Iterable[str] = (),
        scopes: Iterable[str] = (),
        expires_at: float | None = None,
    ) -> str:
        """Make a key; it is returned once and never again."""
        key = new_key()
        entry = KeyEntry(
            key_id, digest(key), tuple(roles), tuple(permissions), tuple(scopes), expires_at, self._clock()
        )
        self._as_key(entry)  # refuses what cannot be a key before anything is kept
        if key_id not in self._accepted and any(known.id == key_id for known in self._keys):
            raise StoreError(f"The configuration has a key for {key_id}; choose another id.")
        found = await self._store.keys.get(key_id)
        known = None if found is None else _readable(found)
        if known is not None and known.is_good(self._clock()):
            raise StoreError(f"There is a key for {key_id} already; revoke it first.")
        # Fenced by the version that was read: of two callers that create one id at the same time, one fails.
        await self._store.keys.put(key_id, msgspec.to_builtins(entry), 0 if found is None else found.version)
        self._refuse(key_id)
        self._accept(entry)
        return key

    async def revoke(self, key_id: str) -> None:
        """Refuse a key from now on."""
        found = await self._store.keys.get(key_id)
        known = None if found is None else _readable(found)
        if found is None or known is None or known.revoked_at is not None:
            others = [entry.id for entry in await self.entries() if entry.revoked_at is None]
            hint = did_you_mean(key_id, others, "; ") or "."
            raise UnknownCapability(f"There is no key for {key_id} that could be revoked{hint}")
        try:
            # Refused here first: whatever becomes of the write, this process does not accept the key any longer.
            self._refuse(key_id)
        finally:  # even if a watcher fails
            entry = msgspec.structs.replace(known, revoked_at=self._clock())
            await self._store.keys.put(key_id, msgspec.to_builtins(entry), found.version)

    async def entries(self) -> list[KeyEntry]:
        """All keys there ever were, by id, but for what cannot be read as one."""
        documents: list[Document] = []
        while page := await self._store.keys.page(documents[-1].id if documents else "", PAGE_SIZE):
            documents += page
            if len(page) < PAGE_SIZE:
                break
        return [entry for entry in map(_readable, documents) if entry is not None]

    def _accept(self, entry: KeyEntry) -> None:
        self._keys.add(self._as_key(entry))
        self._accepted[entry.id] = entry.hash

    def _refuse(self, key_id: str) -> None:
        hashed = self._accepted.pop(key_id, None)
        if hashed is not None:
            self._keys.drop(hashed)

    def _as_key(self, entry: KeyEntry) -> Key:
        try:
            expires = None if entry.expires_at is None else datetime.fromtimestamp(entry.expires_at, UTC)
        except (ValueError, OverflowError, OSError):
            raise DefinitionError(f"The expiry of key {entry.id!r} is not a valid time.") from None
        return Key(entry.id, entry.hash, entry.roles, entry.permissions, entry.scopes, expires)


def _readable(document: Document) -> KeyEntry | None:
    try:
        return msgspec.convert(document.value, KeyEntry)
    except msgspec.ValidationError as error:
        _log.warning("the key %s in the store cannot be read: %s", document.id, error)
        return None
