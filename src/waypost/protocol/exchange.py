"""One request while it is answered: what its handler knows of the client, and what it sends before the response."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable, Iterable, Mapping
from copy import copy
from math import isfinite
from typing import TYPE_CHECKING, Any, Final, Protocol
from weakref import WeakSet

from msgspec import UNSET

from waypost.capabilities.context import ListKind, Session, check_list
from waypost.capabilities.principals import ANONYMOUS, FROM_OUTSIDE, Chain
from waypost.capabilities.questions import Question
from waypost.errors import CapabilityNotSupported, InvalidParams, shorten
from waypost.loops import maybe_await, running_task
from waypost.protocol.responses import KEY_REVOKED, Response
from waypost.stores.database import from_json, to_json
from waypost.wire import messages
from waypost.wire.definitions import Implementation
from waypost.wire.messages import Message, RequestId
from waypost.wire.params import LOG_LEVELS, Cancelled, RequestMeta
from waypost.wire.versions import V2025_03_26, at_least

if TYPE_CHECKING:
    from waypost.identity.keys import KeyChange
    from waypost.protocol.streams import Outlet


SILENT: Final = len(LOG_LEVELS)
"""Above all log levels: no log message is sent."""

NO_META: Final = RequestMeta()


class Asker(Protocol):
    """How an era asks the client for input during a request."""

    async def ask(self, question: Question) -> Any: ...
    async def once(self, key: str, function: Callable[[], Any]) -> Any: ...


class ClosedOutlet:
    """The outlet of a request that has been answered."""

    async def send(self, message: bytes) -> None:
        """Drop the message: its request was answered."""

    async def close_early(self) -> None:
        """Nothing is open."""


CLOSED_OUTLET: Final = ClosedOutlet()


class Exchange:
    """A request being answered."""

    __slots__ = (
        "_last_progress",
        "_level",
        "_session",
        "asker",
        "cancelled",
        "chain",
        "meta",
        "outlet",
        "principal",
        "request_id",
        "revoked",
        "task",
        "version",
    )

    def __init__(self, request_id: RequestId, version: str, outlet: Outlet, session: Session | None = None) -> None:
        self.request_id = request_id
        self.version = version
        self.outlet: Outlet = outlet
        self.meta = NO_META
        self.asker: Asker | None = None
        # A client of 2026-07-28 gets log messages only where its request names a level.
        self._level = SILENT
        self.principal = ANONYMOUS
        self.chain: Chain = FROM_OUTSIDE
        self.cancelled = False
        self.revoked = False
        self.task: asyncio.Task[Any] | None = None
        self._session = session
        self._last_progress: float | None = None

    @property
    def client_info(self) -> Implementation | None:
        """The client's name and version: from `initialize` in a session, else from this request."""
        if self._session is not None:
            return self._session.client_info
        return None if self.meta.client_info is UNSET else self.meta.client_info

    @property
    def client_capabilities(self) -> Mapping[str, Any]:
        """The client's capabilities: from `initialize` in a session, else from this request."""
        if self._session is not None:
            return self._session.client_capabilities
        return {} if self.meta.client_capabilities is UNSET else self.meta.client_capabilities

    async def ask(self, question: Question) -> Any:
        """Ask the client; its capabilities were checked before."""
        if self.asker is None:
            raise CapabilityNotSupported(question.needs)
        return await self.asker.ask(question)

    async def once(self, key: str, function: Callable[[], Any]) -> Any:
        """Run a step that must not be repeated when the handler is run again with the client's answers."""
        if self.asker is not None:
            return await self.asker.once(key, function)
        return await maybe_await(function())

    @property
    def session(self) -> Session:
        """The client's session; in 2026-07-28, one that lasts as long as the request."""
        if self._session is None:
            self._session = RequestSession(self)
        return self._session

    def with_chain(self, chain: Chain) -> Exchange:
        """A copy for a nested call, with the chain of calls that led to it."""
        other = copy(self)
        other.chain = chain
        return other

    def detach(self, outlet: Outlet) -> Exchange:
        """A copy with another outlet, for work that continues after this request was answered."""
        other = Exchange(self.request_id, self.version, outlet, self._session)
        other.meta, other._level, other.principal = self.meta, self._level, self.principal
        return other

    def cancel(self) -> None:
        """Stop the work, because the client or its connection gave the request up."""
        self.cancelled = True
        if self.task is not None:
            self.task.cancel()

    def revoke(self) -> None:
        """Stop the work, because the key of the request was revoked."""
        self.revoked = True
        self.cancel()

    def begin(self) -> None:
        """Start in the current task; a request that was cancelled before that ends here."""
        self.task = running_task()
        if self.cancelled:
            raise asyncio.CancelledError

    def was_cancelled(self) -> bool:
        """Whether the request was cancelled; if so, the cancellation of its task ends here."""
        # Without `uncancel` the task would look cancelled to whatever runs in it next, such as a write to the client.
        if self.cancelled and self.task is not None and self.task.cancelling():
            self.task.uncancel()
        return self.cancelled

    def cancelled_response(self) -> Response | None:
        """The response to a cancelled request: an error if its key was revoked, none if its client cancelled it."""
        return KEY_REVOKED.to_response(self.request_id) if self.revoked else None

    @property
    def wants_progress(self) -> bool:
        """Whether the client asked for progress notifications."""
        return self.meta.progress_token is not UNSET

    async def progress(self, value: float, total: float | None, message: str | None) -> None:
        """Send progress, if the client asked for it and the value has grown, as the specification demands."""
        token = self.meta.progress_token
        if token is UNSET or not isfinite(value) or (self._last_progress is not None and value <= self._last_progress):
            return
        self._last_progress = value
        await self._notify(progress_message(token, value, total, message, self.version))

    @property
    def log_level(self) -> int:
        """The lowest level of log messages to send: the session's current one, else the request's own."""
        level: int = getattr(self._session, "log_level", self._level)
        return level

    @log_level.setter
    def log_level(self, level: int) -> None:
        self._level = level

    async def log(self, level: str, message: str, data: Mapping[str, Any] | None) -> None:
        """Send a log message on this request's stream."""
        if level_number(level) >= self.log_level:
            await self._notify(log_message(level, message, data))

    async def _notify(self, message: bytes) -> None:
        await self.outlet.send(message)
        # Sending need not wait, and never does on a stream whose reader has left: a handler that only sends would keep
        # the loop from all other clients until it ends.
        await asyncio.sleep(0)

    async def close_stream(self) -> None:
        """End the stream before the response; the client reconnects for the rest."""
        await self.outlet.close_early()


