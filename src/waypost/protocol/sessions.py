"""Sessions of clients that initialise: what the hub knows about each, when it forgets, and how one comes back."""

from __future__ import annotations

import asyncio
import secrets
import time
from collections.abc import Callable, Coroutine, Iterator, Mapping
from contextlib import suppress
from typing import Any, Final, Protocol

import msgspec

from waypost.capabilities import elicitation
from waypost.capabilities.asking import Question, form_question, require, roots_question, sampling_question
from waypost.capabilities.principals import ANONYMOUS, Principal
from waypost.capabilities.session import ListKind, Session
from waypost.errors import Busy, WaypostError
from waypost.protocol.client_calls import ClientCalls
from waypost.protocol.exchange import Exchange, level_number, log_message, progress_message
from waypost.protocol.streams import EventStream
from waypost.stores.sessions import SessionRecord, SessionStore
from waypost.wire import messages
from waypost.wire.definitions import Implementation
from waypost.wire.messages import RequestId

_KEPT_STREAMS: Final = 64
_DEFAULT_LEVEL: Final = level_number("info")
_SEND_WITHIN: Final = 30.0


class SessionHost(Protocol):
    """What sessions need of the engine."""

    def background(self, work: Coroutine[Any, Any, Any]) -> asyncio.Task[Any]: ...
    async def tell(self, session: LegacySession, name: str, *args: Any) -> Any: ...


class LegacySession(Session):
    """A client that said `initialize`, until it leaves or is idle for too long."""

    __slots__ = (
        "_attached",
        "_host",
        "_save",
        "_streams",
        "calls",
        "general",
        "log_level",
        "principal",
        "running",
        "seen",
        "subscriptions",
        "turn",
        "version",
    )

    def __init__(
        self,
        session_id: str,
        version: str,
        client_info: Implementation,
        client_capabilities: Mapping[str, Any],
        principal: Principal,
        host: SessionHost,
        save: Callable[[LegacySession], Coroutine[Any, Any, None]],
    ) -> None:
        super().__init__(session_id, client_info, client_capabilities)
        self.version = version
        self.principal = principal
        self.log_level = _DEFAULT_LEVEL
        self.calls = ClientCalls()
        self.subscriptions: set[str] = set()
        self.running: dict[RequestId, Exchange] = {}
        self.general = EventStream("g", ends_when_full=False)
        self.seen = time.monotonic()
        self.turn = asyncio.Lock()
        self._host = host
        self._save = save
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

    async def save(self) -> None:
        """Remember what changed, so that the session can come back."""
        await self._save(self)

    async def put(self, key: str, value: Any) -> None:
        """Keep a value with the session, over its end and recovery too."""
        await super().put(key, value)
        await self.save()

    async def notify_changed(self, kind: ListKind) -> None:
        """Tell this client alone that one of its lists changed."""
        self.push(messages.notification(f"notifications/{kind}/list_changed"))

    async def send_log(self, level: str, message: str, data: Mapping[str, Any] | None = None) -> None:
        """Send a log message, if the client wants that level."""
        if level_number(level) >= self.log_level:
            self.push(log_message(level, message, data))

    async def send_progress(
        self, token: int | str, value: float, total: float | None = None, message: str | None = None
    ) -> None:
        """Report the progress of something the client gave a token for."""
        self.push(progress_message(token, value, total, message, self.version))

    async def send_resource_updated(self, uri: str, timestamp: Any = None) -> None:
        """Tell the client that `uri` changed, if it subscribed to it."""
        if uri in self.subscriptions:
            when = {} if timestamp is None else {"_meta": {"timestamp": str(timestamp)}}
            self.push(messages.notification("notifications/resources/updated", {"uri": uri, **when}))

    async def send_elicitation(self, message: str, schema: Any, timeout: float = _SEND_WITHIN) -> str:  # noqa: ASYNC109
        """Ask the person behind the client; the answer arrives at `on_elicitation`."""
        shown = elicitation.for_version(elicitation.form(schema), self.version)

        def deliver(result: Any, number: str) -> tuple[Any, ...]:
            elicitation.answer(result, shown)
            return ("elicitation", result, number)

        return self._send(form_question(message, shown, None, timeout), deliver)

    async def send_sampling(
        self,
        messages: Any,
        *,
        max_tokens: int = 1024,
        timeout: float = _SEND_WITHIN,  # noqa: ASYNC109
        **options: Any,
    ) -> str:
        """Ask the client's model; the answer arrives at `on_sampling`."""
        question = sampling_question(messages, options, max_tokens, None, timeout)
        return self._send(question, lambda result, number: ("sampling", result, number))

    async def send_roots(self, timeout: float = _SEND_WITHIN) -> str:  # noqa: ASYNC109
        """Ask where the client works; the answer arrives at `on_roots`."""
        return self._send(
            roots_question(None, timeout), lambda result, number: ("roots", result.get("roots", []), number)
        )

    def _send(self, question: Question, deliver: Callable[[Any, str], tuple[Any, ...]]) -> str:
        require(self.client_capabilities, question.needs)
        number = self.calls.next_id()

        async def send(message: bytes) -> None:
            self.push(message)

        async def ask() -> None:
            try:
                result = await self.calls.ask(question, self.version, send, number)
                await self._host.tell(self, *deliver(result, number))
            except WaypostError as error:
                await self.send_log("warning", error.message)

        self._host.background(ask())
        return number

    def record(self) -> SessionRecord:
        """What is needed to bring the session back."""
        return SessionRecord(
            id=self.id,
            version=self.version,
            principal=self.principal.id,
            client_info=msgspec.to_builtins(self.client_info),
            client_capabilities=dict(self.client_capabilities),
            log_level=self.log_level,
            assigns=dict(self._assigns),
            subscriptions=sorted(self.subscriptions),
        )

    def restore(self, record: SessionRecord) -> None:
        """Take over what was remembered."""
        self.log_level = record.log_level
        self._assigns.update(record.assigns)
        self.subscriptions.update(record.subscriptions)

    def end(self) -> None:
        """Stop everything that runs for this client."""
        for exchange in list(self.running.values()):
            exchange.cancel()
        self.calls.give_up()
        for stream in self._streams.values():
            stream.close()


