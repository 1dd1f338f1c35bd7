"""Serves a hub over HTTP: the app, the address, the line that says it is ready, and the drain at the end."""

from __future__ import annotations

import asyncio
import logging
import socket
import sys
from collections.abc import Callable, Collection, Iterable
from contextlib import suppress
from functools import partial
from typing import TYPE_CHECKING, Any, Final

from waypost.errors import StoreError

if TYPE_CHECKING:
    from waypost.runtime.runtime import Runtime
    from waypost.transports.http.app import HttpApp

_log: Final = logging.getLogger(__name__)
_INTERVAL_S: Final = 0.05
"""How often a replica that drains looks whether something still runs."""


def build_app(runtime: Runtime, allowed_hosts: Iterable[str] = ()) -> HttpApp:
    """Build the ASGI app of a hub."""
    from waypost.transports.http.app import HttpApp, LoggedApp
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
    app = LoggedApp if server.request_log or runtime.launch.log_requests else HttpApp
    return app(runtime, Endpoint(runtime.core.engine, gate, auth), gate, auth)


def serve_http(runtime: Runtime, name: str, port: int | None, ready: Callable[[str], None] | None) -> None:
    """Serve at the address of the launch until the process is asked to stop; `ready` gets the URL."""
    from waypost.transports.http import server
    from waypost.transports.http.gate import find_bound_hosts

    settings = runtime.core.settings
    host, inherited = runtime.launch.address or settings.server.host, runtime.launch.inherited_socket
    listening = None if inherited is None else socket.socket(fileno=inherited)
    said = ready or (lambda address: print_ready(name, address, runtime.worker_address))

    def listens(address: str) -> None:
        runtime.replicas.address = address
        said(address)

    app = build_app(runtime, find_bound_hosts(host))
    server.serve(
        app,
        listening or server.listen(host, settings.server.port if port is None else port),
        limits=settings.limits,
        opening=runtime.start,
        ready=listens,
        closing=runtime.core.engine.release,
        draining=partial(drain, runtime, app),
    )


def print_ready(name: str, address: str, worker_address: str | None) -> None:
    """Print the addresses of a hub to stderr."""
    workers = f", for workers at {worker_address}" if worker_address else ""
    sys.stderr.write(f"{name} is ready at {address}/mcp{workers}\n")


async def drain(runtime: Runtime, app: HttpApp, requests: Callable[[], Collection[asyncio.Task[Any]]]) -> bool:
    """Refuse new work and wait for what runs; false where that took longer than `server.drainMs`.

    A hub that no other replica can stand in for does nothing of this and stops promptly.
    """
    if not runtime.core.store.database.is_shared:
        return True
    with suppress(StoreError):  # the store logs that it is unavailable; then the replicas known last decide
        await runtime.replicas.refresh()
    if not any(other.status == "ready" for other in runtime.replicas.others.values()):
        return True
    seconds = runtime.core.settings.server.drain_ms / 1000
    _log.info("draining: new work goes to other replicas; what runs has %g s", seconds)
    try:
        async with asyncio.timeout(seconds):
            await _hand_over(runtime, app, requests)
    except TimeoutError:
        _log.warning("what still ran after %g s (server.drainMs) was stopped", seconds)
        return False
    return True


async def _hand_over(runtime: Runtime, app: HttpApp, requests: Callable[[], Collection[asyncio.Task[Any]]]) -> None:
    app.refuse_new_work()
    with suppress(StoreError):
        await runtime.replicas.set_status("draining")
    engine = runtime.core.engine
    # These streams do not end by themselves; their clients connect to another replica.
    engine.end_streams()
    if runtime.has_workflows:
        runtime.workflows.engine.draining = True
    if runtime.has_worker_port:
        runtime.workers.stop_listening()
    if running := requests():
        await asyncio.wait(running)
    await _wait_while(lambda: engine.tasks.running)
    if runtime.has_workflows:
        await _wait_while(lambda: runtime.workflows.engine.runner.is_busy)
    if runtime.has_worker_port:  # last: what ran until here may have called functions of workers
        await _wait_while(runtime.workers.release_idle)


async def _wait_while(is_busy: Callable[[], int]) -> None:
    while is_busy():  # noqa: ASYNC110  # once per process, where events would cost every call something
        await asyncio.sleep(_INTERVAL_S)
