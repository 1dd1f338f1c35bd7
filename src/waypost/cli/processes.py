"""`waypost serve --processes N`: serve a hub in several processes on one port, and replace one that dies.

Each process is a replica with a socket of its own, bound with SO_REUSEPORT: the kernel divides connections among them,
and those of a process that dies are refused at once instead of waiting for an owner. This process serves nothing. It
keeps the port, writes `hub.json`, forwards signals, and starts processes again. Workers connect to the first process
only: their connections are few and last long, so dividing them would gain nothing, and their functions are known to
all processes.
"""

from __future__ import annotations

import asyncio
import logging
import os
import signal
import sys
import time
from argparse import Namespace
from collections.abc import Callable
from contextlib import suppress
from typing import TYPE_CHECKING, Final

import msgspec

from waypost.cli.client import RunningHub
from waypost.cli.command import Output
from waypost.cli.reload import serve_share, to_words
from waypost.cli.serve import Share, announcing
from waypost.errors import WaypostError
from waypost.loops import wait_for_event
from waypost.runtime.runtime import STOP_TIMEOUT_S

if TYPE_CHECKING:
    from waypost.hub import Hub

_log: Final = logging.getLogger(__name__)
MIN_PAUSE_S: Final = 0.1
MAX_PAUSE_S: Final = 10.0
"""How long to wait before a process is started again; twice as long each time, unless it has run for a while."""
STEADY_S: Final = 30.0
_GRACE_S: Final = 10.0
"""What a process may take to stop in addition to draining and stopping its components."""
_CHILD: Final = "from waypost.cli.processes import serve_process; raise SystemExit(serve_process())"
_FORWARDED: Final = (signal.SIGTERM, signal.SIGINT, signal.SIGHUP)


def supervise(args: Namespace, hub: Hub, port: int, number: int) -> Output:
    """Serve until stopped, in so many processes."""
    from waypost.identity import new_key
    from waypost.transports.http import server

    core = hub.runtime.core
    if not core.store.database.is_shared:
        raise WaypostError(
            f"{number} processes need a database that they share: set store.url to a PostgreSQL URL, or serve one."
        )
    host = hub.runtime.launch.address or hub.settings.server.host
    # A port of other processes can be shared with them by mistake: only one that nothing listens on is taken.
    with server.listen(host, port) as free:
        port = free.getsockname()[1]
    # Not a listening one: it keeps the port while a process is replaced, and gets no connections.
    with server.listen(host, port, is_shared=True), announcing(hub, core.data_dir) as announce:
        drain_s = core.settings.server.drain_ms / 1000
        supervisor = _Supervisor(args, host, port, drain_s, new_key(), hub.runtime.configuration is not None)

        def ready(first: RunningHub) -> None:
            announce(msgspec.structs.replace(first, pid=os.getpid()))

        return Output(status=asyncio.run(supervisor.run(number, ready)))


