"""A session: a client of the versions before 2026-07-28, from `initialize` on, and the requests the hub sends to it."""

from __future__ import annotations

import asyncio
import itertools
import secrets
import time
from collections import deque
from collections.abc import Awaitable, Callable, Coroutine, Iterator, Mapping
from datetime import date
from math import isfinite
from typing import TYPE_CHECKING, Any, Final, Literal, NamedTuple, Protocol

import msgspec

from waypost.capabilities import questions
from waypost.capabilities.context import ListKind, Session, check_list
from waypost.capabilities.principals import ANONYMOUS, Principal
from waypost.capabilities.questions import (
    Question,
    check_supported,
    form_question,
    parse_roots,
    parse_sampling_answer,
    roots_question,
    sampling_question,
)
from waypost.errors import NoAnswer, RemoteError, WaypostError
from waypost.execution.tracing import span
from waypost.protocol.exchange import (
    Exchange,
    RunningRequests,
    apply_key_changes,
    level_number,
    log_message,
    progress_message,
    to_stored,
)
from waypost.protocol.relay import Liveness
from waypost.protocol.streams import SessionStreams, StreamHost
from waypost.stores.sessions import SessionRecord
from waypost.wire import downgrade, messages
from waypost.wire.definitions import Implementation
from waypost.wire.messages import Message, decode
from waypost.wire.versions import V2025_11_25, at_least

if TYPE_CHECKING:
    from waypost.identity.keys import KeyChange


Sender = Callable[[bytes], Awaitable[None]]

SESSION_ENDED: Final = "The session ended before the client answered."
HUB_STOPPED: Final = "The hub was stopped before the client answered."
DEFAULT_LOG_LEVEL: Final = level_number("info")
_ANSWER_TIMEOUT_S: Final = 30.0


class HubStopped(NoAnswer):
    """The hub stops, and the client has not answered."""


class ClientCalls:
    """The requests to one session's client that wait for a response, sent on its streams and matched by their id."""

    __slots__ = ("_generation", "_ids", "_liveness", "_waiting")

    def __init__(self, liveness: Liveness) -> None:
        # A session that is recovered after a restart counts from 1 again, and must not repeat an id. The answer may
        # be posted to another replica, which reads in the id where to hand it over.
        self._generation = f"{liveness.holder}-{secrets.token_hex(4)}"
        self._liveness = liveness
        self._ids = itertools.count(1)
        self._waiting: dict[str, asyncio.Future[Any]] = {}

    def __len__(self) -> int:
        return len(self._waiting)

    def next_id(self) -> str:
        """An id that no other request to this client has, or had before the session was recovered."""
        return f"hub-{self._generation}-{next(self._ids)}"

    async def ask(self, question: Question, version: str, send: Sender, request_id: str | None = None) -> Any:
        """Send a question and wait for its answer; after a timeout, the client is sent a cancellation."""
        number = request_id or self.next_id()
        # Entered before the question is sent: its answer may arrive while `send` still waits.
        future = self._waiting[number] = asyncio.get_running_loop().create_future()
        is_sent = False
        self._liveness.request_opened()  # another replica that gets the answer can see that this one still waits
        try:
            with span(f"ask {question.method}", {"rpc.system": "jsonrpc", "mcp.method.name": question.method}):
                async with asyncio.timeout(question.within):
                    await self._liveness.announce()
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
            self._liveness.request_closed()
            self._waiting.pop(number, None)

    def resolve(self, message: Message) -> bool:
        """Take a response; false for one without a request here that waits for it."""
        future = self._waiting.get(message.id) if isinstance(message.id, str) else None
        if future is None or future.done():
            # A second answer has its request here, so it is not handed over to other replicas.
            return future is not None
        try:
            if not message.is_error:
                future.set_result(decode(message.result))  # type: ignore[arg-type]  # a response has one of the two
                return True
            error = decode(message.error)  # type: ignore[arg-type]  # it has one
        except msgspec.MsgspecError as broken:
            error = {"message": f"The client's answer is malformed: {broken}."}
        future.set_exception(RemoteError.from_wire(error if isinstance(error, dict) else {}))
        return True

    def get_answer(self, request_id: str) -> asyncio.Future[Any]:
        """The answer to an open question, or the error that ends it; cancelling this future ends nothing."""
        return asyncio.shield(self._waiting[request_id])

    def fail_all(self, error: NoAnswer) -> None:
        """Stop waiting."""
        for future in self._waiting.values():
            if not future.done():
                future.set_exception(error)


