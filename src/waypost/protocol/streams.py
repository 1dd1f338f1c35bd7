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
from collections import Counter, OrderedDict, deque
from collections.abc import AsyncIterator, Callable, Coroutine, Iterable, Iterator, Mapping
from functools import partial
from hashlib import sha256
from itertools import islice
from typing import TYPE_CHECKING, Any, Final, NamedTuple, Protocol

import msgspec
from msgspec import UNSET, UnsetType

from waypost.capabilities.principals import Principal
from waypost.errors import StoreError
from waypost.protocol.relay import HEARTBEAT_S, Liveness
from waypost.protocol.responses import INTERNAL_ERROR, Failure
from waypost.settings import Limits
from waypost.stores.sessions import StoredEvent
from waypost.stores.store import Store
from waypost.wire.messages import RequestId, encode

if TYPE_CHECKING:
    from waypost.identity.keys import KeyChange

_log: Final = logging.getLogger(__name__)

MAX_EVENTS: Final = 1000
"""How many events of a stream can be read again."""
_MAX_BACKLOG: Final = 256
_MAX_BACKLOG_BYTES: Final = 1_048_576
"""How many unread events, and bytes of them, make `send` wait for the reader."""
_MAX_STREAMS: Final = 64
_MAX_UNWRITTEN: Final = 10_000
_MAX_UNWRITTEN_BYTES: Final = 67_108_864
"""How many events, and bytes of them, wait to be written to the store."""
_WRITE_BATCH: Final = 500
# The name of a stream is part of each event id and of the header `Last-Event-ID`: a long request id is left out.
_MAX_ENCODED_ID_BYTES: Final = 64
_STREAM_NAME: Final = re.compile(r"s[0-9a-f]{28}[0-9]+\.([A-Za-z0-9_=-]+)")
_DROPPED: Final = Failure(
    INTERNAL_ERROR,
    "The response is no longer there: streams held too many bytes (maxSessionStreamBytes, maxTotalStreamBytes).",
)
_LOST: Final = Failure(INTERNAL_ERROR, "The hub was stopped before this was answered.")
_POLL_S: Final = 0.25
_READER_TIMEOUT_S: Final = 5.0
_DEAD_AFTER_S: Final = 1.5 * HEARTBEAT_S
"""How long a process has to be without a heartbeat: one that just began to send them may be a moment late."""


class Outlet(Protocol):
    """Where the messages that belong to one request go before its response."""

    async def send(self, message: bytes) -> None: ...
    async def close_early(self) -> None: ...


class Event(msgspec.Struct, frozen=True):
    """One message and its number in the stream."""

    number: int
    message: bytes


class StreamReader(msgspec.Struct, frozen=True, eq=False):
    """A client that reads a session's stream with GET, and the principal as which it does."""

    principal: Principal


Record = Callable[[str, int, bytes], None]
"""Writes a message to the store, by the name of its stream and its number."""


class _Rules(NamedTuple):
    """How much a stream holds, how far a sender may be ahead of its reader, and what happens then."""

    max_events: int
    max_bytes: int
    max_backlog_bytes: int
    is_resumable: bool
    ends_when_full: bool


