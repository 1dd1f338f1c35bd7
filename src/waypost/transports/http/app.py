"""The ASGI app: routes requests to MCP, health, the HTTP API and the console, and starts and stops the hub."""

from __future__ import annotations

import asyncio
import logging
import time
import traceback
from collections.abc import AsyncIterator, Callable, Mapping
from typing import TYPE_CHECKING, Final, NamedTuple, Protocol

import msgspec

from waypost.capabilities.principals import ANONYMOUS, Principal
from waypost.errors import WaypostError, shorten
from waypost.protocol.modern import METHOD
from waypost.protocol.responses import STOPPING
from waypost.transports.http.asgi import (
    Event,
    KnownHeaders,
    Receive,
    Scope,
    Send,
    headers_of,
    index_headers,
    refuse,
    refuse_operator,
    respond,
)
from waypost.transports.http.endpoint import AGAIN, DRAINING, DrainingEndpoint, Endpoint, wait_for_disconnect
from waypost.transports.http.gate import Gate, Refusal, authenticate
from waypost.wire import messages

if TYPE_CHECKING:
    from waypost.identity import Authentication


class Served(Protocol):
    """What the app needs of a hub."""

    async def start(self) -> None: ...
    async def stop(self) -> None: ...
    async def health(self) -> dict[str, str | int]: ...
    async def operate(self, request: OperatorRequest) -> OperatorAnswer: ...
    async def show(self, request: OperatorRequest) -> OperatorAnswer: ...
    def record_refusal(self, request: OperatorRequest) -> None: ...


_MCP: Final = "/mcp"
_CONSOLE: Final = "/console/"
_PATHS_WITHOUT_KEY: Final = ("/metrics", "/api/openapi.json")
"""Paths that may be requested without a key; the API decides whether it answers."""


class OperatorRequest(NamedTuple):
    """A request to `/api/...` or `/metrics`, or to the console; only the first ones had their key checked."""

    scope: Scope
    path: str
    headers: Mapping[bytes, bytes]
    principal: Principal
    body: bytes


class OperatorAnswer(NamedTuple):
    """The response to an `OperatorRequest`."""

    status: int
    body: bytes
    content_type: bytes = b"application/json"
    headers: tuple[tuple[bytes, bytes], ...] = ()
    stream: AnswerStream | None = None
    """What follows the body until it ends or the client leaves, for events."""


class AnswerStream(Protocol):
    """Chunks of a response, each sent as soon as it is there."""

    def __aiter__(self) -> AsyncIterator[bytes]: ...
    def close(self) -> None:
        """Release what was acquired for the stream, also where it was never followed."""


