"""A bus through PostgreSQL: LISTEN and NOTIFY on connections of its own.

All processes of a cluster listen on one channel for messages, and each on one of its own for requests and replies. A
notification holds at most 8,000 bytes: a larger one is put into an unlogged table and the notification names its row.
Who responds to a name is in another unlogged table. A row there counts only while the process holds its advisory lock,
which the server releases with the connection: that a responder died is known at once, without a heartbeat.
"""

from __future__ import annotations

import asyncio
import logging
import math
import random
import secrets
from collections import deque
from contextlib import asynccontextmanager
from hashlib import sha256
from itertools import count
from typing import TYPE_CHECKING, Any, Final, Literal
from urllib.parse import urlsplit

import asyncpg
import msgspec

from waypost.buses.remote import Kind, Link, Receiver, RemoteBus
from waypost.errors import NoHolder, WaypostError

if TYPE_CHECKING:
    from collections.abc import AsyncIterator

_log: Final = logging.getLogger(__name__)

MAX_NOTIFICATION_BYTES: Final = 7_900
_MAX_QUEUED: Final = 10_000
_MAX_UNREAD: Final = 10_000
_MAX_BATCH: Final = 500
_TIMEOUT_S: Final = 5.0
_CHECK_INTERVAL_S: Final = 1.0
_SWEEP_INTERVAL_S: Final = 5.0
_KEEP_PAYLOADS: Final = "60 seconds"
_LOCKS: Final = 0x77617962
"""The first number of the advisory locks; the second is the process."""
_SETUP_LOCK: Final = 0x7761796273

_REFUSED: Final = (
    asyncpg.InvalidAuthorizationSpecificationError,
    asyncpg.InvalidCatalogNameError,
    asyncpg.InsufficientPrivilegeError,
    asyncpg.ClientConfigurationError,
)
# Unlogged: writes skip the write-ahead log, and a crash of the server empties the tables. A bus may lose everything.
_SETUP: Final = (
    "CREATE UNLOGGED TABLE IF NOT EXISTS bus_payloads "
    "(id TEXT PRIMARY KEY, frame TEXT NOT NULL, at TIMESTAMPTZ NOT NULL DEFAULT now())",
    "CREATE UNLOGGED TABLE IF NOT EXISTS bus_holders "
    "(cluster TEXT NOT NULL, name TEXT NOT NULL, process INTEGER NOT NULL, PRIMARY KEY (cluster, name, process))",
)
# An advisory lock of two numbers has them as `classid` and `objid`, and an `objsubid` of 2.
_LIVING: Final = (
    f"SELECT objid::bigint FROM pg_locks WHERE locktype = 'advisory' AND classid = {_LOCKS} AND objsubid = 2 "
    "AND database = (SELECT oid FROM pg_database WHERE datname = current_database())"
)
_FIND: Final = f"SELECT process FROM bus_holders WHERE cluster = $1 AND name = $2 AND process IN ({_LIVING})"
_FORGET: Final = f"DELETE FROM bus_holders WHERE process NOT IN ({_LIVING})"
_NOTIFY: Final = "SELECT pg_notify(channel, frame) FROM unnest($1::text[], $2::text[]) AS g(channel, frame)"


class _Frame(msgspec.Struct, array_like=True):
    """What a notification holds; `number` makes it unique, because PostgreSQL drops equal ones of a transaction."""

    kind: Literal["message", "request", "reply"]
    number: int
    sender: int
    name: str
    body: bytes


_encode: Final = msgspec.json.Encoder().encode
_decode: Final = msgspec.json.Decoder(_Frame).decode


def create_bus(url: str, cluster: str) -> RemoteBus:
    """The bus on a PostgreSQL server, not connected yet."""
    parts = urlsplit(url)
    name = f"The bus on {parts.hostname or 'a local socket'}{parts.path}"

    async def connect(receiver: Receiver) -> PostgresLink:
        link = PostgresLink(receiver, cluster)
        try:
            async with link.watch():
                await link.connect(url)
        except BaseException as error:
            link.lose()  # it was used for nothing yet: closing it asks the server for nothing
            await link.close()
            if isinstance(error.__cause__, _REFUSED):
                raise WaypostError(f"{name} refused the connection: {error}.") from None
            raise
        return link

    return RemoteBus(name, connect)


