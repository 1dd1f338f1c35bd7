"""Streams of messages to one client: an ordered, bounded log and whoever reads it now."""

from __future__ import annotations

import asyncio
import logging
from collections import deque
from collections.abc import AsyncIterator, Callable, Iterable
from itertools import islice
from typing import Final, Protocol

import msgspec

_log: Final = logging.getLogger(__name__)

KEPT_EVENTS: Final = 1000
_BACKLOG: Final = 256


class Outlet(Protocol):
    """Where the messages that belong to one request go before its answer."""

    async def send(self, message: bytes) -> None: ...
    async def close_early(self) -> None: ...


class Event(msgspec.Struct, frozen=True):
    """One message and its place in the stream."""

    number: int
    message: bytes


Record = Callable[[str, int, bytes], None]
"""Keeps a message of a stream by the stream's name and its number, for after this process."""


class EventStream:
    """Messages in order; a reader can leave and a later one go on where it stopped."""

    def __init__(
        self, name: str, kept: int = KEPT_EVENTS, *, ends_when_full: bool = True, record: Record | None = None
    ) -> None:
        self.name = name
        self._record = record
        self._ends_when_full = ends_when_full
        self.closed = False
        self._events: deque[Event] = deque(maxlen=kept)
        self._last = 0
        self._read = 0
        self._reader: object | None = None
        self._met = False
        self.followed = asyncio.Event()
        """Set while somebody reads, and when nobody will any more."""
        self._news = asyncio.Event()
        self._room = asyncio.Event()

    @classmethod
    def replayed(cls, name: str, after: int, events: Iterable[tuple[int, bytes]]) -> EventStream:
        """What is left of a stream of another process behind a number, for one reader."""
        stream = cls(name)
        stream._last = after
        for number, message in events:
            stream._last = number
            stream._events.append(Event(number, message))
        stream.closed = True
        return stream

    @property
    def has_reader(self) -> bool:
        """Whether somebody follows the stream right now."""
        return self._reader is not None

    @property
    def last(self) -> int:
        """The number of the newest event."""
        return self._last

    @property
    def delivered(self) -> int:
        """The number of the last event a reader took."""
        return self._read

    def append(self, message: bytes) -> None:
        """Add a message; a reader who fell a whole log behind is let go, without one the oldest message is."""
        if self.closed:
            return
        if self.has_reader and self._last - self._read == self._events.maxlen:
            _log.warning("a stream was ended: its reader fell %s messages behind", self._events.maxlen)
            self.release()
            if self._ends_when_full:
                self.closed = True
                return
        self._last += 1
        self._events.append(Event(self._last, message))
        self._news.set()
        if self._record is not None:
            self._record(self.name, self._last, message)

    async def send(self, message: bytes) -> None:
        """Add a message and, while somebody reads or is about to, wait until they are not too far behind."""
        self.append(message)
        while (self.has_reader or not self._met) and self._last - self._read > _BACKLOG:
            self._room.clear()
            await self._room.wait()

    def close(self) -> None:
        """No more messages: readers end after the last one."""
        self.closed = True
        self.followed.set()
        self._news.set()

    def release(self, reader: object | None = None) -> None:
        """Send the reader away, or a certain one if it still reads; it may come back for the rest."""
        if reader is not None and self._reader is not reader:
            return
        self._reader = None
        if not self.closed:
            self.followed.clear()
        self._met = True
        self._news.set()
        self._room.set()

    async def follow(
        self, after: int, heartbeat: float | None = None, reader: object | None = None
    ) -> AsyncIterator[Event | None]:
        """Events behind number `after`, kept ones first, then new ones as they come; a later reader takes over.

        After `heartbeat` seconds without news there is a `None`.
        """
        self.release()
        me = self._reader = reader or object()
        self.followed.set()
        self._read = after
        try:
            while True:
                for event in self._unread():
                    if self._reader is not me:
                        return
                    self._read = event.number
                    yield event
                    self._room.set()
                if self._reader is not me or (self.closed and self._read >= self._last):
                    return
                if self._read >= self._last and not await self._hears(heartbeat):
                    yield None
        finally:
            if self._reader is me:
                self.release()

    async def _hears(self, patience: float | None) -> bool:
        self._news.clear()
        try:
            async with asyncio.timeout(patience):
                return await self._news.wait()
        except TimeoutError:
            return False

    def _unread(self) -> list[Event]:
        if self._read >= self._last:
            return []
        first = self._events[0].number
        return list(islice(self._events, max(0, self._read + 1 - first), None))