class Sessions:
    """All sessions by id; idle ones end, and come back when their client does."""

    def __init__(
        self,
        host: SessionHost,
        store: SessionStore,
        *,
        idle: float,
        limit: int,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._host = host
        self._store = store
        self._idle = idle
        self._limit = limit
        self._clock = clock
        self._sessions: dict[str, LegacySession] = {}
        self._recovering: dict[str, asyncio.Lock] = {}
        self._leaving: set[str] = set()

    def __len__(self) -> int:
        return len(self._sessions)

    def __iter__(self) -> Iterator[LegacySession]:
        return iter(tuple(self._sessions.values()))

    async def create(
        self,
        version: str,
        client_info: Implementation,
        client_capabilities: Mapping[str, Any],
        principal: Principal = ANONYMOUS,
    ) -> LegacySession:
        """Open a session; `Busy` when there are too many."""
        session = self._open(secrets.token_urlsafe(24), version, client_info, client_capabilities, principal)
        try:
            await self._host.tell(session, "init", client_info)
            await session.save()
        except BaseException:
            self._forget(session)
            raise
        return session

    async def find(self, session_id: str, principal: Principal = ANONYMOUS) -> LegacySession | None:
        """The session with that id, which is active now; one that ended comes back, somebody else's does not exist."""
        session = self._sessions.get(session_id)
        if session is None and session_id not in self._leaving:
            session = await self._recover(session_id, principal)
        if session is None or session.principal.id != principal.id:
            return None
        session.seen = self._clock()
        return session

    def get(self, session_id: str) -> LegacySession | None:
        """The live session with that id."""
        return self._sessions.get(session_id)

    def close(self, session: LegacySession, reason: str) -> None:
        """End a session; unless it expired or the hub stops, it cannot come back."""
        if not self._forget(session):
            return
        if reason in ("closed", "disconnected"):
            self._leaving.add(session.id)
            self._host.background(self._delete(session.id))
        self._host.background(self._terminate(session, reason))

    def release(self) -> None:
        """End everything that runs for anybody."""
        for session in self:
            session.end()

    def sweep(self) -> None:
        """End the sessions that have been idle for too long."""
        now = self._clock()
        for session in self:
            if session.is_busy:
                session.seen = now
            elif now - session.seen > self._idle:
                self.close(session, "expired")

    def _open(
        self,
        session_id: str,
        version: str,
        client_info: Implementation,
        client_capabilities: Mapping[str, Any],
        principal: Principal,
    ) -> LegacySession:
        if len(self._sessions) >= self._limit:
            self.sweep()
        if len(self._sessions) >= self._limit:
            raise Busy(f"{self._limit} sessions are open already (maxSessions); try again later.")
        session = LegacySession(
            session_id, version, client_info, client_capabilities, principal, self._host, self._save
        )
        session.seen = self._clock()
        self._sessions[session_id] = session
        return session

    async def _save(self, session: LegacySession) -> None:
        await self._store.save(session.record())

    def _forget(self, session: LegacySession) -> bool:
        if self._sessions.get(session.id) is not session:
            return False
        del self._sessions[session.id]
        session.end()
        return True

    async def _delete(self, session_id: str) -> None:
        try:
            await self._store.delete(session_id)
        finally:
            self._leaving.discard(session_id)

    async def _terminate(self, session: LegacySession, reason: str) -> None:
        with suppress(Exception):  # logged where it was raised; the session is over all the same
            await self._host.tell(session, "terminate", reason)

    async def _recover(self, session_id: str, principal: Principal) -> LegacySession | None:
        async with self._recovering.setdefault(session_id, asyncio.Lock()):
            try:
                return self._sessions.get(session_id) or await self._bring_back(session_id, principal)
            finally:
                self._recovering.pop(session_id, None)

    async def _bring_back(self, session_id: str, principal: Principal) -> LegacySession | None:
        record = await self._store.load(session_id)
        if record is None or record.principal != principal.id:
            return None
        info = msgspec.convert(record.client_info, Implementation)
        session = self._open(session_id, record.version, info, record.client_capabilities, principal)
        session.restore(record)
        try:
            told = await self._host.tell(session, "session_expired", session_id)
        except Exception:
            self._forget(session)
            return None
        if told is not None:
            session.client_info = msgspec.convert({**record.client_info, **told}, Implementation)
            await session.save()
        return session
