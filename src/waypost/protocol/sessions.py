"""Sessions of clients that initialise: what the hub knows about each, and when it forgets."""

from __future__ import annotations

import secrets
import time
from collections.abc import Callable, Iterator, Mapping
from typing import Any, Final

from waypost.capabilities.principals import ANONYMOUS, Principal
from waypost.capabilities.session import ListKind, Session
from waypost.errors import Busy
from waypost.protocol.exchange import Exchange, level_number, log_message
from waypost.protocol.streams import EventStream
from waypost.wire import messages
from waypost.wire.definitions import Implementation
from waypost.wire.messages import RequestId

_KEPT_STREAMS: Final = 64
_DEFAULT_LEVEL: Final = level_number("info")
_SWEEP_EVERY: Final = 1.0


class LegacySession(Session):
    """A client that said `initialize`, until it leaves or is idle for too long."""

    __slots__ = (
        "_attached",
        "_streams",
        "client_capabilities",
        "general",
        "log_level",
        "principal",
        "running",
        "seen",
        "subscriptions",
        "version",
    )

    def __init__(
        self,
        session_id: str,
        version: str,
        client_info: Implementation,
        client_capabilities: Mapping[str, Any],
        principal: Principal = ANONYMOUS,
    ) -> None:
        super().__init__(session_id, client_info)
        self.version = version
        self.client_capabilities = client_capabilities
        self.principal = principal
        self.log_level = _DEFAULT_LEVEL
        self.subscriptions: set[str] = set()
        self.running: dict[RequestId, Exchange] = {}
        self.general = EventStream("g")
        self.seen = time.monotonic()
        self._streams: dict[str, EventStream] = {"g": self.general}
        self._attached: Callable[[bytes], None] | None = None

    def attach(self, write: Callable[[bytes], None]) -> None:
        """Bind the session to a connection that carries everything and lasts as long as it does."""
        self._attached = write

    @property
    def is_busy(self) -> bool:
        """Whether it is connected, a call is running or a stream is open."""
        return (
            self._attached is not None
            or bool(self.running)
            or any(stream.has_reader for stream in self._streams.values())
        )

    def open_stream(self) -> EventStream:
        """A stream for one request; the oldest finished ones are forgotten."""
        number = 1 + max((int(name[1:]) for name in self._streams if name != "g"), default=0)
        stream = EventStream(f"s{number}")
        finished = [name for name, other in self._streams.items() if other.closed and name != "g"]
        for name in finished[: max(0, len(self._streams) - _KEPT_STREAMS)]:
            del self._streams[name]
        self._streams[stream.name] = stream
        return stream

    def stream(self, name: str) -> EventStream | None:
        """The stream called `name`, if it is still remembered."""
        return self._streams.get(name)

    def push(self, message: bytes) -> None:
        """Send a message that belongs to no request."""
        if self._attached is not None:
            self._attached(message)
        else:
            self.general.append(message)

    async def notify_changed(self, kind: ListKind) -> None:
        """Tell this client alone that one of its lists changed."""
        self.push(messages.notification(f"notifications/{kind}/list_changed"))

    async def send_log(self, level: str, message: str, data: Mapping[str, Any] | None = None) -> None:
        """Send a log message, if the client wants that level."""
        if level_number(level) >= self.log_level:
            self.push(log_message(level, message, data))

    async def send_resource_updated(self, uri: str) -> None:
        """Tell the client that `uri` changed, if it subscribed to it."""
        if uri in self.subscriptions:
            self.push(messages.notification("notifications/resources/updated", {"uri": uri}))

    def end(self) -> None:
        """Stop everything that runs for this client."""
        for exchange in list(self.running.values()):
            exchange.cancel()
        for stream in self._streams.values():
            stream.close()


class Sessions:
    """All sessions by id; idle ones end."""

    def __init__(self, *, idle: float, limit: int, clock: Callable[[], float] = time.monotonic) -> None:
        self._idle = idle
        self._limit = limit
        self._clock = clock
        self._sessions: dict[str, LegacySession] = {}
        self._swept = clock()

    def __len__(self) -> int:
        return len(self._sessions)

    def __iter__(self) -> Iterator[LegacySession]:
        return iter(tuple(self._sessions.values()))

    def create(
        self,
        version: str,
        client_info: Implementation,
        client_capabilities: Mapping[str, Any],
        principal: Principal = ANONYMOUS,
    ) -> LegacySession:
        """Open a session; `Busy` when there are too many."""
        self._sweep()
        if len(self._sessions) >= self._limit:
            raise Busy(f"{self._limit} sessions are open already; try again later.")
        session = LegacySession(secrets.token_urlsafe(24), version, client_info, client_capabilities, principal)
        session.seen = self._clock()
        self._sessions[session.id] = session
        return session

    def find(self, session_id: str) -> LegacySession | None:
        """The live session with that id, which is active now."""
        self._sweep()
        session = self._sessions.get(session_id)
        if session is not None:
            session.seen = self._clock()
        return session

    def close(self, session: LegacySession) -> None:
        """End a session and forget it."""
        if self._sessions.pop(session.id, None) is not None:
            session.end()

    def close_all(self) -> None:
        """End every session."""
        for session in self:
            self.close(session)

    def _sweep(self) -> None:
        now = self._clock()
        if now - self._swept < min(_SWEEP_EVERY, self._idle):
            return
        self._swept = now
        for session in self:
            if session.is_busy:
                session.seen = now
            elif now - session.seen > self._idle:
                self.close(session)
