"""JSON-RPC over any transport: requests, responses and notifications, and what a server requests during calls.

A request of a server is matched to the call that it belongs to, and answered by the client behind that call.
"""

from __future__ import annotations

import asyncio
import itertools
import math
import re
from collections.abc import Awaitable, Callable, Iterable, Mapping
from contextlib import suppress
from contextvars import ContextVar
from dataclasses import dataclass
from functools import partial
from typing import Any, Final, Protocol, Self, TypeVar, cast

from msgspec import UNSET, MsgspecError, Raw

from waypost.capabilities.capability import HeaderParameter
from waypost.errors import InvalidParams, InvalidRequest, MethodNotFound, ProtocolError, RemoteError
from waypost.loops import maybe_await, running_loop, start_task
from waypost.upstreams.transport import NO_HEADERS, Cancellable, StartRequest, Transport, to_headers
from waypost.version import __version__
from waypost.wire import messages
from waypost.wire.messages import Message, RequestId, decode
from waypost.wire.params import CLIENT_CAPABILITIES, CLIENT_INFO, LOG_LEVEL, PROTOCOL_VERSION
from waypost.wire.versions import V2026_07_28, is_modern

SERVER_REQUESTS: Final[dict[str, dict[str, Any]]] = {
    "elicitation/create": {"elicitation": {"form": {}, "url": {}}},
    "sampling/createMessage": {"sampling": {"tools": {}}},
    "roots/list": {"roots": {}},
}
"""What servers may request, and the capability that a client declares for it."""
RELATED_TASK: Final = "io.modelcontextprotocol/related-task"
_TASK_OWNER_TIMEOUT_S: Final = 5.0
_AMBIGUOUS: Final = -32000

Answerer = Callable[[dict[str, Any]], Any]
"""Answers a request of the server: its parameters in, the result out, awaitable or not."""


def declare_capabilities(methods: Iterable[str]) -> dict[str, Any]:
    """The capabilities of a client that answers these methods."""
    return {name: options for method in methods for name, options in SERVER_REQUESTS.get(method, {}).items()}


class Downstream(Protocol):
    """The client behind a call, which the server may ask and notify meanwhile."""

    @property
    def owner(self) -> object:
        """Equal for calls whose messages the same client may see."""

    def can_answer(self, method: str, params: Mapping[str, Any]) -> bool:
        """Whether the client declared the capability for it."""

    async def ask(self, method: str, params: dict[str, Any]) -> Any:
        """The client's answer; a refusal is a `RemoteError`."""

    def log(self, params: Mapping[str, Any]) -> None:
        """Pass on a log message: the parameters of the notification."""


@dataclass(eq=False, slots=True)
class Call:
    """One call in flight; one that became a task also has the task's id."""

    downstream: Downstream | None
    task_id: str | None = None


CURRENT_CALL: Final[ContextVar[Call | None]] = ContextVar("call", default=None)
"""The call that is being sent, or whose response stream a message arrived on."""


def run_as_call(call: Call | None, receive: Callable[[bytes], None]) -> Callable[[bytes], None]:
    """`receive`, with `call` as the current one: what arrives on the response stream of a call belongs to it."""

    def received(data: bytes) -> None:
        before = CURRENT_CALL.set(call)
        try:
            receive(data)
        finally:
            CURRENT_CALL.reset(before)

    return received