def _params(question: Question, version: str) -> dict[str, Any]:
    """The parameters for a version: `mode` is known from 2025-11-25 on, where a URL to open also has an id."""
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


class SessionHost(StreamHost, Protocol):
    """What sessions need of the engine."""

    @property
    def messages(self) -> MessageLog: ...
    async def call_hook(self, session: LegacySession, name: str, *args: Any) -> Any: ...
    async def task_status(self, task_id: str, principal: Principal) -> bytes: ...


class HookLock(asyncio.Lock):
    """Lets the hooks of a session run one at a time."""

    _holder: asyncio.Task[Any] | None = None

    async def __aenter__(self) -> None:
        await super().__aenter__()
        self._holder = asyncio.current_task()

    async def __aexit__(self, *failure: object) -> None:
        self._holder = None
        self.release()

    def is_held_by_current_task(self) -> bool:
        """Whether to wait for it would be a deadlock."""
        return self._holder is not None and self._holder is asyncio.current_task()


class SavedState:
    """How much of a session is in the store."""

    __slots__ = ("lock", "log_level", "revision", "subscriptions", "unsaved_keys")

    def __init__(self) -> None:
        self.lock = asyncio.Lock()
        """Held while the session is written."""
        self.revision = 0
        """The revision of the session's row as this process knows it; 0 before it was written."""
        self.log_level = DEFAULT_LOG_LEVEL
        self.subscriptions: frozenset[str] = frozenset()
        self.unsaved_keys: set[str] = set()
        """Keys whose values were put here and not written yet."""

    def note(self, record: SessionRecord) -> None:
        """The store has this row."""
        self.revision, self.log_level = record.revision, record.log_level
        self.subscriptions = frozenset(record.subscriptions)


