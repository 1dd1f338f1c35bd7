"""Streams of messages to one client: an ordered, bounded log and whoever reads it now."""

from __future__ import annotations

import asyncio
import logging
import re
import secrets
import time
from base64 import urlsafe_b64decode, urlsafe_b64encode
from collections import deque
from collections.abc import AsyncIterator, Callable, Coroutine, Iterable
from functools import partial
from hashlib import sha256
from itertools import islice
from typing import Any, Final, Protocol

import msgspec
from msgspec import UNSET, UnsetType

from waypost.errors import StoreError
from waypost.protocol.responses import INTERNAL_ERROR, Failure
from waypost.stores.sessions import StoredEvent
from waypost.stores.store import Store
from waypost.wire.messages import RequestId, encode

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
        return partial(self._record, session_id) if self._host.store.database.is_durable else None

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


_LOST: Final = Failure(INTERNAL_ERROR, "The hub was stopped before this was answered.")
_LONGEST_ID: Final = 64
_NAME: Final = re.compile(r"s[0-9a-f]{12}[0-9]+\.([A-Za-z0-9_=-]+)")


class _Message(msgspec.Struct):
    method: str | UnsetType = UNSET


def new_life(session_id: str) -> str:
    """What the names of streams have in common in one life of a session, and in no other."""
    random = secrets.token_hex(4)
    return random + _mark(session_id, random)


def is_own(session_id: str, name: str) -> bool:
    """Whether a stream of that name was the session's, in whichever life."""
    return name[9:13] == _mark(session_id, name[1:9])


def _mark(session_id: str, random: str) -> str:
    return sha256(f"{session_id} {random}".encode()).hexdigest()[:4]


def stream_name(life: str, number: int, request_id: RequestId | None) -> str:
    """What the stream of a request is called: its events say which request it was, whatever becomes of the process."""
    name = f"s{life}{number}"
    asked = b"" if request_id is None else encode(request_id)
    return f"{name}.{urlsafe_b64encode(asked).decode()}" if 0 < len(asked) <= _LONGEST_ID else name


async def replay(store: Store, session_id: str, life: str, name: str, after: int) -> EventStream | None:
    """What the store has of a stream behind a number; none if nothing is known of it.

    A request that was not answered in another life of the session never will be, and is told so; where other hubs use
    the store, one of them may be about to answer it.
    """
    log = store.events
    kept = await log.after(session_id, name, max(after - 1, 0), limit=KEPT_EVENTS)
    events = [event for event in kept if event[0] > after]
    is_past = is_own(session_id, name) and not name.startswith(f"s{life}") and not store.database.is_shared
    is_over = len(kept) == KEPT_EVENTS or (kept and _is_answer(kept[-1][1]))
    request_id = _asked(name) if is_past and not is_over else None
    if request_id is not None:
        last = kept[-1][0] if kept else after
        events.append((last + 1, _LOST.response(request_id)))
    if not (events or kept or await log.after(session_id, name, 0, limit=1)):
        return None
    return EventStream.replayed(name, after, events)


def _asked(name: str) -> RequestId | None:
    """The request that a stream belonged to, where its name says so."""
    found = _NAME.fullmatch(name)
    try:
        return None if found is None else msgspec.json.decode(urlsafe_b64decode(found[1]), type=int | str)
    except (ValueError, msgspec.MsgspecError):
        return None


def _is_answer(message: bytes) -> bool:
    return msgspec.json.decode(message, type=_Message).method is UNSET