class ServerRequests:
    """Answers the requests of one server, and passes on its log messages.

    Callers share one session, and a request of the server does not say which call it is about. It is found
    by the task that the request names, by the response stream on which it arrived, or because all calls in flight are
    of one client. Otherwise the request is refused: one client must never be asked what was meant for another.
    """

    def __init__(self, answers: Mapping[str, Answerer] | None) -> None:
        self.answers = dict(answers or {})
        self._open: dict[RequestId, asyncio.Task[Any] | None] = {}
        self._calls: dict[Call, None] = {}
        self._call_started = asyncio.Event()

    def start_call(self, downstream: Downstream | None, task_id: str | None = None) -> Call:
        """A call is sent, or goes on as a task of the server."""
        call = Call(downstream, task_id)
        self._calls[call] = None
        self._call_started.set()
        CURRENT_CALL.set(call)
        return call

    def end_call(self, call: Call) -> None:
        """A call is over."""
        del self._calls[call]
        CURRENT_CALL.set(None)

    async def respond(self, message: Message) -> bytes:
        """The response to a request of the server."""
        request_id, method = cast("RequestId", message.id), cast("str", message.method)
        self._open[request_id] = asyncio.current_task()
        try:
            params = _read_params(message)
            if params is None:
                raise RemoteError(f"The parameters of {method} are not an object.", InvalidParams.code)
            answer = await self.answer(method, params)
            return messages.result(request_id, messages.encode(answer))
        except RemoteError as error:
            return messages.error(request_id, error.code, error.message, error.data)
        finally:
            self._open.pop(request_id, None)  # a server may have used the id twice
            CURRENT_CALL.set(None)  # a connection that is opened for the response may carry other calls later

    async def answer(self, method: str, params: dict[str, Any]) -> Any:
        """The result of one request."""
        if method == "ping":
            return {}
        answerer = self.answers.get(method)
        if answerer is not None:
            return await maybe_await(answerer(params))
        if method not in SERVER_REQUESTS:
            raise RemoteError(f"Method not found: {method}", MethodNotFound.code)
        await self.wait_for_task_owner(params)
        return await self.find_recipient(method, params).ask(method, params)

    def on_notification(self, note: Reply) -> None:
        """Pass on a log message, and cancel a request that the server took back."""
        if note["method"] == "notifications/message":
            downstream = self.find_log_recipient(note["params"])
            if downstream is not None:
                downstream.log(note["params"])
        elif note["method"] == "notifications/cancelled":
            request_id = note["params"].get("requestId")
            answering = self._open.get(request_id) if isinstance(request_id, (int, str)) else None
            if answering is not None:
                answering.cancel()

    def find_recipient(self, method: str, params: Mapping[str, Any]) -> Downstream:
        """The client to ask; a `RemoteError` if there is none, or more than one."""
        candidates = self._find_candidates(params)
        known = [one for one in candidates if one is not None]
        if not known:
            raise RemoteError(f"Method not found: {method}", MethodNotFound.code)
        if len(known) < len(candidates) or any(one.owner != known[0].owner for one in known):
            raise RemoteError("Calls of different clients are in flight, so this could be for any of them.", _AMBIGUOUS)
        # All candidates are calls of one client, so that any of them may be asked: the newest that declares the
        # capability.
        return next((one for one in reversed(known) if one.can_answer(method, params)), known[-1])

    def find_log_recipient(self, params: Mapping[str, Any]) -> Downstream | None:
        """The client that a log message is for, if that is clear."""
        candidates = self._find_candidates(params)
        newest = candidates[-1] if candidates else None
        if newest is None or any(one is None or one.owner != newest.owner for one in candidates):
            return None
        return newest

    async def wait_for_task_owner(self, params: Mapping[str, Any]) -> None:
        """Wait for the task that a request names: it may arrive before the response that says whose task it is."""
        task_id = _related_task(params)
        if task_id is None:
            return
        with suppress(TimeoutError):
            async with asyncio.timeout(_TASK_OWNER_TIMEOUT_S):
                # Only a call without a task id can still become the task.
                while self._find_task(task_id) is None and any(call.task_id is None for call in self._calls):
                    self._call_started.clear()
                    await self._call_started.wait()

    def _find_candidates(self, params: Mapping[str, Any]) -> list[Downstream | None]:
        """The clients of the calls that a message may belong to."""
        task_id = _related_task(params)
        call = None if task_id is None else self._find_task(task_id)
        if call is None and (current := CURRENT_CALL.get()) is not None and current in self._calls:
            call = current
        # A message of an unknown task belongs to no call in flight, so it is not matched by elimination.
        if call is not None or task_id is not None:
            return [] if call is None else [call.downstream]
        return [call.downstream for call in self._calls]

    def _find_task(self, task_id: str) -> Call | None:
        return next((call for call in self._calls if call.task_id == task_id), None)


def _related_task(params: Mapping[str, Any]) -> str | None:
    """The task that a message names."""
    meta = params.get("_meta")
    related = meta.get(RELATED_TASK) if isinstance(meta, dict) else None
    task_id = related.get("taskId") if isinstance(related, dict) else None
    return task_id if isinstance(task_id, str) else None


def _read_params(message: Message) -> dict[str, Any] | None:
    """The parameters of a message; `None` if they are not an object."""
    # Some servers write `null` where there are none.
    if message.params is UNSET or bytes(message.params) == b"null":
        return {}
    try:
        params = decode(message.params)
    except MsgspecError:  # such as for the number 1e999, which is valid JSON, so that the message was parsed
        return None
    return params if isinstance(params, dict) else None


