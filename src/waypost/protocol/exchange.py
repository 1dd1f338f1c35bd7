"""One request and its way back: what a handler may know and say while it runs."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable, Iterable, Mapping
from copy import copy
from math import isfinite
from typing import TYPE_CHECKING, Any, Final, Protocol
from weakref import WeakSet

from msgspec import UNSET

from waypost.capabilities.principals import ANONYMOUS, FROM_OUTSIDE, Chain
from waypost.capabilities.questions import Question
from waypost.capabilities.session import ListKind, Session, check_list
from waypost.errors import CapabilityNotSupported, InvalidParams, shorten
from waypost.loops import maybe_await, running_task
from waypost.protocol.streams import Outlet
from waypost.wire import messages
from waypost.wire.definitions import Implementation
from waypost.wire.messages import RequestId
from waypost.wire.params import LOG_LEVELS, RequestMeta
from waypost.wire.versions import V2025_03_26, at_least

if TYPE_CHECKING:
    from waypost.policy.keys import KeyChange


SILENT: Final = len(LOG_LEVELS)
"""A log level above all others: nothing is sent."""

NO_META: Final = RequestMeta()


class Asker(Protocol):
    """How an era asks the client something in the middle of a request."""

    async def ask(self, question: Question) -> Any: ...
    async def once(self, key: str, function: Callable[[], Any]) -> Any: ...


class ClosedOutlet:
    """The outlet of a request that has been answered."""

    async def send(self, message: bytes) -> None:
        """Drop what comes too late."""

    async def close_early(self) -> None:
        """Nothing is open any more."""


CLOSED_OUTLET: Final = ClosedOutlet()


class Exchange:
    """A request being answered."""

    __slots__ = (
        "_level",
        "_session",
        "_told",
        "asker",
        "cancelled",
        "chain",
        "meta",
        "outlet",
        "principal",
        "refused",
        "request_id",
        "task",
        "version",
    )

    def __init__(self, request_id: RequestId, version: str, outlet: Outlet, session: Session | None = None) -> None:
        self.request_id = request_id
        self.version = version
        self.outlet: Outlet = outlet
        self.meta = NO_META
        self.asker: Asker | None = None
        self._level = SILENT
        self.principal = ANONYMOUS
        self.chain: Chain = FROM_OUTSIDE
        self.cancelled = False
        self.refused = False
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
    def client_capabilities(self) -> Mapping[str, Any]:
        """What the client can do for us: said once for a session, else with each request."""
        if self._session is not None:
            return self._session.client_capabilities
        return {} if self.meta.client_capabilities is UNSET else self.meta.client_capabilities

    async def ask(self, question: Question) -> Any:
        """Ask the client; what it can answer was checked before."""
        if self.asker is None:
            raise CapabilityNotSupported(question.needs)
        return await self.asker.ask(question)

    async def once(self, key: str, function: Callable[[], Any]) -> Any:
        """Do a step that must not be done again when the handler is."""
        if self.asker is not None:
            return await self.asker.once(key, function)
        return await maybe_await(function())

    @property
    def session(self) -> Session:
        """The session of the client; without one, what is put there lasts as long as the request."""
        if self._session is None:
            self._session = RequestSession(self)
        return self._session

    def with_chain(self, chain: Chain) -> Exchange:
        """The same request, for a call that was made on its behalf out of another one."""
        other = copy(self)
        other.chain = chain
        return other

    def lasting(self, outlet: Outlet) -> Exchange:
        """The same conversation, for work that goes on after this request was answered."""
        other = Exchange(self.request_id, self.version, outlet, self._session)
        other.meta, other._level, other.principal = self.meta, self._level, self.principal
        return other

    def cancel(self) -> None:
        """Stop working on it."""
        self.cancelled = True
        if self.task is not None:
            self.task.cancel()

    def refuse(self) -> None:
        """Stop working on it, because who sent it is let in no more."""
        self.refused = True
        self.cancel()

    def begin(self) -> None:
        """Work starts in the current task; if the client gave up before that, it ends right away."""
        self.task = running_task()
        if self.cancelled:
            raise asyncio.CancelledError

    def end(self) -> None:
        """The answer is on its way: nothing is said after it."""
        self.outlet = CLOSED_OUTLET

    def was_cancelled(self) -> bool:
        """Whether the client gave up; its cancellation of the task, if it got that far, ends here."""
        if self.cancelled and self.task is not None and self.task.cancelling():
            self.task.uncancel()
        return self.cancelled

    @property
    def wants_progress(self) -> bool:
        """Whether the client asked to be told how far it is."""
        return self.meta.progress_token is not UNSET

    async def progress(self, value: float, total: float | None, message: str | None) -> None:
        """Tell the client how far it is, if it asked and this is news."""
        token = self.meta.progress_token
        if token is UNSET or not isfinite(value) or (self._told is not None and value <= self._told):
            return
        self._told = value
        await self.outlet.send(progress_message(token, value, total, message, self.version))

    @property
    def log_level(self) -> int:
        """From which level on the client hears log messages: as its session has it by now, else as the request said."""
        level: int = getattr(self._session, "log_level", self._level)
        return level

    @log_level.setter
    def log_level(self, level: int) -> None:
        self._level = level

    async def log(self, level: str, message: str, data: Mapping[str, Any] | None) -> None:
        """Send a log message on this request's stream."""
        if level_number(level) >= self.log_level:
            await self.outlet.send(log_message(level, message, data))

    async def close_stream(self) -> None:
        """Let the client go; it will come back for the answer."""
        await self.outlet.close_early()