class RequestSession(Session):
    """The session of a request without one: it ends with the request and sends on the request's stream."""

    __slots__ = ("_exchange",)

    def __init__(self, exchange: Exchange) -> None:
        super().__init__(f"request-{exchange.request_id}", exchange.client_info, exchange.client_capabilities)
        self._exchange = exchange

    async def put(self, key: str, value: Any) -> None:
        """Keep a value until the request ends."""
        await super().put(*to_stored(key, value))

    async def notify_changed(self, kind: ListKind) -> None:
        """Nothing to send: such a client's lists do not depend on the request."""
        check_list(kind)

    async def send_log(self, level: str, message: str, data: Mapping[str, Any] | None = None) -> None:
        """Send a log message on the request's stream."""
        await self._exchange.log(level, message, data)

    async def send_progress(
        self, token: int | str, value: float, total: float | None = None, message: str | None = None
    ) -> None:
        """Report progress on the request's stream."""
        if isfinite(value):
            await self._exchange.outlet.send(progress_message(token, value, total, message, self._exchange.version))

    async def send_task_status(self, task_id: str) -> None:
        """Nothing to send: such a client polls its tasks, or listens."""

    async def send_resource_updated(self, uri: str, timestamp: Any = None) -> None:
        """Nothing to send: such a client listens for updates on another stream."""


def to_stored(key: str, value: Any) -> tuple[str, Any]:
    """A value of a session as it is read after the session was recovered; raises `StoreError` if it has no JSON.

    Sessions that are never stored use it too, so that a tool works over every transport or over none.
    """
    ((key, value),) = from_json(to_json({key: value})).items()
    return key, value


