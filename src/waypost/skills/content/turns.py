"""Changes of one skill or prompt wait for each other, those of different ones do not."""

from __future__ import annotations

import asyncio
from weakref import WeakValueDictionary


class Turns:
    """A lock for each key that somebody holds or waits for."""

    def __init__(self) -> None:
        self._locks: WeakValueDictionary[str, asyncio.Lock] = WeakValueDictionary()

    def __call__(self, key: str) -> asyncio.Lock:
        """The lock of a key, to be held by `async with`."""
        lock = self._locks.get(key)
        if lock is None:
            lock = self._locks[key] = asyncio.Lock()
        return lock