class _Supervisor:
    def __init__(self, args: Namespace, host: str, port: int, drain_s: float, key: str, has_file: bool) -> None:
        self._words = to_words(args)
        self._has_file = has_file
        """Whether there is a configuration file to reload."""
        self._address = host, port
        self._key = key
        self._stop_s = drain_s + STOP_TIMEOUT_S + _GRACE_S
        self._running: dict[int, asyncio.subprocess.Process] = {}
        """The processes by their number."""
        self._ready: set[asyncio.subprocess.Process] = set()
        """Those that handle SIGHUP, which would end one that is starting."""
        self._stopping = asyncio.Event()

    async def run(self, number: int, ready: Callable[[RunningHub], None]) -> int:
        """Serve until a signal; 1 where a process cannot start before all have."""
        loop = asyncio.get_running_loop()
        for one in _FORWARDED:
            loop.add_signal_handler(one, self._forward, one)
        keeping: list[asyncio.Task[None]] = []
        reports: list[RunningHub] = []
        status = 0
        for place in range(number):  # one after the other: the first brings tables and secret up to date
            started: asyncio.Future[RunningHub | None] = loop.create_future()
            keeping.append(loop.create_task(self._keep(place, started)))
            report = await started
            if report is None:
                if not self._stopping.is_set():
                    status = 1
                    self._forward(signal.SIGTERM)
                break
            reports.append(report)
        else:
            ready(reports[0])
        await self._stopping.wait()
        _, slow = await asyncio.wait(keeping, timeout=self._stop_s)
        for process in self._running.values() if slow else ():
            process.kill()
        await asyncio.gather(*keeping)
        return status

    def _forward(self, number: signal.Signals) -> None:
        """Pass a signal on: the processes drain, stop at once or reload, as one process does."""
        if number == signal.SIGHUP and not self._has_file:
            number = signal.SIGTERM  # else all would end at once, and be started again
        # A process that is starting reads the files now.
        for process in self._ready if number == signal.SIGHUP else self._running.values():
            with suppress(ProcessLookupError):
                process.send_signal(number)
        if number != signal.SIGHUP:
            self._stopping.set()

    async def _keep(self, place: int, started: asyncio.Future[RunningHub | None]) -> None:
        """Keep one process running; `started` gets what the first one reports, or `None` when it ends before."""
        pause = MIN_PAUSE_S
        try:
            while not self._stopping.is_set():
                began = time.monotonic()
                process, status = await self._serve(place, started)
                if self._stopping.is_set() or not started.done():
                    break
                pause = MIN_PAUSE_S if time.monotonic() - began > STEADY_S else min(2 * pause, MAX_PAUSE_S)
                how = f"signal {-status}" if status < 0 else f"status {status}"
                _log.warning("process %d of the hub ended (%s); it is started again in %g s", process, how, pause)
                await wait_for_event(self._stopping, pause)
        finally:
            if not started.done():
                started.set_result(None)

    async def _serve(self, place: int, started: asyncio.Future[RunningHub | None]) -> tuple[int, int]:
        """Run one process to its end; returns its id and how it ended."""
        from waypost.transports.http import server

        # A process ends with this one, however that ends: then `held` is closed, which it watches the other end of.
        (watched, held), (reports, report) = os.pipe(), os.pipe()
        try:
            # Closed here at once: connections would wait at it when the process has died.
            with server.listen(*self._address, is_shared=True) as listening:
                given = (listening.fileno(), watched, report)
                process = await asyncio.create_subprocess_exec(
                    sys.executable,
                    "-c",
                    _CHILD,
                    *map(str, given),
                    str(place),
                    *self._words,
                    pass_fds=given,
                    process_group=0,  # Ctrl-C goes to this process, which forwards it once
                )
            self._running[place] = process
            if self._stopping.is_set():  # by a signal that came just before
                process.terminate()
            # Not as an argument, which other users of the machine can see.
            os.write(held, self._key.encode() + b"\n")
            # While this end is open, reading would not end with the process.
            os.close(report)
            report = -1
            line = await asyncio.to_thread(_read_line, reports)
            if line:
                self._ready.add(process)
            if line and not started.done():
                started.set_result(msgspec.json.decode(line, type=RunningHub))
            status = await process.wait()
            self._ready.discard(process)
        finally:
            self._running.pop(place, None)
            for end in (watched, held, reports, report):
                with suppress(OSError):
                    os.close(end)
        return process.pid, status


def _read_line(pipe: int) -> bytes:
    """The bytes up to a line feed; fewer when the other end is closed before."""
    line = b""
    while not line.endswith(b"\n") and (some := os.read(pipe, 65_536)):
        line += some
    return line


# In the processes that are started


def serve_process() -> int:
    """Serve on a socket of the process that started this one, with its key, and report when this is ready."""
    listening, watched, report, place, *words = sys.argv[1:]

    def ready(hub: RunningHub) -> None:
        with os.fdopen(int(report), "wb") as pipe:
            pipe.write(msgspec.json.encode(hub) + b"\n")

    key = _read_line(int(watched)).decode().strip()
    return serve_share(words, Share(int(listening), key, ready, is_follower=place != "0"), int(watched))
