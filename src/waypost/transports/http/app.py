"""The ASGI app: `/mcp`, `/health`, and the start and end of the hub."""

from __future__ import annotations

from typing import TYPE_CHECKING, Protocol

from waypost.capabilities.principals import ANONYMOUS
from waypost.transports.http.asgi import JSON, Receive, Scope, Send, headers_of, refuse, respond
from waypost.transports.http.endpoint import Endpoint
from waypost.transports.http.gate import Gate
from waypost.wire import messages

if TYPE_CHECKING:
    from waypost.policy import Authentication


class Served(Protocol):
    """What the app needs of a hub."""

    async def start(self) -> None: ...
    async def stop(self) -> None: ...
    async def health(self) -> dict[str, str]: ...


class HttpApp:
    """Serves one hub over HTTP."""

    def __init__(
        self, hub: Served, endpoint: Endpoint, gate: Gate, auth: Authentication | None, path: str = "/mcp"
    ) -> None:
        self._hub = hub
        self._auth = auth
        self._endpoint = endpoint
        self._gate = gate
        self._path = path
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
        refusal = self._gate.caller(headers)
        if refusal is not None:
            return await refuse(send, refusal.status, refusal.message)
        path = scope["path"]
        if mounted := scope.get("root_path"):
            path = path.removeprefix(mounted)
        if path == self._path and self._auth is None:
            return await self._endpoint(scope, receive, send, headers, ANONYMOUS)
        if path == self._path and self._auth is not None:
            return await self._serve(self._auth, scope, receive, send, headers)
        if path == "/health" and scope["method"] in ("GET", "HEAD"):
            return await respond(send, 200, messages.encode(await self._hub.health()))
        if self._auth is not None and path in self._auth.metadata_paths and scope["method"] in ("GET", "HEAD"):
            return await respond(send, 200, messages.encode(self._auth.metadata()))
        return await refuse(send, 404, f"There is nothing at {path}; MCP is at {self._path}.")

    async def _serve(
        self, auth: Authentication, scope: Scope, receive: Receive, send: Send, headers: dict[bytes, bytes]
    ) -> None:
        """Find out who is calling before anything is read."""
        from waypost.policy import Unauthorized

        try:
            principal = auth.known(headers) or await auth.authenticate(headers)
        except Unauthorized as error:
            challenge = () if error.challenge is None else ((b"www-authenticate", error.challenge.encode()),)
            return await respond(send, error.status, messages.encode(error.body), (JSON, *challenge))
        return await self._endpoint(scope, receive, send, headers, principal)

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
