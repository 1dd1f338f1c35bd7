"""The answer to one POST: JSON, or a stream of events once something has to be said before the answer."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Sequence
from contextlib import suppress
from typing import Final

from waypost.execution.deadline import Ticker, ticker
from waypost.protocol.exchange import Exchange, track_request
from waypost.protocol.responses import Response
from waypost.protocol.session import LegacySession
from waypost.protocol.streams import EventStream
from waypost.transports.http.asgi import JSON, Header, Receive, Send, respond, send_whole
from waypost.wire.versions import V2025_11_25, at_least

EVENT_HEADERS: Final = [
    (b"content-type", b"text/event-stream"),
    (b"cache-control", b"no-cache, no-transform"),
    (b"x-accel-buffering", b"no"),
]
KEEP_ALIVE: Final = 15.0
RETRY_MS: Final = 500
_LINGER: Final = 0.05


class Reply:
    """Carries everything that belongs to one request back to its client."""

    __slots__ = (
        "__weakref__",
        "_pump",
        "_receive",
        "_send",
        "_session",
        "_stream",
        "_ticker",
        "_watch",
        "due",
        "exchange",
    )

    def __init__(self, send: Send, receive: Receive, session: LegacySession | None = None) -> None:
        self.exchange: Exchange | None = None
        self.due = 0.0
        self._send = send
        self._receive = receive
        self._session = session
        self._stream: EventStream | None = None
        self._pump: asyncio.Task[None] | None = None
        self._watch: asyncio.Task[None] | None = None
        self._ticker: Ticker | None = None

    def start(self, exchange: Exchange) -> None:
        """Look after a request that takes a while: is its client still there, does it need a sign of life."""
        self.exchange = exchange
        self._ticker = ticker()
        self._ticker.add(self, _LINGER)

    async def send(self, message: bytes) -> None:
        """Say something before the answer."""
        await self._open().send(message)

    async def close_early(self) -> None:
        """Let the client go, if it knows how to come back."""
        if self._session is None or not at_least(self._session.version, V2025_11_25):
            return
        self._open()
        await asyncio.sleep(0)
        if self._stream is not None:
            self._stream.release()

    def finish(
        self, outcome: Response | None, status: int, headers: tuple[Header, ...] = (JSON,)
    ) -> Awaitable[None] | None:
        """Send the answer; a request without one just ends. What is left to wait for is returned."""
        # Reply and exchange know each other: letting go here spares the garbage collector a cycle per request.
        self.exchange = None
        if self._ticker is not None:
            self._ticker.discard(self)
        if self._watch is not None:
            self._watch.cancel()
        if outcome is None or self._stream is not None:
            return self._end(outcome)
        if send_whole(self._send, status, outcome.payload, headers):
            return None
        return respond(self._send, status, outcome.payload, headers)

    async def _end(self, outcome: Response | None) -> None:
        stream = self._open()
        if outcome is not None:
            stream.append(outcome.payload)
        stream.close()
        if self._pump is not None:
            with suppress(asyncio.CancelledError):
                await self._pump

    def _open(self) -> EventStream:
        if self._stream is None:
            asked = None if self.exchange is None else self.exchange.request_id
            self._stream = EventStream("") if self._session is None else self._session.streams.open(asked)
            prime = self._session is not None and at_least(self._session.version, V2025_11_25)
            self._pump = asyncio.get_running_loop().create_task(
                pump(self._send, [(self._stream, 0)], numbered=self._session is not None, prime=prime)
            )
        return self._stream

    def ring(self) -> None:
        """It does take a while: keep an eye on the client."""
        if self._session is None:
            track_request(self)
        self._watch = asyncio.get_running_loop().create_task(self._wait_for_end())

    async def _wait_for_end(self) -> None:
        try:
            async with asyncio.timeout(KEEP_ALIVE):
                await gone(self._receive)
        except TimeoutError:
            self._open()
            await gone(self._receive)
        if self._session is None and self.exchange is not None:
            self.exchange.cancel()


async def gone(receive: Receive) -> None:
    """Wait until the client has left."""
    while (await receive())["type"] != "http.disconnect":
        pass


async def pump(
    send: Send,
    parts: Sequence[tuple[EventStream, int]],
    *,
    numbered: bool,
    prime: bool = False,
    reader: object | None = None,
) -> None:
    """Write events to a client, stream after stream, each behind a number, until they end or it is sent away."""
    await send({"type": "http.response.start", "status": 200, "headers": EVENT_HEADERS})
    if prime:
        await _write(send, f"id: {parts[0][0].name}_0\nretry: {RETRY_MS}\ndata: \n\n".encode())
    for stream, after in parts:
        async for event in stream.follow(after, KEEP_ALIVE, reader):
            if event is None:
                await _write(send, b": keep-alive\n\n")
            elif numbered:
                number = f"{stream.name}_{event.number}".encode()
                await _write(send, b"event: message\nid: %b\ndata: %b\n\n" % (number, event.message))
            else:
                await _write(send, b"event: message\ndata: %b\n\n" % event.message)
    await send({"type": "http.response.body", "body": b""})


async def _write(send: Send, chunk: bytes) -> None:
    await send({"type": "http.response.body", "body": chunk, "more_body": True})