_NEXT_WORD: Final = re.compile(r"_([a-z0-9])")
_SHORT: Final = {"structured": "structuredContent", "meta": "_meta"}


class Reply(dict[str, Any]):
    """`reply["isError"]`, `reply.isError` and `reply.is_error` are one; a missing member is `None` as an attribute."""

    @classmethod
    def of(cls, value: dict[str, Any]) -> Self:
        """A reply whose nested objects are replies too."""
        return cls((key, _nested(cls, member)) for key, member in value.items())

    def __getattr__(self, name: str) -> Any:
        if name.startswith("__"):
            raise AttributeError(name)
        for spelling in (name, _SHORT.get(name, name), _NEXT_WORD.sub(lambda found: found[1].upper(), name)):
            if spelling in self:
                return self[spelling]
        return None

    @property
    def is_error(self) -> bool:
        """Whether a tool's answer says that it failed."""
        return bool(self.get("isError"))

    @property
    def text(self) -> str:
        """The text of this block, or of all text blocks in the content, contents or messages."""
        if isinstance(self.get("text"), str):
            return str(self["text"])
        parts = self.get("content") or self.get("contents") or self.get("messages") or []
        blocks = parts if isinstance(parts, list) else [parts]
        return "\n".join(block.text for block in blocks if isinstance(block, Reply) and block.text)


def _nested(kind: type[Reply], value: Any) -> Any:
    if isinstance(value, dict):
        return kind.of(value)
    return [_nested(kind, item) for item in value] if isinstance(value, list) else value


NAMED: Final = {"tools/call": "name", "prompts/get": "name", "resources/read": "uri"}
"""The methods that are about one thing, and the parameter that names it."""
_ABOUT: Final = {**NAMED, "tasks/get": "taskId", "tasks/update": "taskId", "tasks/cancel": "taskId"}
_TIMEOUT_S: Final = 30.0
_GOODBYE_TIMEOUT_S: Final = 1.0
_MAX_ANSWERING: Final = 100

Listener = Callable[[Reply], None]
Convert = Callable[[dict[str, Any]], Any]
_Result = TypeVar("_Result")


class Unanswered(RemoteError):
    """A round trip has ended, and the response to the request was not part of it."""

    def __init__(self) -> None:
        super().__init__("The server ended its response without an answer.", -32000)


class Profile:
    """What a client says about itself."""

    def __init__(
        self, name: str, capabilities: dict[str, Any], session_capabilities: Mapping[str, Any], log_level: str | None
    ) -> None:
        self.info = {"name": name, "version": __version__}
        self.capabilities = capabilities
        self.session_capabilities = session_capabilities
        """Those that it has only in a session."""
        self.log_level = log_level


class ToolHints:
    """How a server wants its tools to be called, as its definitions and its refusals say."""

    def __init__(self) -> None:
        self.headers: dict[str, tuple[HeaderParameter, ...]] = {}
        """The arguments to repeat as headers, by tool."""
        self.as_task: set[str] = set()
        """The tools that only run as a task."""


class _Background:
    """Work of a client that no caller waits for."""

    def __init__(self) -> None:
        self.tasks: set[asyncio.Task[None]] = set()
        self.goodbyes: set[asyncio.Task[None]] = set()
        """Messages that the server should still get before the transport is closed."""
        self.before_close: set[Callable[[], None]] = set()
        """Starts such messages."""

    def start(self, work: Callable[[], Awaitable[Any]]) -> asyncio.Task[None]:
        """Do something; its failure is ignored."""

        async def run() -> None:
            with suppress(RemoteError, OSError):
                await work()

        return start_task(run(), self.tasks)