class HttpApp:
    """Serves one hub over HTTP."""

    def __init__(self, hub: Served, endpoint: Endpoint, gate: Gate, auth: Authentication | None) -> None:
        self._hub = hub
        self._auth = auth
        self._endpoint: Endpoint | DrainingEndpoint = endpoint
        self._gate = gate
        self._started = False
        self._starting = asyncio.Lock()

    def refuse_new_work(self) -> None:
        """Answer from now on that another replica takes what is new."""
        if isinstance(self._endpoint, Endpoint):
            self._endpoint = DrainingEndpoint(self._endpoint, self._gate)

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """The ASGI entry."""
        if scope["type"] == "lifespan":
            return await self._lifespan(receive, send)
        if scope["type"] != "http":
            return None
        if not self._started:
            await self._start_late()
        pairs = scope["headers"]
        # The headers of a cached head were indexed, and their size was checked, when the head was parsed.
        is_sized = type(pairs) is KnownHeaders
        headers = pairs.by_name if is_sized else index_headers(pairs)
        if headers is None:
            return await refuse(send, 400, "A header that can only have one value is given more than once.")
        path = scope["path"]
        if prefix := scope.get("root_path"):
            path = path.removeprefix(prefix)
        size = 0
        if not is_sized:  # another server than ours has read them
            size = len(scope["path"]) + len(scope.get("query_string", b""))
            for name, value in pairs:  # for the few headers of a request cheaper than an expression or a function
                size += len(name) + len(value)
        if size <= self._gate.limits.max_header_bytes:
            refusal = self._gate.callers[headers.get(b"host"), headers.get(b"origin")]
        else:
            refusal = self._gate.headers_too_large()
        if refusal is not None and not (path.startswith(_CONSOLE) and self._gate.is_same_origin(headers, refusal)):
            answer = refuse_operator if _is_operated(path) else refuse
            return await answer(send, refusal.status, refusal.message, headers=refusal.headers)
        if path == _MCP:
            # Known keys and tokens need nothing awaited, so nearly all requests are spared a coroutine.
            principal = ANONYMOUS if self._auth is None else self._auth.known(headers)
            if principal is None:
                principal = await authenticate(self._auth, send, headers)
            return None if principal is None else await self._endpoint(scope, receive, send, headers, principal)
        return await self._serve_people(scope, receive, send, headers, path)

    async def _serve_people(
        self, scope: Scope, receive: Receive, send: Send, headers: dict[bytes, bytes], path: str
    ) -> None:
        """Answer a request for anything but MCP."""
        prefix = scope.get("root_path") or ""
        if path == "/health":
            return await self._respond_health(scope, send)
        if _is_operated(path):
            return await self._operate(scope, receive, send, headers, path)
        if path.startswith(_CONSOLE):
            return await self._show(scope, receive, send, headers, path)
        if path in ("/", "/console") and scope["method"] in ("GET", "HEAD"):
            return await respond(send, 307, headers=((b"location", f"{prefix}{_CONSOLE}".encode()),))
        if self._auth is not None and path in self._auth.metadata_paths and scope["method"] in ("GET", "HEAD"):
            return await respond(send, 200, messages.encode(self._auth.metadata()))
        return await refuse(send, 404, f"There is nothing at {scope['path']}; MCP is at {prefix}{_MCP}.")

    async def _respond_health(self, scope: Scope, send: Send) -> None:
        if scope["method"] in ("GET", "HEAD"):
            health = await self._hub.health()
            await respond(send, 503 if health["status"] == "draining" else 200, messages.encode(health))
        else:
            await refuse(send, 405, f"{scope['method']} is not allowed here.", headers=((b"allow", b"GET"),))

    async def _operate(
        self, scope: Scope, receive: Receive, send: Send, headers: dict[bytes, bytes], path: str
    ) -> None:
        """Answer a request of the HTTP API."""
        if scope["method"] not in ("GET", "HEAD") and isinstance(self._endpoint, DrainingEndpoint):
            return await refuse_operator(send, 503, DRAINING, headers=AGAIN)
        is_open = path in _PATHS_WITHOUT_KEY and b"authorization" not in headers
        principal = ANONYMOUS if is_open else await authenticate(self._auth, send, headers)
        if principal is None:
            return self._hub.record_refusal(OperatorRequest(scope, path, headers, ANONYMOUS, b""))
        body = await self._gate.read_body(receive)
        if isinstance(body, bytes) and not is_open:
            principal = await authenticate(self._auth, send, headers)
            if principal is None:
                return  # the key was revoked while the body came in
        if isinstance(body, Refusal):
            await refuse_operator(send, body.status, body.message, headers=body.headers)
        elif body is not None:
            request = OperatorRequest(scope, path, headers, principal, body)
            try:
                answer = await self._hub.operate(request)
            except asyncio.CancelledError:  # by the server, which is stopping
                return await refuse_operator(send, 503, STOPPING.message)
            await _send_answer(send, receive, answer)

    async def _show(self, scope: Scope, receive: Receive, send: Send, headers: dict[bytes, bytes], path: str) -> None:
        """Answer a request of a browser; the console checks its session."""
        body = await self._gate.read_body(receive)
        if isinstance(body, Refusal):
            await refuse(send, body.status, body.message, headers=body.headers)
        elif body is not None:
            request = OperatorRequest(scope, path, headers, ANONYMOUS, body)
            await _send_answer(send, receive, await self._hub.show(request))

    async def _start_late(self) -> None:
        """Start with the first request, under a server without lifespan events; the requests of that moment wait."""
        async with self._starting:
            if not self._started:
                await self._hub.start()
                self._started = True

    async def _lifespan(self, receive: Receive, send: Send) -> None:
        while True:
            event = await receive()
            if event["type"] == "lifespan.startup":
                try:
                    await self._hub.start()
                except Exception as error:
                    # A server takes an exception as an app without lifespan events, and would serve what did not start.
                    reason = str(error) if isinstance(error, WaypostError) else traceback.format_exc()
                    return await send({"type": "lifespan.startup.failed", "message": reason})
                self._started = True
                await send({"type": "lifespan.startup.complete"})
            else:
                await self._hub.stop()
                await send({"type": "lifespan.shutdown.complete"})
                return


