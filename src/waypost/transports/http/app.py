"""The ASGI app: routes requests to MCP, health and the HTTP API, and starts and stops the hub."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from typing import TYPE_CHECKING, Final, NamedTuple, Protocol

from waypost.capabilities.principals import ANONYMOUS, Principal
from waypost.protocol.responses import STOPPING
from waypost.transports.http.asgi import KnownHeaders, Receive, Scope, Send, headers_of, refuse, respond
from waypost.transports.http.endpoint import Endpoint
from waypost.transports.http.gate import Gate, Refusal, authenticate
from waypost.wire import messages

if TYPE_CHECKING:
    from waypost.identity import Authentication


class Served(Protocol):
    """What the app needs of a hub."""

    async def start(self) -> None: ...
    async def stop(self) -> None: ...
    async def health(self) -> dict[str, str]: ...
    async def operate(self, request: OperatorRequest) -> OperatorAnswer: ...


_MCP: Final = "/mcp"
_PATHS_WITHOUT_KEY: Final = ("/metrics", "/api/openapi.json")
"""Paths that may be requested without a key; the API decides whether it answers."""


class OperatorRequest(NamedTuple):
    """A request to `/api/...` or `/metrics`; its key, if it has one, was checked."""

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


class HttpApp:
    """Serves one hub over HTTP."""

    def __init__(self, hub: Served, endpoint: Endpoint, gate: Gate, auth: Authentication | None) -> None:
        self._hub = hub
        self._auth = auth
        self._endpoint = endpoint
        self._gate = gate
        self._started = False

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """The ASGI entry."""
        if scope["type"] == "lifespan":
            return await self._lifespan(receive, send)
        if scope["type"] != "http":
            return None
        if not self._started:
            await self._start()
        headers = headers_of(scope)
        if headers is None:
            return await refuse(send, 400, "A header that can only have one value is given more than once.")
        is_sized = type(scope["headers"]) is KnownHeaders
        refusal = (None if is_sized else self._gate.check_size(scope)) or self._gate.check_caller(headers)
        if refusal is not None:
            return await refuse(send, refusal.status, refusal.message, headers=refusal.headers)
        path = scope["path"]
        if prefix := scope.get("root_path"):
            path = path.removeprefix(prefix)
        if path == _MCP:
            principal = ANONYMOUS if self._auth is None else self._auth.known(headers)
            if principal is None:
                principal = await authenticate(self._auth, send, headers)
            return None if principal is None else await self._endpoint(scope, receive, send, headers, principal)
        if path == "/health":
            return await self._respond_health(scope, send)
        if path == "/metrics" or path.startswith("/api/"):
            return await self._operate(scope, receive, send, headers, path)
        if self._auth is not None and path in self._auth.metadata_paths and scope["method"] in ("GET", "HEAD"):
            return await respond(send, 200, messages.encode(self._auth.metadata()))
        return await refuse(send, 404, f"There is nothing at {scope['path']}; MCP is at {prefix or ''}{_MCP}.")

    async def _respond_health(self, scope: Scope, send: Send) -> None:
        if scope["method"] in ("GET", "HEAD"):
            await respond(send, 200, messages.encode(await self._hub.health()))
        else:
            await refuse(send, 405, f"{scope['method']} is not allowed here.", headers=((b"allow", b"GET"),))

    async def _operate(
        self, scope: Scope, receive: Receive, send: Send, headers: dict[bytes, bytes], path: str
    ) -> None:
        """Answer a request of the HTTP API."""
        is_open = path in _PATHS_WITHOUT_KEY and b"authorization" not in headers
        principal = ANONYMOUS if is_open else await authenticate(self._auth, send, headers)
        if principal is None:
            return
        body = await self._gate.read_body(receive)
        if isinstance(body, bytes) and not is_open:
            principal = await authenticate(self._auth, send, headers)
            if principal is None:
                return  # the key was revoked while the body came in
        if isinstance(body, Refusal):
            await refuse(send, body.status, body.message, headers=body.headers)
        elif body is not None:
            request = OperatorRequest(scope, path, headers, principal, body)
            try:
                answer = await self._hub.operate(request)
            except asyncio.CancelledError:  # by the server, which is stopping
                return await refuse(send, 503, STOPPING.message, code=STOPPING.code)
            await respond(send, answer.status, answer.body, ((b"content-type", answer.content_type), *answer.headers))

    async def _start(self) -> None:
        self._started = True
        await self._hub.start()

    async def _lifespan(self, receive: Receive, send: Send) -> None:
        while True:
            event = await receive()
            if event["type"] == "lifespan.startup":
                await self._start()
                await send({"type": "lifespan.startup.complete"})
            else:
                await self._hub.stop()
                await send({"type": "lifespan.shutdown.complete"})
                return
