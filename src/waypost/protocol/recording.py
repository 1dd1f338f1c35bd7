"""Writes what is said on the streams of sessions into the event log, behind everybody's back.

A message goes to its client at once; no number is ever used twice, because a stream's name belongs to one process. What
was not written when the process was killed was never promised to anybody.
"""

from __future__ import annotations

import asyncio
import logging
import time
from collections import deque
from collections.abc import Coroutine
from functools import partial
from typing import Any, Final, Protocol

from waypost.errors import StoreError
from waypost.protocol.streams import Record
from waypost.stores.events import StoredEvent
from waypost.stores.store import Store

_log: Final = logging.getLogger(__name__)
_MOST_WAITING: Final = 10_000
_AT_ONCE: Final = 500


class RecordingHost(Protocol):
    """What a recorder needs of the engine."""

    @property
    def store(self) -> Store: ...
    def background(self, work: Coroutine[Any, Any, Any]) -> asyncio.Task[Any]: ...


class Recorder:
    """One line of messages on their way to the store."""

    def __init__(self, host: RecordingHost, kept: float) -> None:
        self._host = host
        self._kept = kept
        self._waiting: deque[StoredEvent] = deque(maxlen=_MOST_WAITING)
        self._writing = False

    def for_session(self, session_id: str) -> Record | None:
        """What records the streams of a session; nothing when the store would not outlive them."""
        return partial(self._record, session_id) if self._host.store.database.lasts else None

    def _record(self, session_id: str, stream: str, number: int, message: bytes) -> None:
        expires_at = time.time() + self._kept
        self._waiting.append(StoredEvent(session_id, stream, number, expires_at, message.decode()))
        if not self._writing:
            self._writing = True
            self._host.background(self._write())

    async def _write(self) -> None:
        try:
            while self._waiting:
                some = [self._waiting.popleft() for _ in range(min(_AT_ONCE, len(self._waiting)))]
                await self._host.store.events.append(some)
        except StoreError as error:
            self._waiting.clear()
            _log.warning("messages of streams are not kept: %s", error.message)
        finally:
            self._writing = False
