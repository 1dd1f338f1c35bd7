"""A lean HTTP/1.1 client: connections to one origin that are kept and shared."""

from __future__ import annotations

import asyncio
import base64
import socket
import ssl
from contextlib import suppress
from contextvars import Context
from dataclasses import dataclass
from typing import Final
from urllib.parse import quote, unquote, urljoin, urlsplit

from waypost.loops import running_loop
from waypost.upstreams.http1_connection import MOST_BODY, Connection, HttpError, Reader

MOST_CONNECTIONS: Final = 100
CONNECT_WITHIN: Final = 10.0
IDLE: Final = 4.0
"""Seconds until a connection that nobody uses is closed; most servers wait five."""
_CLOSE_WITHIN: Final = 1.0
_PORTS: Final = {"http": 80, "https": 443}
_SAFE: Final = "%/:@!$&'()*+,;=~-._?[]"


@dataclass(frozen=True, slots=True)
class Address:
    """Where a URL leads."""

    scheme: str
    host: str
    port: int
    target: str
    credentials: str = ""

    @property
    def authority(self) -> str:
        """The value of the header `Host`."""
        host = f"[{self.host}]" if ":" in self.host else self.host
        return host if self.port == _PORTS[self.scheme] else f"{host}:{self.port}"

    def led_to(self, location: str) -> Address | None:
        """Where a redirection leads, if it stays at this origin."""
        try:
            there = address_of(urljoin(f"{self.scheme}://{self.authority}{self.target}", location))
        except (HttpError, ValueError):
            return None
        is_here = (there.scheme, there.host, there.port) == (self.scheme, self.host, self.port)
        return there if is_here else None


def address_of(url: str) -> Address:
    """The parts of a URL; one that leads nowhere is an `HttpError`."""
    try:
        parts = urlsplit(url.strip())
        host = (parts.hostname or "").encode("ascii" if url.isascii() else "idna").decode()
        port = parts.port
    except (ValueError, UnicodeError):
        raise HttpError("the address makes no sense", sent=False) from None
    if parts.scheme not in _PORTS or not host or any(character.isspace() for character in host):
        raise HttpError("the address makes no sense", sent=False)
    query = f"?{quote(parts.query, safe=_SAFE)}" if parts.query else ""
    credentials = ""
    if parts.username is not None:
        pair = f"{unquote(parts.username)}:{unquote(parts.password or '')}"
        credentials = base64.b64encode(pair.encode()).decode()
    target = (quote(parts.path, safe=_SAFE) or "/") + query
    return Address(parts.scheme, host, _PORTS[parts.scheme] if port is None else port, target, credentials)


class Exchange:
    """A request on its way: waiting for a connection, or on one."""

    __slots__ = ("_pool", "connecting", "connection", "data", "reader")

    def __init__(self, pool: Pool, data: bytes, reader: Reader) -> None:
        self.data = data
        self.reader = reader
        self.connection: Connection | None = None
        self.connecting: asyncio.Task[None] | None = None
        self._pool = pool

    def cancel(self) -> None:
        """Give it up; its reader hears nothing more."""
        self._pool.give_up(self)


