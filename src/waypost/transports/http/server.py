"""The HTTP server: uvicorn, with shortcuts where its private parts allow them."""

from __future__ import annotations

import asyncio
import errno
import logging
import signal
import socket
import sys
from collections.abc import Awaitable, Callable, Collection
from contextlib import closing as closing_socket
from functools import partial
from importlib import import_module
from types import FrameType, ModuleType
from typing import TYPE_CHECKING, Any, Final, TypeAlias

from waypost.errors import WaypostError
from waypost.loops import freeze_gc, return_large_blocks, share_interpreter
from waypost.settings import Limits
from waypost.transports.http.app import HttpApp
from waypost.transports.http.asgi import App
from waypost.transports.http.pending import IdleConnections, PendingRequests, SlowReaders

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
_COMMAND_LINE: Final = "uvicorn.main"

Drain: TypeAlias = Callable[[Callable[[], Collection[asyncio.Task[Any]]]], Awaitable[bool]]
"""Hands work over to others, given the requests that run; false where some of them have to be cancelled."""


class _StandIn(ModuleType):
    """The names of `uvicorn.main` that uvicorn's package takes from it."""

    @property
    def Server(self) -> Any:  # uvicorn's name
        return import_module("uvicorn.server").Server

    @staticmethod
    def run(*args: Any, **more: Any) -> None:
        """`uvicorn.run`"""
        _restore().run(*args, **more)

    @staticmethod
    def main(*args: Any, **more: Any) -> Any:
        """`uvicorn.main`, the command."""
        return _restore().main(*args, **more)


def _restore() -> Any:
    """The real module, whose names the package has from now on."""
    package, real = sys.modules["uvicorn"], import_module(_COMMAND_LINE)
    vars(package).update(run=real.run, main=real.main)
    return real


def _import_uvicorn() -> ModuleType:
    """uvicorn's package, imported without its command line if that can be left out.

    `uvicorn.main` imports click, multiprocessing and the reloaders with watchfiles: 3 MB, and a tenth of the
    instructions to the first answer. A stand-in takes its place while the package is imported; `uvicorn.run` and
    `uvicorn.main` load the real module when they are called, and so does everything that imports it by name. A uvicorn
    that was imported before, or that expects something else of that module, is left as it is.
    """
    if "uvicorn" in sys.modules:
        return sys.modules["uvicorn"]
    sys.modules[_COMMAND_LINE] = _StandIn(_COMMAND_LINE)
    try:
        return import_module("uvicorn")
    except (ImportError, AttributeError):
        for name in [name for name in sys.modules if name.partition(".")[0] == "uvicorn"]:
            del sys.modules[name]
        return import_module("uvicorn")
    finally:
        if isinstance(sys.modules.get(_COMMAND_LINE), _StandIn):
            del sys.modules[_COMMAND_LINE]


if TYPE_CHECKING:
    import uvicorn
else:
    uvicorn = _import_uvicorn()


class Server(uvicorn.Server):
    """uvicorn that reports its address when it is ready, and ends open streams before it waits for connections."""

    def __init__(
        self,
        config: uvicorn.Config,
        opening: Callable[[], Awaitable[None]],
        ready: Callable[[str], None],
        closing: Callable[[], None],
        draining: Drain,
    ) -> None:
        super().__init__(config)
        self._opening = opening
        self._ready = ready
        self._closing = closing
        self._draining = draining
        self._grace = float(_GRACE_S)
        self._loop: asyncio.AbstractEventLoop | None = None
        self._terminated = False
        self._drain: asyncio.Task[bool] | None = None

    async def startup(self, sockets: list[socket.socket] | None = None) -> None:
        """Call `opening`, start listening, then call `ready` with the address."""
        await self._opening()
        self._loop = asyncio.get_running_loop()
        await super().startup(sockets)
        freeze_gc()
        share_interpreter()
        if self.started:
            host, port = self.servers[0].sockets[0].getsockname()[:2]
            self._ready(f"http://[{host}]:{port}" if ":" in host else f"http://{host}:{port}")
            return_large_blocks()

    def handle_exit(self, sig: int, frame: FrameType | None) -> None:
        """Stop at a signal, and at once at a second SIGINT; unlike uvicorn, exit with status 0 after a signal.

        SIGTERM drains, until the next signal.
        """
        if self._drain is not None and self._loop is not None:
            # uvicorn's handlers run between two instructions of the loop, which has to wake up for this.
            self._loop.call_soon_threadsafe(self._drain.cancel)
        self.force_exit = self.should_exit and sig == signal.SIGINT
        self._terminated = self._terminated or sig == signal.SIGTERM
        self.should_exit = True

    async def main_loop(self) -> None:
        """Serve until a signal, then go on while work is handed over; sockets are closed after that."""
        await super().main_loop()
        if not self._terminated or self.force_exit:
            return
        self._drain = asyncio.ensure_future(self._draining(lambda: set(self.server_state.tasks)))
        await asyncio.wait({self._drain})
        if self._drain.cancelled() or not self._drain.result():
            self._grace = 0.0

    async def shutdown(self, sockets: list[socket.socket] | None = None) -> None:
        """End the streams, then stop; requests that do not end in time are cancelled."""
        # uvicorn waits for all connections to close; a client that follows a stream never closes its own.
        self._closing()
        cancelling = asyncio.get_running_loop().call_later(self._grace, self._cancel_requests)
        await super().shutdown(sockets)
        cancelling.cancel()

    def _cancel_requests(self) -> None:
        tasks = list(self.server_state.tasks)
        if tasks:
            _log.info("the hub is stopping; requests cancelled after %g s: %d", self._grace, len(tasks))
        for task in tasks:
            task.cancel()


def serve(
    app: HttpApp,
    listening: socket.socket,
    *,
    limits: Limits,
    opening: Callable[[], Awaitable[None]],
    ready: Callable[[str], None],
    closing: Callable[[], None],
    draining: Drain,
) -> None:
    """Serve on a bound socket until the process is asked to stop; an error of `opening` is raised."""
    with closing_socket(listening):
        Server(make_config(app, limits), opening, ready, closing, draining).run(sockets=[listening])


def make_config(app: App, limits: Limits, *, is_plain: bool = False, **more: Any) -> uvicorn.Config:
    """How uvicorn serves an app within limits; `is_plain` leaves the shortcuts out though they are possible."""
    protocol: Callable[..., asyncio.Protocol] | None = None if is_plain else find_fast_protocol()
    if protocol is None:
        from waypost.transports.http.plain_uvicorn import PlainConnection, report_heads

        protocol, app = PlainConnection, report_heads(app)
    options: dict[str, Any] = {
        "http": partial(
            protocol,
            pending=PendingRequests(limits),
            slow_readers=SlowReaders(limits),
            idle=IdleConnections(limits),
        ),
        "h11_max_incomplete_event_size": limits.max_header_bytes,
        "loop": "auto",
        "ws": "none",
        "lifespan": "on",
        "log_level": "warning",
        "access_log": False,
        # Limits are by the machine that connects; a client can write any address into a header.
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


def listen(host: str, port: int, *, is_shared: bool = False) -> socket.socket:
    """A socket bound to the address; `WaypostError` with advice where it cannot be bound.

    Several that are shared may have one address; connections are divided among those that listen.
    """
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    listening = socket.socket(family, socket.SOCK_STREAM)
    # A restart must not wait for connections that the process before has closed.
    listening.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    if is_shared:
        listening.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEPORT, 1)
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