class JsonRpcClient:
    """Sends requests to one server and matches responses to them."""

    def __init__(
        self,
        transport: Transport,
        *,
        version: str = V2026_07_28,
        capabilities: dict[str, Any] | None = None,
        name: str = "waypost",
        log_level: str | None = None,
        patience: float = _TIMEOUT_S,
        answers: Mapping[str, Answerer] | None = None,
        session_capabilities: Mapping[str, Any] | None = None,
    ) -> None:
        self.version = version
        self.server_requests = ServerRequests(answers)
        own = {**declare_capabilities(self.server_requests.answers), **(capabilities or {})}
        self.profile = Profile(name, own, session_capabilities or {}, log_level)
        self.tool_hints = ToolHints()
        self.server_info: Reply = Reply()
        self.server_capabilities: Reply = Reply()
        self.has_round_trips = transport.round_trips
        """Whether each request travels alone, so that one may fail and the next one still reach the server."""
        self._transport = transport
        # A transport that has this sends without a task of its own for each request.
        self._start_request: StartRequest | None = getattr(transport, "start_request", None)
        self._timeout = patience
        self._ids = itertools.count(1)
        self._pending: dict[RequestId, tuple[asyncio.Future[Any], Convert | None]] = {}
        """Requests without a response yet."""
        self._sending: dict[RequestId, Cancellable] = {}
        """Requests that are being sent, and round trips that go on, perhaps after the response."""
        self._listeners: list[Listener] = [self.server_requests.on_notification]
        self._background = _Background()

    async def close(self) -> None:
        """Stop waiting for anything and close the transport."""
        await self.say_goodbye()
        running = [*self._sending.values(), *self._background.tasks]
        self._sending.clear()
        for one in running:
            one.cancel()
        await asyncio.gather(*(one for one in running if isinstance(one, asyncio.Task)), return_exceptions=True)
        for future, _ in self._pending.values():
            future.cancel()
        await self._transport.close()

    async def say_goodbye(self) -> None:
        """Let the server get the messages that it should still have, for a moment."""
        for start in tuple(self._background.before_close):
            start()
        if self._background.goodbyes:
            await asyncio.wait(self._background.goodbyes, timeout=_GOODBYE_TIMEOUT_S)

    def before_close(self, start: Callable[[], None]) -> Callable[[], None]:
        """Call `start` when the client is closed, unless the function returned is called first."""
        self._background.before_close.add(start)
        return lambda: self._background.before_close.discard(start)

    def send_goodbye(self, work: Callable[[], Awaitable[Any]]) -> None:
        """Do something that no caller waits for, but that closing the client does for a moment."""
        task = self._background.start(work)
        self._background.goodbyes.add(task)
        task.add_done_callback(self._background.goodbyes.discard)

    def fail_requests(self, error: Exception) -> None:
        """Let everything that waits for the server fail, because no response can arrive any more."""
        for request_id in self._pending:
            self._fail(request_id, error)

    def listen_to(self, listener: Listener) -> Callable[[], None]:
        """Hand every notification to `listener`, until the function returned is called.

        Its `params` are an object. What is in them is the server's: a listener must not raise, whatever it is.
        """
        self._listeners.append(listener)
        return lambda: self._listeners.remove(listener)

    def send_request(
        self,
        request_id: RequestId,
        method: str,
        params: dict[str, Any] | None,
        meta: Mapping[str, Any] | None = None,
        convert: Convert | None = Reply.of,
    ) -> asyncio.Future[Any]:
        """Send a request without waiting; the future is its result, as `convert` makes it."""
        future: asyncio.Future[Any] = running_loop().create_future()
        self._pending[request_id] = future, convert
        body = dict(params or {})
        if is_modern(self.version):  # in the stateless era each request introduces its client
            profile = self.profile
            own: dict[str, Any] = {
                PROTOCOL_VERSION: self.version,
                CLIENT_CAPABILITIES: profile.capabilities,
                CLIENT_INFO: profile.info,
            }
            if profile.log_level is not None:
                own[LOG_LEVEL] = profile.log_level
            body["_meta"] = {**own, **meta} if meta else own
        elif meta:
            body["_meta"] = meta
        about = body.get(_ABOUT.get(method, ""))
        data = messages.request(request_id, method, body or None)
        parameters = self.tool_hints.headers.get(about or "") if method == "tools/call" else None
        extra = to_headers(parameters, body.get("arguments")) if parameters else NO_HEADERS
        if self._start_request is None:
            task = running_loop().create_task(self._send(data, method, about, request_id, extra))
            self._sending[request_id] = task
            task.add_done_callback(lambda _: self._sending.pop(request_id, None))
            return future
        try:
            self._sending[request_id] = self._start_request(
                data, self.version, method, about, extra, partial(self._end_round_trip, request_id)
            )
        # Callers wait for the future only, so a request that cannot even be started fails there like any other.
        except Exception as error:
            future.set_exception(error)
        return future

    async def round_trip(
        self,
        method: str,
        params: dict[str, Any],
        meta: Mapping[str, Any] | None = None,
        convert: Convert | None = None,
    ) -> Any:
        """The result of one request, as it arrived or as `convert` makes it; an error response is a `RemoteError`."""
        request_id = next(self._ids)
        future = self.send_request(request_id, method, params, meta, convert)
        try:
            # Not even `asyncio.timeout`, which each round trip would pay for: such a caller has a deadline of its own.
            if self._timeout == math.inf:
                return await future
            async with asyncio.timeout(self._timeout):
                return await future
        except TimeoutError:
            await self.cancel(request_id, "timeout")
            raise RemoteError(f"The server did not answer within {self._timeout:g} s.", -32001) from None
        except asyncio.CancelledError:
            if request_id in self._pending:
                # A cancelled caller must not wait for a server that hangs.
                self._background.start(lambda: self.cancel(request_id))
            raise
        finally:
            self._pending.pop(request_id, None)

    async def notify(self, method: str, params: dict[str, Any] | None = None) -> None:
        """Send a notification."""
        await self._transport.send(messages.notification(method, params), self.version, None, None)

    async def cancel(self, request_id: RequestId, reason: str | None = None) -> None:
        """Tell the server that a response is no longer needed."""
        pending = self._pending.pop(request_id, None)
        if pending is not None:
            pending[0].cancel()
        sending = self._sending.pop(request_id, None)
        if sending is not None:
            sending.cancel()
        # In the stateless era, closing the stream of a request cancels it.
        if not (self.has_round_trips and is_modern(self.version)):
            await self.notify("notifications/cancelled", {"requestId": request_id, "reason": reason or "cancelled"})

    async def _send(
        self, data: bytes, method: str, about: str | None, request_id: RequestId, extra: Mapping[str, str]
    ) -> None:
        try:
            await self._transport.send(data, self.version, method, about, extra)
        except Exception as error:
            self._fail(request_id, error)
        else:
            if self.has_round_trips:
                self._end_round_trip(request_id, None)

    def _end_round_trip(self, request_id: RequestId, problem: Exception | None) -> None:
        """Everything that answers a request has arrived; the response may not be part of it."""
        self._sending.pop(request_id, None)
        if request_id in self._pending:
            self._fail(request_id, problem or Unanswered())

    def _fail(self, request_id: RequestId, problem: Exception) -> None:
        pending = self._pending.get(request_id)
        if pending is not None and not pending[0].done():
            pending[0].set_exception(problem)

    def receive(self, data: bytes) -> None:
        """Handle a message of the server; one that is malformed is ignored, and an error if it answers a request."""
        try:
            message = messages.parse(data)
        except ProtocolError as error:
            self._receive_invalid(data, error)
            return
        if message.method is UNSET:
            self._resolve(message)
        elif message.id is UNSET:
            params = _read_params(message)
            # A listener would raise at them, which the transport cannot survive: it would lose what arrives next.
            if params is None:
                return
            note = Reply.of({"method": message.method, "params": params})
            for listener in tuple(self._listeners):
                listener(note)
        # A server that floods its client with requests gets no answer to those beyond the limit.
        elif len(self._background.tasks) < _MAX_ANSWERING:
            self._background.start(lambda: self._respond(message))

    def _receive_invalid(self, data: bytes, error: ProtocolError) -> None:
        repaired = messages.repair(data) if isinstance(error, InvalidRequest) else None
        if repaired is not None and repaired != data:
            self.receive(repaired)
            return
        request_id = messages.find_response_id(data)
        if request_id is not None:
            self._fail(request_id, RemoteError(f"The server's response cannot be read: {error.message}", -32603))

    async def _respond(self, message: Message) -> None:
        await self._transport.send(await self.server_requests.respond(message), self.version, None, None)

    def _resolve(self, message: Message) -> None:
        pending = self._pending.pop(message.id, None) if isinstance(message.id, (int, str)) else None
        if pending is None or pending[0].done():
            return
        future, convert = pending
        is_error = message.error is not UNSET and message.is_error
        try:
            content = decode(cast("Raw", message.error if is_error else message.result))
        except MsgspecError:  # as above
            content = None
        if not isinstance(content, dict):
            future.set_exception(RemoteError("The server's response is not MCP.", -32603))
        elif is_error:
            future.set_exception(RemoteError.from_wire(content))
        else:
            future.set_result(content if convert is None else convert(content))