class Pool:
    """Connections to one origin, at most so many; requests beyond that wait for one in their order."""

    def __init__(
        self,
        address: Address,
        *,
        tls: ssl.SSLContext | None = None,
        most: int = MOST_CONNECTIONS,
        most_body: int = MOST_BODY,
        idle: float = IDLE,
        connect_within: float = CONNECT_WITHIN,
    ) -> None:
        self._address = address
        self._tls = tls
        self._most = most
        self._most_body = most_body
        self._idle_for = idle
        self._connect_within = connect_within
        self._connections: set[Connection] = set()
        self._idle: list[Connection] = []
        self._waiting: dict[Exchange, None] = {}
        self._connecting: dict[Exchange, asyncio.Task[None]] = {}
        self._look: asyncio.TimerHandle | None = None
        self._emptied: asyncio.Event | None = None

    def start(self, data: bytes, reader: Reader, *, is_urgent: bool = False) -> Exchange:
        """Send a request as soon as there is a connection; an urgent one gets one of its own if it has to."""
        exchange = Exchange(self, data, reader)
        if is_urgent or self._busy < self._most:
            self._send(exchange)
        else:
            self._waiting[exchange] = None
        return exchange

    def give_up(self, exchange: Exchange) -> None:
        """Forget a request; a connection that is busy with it is closed."""
        self._waiting.pop(exchange, None)
        if exchange.connection is not None:
            if exchange.connection.is_busy_with(exchange.reader):
                exchange.connection.abort()
        elif exchange.connecting is not None:
            self._connecting.pop(exchange, None)
            exchange.connecting.cancel()

    async def close(self) -> None:
        """Close all connections; whoever waits for a response waits no longer."""
        self._emptied = asyncio.Event()
        left, tasks = [*self._waiting, *self._connecting], list(self._connecting.values())
        self._waiting.clear()
        for task in tasks:
            task.cancel()
        for exchange in left:
            exchange.reader.ended(None, HttpError("the connection was closed", sent=False))
        if self._look is not None:
            self._look.cancel()
        for connection in tuple(self._connections):
            connection.fail(HttpError("the connection was closed"))
        with suppress(TimeoutError):
            async with asyncio.timeout(_CLOSE_WITHIN):
                if tasks:
                    await asyncio.wait(tasks)
                if self._connections:
                    await self._emptied.wait()

    @property
    def _busy(self) -> int:
        """How many connections there are that carry something, or soon will."""
        return len(self._connections) - len(self._idle) + len(self._connecting)

    def _send(self, exchange: Exchange) -> None:
        while self._idle:
            connection = self._idle.pop()
            if connection.is_open():
                self._carry(connection, exchange)
                return
            connection.abort()
        self._connect(exchange)

    def _carry(self, connection: Connection, exchange: Exchange) -> None:
        exchange.connection = connection
        connection.send(exchange.data, exchange.reader)

    def _connect(self, exchange: Exchange) -> None:
        # A connection carries many calls and must not take itself for part of the first one.
        task = running_loop().create_task(self._connected(exchange), context=Context())
        exchange.connecting = self._connecting[exchange] = task
        task.add_done_callback(lambda _: self._settled(exchange))

    def _settled(self, exchange: Exchange) -> None:
        self._connecting.pop(exchange, None)
        self._let_next()

    async def _connected(self, exchange: Exchange) -> None:
        address = self._address
        try:
            async with asyncio.timeout(self._connect_within):
                tls = await self._context() if address.scheme == "https" else None
                _, connection = await running_loop().create_connection(
                    lambda: Connection(self._freed, self._gone, self._most_body), address.host, address.port, ssl=tls
                )
        except Exception as error:  # whatever it is, somebody waits to hear of it
            reason = f"no connection within {self._connect_within:g} s"
            said = reason if type(error) is TimeoutError else why_not(error)
            self._connecting.pop(exchange, None)
            exchange.reader.ended(None, HttpError(said, sent=False))
            return
        self._connecting.pop(exchange, None)
        if connection.is_open():
            self._connections.add(connection)
            self._carry(connection, exchange)
        else:
            connection.abort()
            exchange.reader.ended(None, HttpError("the connection was closed at once", sent=False))

    async def _context(self) -> ssl.SSLContext:
        if self._tls is None:
            # Reading all certificates of the system takes a while.
            self._tls = await running_loop().run_in_executor(None, ssl.create_default_context)
        return self._tls

    def _freed(self, connection: Connection) -> None:
        if self._waiting and self._busy <= self._most:
            self._carry(connection, self._next())
            return
        connection.idle_since = running_loop().time()
        self._idle.append(connection)
        if self._look is None:
            self._look = running_loop().call_later(self._idle_for, self._close_idle)

    def _gone(self, connection: Connection) -> None:
        self._connections.discard(connection)
        if connection in self._idle:
            self._idle.remove(connection)
        if self._emptied is not None:
            if not self._connections:
                self._emptied.set()
        else:
            self._let_next()

    def _let_next(self) -> None:
        """Send what waits first, if there may be one more."""
        while self._waiting and self._busy < self._most:
            self._send(self._next())

    def _next(self) -> Exchange:
        exchange = next(iter(self._waiting))
        del self._waiting[exchange]
        return exchange

    def _close_idle(self) -> None:
        """Close the connections that nobody used for long; the list is in the order in which they were left."""
        now, self._look = running_loop().time(), None
        while self._idle and self._idle[0].idle_since + self._idle_for <= now:
            self._idle.pop(0).abort()
        if self._idle:
            left = self._idle[0].idle_since + self._idle_for - now
            self._look = running_loop().call_later(left, self._close_idle)


def why_not(error: Exception) -> str:
    """Why there is no connection, without the address."""
    if isinstance(error, ConnectionRefusedError):
        return "the connection was refused"
    if isinstance(error, socket.gaierror):
        return "its name is not known"
    if isinstance(error, ssl.SSLCertVerificationError):
        return f"its certificate is not trusted: {error.verify_message.partition(',')[0].rstrip('.')}"
    if isinstance(error, ssl.SSLError):
        return "it does not speak TLS as it should"
    if isinstance(error, (OverflowError, UnicodeError)):
        return "the address makes no sense"
    return "no connection could be made"