def _is_operated(path: str) -> bool:
    return path == "/metrics" or path.startswith("/api/")


class DeferredApp:
    """An ASGI app that is built when a server calls it first."""

    def __init__(self, build: Callable[[], HttpApp]) -> None:
        self._build = build
        self._app: HttpApp | None = None

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """The ASGI entry."""
        if self._app is None:
            try:
                self._app = self._build()
            except WaypostError as error:
                if scope["type"] != "lifespan":
                    raise
                await receive()
                return await send({"type": "lifespan.startup.failed", "message": str(error)})
        await self._app(scope, receive, send)


async def _send_answer(send: Send, receive: Receive, answer: OperatorAnswer) -> None:
    headers = ((b"content-type", answer.content_type), *answer.headers)
    stream = answer.stream
    if stream is None:
        return await respond(send, answer.status, answer.body, headers)
    loop = asyncio.get_running_loop()
    try:
        await send({"type": "http.response.start", "status": answer.status, "headers": list(headers)})
        sending = loop.create_task(_send_chunks(send, answer.body, stream))
        # A stream that has nothing to send would not notice that its client has left.
        leaving = loop.create_task(wait_for_disconnect(receive))
        try:
            await asyncio.wait({sending, leaving}, return_when=asyncio.FIRST_COMPLETED)
        finally:
            for task in (sending, leaving):
                task.cancel()
            await asyncio.gather(sending, leaving, return_exceptions=True)
    finally:
        stream.close()


async def _send_chunks(send: Send, first: bytes, stream: AnswerStream) -> None:
    await send({"type": "http.response.body", "body": first, "more_body": True})
    async for chunk in stream:
        await send({"type": "http.response.body", "body": chunk, "more_body": True})
    await send({"type": "http.response.body", "body": b""})


_log: Final = logging.getLogger("waypost.requests")
_MAX_LOGGED_CHARACTERS: Final = 200


class _Called(msgspec.Struct):
    method: str = "-"


_decode_called: Final = msgspec.json.Decoder(_Called).decode


class LoggedApp(HttpApp):
    """Logs one line for each HTTP request, when its response is complete or its client has left.

    A class of its own, so that a hub without the log pays nothing: here `receive` and `send` are wrapped, and the
    shortcuts of `fast_uvicorn` do not apply.
    """

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """The ASGI entry."""
        if scope["type"] != "http":
            return await super().__call__(scope, receive, send)
        begun, body, statuses = time.perf_counter(), list[bytes](), list[int]()

        async def receive_noted() -> Event:
            event = await receive()
            body.append(event.get("body", b""))
            return event

        async def send_noted(event: Event) -> None:
            if event["type"] == "http.response.start":
                statuses.append(event["status"])
            await send(event)

        try:
            await super().__call__(scope, receive_noted, send_noted)
        finally:
            headers = headers_of(scope) or {}
            principal = ANONYMOUS if self._auth is None else self._auth.known(headers)
            path = scope.get("raw_path") or scope["path"].encode(errors="replace")
            _log.info(
                "%s %s %s %s %.1f ms %s",
                scope["method"],
                _to_logged(path.decode("latin-1")),
                _to_logged(_find_method(headers, b"".join(body))),
                statuses[0] if statuses else "-",
                (time.perf_counter() - begun) * 1000,
                _to_logged("-" if principal is None else principal.id),
            )


def _find_method(headers: Mapping[bytes, bytes], body: bytes) -> str:
    """The MCP method of a request: 2026-07-28 repeats it in a header, before that only the body has it."""
    named = headers.get(METHOD)
    if named is not None or not body:
        return "-" if named is None else named.decode("latin-1")
    try:
        return "batch" if body.lstrip()[:1] == b"[" else _decode_called(body).method
    except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError):
        return "-"


def _to_logged(text: str) -> str:
    """A text from outside as one word of a line."""
    text = shorten(text, _MAX_LOGGED_CHARACTERS)
    return text if text.isprintable() and " " not in text else ascii(text)
