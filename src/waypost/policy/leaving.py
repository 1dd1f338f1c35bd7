"""Revoked and expired keys, reported on the event loop that serves their sessions."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from contextlib import suppress
from typing import Final

from waypost.policy.authentication import Authentication
from waypost.policy.keys import KeyChange, Watcher

_LOOK_EVERY: Final = 1.0


class RevocationWatcher:
    """Reports keys that are revoked, from any thread, and keys that expire."""

    def __init__(self, auth: Authentication, tell: Watcher) -> None:
        self._auth = auth
        self._tell = tell
        self._loop = asyncio.get_running_loop()
        self._looking = self._loop.create_task(self._look())
        auth.watch(self._changed)

    @property
    def is_here(self) -> bool:
        """Whether the running loop is the one that is told."""
        return self._loop is asyncio.get_running_loop()

    async def stop(self) -> None:
        """Tell nothing more."""
        self._auth.watch(None)
        if self.is_here:  # else it ended with its loop
            self._looking.cancel()
            await asyncio.wait({self._looking})

    def _changed(self, changes: Sequence[KeyChange]) -> None:
        with suppress(RuntimeError):  # the loop is closed, and nothing is open there
            self._loop.call_soon_threadsafe(self._tell, changes)

    async def _look(self) -> None:
        """Look at the clock now and then: a timer would not notice when it is set."""
        while True:
            await asyncio.sleep(_LOOK_EVERY)
            self._auth.keys.lapse()