class EventStream:
    """Messages in order, for one reader at a time; a later reader can continue where an earlier one stopped.

    Its owner counts the bytes that it holds. One that is not resumable holds a message only until a reader took it.
    """

    def __init__(
        self,
        name: str,
        max_events: int = MAX_EVENTS,
        max_bytes: int = Limits().max_stream_bytes,
        *,
        is_resumable: bool = True,
        ends_when_full: bool = True,
        record: Record | None = None,
        owner: SessionStreams | None = None,
    ) -> None:
        self.name = name
        self.closed = False
        self.last = 0
        """The number of the newest event."""
        self.delivered = 0
        """The number of the last event a reader took."""
        self.has_reader_or_ended = asyncio.Event()
        """Set while a reader follows the stream, and once it is closed."""
        self.size = 0
        """How many bytes its events have."""
        self._unread_bytes = 0
        backlog = min(_MAX_BACKLOG_BYTES, max_bytes // 2)
        self._rules = _Rules(max_events, max_bytes, backlog, is_resumable, ends_when_full)
        self._record = record
        self._owner = owner
        self._events: deque[Event] = deque()
        self._reader: object | None = None
        self._had_reader = False
        self._changed = asyncio.Event()
        self._drained = asyncio.Event()

    @classmethod
    def from_store(cls, name: str, after: int, events: Iterable[tuple[int, bytes]]) -> EventStream:
        """The rest of a stream of another process, behind number `after`; the caller closes it when it is over."""
        stream = cls(name)
        stream.last = after
        for number, message in events:
            stream.append_stored(number, message)
        return stream

    def append_stored(self, number: int, message: bytes) -> None:
        """Add a message under the number that it has in the store, which limits what it keeps of a stream."""
        self.last = number
        self._events.append(Event(number, message))
        self._unread_bytes += len(message)
        self._resize(len(message))
        while len(self._events) > self._rules.max_events:
            self._drop()
        self._changed.set()

    @property
    def has_reader(self) -> bool:
        """Whether a reader follows the stream right now."""
        return self._reader is not None

    @property
    def reader_principal(self) -> Principal | None:
        """The principal of the client that reads the stream with GET."""
        return self._reader.principal if isinstance(self._reader, StreamReader) else None

    def release_reader_of(self, changes: Mapping[int, KeyChange]) -> None:
        """End the current reader if its key or token is refused from now on."""
        change = changes.get(id(self.reader_principal))
        if change is not None and change.ended:
            self.release()

    def append(self, message: bytes) -> None:
        """Add a message; a reader that is a whole log behind is dropped, without a reader the oldest message is."""
        if self.closed:
            return
        unread = self.last - self.delivered
        if self.has_reader and (unread >= self._rules.max_events or self._unread_bytes > self._rules.max_bytes):
            _log.warning("a stream was ended: its reader fell %s messages behind", unread)
            self.release()
            if self._rules.ends_when_full:
                self.close()
                return
        self.last += 1
        self._events.append(Event(self.last, message))
        self._unread_bytes += len(message)
        self._resize(len(message))
        while len(self._events) > self._rules.max_events:
            self._drop()
        while self.size > self._rules.max_bytes and self.drop_oldest():
            pass
        if self._owner is not None:
            self._owner.make_room()
        self._changed.set()
        if self._record is not None:
            self._record(self.name, self.last, message)

    async def send(self, message: bytes) -> None:
        """Add a message; with a reader, or before the first one comes, wait until it is not too far behind."""
        self.append(message)
        while (self.has_reader or not self._had_reader) and (
            self.last - self.delivered > _MAX_BACKLOG or self._unread_bytes > self._rules.max_backlog_bytes
        ):
            self._drained.clear()
            await self._drained.wait()

    def close(self) -> None:
        """End it for new messages; readers end after the last one."""
        if not self.closed and self._owner is not None:
            self._owner.note_closed(self)
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
        if self._owner is not None:
            self._owner.make_room()  # what the reader still needed can be dropped now

    async def follow(
        self, after: int, heartbeat: float | None = None, reader: object | None = None
    ) -> AsyncIterator[Event | None]:
        """Events behind number `after`, kept ones first, then new ones; a later reader ends this one.

        After `heartbeat` seconds without an event it yields `None`.
        """
        self.release()
        # One reader at a time: a client that resumes before the loss of its old connection was noticed takes the stream
        # over.
        me = self._reader = reader or object()
        self.has_reader_or_ended.set()
        if self._owner is not None:
            self._owner.note_reader(self)
        self.delivered = after
        self._unread_bytes = sum(len(event.message) for event in self.unread())
        try:
            while True:
                for event in self.unread():
                    if self._reader is not me:
                        return
                    self.delivered = event.number
                    self._unread_bytes -= len(event.message)
                    # It cannot be asked for again, so it need not be kept.
                    if not self._rules.is_resumable and self._events[0] is event:
                        self._drop()
                    yield event
                    self._drained.set()
                if self._reader is not me or (self.closed and self.delivered >= self.last):
                    return
                # No await between this check and `clear`: an event that is added later sets it again.
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

    def drop_oldest(self) -> bool:
        """Drop the oldest event; false where only the newest is left, or a reader still needs the oldest."""
        if len(self._events) < 2 or (self.has_reader and self._events[0].number > self.delivered):
            return False
        self._drop()
        return True

    def _drop(self) -> None:
        event = self._events.popleft()
        if event.number > self.delivered:
            self._unread_bytes -= len(event.message)
        self._resize(-len(event.message))

    def _resize(self, change: int) -> None:
        self.size += change
        if self._owner is not None:
            self._owner.resize(change)

    def drop_response(self) -> None:
        """Put an error in the place of the response to a request that is over, and drop everything before it."""
        while self.drop_oldest():
            pass
        if not self._events or self.has_reader:
            return
        event = self._events.pop()
        dropped = _DROPPED.encode(_request_of(self.name))
        self._events.append(Event(event.number, dropped))
        self._unread_bytes = len(dropped) if event.number > self.delivered else 0
        self._resize(len(dropped) - len(event.message))

    def unread(self) -> list[Event]:
        """The kept events that no reader took."""
        if self.delivered >= self.last or not self._events:
            return []
        first = self._events[0].number
        # A list of its own: events are added and dropped while the reader is suspended at an event.
        return list(islice(self._events, max(0, self.delivered + 1 - first), None))


class StreamMemory:
    """How many bytes the streams of all sessions hold in memory; the principal that holds most loses its oldest."""

    def __init__(self, limits: Limits) -> None:
        self.limits = limits
        self.total = 0
        self._sizes: Counter[str] = Counter()
        self._streams: dict[str, dict[SessionStreams, None]] = {}
        """The streams of each principal's sessions, in the order in which the sessions were opened."""

    def resize(self, streams: SessionStreams, principal: str, change: int) -> None:
        """Note that the streams of a session hold more or fewer bytes."""
        self.total += change
        self._sizes[principal] += change
        self._streams.setdefault(principal, {})[streams] = None

    def make_room(self) -> None:
        """Drop what is over the limit of the hub."""
        while self.total > self.limits.max_total_stream_bytes:
            largest = self._sizes.most_common(1)[0][0]
            excess = self.total - self.limits.max_total_stream_bytes
            if not any(one.shrink(excess) for one in list(self._streams[largest])):
                return  # what is left is on its way to readers, and bounded by the calls that run

    def forget(self, streams: SessionStreams, principal: str) -> None:
        """The session of these streams has ended."""
        self.total -= streams.size
        self._sizes[principal] -= streams.size
        found = self._streams.get(principal, {})
        found.pop(streams, None)
        if not found:
            self._streams.pop(principal, None)
            self._sizes.pop(principal, None)


class SessionStreams:
    """The streams of one session in this process: the general one, and one for each request that needed one."""

    def __init__(
        self, session_id: str, principal: str, record: Record | None, memory: StreamMemory, liveness: Liveness
    ) -> None:
        self._session_id = session_id
        self._principal = principal
        self.liveness = liveness
        self._generation = new_generation(session_id, liveness.holder)
        self._record = record
        self._memory: StreamMemory | None = memory
        self._limits = memory.limits
        self._opened = 0
        self.size = 0
        """How many bytes they hold."""
        # A client that does not read misses the oldest notifications, but its general stream continues.
        self.general = self._make(f"g{self._generation}", ends_when_full=False)
        self._streams: dict[str, EventStream] = {self.general.name: self.general}

    def _make(self, name: str, *, ends_when_full: bool = True) -> EventStream:
        limit = self._limits.max_stream_bytes
        return EventStream(name, max_bytes=limit, ends_when_full=ends_when_full, record=self._record, owner=self)

    def resize(self, change: int) -> None:
        """Note that a stream holds more or fewer bytes."""
        self.size += change
        if self._memory is not None:
            self._memory.resize(self, self._principal, change)

    def make_room(self) -> None:
        """Drop what is over the limits of the session and of the hub."""
        if self.size > self._limits.max_session_stream_bytes:
            self.shrink(self.size - self._limits.max_session_stream_bytes)
        if self._memory is not None:
            self._memory.make_room()

    def shrink(self, excess: int) -> bool:
        """Drop at least so many bytes, if there are so many that no reader waits for; whether any were dropped.

        Responses that were not fetched go first, the oldest first; where a store has them, a client can resume there.
        """
        before = self.size
        for name, stream in list(self._streams.items()):
            if before - self.size >= excess:
                break
            if stream.closed and not stream.has_reader and stream is not self.general:
                stream.drop_response()
                if self._record is not None:
                    del self._streams[name]
                    self.resize(-stream.size)
        for stream in self._streams.values():
            while before - self.size < excess and stream.drop_oldest():
                pass
        return self.size < before

    def __iter__(self) -> Iterator[EventStream]:
        return iter(tuple(self._streams.values()))

    @property
    def has_reader(self) -> bool:
        """Whether the client reads any of them right now."""
        return any(stream.has_reader for stream in self._streams.values())

    def count_readers(self) -> int:
        """How many of them the client reads right now."""
        return sum(stream.has_reader for stream in self._streams.values())

    def open(self, request_id: RequestId | None = None) -> EventStream:
        """A stream for one request; the oldest finished ones are forgotten."""
        self._opened += 1
        stream = self._make(stream_name(self._generation, self._opened, request_id))
        finished = [name for name, other in self._streams.items() if other.closed and other is not self.general]
        for name in finished[: max(0, len(self._streams) - _MAX_STREAMS)]:
            self.resize(-self._streams.pop(name).size)
        self._streams[stream.name] = stream
        self.liveness.request_opened()
        return stream

    def note_closed(self, stream: EventStream) -> None:
        """A stream was closed."""
        if stream is not self.general:
            self.liveness.request_closed()

    def note_reader(self, stream: EventStream) -> None:
        """A client reads a stream: what other replicas have for it comes here from now on."""
        if stream is self.general and self.liveness.relay is not None:
            self.liveness.relay.streams.announce_reader(self._session_id)

    def get(self, name: str) -> EventStream | None:
        """The stream of that name, if this process has it."""
        return self._streams.get(name)

    def was_general(self, name: str) -> bool:
        """Whether that is the name of the session's general stream, in this or an earlier process."""
        return name.startswith("g") and _is_of_session(self._session_id, name)

    async def replay(self, host: StreamHost, name: str, after: int) -> EventStream | None:
        """The rest of a stream that this process does not have, from the store."""
        return await replay(host, self.liveness, self._session_id, self._generation, name, after)

    def close(self) -> None:
        """End it for new messages."""
        for stream in self._streams.values():
            stream.close()

    def forget(self) -> None:
        """Hold no bytes of the hub's limit any more: the session has ended."""
        if self._memory is not None:
            self._memory.forget(self, self._principal)
            self._memory = None


# The name of a stream says which generation of the session it belongs to: each time a process opens or recovers the
# session begins one. After the random part comes a mark, so that only names that a session really had are answered.


def new_generation(session_id: str, holder: str) -> str:
    """A part of stream names that no other process, and no other session, uses; it begins with the process."""
    random = holder + secrets.token_hex(4)
    return random + _mark(session_id, random)


def _is_of_session(session_id: str, name: str) -> bool:
    return name[25:29] == _mark(session_id, name[1:25])


def _holder_of(name: str) -> str:
    return name[1:17]


def _mark(session_id: str, random: str) -> str:
    # Against mistakes, not against attackers: the store is only asked for streams of the client's own session.
    return sha256(f"{session_id} {random}".encode()).hexdigest()[:4]


def stream_name(generation: str, number: int, request_id: RequestId | None) -> str:
    """The name of a request's stream; it carries the request's id, for a replay after a crash."""
    name = f"s{generation}{number}"
    encoded = b"" if request_id is None else encode(request_id)
    return f"{name}.{urlsafe_b64encode(encoded).decode()}" if 0 < len(encoded) <= _MAX_ENCODED_ID_BYTES else name


class StreamHost(Protocol):
    """The part of the engine that streams of sessions, tasks and heartbeats are written with."""

    @property
    def store(self) -> Store: ...
    def background(self, work: Coroutine[Any, Any, Any]) -> asyncio.Task[Any]: ...


class _Stored(msgspec.Struct):
    """What this process has in the store of one stream."""

    size: int = 0
    last: int = 0
    expires_at: float = 0.0
    is_written: bool = False
    """Whether a part of it was given to the store; the rest waits."""


class _Deletion(NamedTuple):
    """The events of a stream up to a number, which are to be deleted from the store."""

    session: str
    stream: str
    number: int


class Recorder:
    """Writes the messages of all sessions' streams to the store, in batches; when too many wait the oldest are lost.

    What it has written of a stream, of a session and in all is limited in bytes: the oldest streams of the session that
    has most are deleted. Rows of an earlier process are not counted, they expire.
    """

    def __init__(self, host: StreamHost, keep_seconds: float, limits: Limits) -> None:
        self._host = host
        self._keep_seconds = keep_seconds
        self._limits = limits
        self._waiting: OrderedDict[tuple[str, str], deque[StoredEvent]] = OrderedDict()
        """What is not written yet, by session and stream, so that what is deleted before needs no writing."""
        self._waiting_events = 0
        self._waiting_bytes = 0
        self._due: list[_Deletion] = []
        self._is_writing = False
        self._stored: dict[str, OrderedDict[str, _Stored]] = {}
        self._sizes: Counter[str] = Counter()
        self.total = 0
        """How many bytes this process has in the store."""

    def for_session(self, session_id: str) -> Record | None:
        """The function that records a session's streams; `None` where the store does not outlive the process."""
        return partial(self._record, session_id) if self._host.store.database.is_durable else None

    def forget(self, session_id: str) -> None:
        """All rows of a session were deleted."""
        self._stored.pop(session_id, None)
        self.total -= self._sizes.pop(session_id, 0)

    def _record(self, session_id: str, stream: str, number: int, message: bytes) -> None:
        expires_at = self._host.store.now() + self._keep_seconds
        self._count(session_id, stream, _Stored(len(message), number, expires_at))
        if stream in self._stored.get(session_id, ()):  # else it was deleted at once, because it is too large
            event = StoredEvent(session_id, stream, number, expires_at, message.decode())
            self._waiting.setdefault((session_id, stream), deque()).append(event)
            self._waiting_events += 1
            self._waiting_bytes += len(event.message)
        while self._waiting_events > _MAX_UNWRITTEN or self._waiting_bytes > _MAX_UNWRITTEN_BYTES:
            self._pop()
        if not self._is_writing:
            self._is_writing = True
            self._host.background(self._write())

    def _count(self, session_id: str, stream: str, added: _Stored) -> None:
        before = self._stored[session_id].get(stream) if session_id in self._stored else None
        if before is not None and before.size + added.size > self._limits.max_stream_bytes:
            self._delete(session_id, stream)
        # Only now: deleting the last stream of a session removes the session's entry too.
        streams = self._stored.setdefault(session_id, OrderedDict())
        stored = streams.setdefault(stream, _Stored())
        stored.size += added.size
        stored.last, stored.expires_at = added.last, added.expires_at
        self._sizes[session_id] += added.size
        self.total += added.size
        while self._sizes[session_id] > self._limits.max_session_stream_bytes and len(streams) > 1:
            self._delete(session_id, next(iter(streams)))
        if self.total > self._limits.max_total_stream_bytes:
            self._forget_expired(added.expires_at - self._keep_seconds)
        while self.total > self._limits.max_total_stream_bytes and self.total > added.size:
            largest = self._sizes.most_common(1)[0][0]
            self._delete(largest, next(iter(self._stored[largest])))

    def _delete(self, session_id: str, stream: str) -> None:
        stored = self._uncount(session_id, stream)
        for event in self._waiting.pop((session_id, stream), ()):
            self._waiting_events -= 1
            self._waiting_bytes -= len(event.message)
        if stored.is_written:
            self._due.append(_Deletion(session_id, stream, stored.last))

    def _uncount(self, session_id: str, stream: str) -> _Stored:
        streams = self._stored[session_id]
        stored = streams.pop(stream)
        self.total -= stored.size
        self._sizes[session_id] -= stored.size
        if not streams:
            del self._stored[session_id], self._sizes[session_id]
        return stored

    def _forget_expired(self, now: float) -> None:
        expired = [
            (session_id, stream)
            for session_id, streams in self._stored.items()
            for stream, stored in streams.items()
            if stored.expires_at < now
        ]
        for session_id, stream in expired:
            self._uncount(session_id, stream)

    def _pop(self) -> StoredEvent:
        key, events = next(iter(self._waiting.items()))
        event = events.popleft()
        if not events:
            del self._waiting[key]
        self._waiting_events -= 1
        self._waiting_bytes -= len(event.message)
        return event

    async def _write(self) -> None:
        try:
            while self._waiting or self._due:
                batch = [self._pop() for _ in range(min(self._waiting_events, _WRITE_BATCH))]
                for event in batch:
                    streams = self._stored.get(event.session)
                    if streams is not None and event.stream in streams:
                        streams[event.stream].is_written = True
                await self._host.store.events.append(batch)
                # Only what was written before is deleted: what a deletion found waiting was never written.
                while self._due:
                    await self._host.store.events.delete(*self._due.pop())
        # Kept, they would fill the memory while the store is down. Clients that resume later miss them.
        except StoreError as error:
            self._waiting.clear()
            self._waiting_events = self._waiting_bytes = 0
            _log.warning("messages of streams were not stored: %s", error)
        finally:
            self._is_writing = False


class _Message(msgspec.Struct):
    method: str | UnsetType = UNSET


async def replay(
    host: StreamHost, liveness: Liveness, session_id: str, generation: str, name: str, after: int
) -> EventStream | None:
    """The stored events of a stream behind number `after`; `None` if the store has nothing of it.

    A request of an earlier generation that was not answered then never will be: its stream ends with an error. Where
    other replicas use the store, one of them may still answer it: the stream follows the store until it does, or dies.
    """
    log = host.store.events
    # Including the last event that the client has: if that is the response, nothing is missing.
    stored = await log.after(session_id, name, max(after - 1, 0), limit=MAX_EVENTS)
    events = [event for event in stored if event[0] > after]
    is_past = _is_of_session(session_id, name) and not name.startswith(f"s{generation}")
    is_over = len(stored) == MAX_EVENTS or (stored and _is_response(stored[-1][1]))
    request_id = _request_of(name) if is_past and not is_over else None
    if request_id is None and not (events or stored or await log.after(session_id, name, 0, limit=1)):
        return None
    stream = EventStream.from_store(name, after, events)
    if request_id is not None and host.store.database.is_shared:
        host.background(_follow_store(host.store, liveness, session_id, stream, request_id))
        return stream
    if request_id is not None:
        stream.append_stored((stored[-1][0] if stored else after) + 1, _LOST.encode(request_id))
    stream.close()
    return stream


def _is_response(message: bytes) -> bool:
    """Whether a message is a response, the last one of a request's stream: it has no method."""
    return msgspec.json.decode(message, type=_Message).method is UNSET


async def _follow_store(
    store: Store, liveness: Liveness, session_id: str, stream: EventStream, request_id: RequestId
) -> None:
    """Add what another process writes for a stream, while a client reads it, and an error if that process is dead."""
    dead_since: float | None = None
    try:
        async with asyncio.timeout(_READER_TIMEOUT_S):
            await stream.has_reader_or_ended.wait()
        while stream.has_reader:
            is_dead = not await liveness.is_alive(_holder_of(stream.name))
            # Read after that: what a process wrote before it died comes before the error.
            for number, message in await store.events.after(session_id, stream.name, stream.last):
                stream.append_stored(number, message)
                if _is_response(message):
                    return
            dead_since = (dead_since or time.monotonic()) if is_dead else None
            if dead_since is not None and time.monotonic() - dead_since >= _DEAD_AFTER_S:
                stream.append(_LOST.encode(request_id))
                return
            await asyncio.sleep(_POLL_S)
    except (StoreError, TimeoutError) as error:
        _log.warning("a stream of another process was not followed: %s", error)
    finally:
        stream.close()


def _request_of(name: str) -> RequestId | None:
    """The id of the request that a stream belongs to, if its name has it."""
    found = _STREAM_NAME.fullmatch(name)
    try:
        return None if found is None else msgspec.json.decode(urlsafe_b64decode(found[1]), type=int | str)
    except (ValueError, msgspec.MsgspecError):
        return None
