"""Running the app on uvicorn."""

from __future__ import annotations

import socket
from collections.abc import Callable
from typing import Final

import uvicorn

from waypost.transports.http.app import HttpApp

_GRACE: Final = 5


class Server(uvicorn.Server):
    """uvicorn that says when it is ready, and lets open streams go before it waits for connections to close."""

    def __init__(self, config: uvicorn.Config, ready: Callable[[str], None], closing: Callable[[], None]) -> None:
        super().__init__(config)
        self._ready = ready
        self._closing = closing

    async def startup(self, sockets: list[socket.socket] | None = None) -> None:
        """Start listening, then say where."""
        await super().startup(sockets)
        if self.started:
            host, port = self.servers[0].sockets[0].getsockname()[:2]
            self._ready(f"http://[{host}]:{port}" if ":" in host else f"http://{host}:{port}")

    async def shutdown(self, sockets: list[socket.socket] | None = None) -> None:
        """End the streams, then stop."""
        self._closing()
        await super().shutdown(sockets)


def serve(app: HttpApp, host: str, port: int, *, ready: Callable[[str], None], closing: Callable[[], None]) -> None:
    """Serve until the process is asked to stop; a taken port ends it with a sentence."""
    config = uvicorn.Config(
        app,
        host=host,
        port=port,
        loop="auto",
        http="httptools",
        ws="none",
        lifespan="on",
        log_level="warning",
        access_log=False,
        server_header=False,
        date_header=False,
        timeout_graceful_shutdown=_GRACE,
        log_config=None,
    )
    Server(config, ready, closing).run()
