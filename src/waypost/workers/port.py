"""The port that workers connect to: authentication, and which kind of socket a request opens."""

from __future__ import annotations

import asyncio
import hmac
import logging
import os
from collections.abc import Callable
from typing import Final, TypeAlias
from urllib.parse import SplitResult, parse_qs, urlsplit

from websockets.http11 import Request

from waypost.errors import WaypostError
from waypost.loops import running_loop
from waypost.wire.hosts import is_loopback
from waypost.workers.sockets import Receiver, Refusal, Socket

_log: Final = logging.getLogger(__name__)
_CHECK_INTERVAL_S: Final = 10.0
_PING_AFTER_S: Final = 20.0
_SILENCE_TIMEOUT_S: Final = 60.0
_MAX_SOCKETS: Final = 20_000
_PLACES: Final = ("/ws/channels/", "/otel")

Channel: TypeAlias = Callable[[SplitResult], Receiver]
"""Who the end of a channel is for."""


class TelemetrySink:
    """Accepts the telemetry of workers and discards it."""

    def opened(self, socket: Socket) -> None:
        """Telemetry will follow."""

    def text(self, data: bytes) -> None:
        """Discard it."""

    def binary(self, data: bytes) -> None:
        """Discard it."""

    def closed(self) -> None:
        """Nothing to release."""


class Port:
    """Listens at one address, and closes sockets that have gone silent."""

    def __init__(self, host: str, port: int, token: str, desk: Callable[[], Receiver], channel: Channel) -> None:
        if is_open_to_all(host, token):
            raise WaypostError(
                f"Workers can reach {host} from outside and need no token; set workers.token, or listen on 127.0.0.1."
            )
        self._host = host
        self._port = port
        self._token = token
        self._desk = desk
        self._channel = channel
        self._sockets: set[Socket] = set()
        self._server: asyncio.Server | None = None
        self._watching: asyncio.Task[None] | None = None

    @property
    def address(self) -> str | None:
        """Where workers connect to, once it is open."""
        if self._server is None or not self._server.sockets:
            return None
        host, port = self._server.sockets[0].getsockname()[:2]
        return f"ws://[{host}]:{port}" if ":" in host else f"ws://{host}:{port}"

    async def open(self) -> None:
        """Begin to listen; a port that is taken is an error in one sentence."""
        if self._server is not None:
            return
        loop = running_loop()
        try:
            self._server = await loop.create_server(self._accept, self._host, self._port, backlog=1024)
        except OSError as error:
            reason = os.strerror(error.errno) if error.errno and error.errno > 0 else error.strerror or str(error)
            raise WaypostError(f"Cannot listen for workers on {self._host}:{self._port}: {reason}.") from None
        self._watching = loop.create_task(self._watch())

    async def close(self) -> None:
        """Close all sockets and stop listening."""
        if self._server is None:
            return
        self._server.close()
        if self._watching is not None:
            self._watching.cancel()
        for socket in list(self._sockets):
            socket.close(1001, "the hub stops")
        for _ in range(20):
            if not self._sockets:
                break
            await asyncio.sleep(0.05)
        for socket in list(self._sockets):
            socket.abort()
        self._server = None

    def _accept(self) -> Socket:
        return Socket(self._route, self._sockets)

    def _route(self, request: Request) -> Receiver:
        url = urlsplit(repair_path(request.path))
        self._refuse_pages(request)
        if len(self._sockets) > _MAX_SOCKETS:
            raise Refusal(503, f"There are {_MAX_SOCKETS} connections already.")
        place = url.path.rstrip("/")
        if "/ws/channels/" in place:
            return self._channel(url)
        self._refuse_strangers(request, url.query)
        if place.endswith("/otel"):
            return TelemetrySink()
        return self._desk()

    def _refuse_pages(self, request: Request) -> None:
        """Refuse browsers, except pages served from this machine."""
        for origin in request.headers.get_all("Origin"):
            if not is_loopback(urlsplit(origin).hostname or ""):
                raise Refusal(403, "Pages from elsewhere are not let in.")

    def _refuse_strangers(self, request: Request, query: str) -> None:
        if not self._token:
            return
        said = (header.partition(" ") for header in request.headers.get_all("Authorization"))
        shown = [token.strip() for scheme, _, token in said if scheme.lower() == "bearer"]
        shown += parse_qs(query).get("token", [])
        if not any(hmac.compare_digest(one.encode(), self._token.encode()) for one in shown):
            raise Refusal(401, "A token is needed: Authorization: Bearer <token>, or III_TOKEN for the SDKs.")

    async def _watch(self) -> None:
        """Ping silent sockets, and abort those that do not answer."""
        while True:
            await asyncio.sleep(_CHECK_INTERVAL_S)
            now = running_loop().time()
            for socket in list(self._sockets):
                silent = socket.silence(now)
                if silent > _SILENCE_TIMEOUT_S:
                    socket.abort()
                elif silent > _PING_AFTER_S:
                    socket.ping()


def is_open_to_all(host: str, token: str) -> bool:
    """Whether workers on other machines could connect without a token."""
    return not is_loopback(host) and not token


def repair_path(path: str) -> str:
    """A path as it was meant: some workers put `/otel` behind an address that ends in `?token=...`."""
    base, _, query = path.partition("?")
    for place in _PLACES:
        before, found, after = query.partition(place)
        if found:
            tail, _, more = after.partition("?")
            return f"{base.rstrip('/')}{place}{tail}?{before}&{more}"
    return path
