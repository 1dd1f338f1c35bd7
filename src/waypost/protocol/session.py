"""One client that said `initialize`: what the hub knows about it, and what it can be sent."""

from __future__ import annotations

import asyncio
import itertools
import secrets
import time
from collections.abc import Awaitable, Callable, Coroutine, Mapping
from datetime import date
from math import isfinite
from typing import TYPE_CHECKING, Any, Final, Protocol

import msgspec
from msgspec import UNSET

from waypost.capabilities import questions
from waypost.capabilities.principals import ANONYMOUS, Principal
from waypost.capabilities.questions import (
    Question,
    form_question,
    require,
    roots_answer,
    roots_question,
    sampling_answer,
    sampling_question,
)
from waypost.capabilities.session import ListKind, Session, check_list
from waypost.errors import NoAnswer, RemoteError, WaypostError
from waypost.execution.tracing import span
from waypost.protocol.exchange import Exchange, apply_key_changes, level_number, log_message, progress_message
from waypost.protocol.streams import EventStream, Recorder, is_own, new_life, replay, stream_name
from waypost.stores.records import from_json, to_json
from waypost.stores.sessions import SessionRecord
from waypost.stores.store import Store
from waypost.wire import downgrade, messages
from waypost.wire.definitions import Implementation
from waypost.wire.messages import Message, RequestId, decode
from waypost.wire.versions import V2025_11_25, at_least

if TYPE_CHECKING:
    from waypost.policy.keys import KeyChange


Sender = Callable[[bytes], Awaitable[None]]

GONE: Final = "The session ended before the client answered."


class ClientCalls:
    """The requests one session waits for; no other session's answers ever get here."""

    __slots__ = ("_ids", "_life", "_waiting")

    def __init__(self) -> None:
        self._life = secrets.token_hex(4)
        self._ids = itertools.count(1)
        self._waiting: dict[str, asyncio.Future[Any]] = {}

    def __len__(self) -> int:
        return len(self._waiting)

    def next_id(self) -> str:
        """An id that no other request of this session has, nor had one before the session went and came back."""
        return f"hub-{self._life}-{next(self._ids)}"

    async def ask(self, question: Question, version: str, send: Sender, request_id: str | None = None) -> Any:
        """Send a question and wait for its answer; too late or given up, the client is told not to bother."""
        number = request_id or self.next_id()
        future = self._waiting[number] = asyncio.get_running_loop().create_future()
        is_sent = False
        try:
            with span(f"ask {question.method}", {"rpc.system": "mcp", "rpc.method": question.method}):
                async with asyncio.timeout(question.within):
                    await send(messages.request(number, question.method, _params(question, version)))
                    is_sent = True
                    return await future
        except TimeoutError:
            if is_sent:
                await send(_cancelled(number, "timeout"))
            raise NoAnswer(f"The client did not answer {question.method} within {question.within:g} s.") from None
        except asyncio.CancelledError:
            if is_sent:
                await send(_cancelled(number, "the call ended"))
            raise
        finally:
            self._waiting.pop(number, None)

    def settle(self, message: Message) -> None:
        """Take an answer; one that nobody waits for is dropped."""
        future = self._waiting.get(message.id) if isinstance(message.id, str) else None
        if future is None or future.done():
            return
        try:
            if message.error is UNSET:
                future.set_result(decode(message.result))  # type: ignore[arg-type]  # an answer has either
                return
            error = decode(message.error)
        except msgspec.MsgspecError as broken:
            error = {"message": f"The client's answer is malformed: {broken}."}
        told = error if isinstance(error, dict) else {}
        code = told.get("code")
        future.set_exception(
            RemoteError(str(told.get("message", "")), code if isinstance(code, int) else 0, told.get("data"))
        )

    def give_up(self) -> None:
        """Stop waiting for everything: nobody is there any more who could answer."""
        for future in self._waiting.values():
            if not future.done():
                future.set_exception(NoAnswer(GONE))


def _params(question: Question, version: str) -> dict[str, Any]:
    """The parameters as the version knows them: older ones have no modes, and a page to open has an id."""
    if question.method == "sampling/createMessage":
        return {**question.params, "messages": downgrade.sampling(question.params.get("messages") or (), version)}
    if question.method != "elicitation/create":
        return question.params
    if not at_least(version, V2025_11_25):
        return {name: value for name, value in question.params.items() if name != "mode"}
    if question.params.get("mode") == "url":
        return {"elicitationId": secrets.token_urlsafe(16), **question.params}
    return question.params


