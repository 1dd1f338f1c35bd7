"""The ASGI app: `/mcp`, `/health`, and the start and end of the hub."""

from __future__ import annotations

from typing import Protocol

from waypost.transports.http.asgi import Receive, Scope, Send, refuse, respond
from waypost.transports.http.endpoint import Endpoint
from waypost.transports.http.gate import Gate
from waypost.wire import messages


class Served(Protocol):
    """What the app needs of a hub."""

    async def start(self) -> None: ...
    async def stop(self) -> None: ...
    def health(self) -> dict[str, str]: ...


class HttpApp:
    """Serves one hub over HTTP."""

    def __init__(self, hub: Served, endpoint: Endpoint, gate: Gate, path: str = "/mcp") -> None:
        self._hub = hub
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
        headers = dict(scope["headers"])
        refusal = self._gate.caller(headers)
        if refusal is not None:
            return await refuse(send, refusal.status, refusal.message)
        if scope["path"] == self._path:
            return await self._endpoint(scope, receive, send, headers)
        if scope["path"] == "/health" and scope["method"] in ("GET", "HEAD"):
            return await respond(send, 200, messages.encode(self._hub.health()))
        return await refuse(send, 404, f"There is nothing at {scope['path']}; MCP is at {self._path}.")

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