class RequestSession(Session):
    """The session of a stateless request: it ends with it, and nothing can be sent outside of it."""

    __slots__ = ("_exchange",)

    def __init__(self, exchange: Exchange) -> None:
        super().__init__(f"request-{exchange.request_id}", exchange.client_info, exchange.client_capabilities)
        self._exchange = exchange

    async def notify_changed(self, kind: ListKind) -> None:
        """Nothing to tell: a stateless client's lists do not depend on the request."""
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
        """Nothing to tell: a stateless client asks by itself, or listens."""

    async def send_resource_updated(self, uri: str, timestamp: Any = None) -> None:
        """Nothing to tell: a stateless client listens for updates on a stream of its own."""


def level_number(level: str) -> int:
    """How severe `level` is; an unknown one is a `ValueError`."""
    try:
        return LOG_LEVELS.index(level)
    except ValueError:
        raise ValueError(f"Unknown log level {shorten(level)!r}; use one of {', '.join(LOG_LEVELS)}.") from None


def parse_client_level(level: str) -> int:
    """How severe the level is that a client asked for; an unknown one is `InvalidParams`."""
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
    if message is not None and at_least(version, V2025_03_26):
        params["message"] = message
    return messages.notification("notifications/progress", params)


class PendingReply(Protocol):
    """Whoever waits for the answer to a request."""

    @property
    def exchange(self) -> Exchange | None: ...


class _Here(threading.local):
    def __init__(self) -> None:
        self.waiting: WeakSet[PendingReply] = WeakSet()


_here = _Here()
"""One loop runs in a thread at a time. Only what takes a while is put down, so that other requests cost nothing."""


def track_request(waiting: PendingReply) -> None:
    """A request takes a while; it is forgotten with whoever waits for it."""
    _here.waiting.add(waiting)


def in_flight_requests() -> list[Exchange]:
    """What runs on the loop of this thread, for whichever hub."""
    return [waiting.exchange for waiting in _here.waiting if waiting.exchange is not None]


def apply_key_changes(exchanges: Iterable[Exchange], changes: Mapping[int, KeyChange]) -> None:
    """End requests of who is let in no more, and go by the new rights of others; who sent them is told by identity."""
    for exchange in exchanges:
        change = changes.get(id(exchange.principal))
        if change is not None and change.ended:
            exchange.refuse()
        elif change is not None and change.now is not None:
            exchange.principal = change.now
