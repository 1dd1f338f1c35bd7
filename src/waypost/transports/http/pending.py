"""Connections that do not send, or do not read: bounded in number, in bytes and in time.

Until its request is complete, a client costs the hub a file descriptor and a buffer, and the hub does not know whose
client it is. The worker socket uses the same limits for its handshake. A response that its client does not read stays
in a buffer of the hub.
"""

from __future__ import annotations

import asyncio
import logging
from collections import Counter, deque
from http import HTTPStatus
from typing import Final, NamedTuple, Protocol

from waypost.loops import running_loop
from waypost.settings import Limits
from waypost.wire import messages

_log: Final = logging.getLogger(__name__)
LINGER_S: Final = 1.0
"""How long a refused client may take to read the refusal; what it sends meanwhile is dropped."""
GRACE_S: Final = 1.0
"""How long a connection is never closed for another one: clients that all connect at once are not an attack."""
MAX_BURST: Final = 4
"""How many times `max_pending_connections` may wait within the grace."""
DRAIN_S: Final = 0.5
"""How long an idle connection stays open when the server stops: its client may be sending a request right now."""
_TICK_S: Final = 0.5


class _Wait(NamedTuple):
    since: float
    due: float


class PendingConnection(Protocol):
    """A connection whose request is not complete."""

    @property
    def peer(self) -> str:
        """The address of the client's machine."""

    def time_out(self) -> None:
        """Close the connection, after a 408 where a part of a request came."""

    def abort(self) -> None:
        """Close the connection at once."""


class PendingRequests:
    """The connections of one server with incomplete requests, and the deadline of each."""

    def __init__(self, limits: Limits | None = None) -> None:
        limits = limits or Limits()
        self.max_header_bytes: Final = limits.max_header_bytes
        self.header_timeout: Final = limits.header_timeout_ms / 1000
        self.body_timeout: Final = limits.body_timeout_ms / 1000
        self._max_connections: Final = limits.max_pending_connections
        self._waits: dict[PendingConnection, _Wait] = {}
        """By connection, the one that waits longest first."""
        self._sizes: dict[PendingConnection, int] = {}
        self._timer: asyncio.TimerHandle | None = None

    def add(self, connection: PendingConnection, seconds: float) -> None:
        """Give a connection so many seconds from now; when there are too many, others are closed for it."""
        loop = running_loop()
        now = loop.time()
        known = self._waits.get(connection)
        self._waits[connection] = _Wait(now if known is None else known.since, now + seconds)
        self._close_excess(now)
        # One timer for all connections: nearly all requests are complete long before a timer of their own would fire.
        if self._timer is None:
            self._timer = loop.call_later(_TICK_S, self._tick)

    def discard(self, connection: PendingConnection) -> None:
        """The request of a connection is complete, or the connection is closed."""
        self._waits.pop(connection, None)
        self._sizes.pop(connection, None)

    def count(self, connection: PendingConnection, size: int) -> bool:
        """Add to the size of a connection's headers; whether they are over the limit."""
        self._sizes[connection] = self._sizes.get(connection, 0) + size
        return self._sizes[connection] > self.max_header_bytes

    def _close_excess(self, now: float) -> None:
        while len(self._waits) > self._max_connections:
            is_burst = now - next(iter(self._waits.values())).since < GRACE_S
            if is_burst and len(self._waits) <= MAX_BURST * self._max_connections:
                return
            # One machine that opens connections and sends nothing loses its own, as long as it has more than any other.
            ((busiest, _),) = Counter(connection.peer for connection in self._waits).most_common(1)
            oldest = next(connection for connection in self._waits if connection.peer == busiest)
            self.discard(oldest)
            oldest.abort()  # without a response, which it would have to be kept for

    def _tick(self) -> None:
        now = running_loop().time()
        for connection in [connection for connection, wait in self._waits.items() if wait.due <= now]:
            self.discard(connection)
            connection.time_out()
        self._close_excess(now)
        self._timer = running_loop().call_later(_TICK_S, self._tick) if self._waits else None