class LegacySession(Session):
    """A client that sent `initialize`, until it leaves or is idle for too long."""

    __slots__ = (
        "_attached",
        "_host",
        "_save",
        "calls",
        "ended",
        "hook_lock",
        "last_seen",
        "log_level",
        "principal",
        "running",
        "saved",
        "streams",
        "subscriptions",
        "tasks",
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
        streams: SessionStreams,
    ) -> None:
        super().__init__(session_id, client_info, client_capabilities)
        self.version = version
        self.principal = principal
        self.log_level = DEFAULT_LOG_LEVEL
        self.calls = ClientCalls(streams.liveness)
        self.subscriptions: set[str] = set()
        self.running = RunningRequests()
        self.tasks: set[str] = set()
        self.ended = False
        self.last_seen = time.monotonic()
        self.hook_lock = HookLock()
        self.saved = SavedState()
        self.streams = streams
        self._host = host
        self._save = save
        self._attached: Callable[[bytes], None] | None = None

    def attach(self, write: Callable[[bytes], None]) -> None:
        """Bind the session to a connection that carries all of its messages and ends with it (stdio, memory)."""
        self._attached = write

    @property
    def is_attached(self) -> bool:
        """Whether it ends with its connection, so that it never has to be recovered."""
        return self._attached is not None

    @property
    def is_identified(self) -> bool:
        """Whether its client is distinct from all others: by a key, or by a connection of its own."""
        return self._attached is not None or self.principal.id != ANONYMOUS.id

    @property
    def is_busy(self) -> bool:
        """Whether it has a connection, a running call or task, or an open stream."""
        return self._attached is not None or bool(self.running or self.tasks) or self.streams.has_reader

    def push(self, message: bytes, *, is_for_all: bool = False) -> None:
        """Send a message that belongs to no request; one that is for all sessions is sent by each replica itself."""
        if self._attached is not None:
            self._attached(message)
            return
        self._host.messages.add("out", self.principal.id, self.id, message)
        general, relay = self.streams.general, self.streams.liveness.relay
        general.append(message)
        if relay is not None and not (is_for_all or general.has_reader or general.closed):
            relay.streams.note_unread(self)

    async def save(self) -> None:
        """Write changes to the store, so that the session can be recovered."""
        await self._save(self)

    async def put(self, key: str, value: Any) -> None:
        """Keep a value with the session, also when it is recovered."""
        await super().put(*to_stored(key, value))
        self.saved.unsaved_keys.add(key)
        await self.save()

    async def notify_changed(self, kind: ListKind) -> None:
        """Notify this client alone that one of its lists changed."""
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
        """Notify the client that `uri` changed, if it subscribed to it."""
        if uri in self.subscriptions:
            moment = timestamp.isoformat() if isinstance(timestamp, date) else str(timestamp)
            when = {} if timestamp is None else {"_meta": {"timestamp": moment}}
            self.push(messages.notification("notifications/resources/updated", {"uri": uri, **when}))

    async def send_task_status(self, task_id: str) -> None:
        """Notify the client of the status of one of its tasks."""
        self.push(await self._host.task_status(task_id, self.principal))

    async def send_elicitation_complete(self, elicitation_id: str) -> None:
        """Notify the client that an elicitation by URL is complete."""
        # 2025-11-25 alone has it: older versions cannot open URLs, and 2026-07-28 has no sessions.
        if self.version == V2025_11_25:
            self.push(messages.notification("notifications/elicitation/complete", {"elicitationId": elicitation_id}))

    async def send_elicitation(self, message: str, schema: Any, timeout: float = _ANSWER_TIMEOUT_S) -> str:  # noqa: ASYNC109
        """Ask the person behind the client; the answer arrives at `on_elicitation`."""
        shown = questions.to_older_form(questions.to_form(schema), self.version)

        def deliver(result: Any, number: str) -> tuple[Any, ...]:
            accepted = questions.parse_elicitation_answer(result, shown).accepted
            given = {name: value for name, value in result.items() if accepted or name != "content"}
            return ("elicitation", given, number)

        return self._send(form_question(message, shown, None, timeout), deliver)

    async def send_sampling(
        self,
        messages: Any,
        *,
        max_tokens: int = 1024,
        timeout: float = _ANSWER_TIMEOUT_S,  # noqa: ASYNC109
        **options: Any,
    ) -> str:
        """Ask the client's model; the answer arrives at `on_sampling`."""
        question = sampling_question(messages, options, max_tokens, None, timeout)

        def deliver(result: Any, number: str) -> tuple[Any, ...]:
            parse_sampling_answer(result)
            return ("sampling", result, number)

        return self._send(question, deliver)

    async def send_roots(self, timeout: float = _ANSWER_TIMEOUT_S) -> str:  # noqa: ASYNC109
        """Ask where the client works; the answer arrives at `on_roots`."""

        def deliver(result: Any, number: str) -> tuple[Any, ...]:
            parse_roots(result)
            return ("roots", result["roots"], number)

        return self._send(roots_question(None, timeout), deliver)

    def _send(self, question: Question, deliver: Callable[[Any, str], tuple[Any, ...]]) -> str:
        check_supported(self.client_capabilities, question.needs)
        number = self.calls.next_id()

        async def send(message: bytes) -> None:
            self.push(message)

        async def ask() -> None:
            try:
                result = await self.calls.ask(question, self.version, send, number)
                await self._host.call_hook(self, *deliver(result, number))
            except WaypostError as error:
                if not self.streams.general.closed:
                    await self.send_log("warning", error.message)

        self._host.background(ask())
        return number

    def record(self) -> SessionRecord:
        """The session's row in the store."""
        return SessionRecord(
            id=self.id,
            version=self.version,
            principal=self.principal.id,
            client_info=msgspec.to_builtins(self.client_info),
            client_capabilities=dict(self.client_capabilities),
            log_level=self.log_level,
            assigns=dict(self._assigns),
            subscriptions=sorted(self.subscriptions),
            revision=self.saved.revision,
        )

    def restore(self, record: SessionRecord) -> None:
        """Take over what the store has, but for what was changed here and is not written yet."""
        saved = self.saved
        if self.log_level == saved.log_level:
            self.log_level = record.log_level
        # A three-way merge: what differs from the row as last seen was changed here, all else is taken from the store.
        added, removed = self.subscriptions - saved.subscriptions, saved.subscriptions - self.subscriptions
        self.subscriptions = (set(record.subscriptions) | added) - removed
        self._assigns.update({key: value for key, value in record.assigns.items() if key not in saved.unsaved_keys})
        saved.note(record)

    def apply_key_changes(self, changes: Mapping[int, KeyChange]) -> None:
        """End the requests and streams of refused keys and tokens; with another one, a client reopens the streams."""
        apply_key_changes(self.running.all(), changes)
        for stream in self.streams:
            stream.release_reader_of(changes)

    def principals_in_use(self) -> list[Principal]:
        """The principals of its requests in flight, and of the clients that read its streams with GET."""
        readers = [stream.reader_principal for stream in self.streams]
        return [*(exchange.principal for exchange in self.running.all()), *filter(None, readers)]

    def release(self, error: NoAnswer) -> None:
        """End the general stream, and questions with an error; requests in flight are still answered."""
        self.calls.fail_all(error)
        self.streams.general.close()

    def end(self, *, is_revoked: bool = False) -> None:
        """Cancel the requests of this client, which are answered with an error: that of a revoked key, if it was."""
        self.ended = True
        self.release(NoAnswer(SESSION_ENDED))
        self.streams.forget()
        stopped = self.running.take_all()
        for exchange in stopped:
            if is_revoked:
                exchange.revoke()
            else:
                exchange.cancel()
        if not stopped:  # else the streams end with the answers
            self.streams.close()


