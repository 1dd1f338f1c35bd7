"""The reply to one POST: JSON, or a stream of events once a message has to be sent before the response."""

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
KEEP_ALIVE_S: Final = 15.0
RETRY_MS: Final = 500
_IN_FLIGHT_AFTER_S: Final = 0.05


class Reply:
    """Carries everything that belongs to one request back to its client."""

    __slots__ = (
        "__weakref__",
        "_receive",
        "_send",
        "_sending",
        "_session",
        "_stream",
        "_ticker",
        "_watcher",
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
        self._sending: asyncio.Task[None] | None = None
        self._watcher: asyncio.Task[None] | None = None
        self._ticker: Ticker | None = None

    def start(self, exchange: Exchange) -> None:
        """Watch the client if the request takes a while: whether it is still there, and needs a keep-alive."""
        self.exchange = exchange
        self._ticker = ticker()
        self._ticker.add(self, _IN_FLIGHT_AFTER_S)

    async def send(self, message: bytes) -> None:
        """Send a message before the response."""
        await self._open_stream().send(message)

    async def close_early(self) -> None:
        """End the stream, if the client is of a version that knows how to resume it."""
        if self._session is None or not at_least(self._session.version, V2025_11_25):
            return
        self._open_stream()
        await asyncio.sleep(0)
        if self._stream is not None:
            self._stream.release()

    def finish(
        self, response: Response | None, status: int, headers: tuple[Header, ...] = (JSON,)
    ) -> Awaitable[None] | None:
        """Send the response, or end without one; returns what is left to await."""
        # Reply and exchange refer to each other: without this the garbage collector had a cycle to find per request.
        self.exchange = None
        if self._ticker is not None:
            self._ticker.discard(self)
        if self._watcher is not None:
            self._watcher.cancel()
        if response is None or self._stream is not None:
            return self._end_stream(response)
        if send_whole(self._send, status, response.payload, headers):
            return None
        return respond(self._send, status, response.payload, headers)

    async def _end_stream(self, response: Response | None) -> None:
        stream = self._open_stream()
        if response is not None:
            stream.append(response.payload)
        stream.close()
        if self._sending is not None:
            with suppress(asyncio.CancelledError):
                await self._sending

    def _open_stream(self) -> EventStream:
        if self._stream is None:
            asked = None if self.exchange is None else self.exchange.request_id
            self._stream = (
                EventStream("", is_resumable=False) if self._session is None else self._session.streams.open(asked)
            )
            is_primed = self._session is not None and at_least(self._session.version, V2025_11_25)
            self._sending = asyncio.get_running_loop().create_task(
                send_events(self._send, [(self._stream, 0)], is_numbered=self._session is not None, is_primed=is_primed)
            )
        return self._stream

    def on_due(self) -> None:
        """The request takes a while: begin to watch the client."""
        if self._session is None:
            track_request(self)
        self._watcher = asyncio.get_running_loop().create_task(self._watch_client())

    async def _watch_client(self) -> None:
        try:
            async with asyncio.timeout(KEEP_ALIVE_S):
                await wait_for_disconnect(self._receive)
        except TimeoutError:
            self._open_stream()
            await wait_for_disconnect(self._receive)
        if self._session is None and self.exchange is not None:
            self.exchange.cancel()


async def wait_for_disconnect(receive: Receive) -> None:
    """Wait until the client has disconnected."""
    while (await receive())["type"] != "http.disconnect":
        pass


async def send_events(
    send: Send,
    streams: Sequence[tuple[EventStream, int]],
    *,
    is_numbered: bool,
    is_primed: bool = False,
    reader: object | None = None,
) -> None:
    """Write the events of streams, one after the other, each behind a number, until they end or are released."""
    await send({"type": "http.response.start", "status": 200, "headers": EVENT_HEADERS})
    if is_primed:
        await _write(send, f"id: {streams[0][0].name}_0\nretry: {RETRY_MS}\ndata: \n\n".encode())
    for stream, after in streams:
        async for event in stream.follow(after, KEEP_ALIVE_S, reader):
            if event is None:
                await _write(send, b": keep-alive\n\n")
            elif is_numbered:
                number = f"{stream.name}_{event.number}".encode()
                await _write(send, b"event: message\nid: %b\ndata: %b\n\n" % (number, event.message))
            else:
                await _write(send, b"event: message\ndata: %b\n\n" % event.message)
    await send({"type": "http.response.body", "body": b""})


async def _write(send: Send, chunk: bytes) -> None:
    await send({"type": "http.response.body", "body": chunk, "more_body": True})