class IdleConnections:
    """The connections of one server that wait for a next request; when there are too many, the oldest is closed."""

    def __init__(self, limits: Limits | None = None) -> None:
        self._limit: Final = (limits or Limits()).max_idle_connections
        self._idle: dict[LimitedConnection, None] = {}
        """In the order in which they became idle."""
        self.pop: Final = self._idle.pop
        """`discard` without a call in Python, for what runs with every request; its second argument is `None`."""

    def __len__(self) -> int:
        return len(self._idle)

    def add(self, connection: LimitedConnection) -> None:
        """The response of a connection is complete."""
        self._idle[connection] = None
        if len(self._idle) > self._limit:
            oldest = next(iter(self._idle))
            del self._idle[oldest]
            oldest.transport.close()

    def discard(self, connection: LimitedConnection) -> None:
        """A connection has a request, or is closed."""
        self._idle.pop(connection, None)


class SlowReaders:
    """The connections of one server with more unread bytes than the operating system takes."""

    def __init__(self, limits: Limits | None = None) -> None:
        limits = limits or Limits()
        self._timeout: Final = limits.read_timeout_ms / 1000
        self._max_bytes: Final = limits.max_unread_bytes
        self._seen: dict[LimitedConnection, tuple[int, float]] = {}
        """How many bytes each had to read when it was looked at, and since when it has not read any."""
        self._timer: asyncio.TimerHandle | None = None

    def add(self, connection: LimitedConnection) -> None:
        """Watch a client that reads too slowly; when all together have too many bytes unread, the largest is closed."""
        loop = running_loop()
        self._seen[connection] = (connection.unread_bytes, loop.time())
        if self._timer is None:
            self._timer = loop.call_later(_TICK_S, self._tick)
        sizes = {one: one.unread_bytes for one in self._seen}
        total = sum(sizes.values())
        # The last one is left to its timeout: a single large response is no attack.
        while total > self._max_bytes and len(sizes) > 1:
            by_peer: Counter[str] = Counter()
            for one, size in sizes.items():
                by_peer[one.peer] += size
            slowest = by_peer.most_common(1)[0][0]
            largest = max((one for one in sizes if one.peer == slowest), key=sizes.__getitem__)
            total -= sizes.pop(largest)
            self._close(largest)

    def discard(self, connection: LimitedConnection) -> None:
        """A client has read nearly everything, or is gone."""
        self._seen.pop(connection, None)

    def _tick(self) -> None:
        now = running_loop().time()
        for connection, (size, since) in list(self._seen.items()):
            unread = connection.unread_bytes
            if unread < size:
                self._seen[connection] = (unread, now)
            elif now - since > self._timeout:
                self._close(connection)
            else:
                self._seen[connection] = (unread, since)
        self._timer = running_loop().call_later(_TICK_S, self._tick) if self._seen else None

    def _close(self, connection: LimitedConnection) -> None:
        self._seen.pop(connection, None)
        _log.warning("a client at %s was disconnected: it does not read its responses", connection.peer)
        connection.transport.abort()


LARGE_RESPONSE_BYTES: Final = 256 * 1024
_LOOK_S: Final = 0.02


class LargeResponses:
    """Has a principal wait with its next request after a large response, while others are served.

    A response of megabytes takes as long as hundreds of small ones. Of many that are asked for at once, all would be
    made in one turn of the event loop, and their results would be in memory together.
    """

    def __init__(self, max_unread_bytes: int) -> None:
        self._max_bytes = max_unread_bytes // 4
        """What one principal may have to read before its next request is handled."""
        self._queues: dict[str, deque[asyncio.Future[None]]] = {}
        self._unread: dict[str, list[asyncio.Transport]] = {}
        """The connections on which each principal was sent a large response that it may not have read."""

    def holds(self, principal: str) -> bool:
        """Whether the next request of a principal has to wait."""
        return principal in self._queues

    async def wait(self, principal: str) -> None:
        """Wait behind the requests of the same principal that came before."""
        turn: asyncio.Future[None] = running_loop().create_future()
        self._queues[principal].append(turn)
        await turn

    def add(self, principal: str, transport: asyncio.Transport | None) -> None:
        """A principal was sent a large response, over a connection if that is known."""
        # Forgets connections that were read or closed: a principal that sends nothing more has no other occasion.
        for one in tuple(self._unread):
            self._count_unread(one)
        if transport is not None:
            self._unread.setdefault(principal, []).append(transport)
        if principal not in self._queues:
            self._queues[principal] = deque()
            running_loop().call_soon(self._go_on, principal)

    def _go_on(self, principal: str) -> None:
        """Let one request go on, and the next one in the next turn, when other connections have had theirs."""
        if self._count_unread(principal) > self._max_bytes:
            running_loop().call_later(_LOOK_S, self._go_on, principal)
            return
        queue = self._queues[principal]
        while queue:
            turn = queue.popleft()
            if not turn.done():  # it was not cancelled
                turn.set_result(None)
                running_loop().call_soon(self._go_on, principal)
                return
        del self._queues[principal]

    def _count_unread(self, principal: str) -> int:
        left = [one for one in self._unread.pop(principal, ()) if not one.is_closing() and one.get_write_buffer_size()]
        if left:
            self._unread[principal] = left
        return sum(one.get_write_buffer_size() for one in left)


