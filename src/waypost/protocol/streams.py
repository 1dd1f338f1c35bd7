"""Streams of messages to one client: a numbered, bounded log that a client can read again after a broken connection.

The streams of a session are also written to the store, in the background, so that a client can resume them after a
restart. A message goes to its client at once; one that was not written when the process was killed is lost. Numbers
are never used twice, because the name of a stream belongs to one process.
"""

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

MAX_EVENTS: Final = 1000
"""How many events of a stream can be read again."""
_MAX_BACKLOG: Final = 256
"""How many unread events make `send` wait for the reader."""
_MAX_STREAMS: Final = 64
_MAX_UNWRITTEN: Final = 10_000
_WRITE_BATCH: Final = 500
_MAX_ENCODED_ID_BYTES: Final = 64
_STREAM_NAME: Final = re.compile(r"s[0-9a-f]{12}[0-9]+\.([A-Za-z0-9_=-]+)")
_LOST: Final = Failure(INTERNAL_ERROR, "The hub was stopped before this was answered.")


class Outlet(Protocol):
    """Where the messages that belong to one request go before its response."""

    async def send(self, message: bytes) -> None: ...
    async def close_early(self) -> None: ...


class Event(msgspec.Struct, frozen=True):
    """One message and its number in the stream."""

    number: int
    message: bytes


Record = Callable[[str, int, bytes], None]
"""Writes a message to the store, by the name of its stream and its number."""


class EventStream:
    """Messages in order, for one reader at a time; a later reader can continue where an earlier one stopped."""

    def __init__(
        self, name: str, max_events: int = MAX_EVENTS, *, ends_when_full: bool = True, record: Record | None = None
    ) -> None:
        self.name = name
        self.closed = False
        self.last = 0
        """The number of the newest event."""
        self.delivered = 0
        """The number of the last event a reader took."""
        self.has_reader_or_ended = asyncio.Event()
        """Set while a reader follows the stream, and once it is closed."""
        self._record = record
        self._ends_when_full = ends_when_full
        self._events: deque[Event] = deque(maxlen=max_events)
        self._reader: object | None = None
        self._had_reader = False
        self._changed = asyncio.Event()
        self._drained = asyncio.Event()

    @classmethod
    def from_store(cls, name: str, after: int, events: Iterable[tuple[int, bytes]]) -> EventStream:
        """The rest of a stream of another process, behind number `after`; it is closed."""
        stream = cls(name)
        stream.last = after
        for number, message in events:
            stream.last = number
            stream._events.append(Event(number, message))
        stream.closed = True
        return stream

    @property
    def has_reader(self) -> bool:
        """Whether a reader follows the stream right now."""
        return self._reader is not None

    def append(self, message: bytes) -> None:
        """Add a message; a reader that is a whole log behind is dropped, without a reader the oldest message is."""
        if self.closed:
            return
        if self.has_reader and self.last - self.delivered == self._events.maxlen:
            _log.warning("a stream was ended: its reader fell %s messages behind", self._events.maxlen)
            self.release()
            if self._ends_when_full:
                self.closed = True
                return
        self.last += 1
        self._events.append(Event(self.last, message))
        self._changed.set()
        if self._record is not None:
            self._record(self.name, self.last, message)

    async def send(self, message: bytes) -> None:
        """Add a message; with a reader, or before the first one comes, wait until it is not too far behind."""
        self.append(message)
        while (self.has_reader or not self._had_reader) and self.last - self.delivered > _MAX_BACKLOG:
            self._drained.clear()
            await self._drained.wait()

    def close(self) -> None:
        """End it for new messages; readers end after the last one."""
        self.closed = True
        self.has_reader_or_ended.set()
        self._changed.set()

    def release(self, reader: object | None = None) -> None:
        """End the current reader, or only `reader` if it is the current one; it may come back for the rest."""
        if reader is not None and self._reader is not reader:
            return
        self._reader = None
        if not self.closed:
            self.has_reader_or_ended.clear()
        self._had_reader = True
        self._changed.set()
        self._drained.set()

    async def follow(
        self, after: int, heartbeat: float | None = None, reader: object | None = None
    ) -> AsyncIterator[Event | None]:
        """Events behind number `after`, kept ones first, then new ones; a later reader ends this one.

        After `heartbeat` seconds without an event it yields `None`.
        """
        self.release()
        me = self._reader = reader or object()
        self.has_reader_or_ended.set()
        self.delivered = after
        try:
            while True:
                for event in self._unread():
                    if self._reader is not me:
                        return
                    self.delivered = event.number
                    yield event
                    self._drained.set()
                if self._reader is not me or (self.closed and self.delivered >= self.last):
                    return
                if self.delivered >= self.last:
                    self._changed.clear()
                    try:
                        async with asyncio.timeout(heartbeat):
                            await self._changed.wait()
                    except TimeoutError:
                        yield None
        finally:
            if self._reader is me:
                self.release()

    def _unread(self) -> list[Event]:
        if self.delivered >= self.last:
            return []
        first = self._events[0].number
        return list(islice(self._events, max(0, self.delivered + 1 - first), None))