def level_number(level: str) -> int:
    """The severity of `level`; an unknown one is a `ValueError`."""
    try:
        return LOG_LEVELS.index(level)
    except ValueError:
        raise ValueError(f"Unknown log level {shorten(level)!r}; use one of {', '.join(LOG_LEVELS)}.") from None


def parse_client_level(level: str) -> int:
    """The severity of the level that a client asked for; an unknown one is `InvalidParams`."""
    try:
        return level_number(level)
    except ValueError as error:
        raise InvalidParams(str(error)) from None


def log_message(level: str, message: str, data: Mapping[str, Any] | None) -> bytes:
    """A log notification."""
    body = message if data is None else {"message": message, **data}
    return messages.notification("notifications/message", {"level": level, "data": body})


def progress_message(token: int | str, value: float, total: float | None, message: str | None, version: str) -> bytes:
    """A progress notification."""
    params: dict[str, Any] = {"progressToken": token, "progress": value}
    if total is not None and isfinite(total):
        params["total"] = total
    # 2024-11-05 knows no message.
    if message is not None and at_least(version, V2025_03_26):
        params["message"] = message
    return messages.notification("notifications/progress", params)


class RunningRequests(dict[RequestId, Exchange]):
    """The requests of a client in flight, by id; a dict, so that entering and leaving cost the usual request no call.

    A client may use an id again before it has the first response. The id stands for the later request then, but the
    earlier one must end with its key and its session all the same.
    """

    __slots__ = ("_displaced",)

    def __init__(self) -> None:
        super().__init__()
        self._displaced: dict[Exchange, None] = {}

    def __bool__(self) -> bool:
        return bool(len(self) or self._displaced)

    def enter_again(self, exchange: Exchange) -> None:
        """Give an id that is in use to a request, unless that had the id before and a later one has it now."""
        if exchange not in self._displaced:
            self._displaced[self[exchange.request_id]] = None
            self[exchange.request_id] = exchange

    def leave_displaced(self, exchange: Exchange) -> None:
        """Remove a request whose id a later one has, or had."""
        self._displaced.pop(exchange, None)

    def find(self, request_id: RequestId) -> Exchange | None:
        """The request with that id; of several, the latest that still runs."""
        latest = self.get(request_id)
        return latest or next((one for one in reversed(self._displaced) if one.request_id == request_id), None)

    def all(self) -> list[Exchange]:
        """All of them, also those whose id a later one has."""
        return [*self.values(), *self._displaced]

    def take_all(self) -> list[Exchange]:
        """Remove all of them, and return them."""
        taken = self.all()
        self.clear()
        self._displaced.clear()
        return taken


def cancel(running: RunningRequests, message: Message) -> bool:
    """Cancel the request that `notifications/cancelled` names; false if it does not run here."""
    try:
        given = message.read(Cancelled)
    except InvalidParams:
        return True  # it names no request, so none runs elsewhere
    exchange = None if given.request_id is UNSET else running.find(given.request_id)
    if exchange is not None:
        exchange.cancel()
    return exchange is not None


class PendingReply(Protocol):
    """What waits for the response to a request."""

    @property
    def exchange(self) -> Exchange | None: ...


class _ThreadState(threading.local):
    def __init__(self) -> None:
        self.replies: WeakSet[PendingReply] = WeakSet()


_thread = _ThreadState()
"""One event loop runs in a thread at a time. Only requests that take a while are tracked: others cost nothing."""


def track_request(reply: PendingReply) -> None:
    """Remember a request without a session that takes a while, for as long as its reply exists."""
    _thread.replies.add(reply)


def in_flight_requests() -> list[Exchange]:
    """The tracked requests on the loop of this thread, of all hubs."""
    return [waiting.exchange for waiting in _thread.replies if waiting.exchange is not None]


def apply_key_changes(exchanges: Iterable[Exchange], changes: Mapping[int, KeyChange]) -> None:
    """End the requests of revoked keys, and give others their new rights; `changes` are by `id(principal)`."""
    for exchange in exchanges:
        change = changes.get(id(exchange.principal))
        if change is not None and change.ended:
            exchange.revoke()
        elif change is not None and change.now is not None:
            exchange.principal = change.now
