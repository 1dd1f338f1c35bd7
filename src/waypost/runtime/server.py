"""Serves a hub over HTTP and stdio: the app, the address, and the line that says it is ready."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import TYPE_CHECKING, Protocol

from waypost.errors import DefinitionError
from waypost.runtime.core import Launch
from waypost.settings import Settings
from waypost.wire.definitions import Implementation

if TYPE_CHECKING:
    from waypost.runtime.runtime import Runtime
    from waypost.transports.http.app import HttpApp


class Launchable(Protocol):
    """A hub that can be run in a given way."""

    @property
    def info(self) -> Implementation: ...
    @property
    def settings(self) -> Settings: ...
    def launch(self, launch: Launch) -> Runtime: ...


def build_app(runtime: Runtime, allowed_hosts: Iterable[str] = ()) -> HttpApp:
    """Build the ASGI app of a hub."""
    from waypost.transports.http.app import HttpApp
    from waypost.transports.http.endpoint import Endpoint
    from waypost.transports.http.gate import Gate

    server = runtime.core.settings.server
    gate = Gate(
        hosts=(*server.allowed_hosts, *allowed_hosts),
        origins=tuple(server.allowed_origins),
        max_body=server.max_body_bytes,
        limits=runtime.core.settings.limits,
    )
    auth = runtime.authenticate()
    return HttpApp(runtime, Endpoint(runtime.core.engine, gate, auth), gate, auth)


def serve(
    hub: Launchable,
    transport: str,
    host: str | None = None,
    port: int | None = None,
    data_dir: Path | None = None,
    ready: Callable[[str], None] | None = None,
) -> None:
    """Serve until the client leaves (stdio) or the process is asked to stop (http); `ready` gets the address."""
    if transport == "stdio":
        from waypost.transports import stdio

        stdio.run(hub.launch(Launch(data_dir=data_dir, durable=True, opens_worker_port=False)))
    elif transport == "http":
        from waypost.transports.http import server
        from waypost.transports.http.gate import find_bound_hosts

        host = host or hub.settings.server.host
        runtime = hub.launch(Launch(data_dir=data_dir, durable=True, address=host))
        server.serve(
            build_app(runtime, find_bound_hosts(host)),
            host,
            hub.settings.server.port if port is None else port,
            limits=hub.settings.limits,
            opening=runtime.start,
            ready=ready or (lambda address: print_ready(hub.info.name, address, runtime)),
            closing=runtime.core.engine.release,
        )
    else:
        raise DefinitionError(f"There is no transport {transport!r}; use 'stdio' or 'http'.")


def print_ready(name: str, address: str, runtime: Runtime) -> None:
    """Print the addresses of a hub to stderr."""
    workers = f", for workers at {runtime.worker_address}" if runtime.worker_address else ""
    sys.stderr.write(f"{name} is ready at {address}/mcp{workers}\n")