class SessionStreams:
    """The streams of one session in this process: the general one, and one for each request that needed one."""

    __slots__ = ("_generation", "_opened", "_record", "_session_id", "_streams", "general")

    def __init__(self, session_id: str, record: Record | None) -> None:
        self._session_id = session_id
        self._generation = new_generation(session_id)
        self._record = record
        self._opened = 0
        # A client that does not read misses the oldest notifications, but its general stream goes on.
        self.general = EventStream(f"g{self._generation}", ends_when_full=False, record=record)
        self._streams: dict[str, EventStream] = {self.general.name: self.general}

    @property
    def has_reader(self) -> bool:
        """Whether the client reads any of them right now."""
        return any(stream.has_reader for stream in self._streams.values())

    def open(self, request_id: RequestId | None = None) -> EventStream:
        """A stream for one request; the oldest finished ones are forgotten."""
        self._opened += 1
        stream = EventStream(stream_name(self._generation, self._opened, request_id), record=self._record)
        finished = [name for name, other in self._streams.items() if other.closed and other is not self.general]
        for name in finished[: max(0, len(self._streams) - _MAX_STREAMS)]:
            del self._streams[name]
        self._streams[stream.name] = stream
        return stream

    def get(self, name: str) -> EventStream | None:
        """The stream of that name, if this process has it."""
        return self._streams.get(name)

    def was_general(self, name: str) -> bool:
        """Whether that is the name of the session's general stream, in this or an earlier process."""
        return name.startswith("g") and _is_of_session(self._session_id, name)

    async def replay(self, store: Store, name: str, after: int) -> EventStream | None:
        """The rest of a stream that this process does not have, from the store."""
        return await replay(store, self._session_id, self._generation, name, after)

    def close(self) -> None:
        """End it for new messages."""
        for stream in self._streams.values():
            stream.close()


# The name of a stream says which generation of the session it belongs to: each time a process opens or recovers the
# session begins one. After the random part comes a mark, so that only names that a session really had are answered.


def new_generation(session_id: str) -> str:
    """A part of stream names that no other process, and no other session, uses."""
    random = secrets.token_hex(4)
    return random + _mark(session_id, random)


def _is_of_session(session_id: str, name: str) -> bool:
    return name[9:13] == _mark(session_id, name[1:9])


def _mark(session_id: str, random: str) -> str:
    return sha256(f"{session_id} {random}".encode()).hexdigest()[:4]


def stream_name(generation: str, number: int, request_id: RequestId | None) -> str:
    """The name of a request's stream; it carries the request's id, for a replay after a crash."""
    name = f"s{generation}{number}"
    encoded = b"" if request_id is None else encode(request_id)
    return f"{name}.{urlsafe_b64encode(encoded).decode()}" if 0 < len(encoded) <= _MAX_ENCODED_ID_BYTES else name


class RecorderHost(Protocol):
    """What a recorder needs of the engine."""

    @property
    def store(self) -> Store: ...
    def background(self, work: Coroutine[Any, Any, Any]) -> asyncio.Task[Any]: ...


class Recorder:
    """Writes the messages of all sessions' streams to the store, in batches; when too many wait the oldest are lost."""

    def __init__(self, host: RecorderHost, keep_seconds: float) -> None:
        self._host = host
        self._keep_seconds = keep_seconds
        self._waiting: deque[StoredEvent] = deque(maxlen=_MAX_UNWRITTEN)
        self._is_writing = False

    def for_session(self, session_id: str) -> Record | None:
        """The function that records a session's streams; `None` where the store does not outlive the process."""
        return partial(self._record, session_id) if self._host.store.database.is_durable else None

    def _record(self, session_id: str, stream: str, number: int, message: bytes) -> None:
        expires_at = time.time() + self._keep_seconds
        self._waiting.append(StoredEvent(session_id, stream, number, expires_at, message.decode()))
        if not self._is_writing:
            self._is_writing = True
            self._host.background(self._write())

    async def _write(self) -> None:
        try:
            while self._waiting:
                batch = [self._waiting.popleft() for _ in range(min(_WRITE_BATCH, len(self._waiting)))]
                await self._host.store.events.append(batch)
        except StoreError as error:
            self._waiting.clear()
            _log.warning("messages of streams were not stored: %s", error.message)
        finally:
            self._is_writing = False


class _Message(msgspec.Struct):
    method: str | UnsetType = UNSET


async def replay(store: Store, session_id: str, generation: str, name: str, after: int) -> EventStream | None:
    """The stored events of a stream behind number `after`; `None` if the store has nothing of it.

    A request of an earlier generation that was not answered then never will be: its stream ends with an error. Where
    other replicas use the store, one of them may still answer it, so nothing is added.
    """
    log = store.events
    stored = await log.after(session_id, name, max(after - 1, 0), limit=MAX_EVENTS)
    events = [event for event in stored if event[0] > after]
    is_past = _is_of_session(session_id, name) and not name.startswith(f"s{generation}")
    # A message without a method is the response, the last one of a request's stream.
    is_over = len(stored) == MAX_EVENTS or (
        stored and msgspec.json.decode(stored[-1][1], type=_Message).method is UNSET
    )
    request_id = _request_of(name) if is_past and not store.database.is_shared and not is_over else None
    if request_id is not None:
        last = stored[-1][0] if stored else after
        events.append((last + 1, _LOST.encode(request_id)))
    if not (events or stored or await log.after(session_id, name, 0, limit=1)):
        return None
    return EventStream.from_store(name, after, events)


def _request_of(name: str) -> RequestId | None:
    """The id of the request that a stream belongs to, if its name has it."""
    found = _STREAM_NAME.fullmatch(name)
    try:
        return None if found is None else msgspec.json.decode(urlsafe_b64decode(found[1]), type=int | str)
    except (ValueError, msgspec.MsgspecError):
        return None