def _cancelled(request_id: str, reason: str) -> bytes:
    return messages.notification("notifications/cancelled", {"requestId": request_id, "reason": reason})


_KEPT_STREAMS: Final = 64
_DEFAULT_LEVEL: Final = level_number("info")
_SEND_WITHIN: Final = 30.0


class SessionHost(Protocol):
    """What sessions need of the engine."""

    @property
    def store(self) -> Store: ...
    @property
    def recorder(self) -> Recorder: ...
    def offers(self, capability: str) -> bool: ...
    def background(self, work: Coroutine[Any, Any, Any]) -> asyncio.Task[Any]: ...
    async def call_hook(self, session: LegacySession, name: str, *args: Any) -> Any: ...
    async def task_status(self, task_id: str, principal: Principal) -> bytes: ...


class Turn(asyncio.Lock):
    """What hooks of a session wait for, so that they run one at a time."""

    _holder: asyncio.Task[Any] | None = None

    async def __aenter__(self) -> None:
        await super().__aenter__()
        self._holder = asyncio.current_task()

    async def __aexit__(self, *failure: object) -> None:
        self._holder = None
        self.release()

    def is_held_here(self) -> bool:
        """Whether waiting for it would be waiting for oneself."""
        return self._holder is not None and self._holder is asyncio.current_task()


