"""One request and its way back: what a handler may know and say while it runs."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from typing import Any, Final

from msgspec import UNSET

from waypost.capabilities.principals import ANONYMOUS, Principal
from waypost.capabilities.session import ListKind, Session
from waypost.errors import InvalidParams
from waypost.protocol.streams import Outlet
from waypost.wire import messages
from waypost.wire.definitions import Implementation
from waypost.wire.messages import RequestId
from waypost.wire.params import LOG_LEVELS, RequestMeta
from waypost.wire.versions import V2025_03_26, at_least

SILENT: Final = len(LOG_LEVELS)
"""A log level above all others: nothing is sent."""

NO_META: Final = RequestMeta()


class Exchange:
    """A request being answered."""

    __slots__ = (
        "_session",
        "_told",
        "cancelled",
        "log_level",
        "meta",
        "outlet",
        "principal",
        "request_id",
        "task",
        "version",
    )

    def __init__(self, request_id: RequestId, version: str, outlet: Outlet, session: Session | None = None) -> None:
        self.request_id = request_id
        self.version = version
        self.outlet = outlet
        self.meta = NO_META
        self.log_level = SILENT
        self.principal: Principal = ANONYMOUS
        self.cancelled = False
        self.task: asyncio.Task[Any] | None = None
        self._session = session
        self._told: float | None = None

    @property
    def client_info(self) -> Implementation | None:
        """What the client says it is: once for a session, else with each request."""
        if self._session is not None:
            return self._session.client_info
        return None if self.meta.client_info is UNSET else self.meta.client_info

    @property
    def session(self) -> Session:
        """The session of the client; without one, what is put there lasts as long as the request."""
        if self._session is None:
            self._session = RequestSession(self)
        return self._session

    def cancel(self) -> None:
        """Stop working on it; there will be no answer."""
        self.cancelled = True
        if self.task is not None:
            self.task.cancel()

    def was_cancelled(self) -> bool:
        """Whether the cancellation that just arrived is the client's; if so it ends here."""
        if self.cancelled and self.task is not None:
            self.task.uncancel()
        return self.cancelled

    async def progress(self, value: float, total: float | None, message: str | None) -> None:
        """Tell the client how far it is, if it asked and this is news."""
        token = self.meta.progress_token
        if token is UNSET or (self._told is not None and value <= self._told):
            return
        self._told = value
        params: dict[str, Any] = {"progressToken": token, "progress": value}
        if total is not None:
            params["total"] = total
        if message is not None and at_least(self.version, V2025_03_26):
            params["message"] = message
        await self.outlet.send(messages.notification("notifications/progress", params))

    async def log(self, level: str, message: str, data: Mapping[str, Any] | None) -> None:
        """Send a log message on this request's stream."""
        if level_number(level) >= self.log_level:
            await self.outlet.send(log_message(level, message, data))

    async def close_stream(self) -> None:
        """Let the client go; it will come back for the answer."""
        await self.outlet.close_early()


class RequestSession(Session):
    """The session of a stateless request."""

    __slots__ = ("_exchange",)

    def __init__(self, exchange: Exchange) -> None:
        super().__init__(f"request-{exchange.request_id}", exchange.client_info)
        self._exchange = exchange

    async def notify_changed(self, kind: ListKind) -> None:
        """Nothing to tell: a stateless client's lists do not depend on the request."""

    async def send_log(self, level: str, message: str, data: Mapping[str, Any] | None = None) -> None:
        """Send a log message on the request's stream."""
        await self._exchange.log(level, message, data)

    async def send_resource_updated(self, uri: str) -> None:
        """Nothing to tell: a stateless client listens for updates on a stream of its own."""


def level_number(level: str) -> int:
    """How severe `level` is; an unknown one is `InvalidParams`."""
    try:
        return LOG_LEVELS.index(level)
    except ValueError:
        raise InvalidParams(f"Unknown log level {level!r}; use one of {', '.join(LOG_LEVELS)}.") from None


def log_message(level: str, message: str, data: Mapping[str, Any] | None) -> bytes:
    """A log notification."""
    body = message if data is None else {"message": message, **data}
    return messages.notification("notifications/message", {"level": level, "data": body})