def encode_refusal(status: int, message: str) -> bytes:
    """A whole response with a JSON-RPC error, after which the connection is closed."""
    body = messages.error(None, -32600, message)
    return b"HTTP/1.1 %d %b\r\ncontent-type: application/json\r\ncontent-length: %d\r\nconnection: close\r\n\r\n%b" % (
        status,
        HTTPStatus(status).phrase.encode(),
        len(body),
        body,
    )


def headers_too_large(max_bytes: int) -> str:
    """What is wrong with a request line and headers over the limit."""
    return f"The request line and headers are over the limit of {max_bytes} bytes (maxHeaderBytes)."


class LimitedConnection(asyncio.Protocol):
    """What both HTTP connection classes share: how a client is refused before the app sees its request."""

    transport: asyncio.Transport
    loop: asyncio.AbstractEventLoop
    pending: PendingRequests
    slow_readers: SlowReaders
    idle: IdleConnections
    is_refused = False
    """Whether a refusal was sent; nothing that comes after it is read."""
    is_draining = False
    """Whether the server stops, so that the next response is the last."""

    def limit_by(self, pending: PendingRequests, slow_readers: SlowReaders, idle: IdleConnections) -> None:
        """Share the limits of all connections of a server."""
        self.pending, self.slow_readers, self.idle = pending, slow_readers, idle

    def has_part(self) -> bool:
        """Whether a part of a request came that is not complete."""
        raise NotImplementedError

    @property
    def peer(self) -> str:
        """The address of the client's machine."""
        found = self.transport.get_extra_info("peername")
        return str(found[0]) if isinstance(found, tuple) else ""

    @property
    def unread_bytes(self) -> int:
        """How many bytes wait to be handed to the operating system."""
        return self.transport.get_write_buffer_size()

    def pause_writing(self) -> None:
        """Called by the transport when much waits to be read."""
        super().pause_writing()
        self.slow_readers.add(self)

    def resume_writing(self) -> None:
        """Called by the transport when most was read."""
        self.slow_readers.discard(self)
        super().resume_writing()

    def connection_lost(self, exc: Exception | None) -> None:
        """Count it no longer."""
        self.pending.discard(self)
        self.slow_readers.discard(self)
        self.idle.discard(self)
        super().connection_lost(exc)

    def refuse(self, status: int, message: str) -> None:
        """Send an error and close the connection once the client had time to read it."""
        if self.is_refused or self.transport.is_closing():
            return
        self.is_refused = True
        self.transport.write(encode_refusal(status, message))
        # Closing at once would reset the connection while the client still sends, and it would never see the response.
        self.loop.call_soon(self._end_output)
        self.pending.add(self, LINGER_S)

    def refuse_headers(self) -> None:
        """Refuse a request line and headers over the limit."""
        self.refuse(431, headers_too_large(self.pending.max_header_bytes))

    def time_out(self) -> None:
        """Close a connection whose request did not arrive in time; one that sent nothing gets no response."""
        if self.is_refused or not self.has_part():
            self.transport.abort()
        else:
            self.refuse(408, "The request did not arrive in time (headerTimeoutMs, bodyTimeoutMs).")

    def abort(self) -> None:
        """Close the connection at once."""
        self.transport.abort()

    def shutdown(self) -> None:
        """Close after the response, or soon where none is due.

        Not at once: the client may be sending a request that would be lost without an answer. Responses say that they
        are the last, because a client without that notice sends its next request into a closed connection.
        """
        self.is_draining = True
        if self.is_busy():
            super().shutdown()  # type: ignore[misc]  # uvicorn's, which closes after the response
        else:
            self.loop.call_later(DRAIN_S, self._close_idle)

    def _close_idle(self) -> None:
        if not (self.transport.is_closing() or self.is_busy()):
            self.transport.close()

    def is_busy(self) -> bool:
        """Whether a response is due."""
        raise NotImplementedError

    def _end_output(self) -> None:
        if not self.transport.is_closing() and self.transport.can_write_eof():
            self.transport.write_eof()
