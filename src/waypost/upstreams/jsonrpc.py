"""JSON-RPC over any transport: requests, their responses, notifications, and requests of the server."""

from __future__ import annotations

import asyncio
import itertools
import math
import re
from collections.abc import Awaitable, Callable, Mapping
from contextlib import suppress
from functools import partial
from typing import Any, Final, Self, TypeVar, cast

from msgspec import UNSET, Raw

from waypost.capabilities.capability import HeaderParameter
from waypost.errors import ProtocolError, RemoteError
from waypost.loops import running_loop
from waypost.upstreams.server_requests import Answerer, ServerRequests, declare_capabilities
from waypost.upstreams.transport import NO_HEADERS, Cancellable, StartRequest, Transport, to_headers
from waypost.version import __version__
from waypost.wire import messages
from waypost.wire.messages import Message, RequestId, decode
from waypost.wire.params import CLIENT_CAPABILITIES, CLIENT_INFO, LOG_LEVEL, PROTOCOL_VERSION
from waypost.wire.versions import V2026_07_28, is_modern

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
    """What is known of how a server wants its tools to be called, from its definitions and its refusals."""

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

        task = running_loop().create_task(run())
        self.tasks.add(task)
        task.add_done_callback(self.tasks.discard)
        return task


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
        self._transport = transport
        self._start_request: StartRequest | None = getattr(transport, "start_request", None)
        self._timeout = patience
        self._ids = itertools.count(1)
        self._pending: dict[RequestId, tuple[asyncio.Future[Any], Convert | None]] = {}
        """Requests without a response yet."""
        self._sending: dict[RequestId, Cancellable] = {}
        """Requests that are being sent, and round trips that go on, perhaps after the response."""
        self._listeners: list[Listener] = [self.server_requests.on_notification]
        self._background = _Background()

    @property
    def has_round_trips(self) -> bool:
        """Whether each request travels alone, so that one may fail and the next one still reach the server."""
        return self._transport.round_trips

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
        """Hand every notification to `listener`, until the function returned is called."""
        self._listeners.append(listener)
        return lambda: self._listeners.remove(listener)

    def send_request(
        self,
        request_id: RequestId,
        method: str,
        params: dict[str, Any] | None = None,
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
        if not (self._transport.round_trips and is_modern(self.version)):
            await self.notify("notifications/cancelled", {"requestId": request_id, "reason": reason or "cancelled"})

    async def _send(
        self, data: bytes, method: str, about: str | None, request_id: RequestId, extra: Mapping[str, str]
    ) -> None:
        try:
            await self._transport.send(data, self.version, method, about, extra)
        except Exception as error:
            self._fail(request_id, error)
        else:
            if self._transport.round_trips:
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
        """Handle a message of the server; one that is malformed is ignored."""
        try:
            message = messages.parse(data)
        except ProtocolError:
            return
        if message.method is UNSET:
            self._resolve(message)
        elif message.id is UNSET:
            params = {} if message.params is UNSET else decode(message.params)
            note = Reply.of({"method": message.method, "params": params})
            for listener in tuple(self._listeners):
                listener(note)
        # A server that floods its client with requests gets no answer to those beyond the limit.
        elif len(self._background.tasks) < _MAX_ANSWERING:
            self._background.start(lambda: self._respond(message))

    async def _respond(self, message: Message) -> None:
        await self._transport.send(await self.server_requests.respond(message), self.version, None, None)

    def _resolve(self, message: Message) -> None:
        pending = self._pending.pop(message.id, None) if isinstance(message.id, (int, str)) else None
        if pending is None or pending[0].done():
            return
        future, convert = pending
        content = decode(cast("Raw", message.result if message.error is UNSET else message.error))
        if not isinstance(content, dict):
            future.set_exception(RemoteError("The server's response is not MCP.", -32603))
        elif message.error is not UNSET:
            code, data = content.get("code", 0), content.get("data")
            future.set_exception(RemoteError(str(content.get("message", "")), code, data))
        else:
            future.set_result(content if convert is None else convert(content))