class PostgresLink(Link):
    """One connection that listens, and one that sends."""

    # Any other error of the server, too: a link in an unknown state is replaced.
    failures = (OSError, TimeoutError, asyncpg.PostgresError, asyncpg.InterfaceError, asyncpg.InternalClientError)

    def __init__(self, receiver: Receiver, cluster: str) -> None:
        super().__init__(receiver)
        self._cluster = cluster
        # The second number of an advisory lock is a signed integer of 32 bits.
        self._process = secrets.randbits(31)
        self._channel = ""
        self._listener: asyncpg.Connection | None = None
        self._sender: asyncpg.Connection | None = None
        # asyncpg refuses a statement while another runs on the same connection.
        self._sending = asyncio.Lock()
        self._numbers = count(1)
        self._outgoing: deque[tuple[str, str]] = deque()
        self._has_outgoing = asyncio.Event()
        self._incoming: asyncio.Queue[str] = asyncio.Queue(_MAX_UNREAD)
        self._waiting: dict[int, asyncio.Future[bytes]] = {}

    async def connect(self, url: str) -> None:
        """Connect, create the tables if there are none, and listen."""
        settings = {"application_name": "waypost bus", "client_min_messages": "warning"}
        self._sender = sender = await asyncpg.connect(
            url, timeout=_TIMEOUT_S, command_timeout=_TIMEOUT_S, server_settings=settings
        )
        async with sender.transaction():
            # Two processes that create a table IF NOT EXISTS at once fail on its name in the catalog.
            await sender.execute("SELECT pg_advisory_xact_lock($1)", _SETUP_LOCK)
            for statement in _SETUP:
                await sender.execute(statement)
        # Channels belong to a database, tables to a schema: hubs in two schemas have nothing to do with each other.
        schema = await sender.fetchval("SELECT current_schema()")
        self._channel = f"waypost_{sha256(f'{schema}/{self._cluster}'.encode()).hexdigest()[:20]}"
        # A connection gets notifications only between its statements, so that sending would hold up receiving.
        self._listener = listener = await asyncpg.connect(
            url, timeout=_TIMEOUT_S, command_timeout=_TIMEOUT_S, server_settings=settings
        )
        # On the connection that listens: a process that has lost it must not be found, though it can still send.
        await listener.execute("SELECT pg_advisory_lock($1, $2)", _LOCKS, self._process)
        for channel in (self._channel, f"{self._channel}_{self._process}"):
            await listener.add_listener(channel, self._notified)
        for connection in (sender, listener):
            connection.add_termination_listener(lambda _: self.lose())
        for work in (self._send_queued(), self._receive(), self._check()):
            self.run(work)

    def send(self, subject: str, message: bytes) -> None:
        """Queue a message to all processes."""
        self._queue(self._channel, "message", next(self._numbers), subject, message)

    async def add(self, kind: Kind, subject: str) -> None:
        """Register as a responder of a name; messages need no registration, because all arrive on one channel."""
        if kind == "requests":
            async with self._connection() as sender:
                await sender.execute(
                    "INSERT INTO bus_holders VALUES ($1, $2, $3) ON CONFLICT DO NOTHING",
                    *(self._channel, subject, self._process),
                )

    async def remove(self, kind: Kind, subject: str) -> None:
        """Withdraw the registration as a responder of a name."""
        if kind == "requests":
            async with self._connection() as sender:
                await sender.execute(
                    "DELETE FROM bus_holders WHERE cluster = $1 AND name = $2 AND process = $3",
                    *(self._channel, subject, self._process),
                )

    async def refuse_requests(self) -> None:
        """Withdraw all registrations, so that no request is sent here."""
        async with self._connection() as sender:
            await sender.execute(
                "DELETE FROM bus_holders WHERE cluster = $1 AND process = $2", self._channel, self._process
            )

    async def request(self, name: str, message: bytes) -> bytes:
        """Send a request to a process that responds to a name, and wait for its reply."""
        async with self._connection() as sender:
            found = [row[0] for row in await sender.fetch(_FIND, self._channel, name)]
        if not found:
            raise NoHolder(f"Nothing responds to {name}.")
        number = next(self._numbers)
        reply: asyncio.Future[bytes] = asyncio.get_running_loop().create_future()
        self._waiting[number] = reply
        try:
            # At random, so that the responders of one name share its requests.
            process = random.choice(found)  # noqa: S311
            self._queue(f"{self._channel}_{process}", "request", number, name, message)
            return await reply
        finally:
            del self._waiting[number]

    async def flush(self) -> None:
        """Send what is queued, and wait for what is being sent."""
        await self._send_batches()
        async with self._sending:
            pass

    async def disconnect(self) -> None:
        """Disconnect; the end of a lost link is not awaited."""
        connections = [one for one in (self._sender, self._listener) if one is not None]
        try:
            for connection in connections if not self.lost.is_set() else ():
                await connection.close(timeout=_TIMEOUT_S)
        finally:
            for connection in connections:
                connection.terminate()

    @asynccontextmanager
    async def _connection(self) -> AsyncIterator[asyncpg.Connection]:
        """The connection that sends, for one statement at a time."""
        async with self._sending, self.watch():
            yield self._sender

    def _queue(self, channel: str, kind: Any, number: int, name: str, body: bytes) -> None:
        if len(self._outgoing) >= _MAX_QUEUED:
            self._outgoing.popleft()
            _log.warning("bus is %s messages behind and loses some", _MAX_QUEUED)
        self._outgoing.append((channel, _encode(_Frame(kind, number, self._process, name, body)).decode()))
        self._has_outgoing.set()

    async def _send_queued(self) -> None:
        while True:
            await self._has_outgoing.wait()
            self._has_outgoing.clear()
            await self._send_batches()

    async def _send_batches(self) -> None:
        """Send what is queued, many at once: each commit with a notification takes a lock of the whole database."""
        while self._outgoing:
            batch = [self._outgoing.popleft() for _ in range(min(len(self._outgoing), _MAX_BATCH))]
            large: list[tuple[str, str]] = []
            for place, (channel, frame) in enumerate(batch):
                if len(frame.encode()) > MAX_NOTIFICATION_BYTES:
                    large.append((f"{self._process}-{next(self._numbers)}", frame))
                    batch[place] = (channel, f"#{large[-1][0]}")
            async with self._connection() as sender:
                if large:  # committed before the notification that names the rows is sent
                    await sender.executemany("INSERT INTO bus_payloads (id, frame) VALUES ($1, $2)", large)
                await sender.execute(_NOTIFY, [one[0] for one in batch], [one[1] for one in batch])

    def _notified(self, _connection: Any, _pid: int, _channel: str, payload: str) -> None:
        try:
            self._incoming.put_nowait(payload)
        except asyncio.QueueFull:  # asyncpg reads on, and has no way to make the server wait
            self._receiver.note_loss()

    async def _receive(self) -> None:
        """Process what arrived in its order."""
        while True:
            payload = await self._incoming.get()
            if payload.startswith("#"):
                async with self._connection() as sender:
                    payload = await sender.fetchval("SELECT frame FROM bus_payloads WHERE id = $1", payload[1:]) or ""
            try:
                frame = _decode(payload)
            except msgspec.MsgspecError:  # not ours, or swept already
                continue
            if frame.kind == "message":
                if frame.sender != self._process:  # the subscribers here got it when it was published
                    self._receiver.deliver(frame.name, frame.body)
            elif frame.kind == "request":  # in a task: a slow responder does not hold up what arrives after it
                self.run(self._answer(frame), answers=True)
            elif (reply := self._waiting.get(frame.number)) is not None and not reply.done():
                reply.set_result(frame.body)

    async def _answer(self, frame: _Frame) -> None:
        body = await self._receiver.answer(frame.name, frame.body)
        self._queue(f"{self._channel}_{frame.sender}", "reply", frame.number, frame.name, body)

    async def _check(self) -> None:
        """Notice connections that died silently or have no answer, and delete what processes left behind."""
        loop, swept_at = asyncio.get_running_loop(), -math.inf
        while True:
            # Before the connection is free: what holds it may be the statement that gets no answer.
            self.asked_at = loop.time()
            async with self._connection() as sender:
                if loop.time() >= swept_at + _SWEEP_INTERVAL_S:
                    await sender.execute(_FORGET)
                    await sender.execute(f"DELETE FROM bus_payloads WHERE at < now() - interval '{_KEEP_PAYLOADS}'")
                    swept_at = loop.time()
            assert self._listener is not None
            await self._listener.execute("SELECT 1")
            self.asked_at = None
            await asyncio.sleep(_CHECK_INTERVAL_S)