class LegacySession(Session):
    """A client that said `initialize`, until it leaves or is idle for too long."""

    __slots__ = (
        "_attached",
        "_host",
        "_life",
        "_opened",
        "_record",
        "_save",
        "_streams",
        "calls",
        "ended",
        "general",
        "log_level",
        "principal",
        "revision",
        "running",
        "saving",
        "seen",
        "subscriptions",
        "tasks",
        "turn",
        "unsaved",
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
        self.tasks: set[str] = set()
        self.ended = False
        self.seen = time.monotonic()
        self.turn = Turn()
        self._host = host
        self._save = save
        self._attached: Callable[[bytes], None] | None = None
        self._life = new_life(session_id)
        self._opened = 0
        self._record = host.recorder.for_session(session_id)
        self.general = EventStream(f"g{self._life}", ends_when_full=False, record=self._record)
        self._streams: dict[str, EventStream] = {self.general.name: self.general}
        self.revision = 0
        self.unsaved: set[str] = set()
        self.saving = asyncio.Lock()

    def attach(self, write: Callable[[bytes], None]) -> None:
        """Bind the session to a connection that carries everything and lasts as long as it does."""
        self._attached = write

    @property
    def is_attached(self) -> bool:
        """Whether it lives and ends with a connection, so that nobody can come back to it."""
        return self._attached is not None

    @property
    def is_identified(self) -> bool:
        """Whether its client can be told from all others: by what it presents, or by a connection of its own."""
        return self._attached is not None or self.principal.id != ANONYMOUS.id

    @property
    def is_busy(self) -> bool:
        """Whether it is connected, a call or a task is running or a stream is open."""
        return (
            self._attached is not None
            or bool(self.running)
            or bool(self.tasks)
            or any(stream.has_reader for stream in self._streams.values())
        )

    def open_stream(self, request_id: RequestId | None = None) -> EventStream:
        """A stream for one request; the oldest finished ones are forgotten."""
        self._opened += 1
        stream = EventStream(stream_name(self._life, self._opened, request_id), record=self._record)
        finished = [name for name, other in self._streams.items() if other.closed and other is not self.general]
        for name in finished[: max(0, len(self._streams) - _KEPT_STREAMS)]:
            del self._streams[name]
        self._streams[stream.name] = stream
        return stream

    def stream(self, name: str) -> EventStream | None:
        """The stream called `name`, if this process still remembers it."""
        return self._streams.get(name)

    def had_general(self, name: str) -> bool:
        """Whether its general stream was called that, now or before it came back."""
        return name.startswith("g") and is_own(self.id, name)

    async def replay(self, name: str, after: int) -> EventStream | None:
        """What is left of a stream that this process does not have, behind a number; none if nothing is known of it."""
        return await replay(self._host.store, self.id, self._life, name, after)

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
        """Keep a value with the session, over its end and recovery too: as JSON, from the first time it is read."""
        if not self.is_attached:
            ((key, value),) = from_json(to_json({key: value})).items()
        await super().put(key, value)
        self.unsaved.add(key)
        await self.save()

    async def notify_changed(self, kind: ListKind) -> None:
        """Tell this client alone that one of its lists changed."""
        check_list(kind)
        self.push(messages.notification(f"notifications/{kind}/list_changed"))

    async def send_log(self, level: str, message: str, data: Mapping[str, Any] | None = None) -> None:
        """Send a log message, if the client wants that level."""
        if level_number(level) >= self.log_level:
            self.push(log_message(level, message, data))

    async def send_progress(
        self, token: int | str, value: float, total: float | None = None, message: str | None = None
    ) -> None:
        """Report the progress of something the client gave a token for."""
        if isfinite(value):
            self.push(progress_message(token, value, total, message, self.version))

    async def send_resource_updated(self, uri: str, timestamp: Any = None) -> None:
        """Tell the client that `uri` changed, if it subscribed to it."""
        if uri in self.subscriptions:
            when = {} if timestamp is None else {"_meta": {"timestamp": _moment(timestamp)}}
            self.push(messages.notification("notifications/resources/updated", {"uri": uri, **when}))

    async def send_task_status(self, task_id: str) -> None:
        """Tell the client how one of its tasks stands."""
        self.push(await self._host.task_status(task_id, self.principal))

    async def send_elicitation_complete(self, elicitation_id: str) -> None:
        """Tell the client that what a person was to do on a page is done."""
        if self.version == V2025_11_25:
            self.push(messages.notification("notifications/elicitation/complete", {"elicitationId": elicitation_id}))

    async def send_elicitation(self, message: str, schema: Any, timeout: float = _SEND_WITHIN) -> str:  # noqa: ASYNC109
        """Ask the person behind the client; the answer arrives at `on_elicitation`."""
        shown = questions.for_version(questions.form(schema), self.version)

        def deliver(result: Any, number: str) -> tuple[Any, ...]:
            told = questions.answer(result, shown)
            kept = {name: value for name, value in result.items() if told.accepted or name != "content"}
            return ("elicitation", kept, number)

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

        def deliver(result: Any, number: str) -> tuple[Any, ...]:
            sampling_answer(result)
            return ("sampling", result, number)

        return self._send(question, deliver)

    async def send_roots(self, timeout: float = _SEND_WITHIN) -> str:  # noqa: ASYNC109
        """Ask where the client works; the answer arrives at `on_roots`."""

        def deliver(result: Any, number: str) -> tuple[Any, ...]:
            roots_answer(result)
            return ("roots", result["roots"], number)

        return self._send(roots_question(None, timeout), deliver)

    def _send(self, question: Question, deliver: Callable[[Any, str], tuple[Any, ...]]) -> str:
        require(self.client_capabilities, question.needs)
        number = self.calls.next_id()

        async def send(message: bytes) -> None:
            self.push(message)

        async def ask() -> None:
            try:
                result = await self.calls.ask(question, self.version, send, number)
                await self._host.call_hook(self, *deliver(result, number))
            except WaypostError as error:
                if not self.general.closed:
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
            revision=self.revision,
        )

    def restore(self, record: SessionRecord) -> None:
        """Take over what was remembered, but for what was put here and is not saved yet."""
        self.revision = record.revision
        self.log_level = record.log_level
        self._assigns.update({key: value for key, value in record.assigns.items() if key not in self.unsaved})
        self.subscriptions.update(record.subscriptions)

    def apply_key_changes(self, changes: Mapping[int, KeyChange]) -> None:
        """End what runs for keys that are refused by now; who has another one comes back for the session's stream."""
        apply_key_changes(list(self.running.values()), changes)
        if any(change.ended and change.was.id == self.principal.id for change in changes.values()):
            self.general.release()

    def release(self) -> None:
        """Let the client go where it waits for news; what runs is still answered."""
        self.calls.give_up()
        self.general.close()

    def end(self) -> None:
        """Stop everything that runs for this client; a request that is stopped is answered with that."""
        self.ended = True
        self.release()
        stopped = list(self.running.values())
        self.running.clear()
        for exchange in stopped:
            exchange.cancel()
        if not stopped:  # else streams end with the answers
            for stream in self._streams.values():
                stream.close()


def _moment(timestamp: Any) -> str:
    """A point in time as it is told: ISO 8601, where it is no text already."""
    return timestamp.isoformat() if isinstance(timestamp, date) else str(timestamp)


class SessionOutlet:
    """Where a session's messages go that belong to no request: its general stream."""

    def __init__(self, session: LegacySession) -> None:
        self._session = session

    async def send(self, message: bytes) -> None:
        """Put a message on the stream."""
        self._session.push(message)

    async def close_early(self) -> None:
        """Nothing to close: the stream stays."""


def session_of(exchange: Exchange) -> LegacySession:
    """The session of a request of the session era."""
    session = exchange.session
    assert isinstance(session, LegacySession)
    return session
