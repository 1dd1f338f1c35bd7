"""The HTTP server: uvicorn, with shortcuts where its private parts allow them."""

from __future__ import annotations

import asyncio
import errno
import logging
import signal
import socket
from collections.abc import Awaitable, Callable
from contextlib import closing as closing_socket
from functools import partial
from types import FrameType
from typing import TYPE_CHECKING, Any, Final

import uvicorn

from waypost.errors import WaypostError
from waypost.loops import freeze_gc
from waypost.settings import Limits
from waypost.transports.http.app import HttpApp
from waypost.transports.http.asgi import App
from waypost.transports.http.pending import PendingRequests, SlowReaders

if TYPE_CHECKING:
    from waypost.transports.http.fast_uvicorn import FastConnection

_log: Final = logging.getLogger(__name__)
_GRACE_S: Final = 5
"""How long requests may take to end by themselves when the server stops."""
_CANCEL_S: Final = 2
"""How long cancelled requests may take after that to be answered that the hub is stopping."""
_ADVICE: Final = {
    errno.EADDRINUSE: "stop what listens there, or choose another port",
    errno.EACCES: "choose a port above 1023",
}


class Server(uvicorn.Server):
    """uvicorn that reports its address when it is ready, and ends open streams before it waits for connections."""

    def __init__(
        self,
        config: uvicorn.Config,
        opening: Callable[[], Awaitable[None]],
        ready: Callable[[str], None],
        closing: Callable[[], None],
    ) -> None:
        super().__init__(config)
        self._opening = opening
        self._ready = ready
        self._closing = closing

    async def startup(self, sockets: list[socket.socket] | None = None) -> None:
        """Call `opening`, start listening, then call `ready` with the address."""
        await self._opening()
        await super().startup(sockets)
        freeze_gc()
        if self.started:
            host, port = self.servers[0].sockets[0].getsockname()[:2]
            self._ready(f"http://[{host}]:{port}" if ":" in host else f"http://{host}:{port}")

    def handle_exit(self, sig: int, frame: FrameType | None) -> None:
        """Stop at a signal, and at once at a second SIGINT; unlike uvicorn, exit with status 0 after a signal."""
        self.force_exit = self.should_exit and sig == signal.SIGINT
        self.should_exit = True

    async def shutdown(self, sockets: list[socket.socket] | None = None) -> None:
        """End the streams, then stop; requests that do not end in time are cancelled."""
        # uvicorn waits for all connections to close; a client that follows a stream never closes its own.
        self._closing()
        cancelling = asyncio.get_running_loop().call_later(_GRACE_S, self._cancel_requests)
        await super().shutdown(sockets)
        cancelling.cancel()

    def _cancel_requests(self) -> None:
        tasks = list(self.server_state.tasks)
        if tasks:
            _log.info("the hub is stopping; requests cancelled after %s s: %d", _GRACE_S, len(tasks))
        for task in tasks:
            task.cancel()


def serve(
    app: HttpApp,
    host: str,
    port: int,
    *,
    limits: Limits,
    opening: Callable[[], Awaitable[None]],
    ready: Callable[[str], None],
    closing: Callable[[], None],
) -> None:
    """Serve until the process is asked to stop; an error of `opening` and an address that is taken are raised."""
    listening = listen(host, port)
    with closing_socket(listening):
        Server(make_config(app, limits), opening, ready, closing).run(sockets=[listening])


def make_config(app: App, limits: Limits, *, is_plain: bool = False, **more: Any) -> uvicorn.Config:
    """How uvicorn serves an app within limits; `is_plain` leaves the shortcuts out though they are possible."""
    protocol: Callable[..., asyncio.Protocol] | None = None if is_plain else find_fast_protocol()
    if protocol is None:
        from waypost.transports.http.plain_uvicorn import PlainConnection, report_heads

        protocol, app = PlainConnection, report_heads(app)
    options: dict[str, Any] = {
        "http": partial(protocol, pending=PendingRequests(limits), slow_readers=SlowReaders(limits)),
        "h11_max_incomplete_event_size": limits.max_header_bytes,
        "loop": "auto",
        "ws": "none",
        "lifespan": "on",
        "log_level": "warning",
        "access_log": False,
        "proxy_headers": False,
        "server_header": False,
        "date_header": False,
        "timeout_graceful_shutdown": _GRACE_S + _CANCEL_S,
        "log_config": None,
    }
    return uvicorn.Config(app, **{**options, **more})


def find_fast_protocol() -> type[FastConnection] | None:
    """The protocol class with shortcuts, where this uvicorn has what it needs; else a warning says what differs."""
    try:
        from waypost.transports.http.fast_uvicorn import FastConnection
    except ImportError as error:
        _log.warning("HTTP is served without shortcuts, at lower speed (uvicorn %s): %s", uvicorn.__version__, error)
        return None
    return FastConnection


def listen(host: str, port: int) -> socket.socket:
    """A socket bound to the address; `WaypostError` with advice where it cannot be bound."""
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    listening = socket.socket(family, socket.SOCK_STREAM)
    listening.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    try:
        listening.bind((host, port))
    except (OSError, OverflowError) as error:
        listening.close()
        reason = str(error)
        if isinstance(error, OSError):
            advice = _ADVICE.get(error.errno or 0, "choose another address")
            reason = f"{error.strerror or error}; {advice}"
        raise WaypostError(f"Cannot listen on {host}:{port}: {reason}.") from None
    return listening
