"""The connection class for a uvicorn whose private parts are not those that `fast_uvicorn` knows.

It builds on uvicorn's class for h11, not on the one for httptools, whose parser drops the body of a request that offers
to upgrade, as Java clients do.
"""

from __future__ import annotations

import asyncio
from math import inf
from typing import Any, Final

import uvicorn
from uvicorn.protocols.http.h11_impl import H11Protocol

from waypost.transports.http.asgi import App, Event, Receive, Scope, Send
from waypost.transports.http.pending import IdleConnections, LimitedConnection, PendingRequests, SlowReaders

_CONNECTION: Final = "waypost.connection"
"""Where a plain connection stands in the state of its scopes, a copy of which each request gets."""


class PlainConnection(LimitedConnection, H11Protocol):
    """uvicorn's slower connection, with deadlines that need nothing of its private parts: the app reports each head."""

    _is_pending = False
    _received = 0
    """How many bytes of a head came."""

    def __init__(
        self,
        config: uvicorn.Config,
        server_state: Any,
        app_state: dict[str, Any],
        *more: Any,
        pending: PendingRequests,
        slow_readers: SlowReaders,
        idle: IdleConnections,
        **options: Any,
    ) -> None:
        self.limit_by(pending, slow_readers, idle)
        super().__init__(config, server_state, {**app_state, _CONNECTION: self}, *more, **options)
        self._running = 0

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]  # as uvicorn declares it
        """A client connected."""
        super().connection_made(transport)
        self._await_head()

    def data_received(self, data: bytes) -> None:
        """Take the next bytes; with no request running, they are a head, or the rest of a body that is not read."""
        if self.is_refused:
            return
        if not self._running:
            self.idle.discard(self)
            self._await_head()
            self._received += len(data)
        super().data_received(data)

    def has_part(self) -> bool:
        """Whether a part of a head came."""
        return self._received > 0

    def send_400_response(self, msg: str) -> None:
        """Refuse what the parser does not take; a long head is the reason that has a status of its own."""
        if self._received > self.pending.max_header_bytes:
            self.refuse_headers()
        else:
            super().send_400_response(msg)

    def _await_head(self) -> None:
        if not self._is_pending:
            self._is_pending = True
            self.pending.add(self, self.pending.header_timeout)

    def is_busy(self) -> bool:
        """Whether a response is due."""
        return self._running > 0

    def time_out(self) -> None:
        """Close the connection; an app that waits for the rest of the request sees a disconnect."""
        if self._running:
            self.transport.abort()
        else:
            super().time_out()

    async def run(self, app: App, scope: Scope, receive: Receive, send: Send) -> None:
        """Run the app for a request whose head came; it counts until its body came too, whose deadline is the app's."""
        self._is_pending, self._received = False, 0
        self.pending.add(self, inf)
        self.idle.discard(self)
        self._running += 1

        async def receive_counted() -> Event:
            event = await receive()
            if not event.get("more_body"):
                self.pending.discard(self)
            return event

        async def send_draining(event: Event) -> None:
            if self.is_draining and event["type"] == "http.response.start":
                event["headers"] = [*event["headers"], (b"connection", b"close")]
            await send(event)

        try:
            await app(scope, receive_counted, send_draining)
        finally:
            self._running -= 1
            self.pending.discard(self)
            if not (self._running or self.transport.is_closing()):
                self.idle.add(self)


def report_heads(app: App) -> App:
    """An app that notifies the connection of each request when its headers are complete."""

    async def run(scope: Scope, receive: Receive, send: Send) -> None:
        # Taken out, because the state belongs to the app.
        connection = scope["state"].pop(_CONNECTION, None) if scope["type"] == "http" else None
        await (app(scope, receive, send) if connection is None else connection.run(app, scope, receive, send))

    return run
