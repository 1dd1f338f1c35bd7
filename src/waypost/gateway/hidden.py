"""What operators hide from agents: kept in the store, so that it outlives a restart and reaches all replicas."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final

from waypost.capabilities.capability import Kind
from waypost.capabilities.registry import Registry, RowKey
from waypost.errors import Busy, StaleVersion
from waypost.stores.store import HIDDEN_SCOPE, Store

MAX_HIDDEN: Final = 10_000
_KEY: Final = "all"
_ATTEMPTS: Final = 10
_KINDS: Final = {kind.value: kind for kind in Kind}


class HiddenItems:
    """The rows of the registry that operators hide: they can still be called by their name, but are not listed."""

    def __init__(self, registry: Registry, store: Store) -> None:
        self._registry = registry
        self._store = store
        self._version = 0

    async def refresh(self) -> None:
        """Hide what the store names, and show everything else."""
        await self._read()

    async def change(self, keys: Iterable[RowKey], *, hide: bool) -> None:
        """Hide rows, or show them again, on all replicas; `Busy` where too many would be hidden."""
        wanted = set(keys)
        for _ in range(_ATTEMPTS):
            before = await self._read()
            after = before | wanted if hide else before - wanted
            if len(after) > MAX_HIDDEN:
                raise Busy(f"At most {MAX_HIDDEN:,} items can be hidden; show some of the others first.")
            try:
                names = sorted([kind.value, name] for kind, name in after)
                entry = await self._store.state.put(HIDDEN_SCOPE, _KEY, names, self._version, counted=True)
            except StaleVersion:
                continue  # another replica changed it meanwhile
            self._version = entry.version
            self._registry.hide(after)
            return
        raise Busy("Other replicas keep changing what is hidden; try again.")

    async def _read(self) -> set[RowKey]:
        found = await self._store.state.get(HIDDEN_SCOPE, _KEY)
        keys = set() if found is None else {(_KINDS[kind], name) for kind, name in found.value if kind in _KINDS}
        version = 0 if found is None else found.version
        if version != self._version:
            self._version = version
            self._registry.hide(keys)
        return keys
