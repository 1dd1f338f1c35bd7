"""Running the app on uvicorn."""

from __future__ import annotations

import asyncio
import errno
import logging
import signal
import socket
from collections.abc import Awaitable, Callable
from contextlib import closing as closing_socket
from types import FrameType
from typing import Final

import uvicorn

from waypost.errors import WaypostError
from waypost.loops import freeze_gc
from waypost.transports.http.app import HttpApp
from waypost.transports.http.fast_uvicorn import Connection

_log: Final = logging.getLogger(__name__)
_GRACE: Final = 5
"""Seconds for requests to end by themselves when the process stops."""
_LAST_WORDS: Final = 2
"""Seconds for those that did not, to be answered that it stops."""
_ADVICE: Final = {
    errno.EADDRINUSE: "stop what listens there, or choose another port",
    errno.EACCES: "choose a port above 1023",
}


class Server(uvicorn.Server):
    """uvicorn that says when it is ready, and lets open streams go before it waits for connections to close."""

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
        """Open what is needed, start listening, then say where."""
        await self._opening()
        await super().startup(sockets)
        freeze_gc()
        if self.started:
            host, port = self.servers[0].sockets[0].getsockname()[:2]
            self._ready(f"http://[{host}]:{port}" if ":" in host else f"http://{host}:{port}")

    def handle_exit(self, sig: int, frame: FrameType | None) -> None:
        """Stop when asked, and at once when asked again; being asked is no failure, so the process ends with 0."""
        self.force_exit = self.should_exit and sig == signal.SIGINT
        self.should_exit = True

    async def shutdown(self, sockets: list[socket.socket] | None = None) -> None:
        """End the streams, then stop; what takes too long for that is given up."""
        self._closing()
        giving_up = asyncio.get_running_loop().call_later(_GRACE, self._give_up)
        await super().shutdown(sockets)
        giving_up.cancel()

    def _give_up(self) -> None:
        tasks = list(self.server_state.tasks)
        if tasks:
            _log.info("the hub stops; requests that did not end within %s s are given up: %d", _GRACE, len(tasks))
        for task in tasks:
            task.cancel()


def serve(
    app: HttpApp,
    host: str,
    port: int,
    *,
    opening: Callable[[], Awaitable[None]],
    ready: Callable[[str], None],
    closing: Callable[[], None],
) -> None:
    """Serve until the process is asked to stop; what `opening` raises, and an address that cannot be had, end it."""
    listening = listen(host, port)
    config = uvicorn.Config(
        app,
        loop="auto",
        http=Connection,
        ws="none",
        lifespan="on",
        log_level="warning",
        access_log=False,
        proxy_headers=False,
        server_header=False,
        date_header=False,
        timeout_graceful_shutdown=_GRACE + _LAST_WORDS,
        log_config=None,
    )
    with closing_socket(listening):
        Server(config, opening, ready, closing).run(sockets=[listening])


def listen(host: str, port: int) -> socket.socket:
    """A socket that listens at the address."""
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    listening = socket.socket(family, socket.SOCK_STREAM)
    listening.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    try:
        listening.bind((host, port))
    except (OSError, OverflowError) as error:
        listening.close()
        raise WaypostError(f"Cannot listen on {host}:{port}: {_reason(error)}.") from None
    return listening


def _reason(error: OSError | OverflowError) -> str:
    """Why an address cannot be had, and what to do about it."""
    if not isinstance(error, OSError):
        return str(error)
    advice = _ADVICE.get(error.errno or 0, "choose another address")
    return f"{error.strerror or error}; {advice}"