class SessionOutlet:
    """The outlet of messages that belong to no request: the session's general stream."""

    def __init__(self, session: LegacySession) -> None:
        self._session = session

    async def send(self, message: bytes) -> None:
        """Send a message on the stream."""
        self._session.push(message)

    async def close_early(self) -> None:
        """Nothing to close: the stream stays."""


def session_of(exchange: Exchange) -> LegacySession:
    """The session of a request of the session era."""
    session = exchange.session
    assert isinstance(session, LegacySession)
    return session


MAX_MESSAGE_BYTES: Final = 16_384
"""How much of a message is kept."""

Direction = Literal["in", "out"]
Entry = tuple[int, Direction, str, str | bytes | None, bytes, int]
"""A message in the ring: the fields of `LoggedMessage`, with its session as the transport has it."""


class LoggedMessage(NamedTuple):
    """A message as it was on the wire; `message` is its beginning where it has more `size` than that."""

    number: int
    """When it passed, in nanoseconds, which no other message has."""
    direction: Direction
    principal: str
    session: str
    """The id of its session; empty where it has none."""
    message: bytes
    size: int


class MessageLog:
    """The last messages between clients and the hub, in a ring of fixed length; 0 keeps none.

    A message costs one tuple and one `append` when it passes; everything else, such as decoding and masking it, is done
    when a person asks.
    """

    def __init__(self, limit: int) -> None:
        self.limit = limit
        self._kept: deque[Entry] = deque(maxlen=limit)
        self.keep: Final = self._kept.append
        """Keep an entry without a call in Python, for what runs with every request. The message in it must be within
        `MAX_MESSAGE_BYTES`: the ring holds on to its bytes."""

    def add(self, direction: Direction, principal: str, session: str | bytes | None, message: bytes) -> None:
        """Keep a message, or its beginning if it is long."""
        size = len(message)
        self.keep((time.time_ns(), direction, principal, session, message[:MAX_MESSAGE_BYTES], size))

    def latest(self) -> Iterator[LoggedMessage]:
        """The messages, the last one first."""
        # A copy: messages pass while this generator is suspended, and a deque must not change during its iteration.
        for number, direction, principal, session, message, size in reversed(self._kept.copy()):
            if isinstance(session, bytes):
                session = session.decode("latin-1")
            yield LoggedMessage(number, direction, principal, session or "", message, size)
