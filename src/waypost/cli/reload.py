"""`waypost serve --reload`: serve a hub in Python in a process of its own, and replace that when its files change.

This process keeps the socket, so that clients that connect while the hub is replaced wait instead of being refused.
"""

from __future__ import annotations

import asyncio
import os
import signal
import sys
import threading
from argparse import Namespace
from collections.abc import Iterable
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING, Final

from waypost.cli.command import Output
from waypost.errors import WaypostError

if TYPE_CHECKING:
    from waypost.cli.serve import Share

STOP_S: Final = 10.0
"""How long a hub may take to answer its last requests before it is killed."""
_CHILD: Final = "from waypost.cli.reload import {0}; raise SystemExit({0}())"
_NEWS: Final = "{names} changed; {then}\n"


def supervise(args: Namespace) -> Output:
    """Serve until stopped, each version of the code in a new process."""
    from waypost.cli.target import load_hub
    from waypost.transports.http import server

    # Once in this process too, where an error ends the command in one sentence, and for the address.
    settings = load_hub(args.target).settings.server
    if settings.processes > 1:
        raise WaypostError(f"--reload serves one process, and server.processes is {settings.processes}; leave one out.")
    listening = server.listen(args.host or settings.host, settings.port if args.port is None else args.port)
    with listening:
        return Output(status=asyncio.run(_Supervisor(args, listening.fileno()).run()))


def to_words(args: Namespace) -> list[str]:
    """The command line of `waypost serve` for one process."""
    words = ["serve", args.target, "--log-level", args.log_level]
    words += ["--access-log"] if args.access_log else []
    for option in ("host", "port", "data"):
        value = getattr(args, option)
        words += [] if value is None else [f"--{option}", str(value)]
    return words


class _Supervisor:
    def __init__(self, args: Namespace, socket: int) -> None:
        file = args.target.rpartition(":")[0]
        self._folder = Path(file).resolve().parent if file.endswith(".py") else Path.cwd()
        self._target = args.target
        self._words = to_words(args)
        self._socket = socket
        self._stop = asyncio.Event()
        # The hub ends with this process, however that ends: then its end of the pipe is closed.
        self._watched, self._held = os.pipe()

    async def run(self) -> int:
        """Serve until a signal, and return how the last hub ended."""
        from watchfiles import PythonFilter, awatch

        for number in (signal.SIGINT, signal.SIGTERM):
            asyncio.get_running_loop().add_signal_handler(number, self._stop.set)
        hub = await self._start()
        async for changes in awatch(self._folder, watch_filter=PythonFilter(), stop_event=self._stop):
            names = _list_names((Path(path) for _, path in changes), self._folder)
            if not await self._check(names):
                continue
            sys.stderr.write(_NEWS.format(names=names, then="serving it again"))
            await end_process(hub, STOP_S)
            hub = await self._start()
        return await end_process(hub, STOP_S)

    async def _start(self) -> asyncio.subprocess.Process:
        return await asyncio.create_subprocess_exec(
            sys.executable,
            "-c",
            _CHILD.format("serve_inherited"),
            str(self._socket),
            str(self._watched),
            *self._words,
            pass_fds=(self._socket, self._watched),
            env=_environment(),
        )

    async def _check(self, names: str) -> bool:
        """Whether the code can be loaded; what is wrong with it is printed, and the hub that runs stays."""
        loading = await asyncio.create_subprocess_exec(
            sys.executable, "-c", _CHILD.format("load_target"), self._target, env=_environment()
        )
        if await loading.wait() == 0:
            return True
        sys.stderr.write(_NEWS.format(names=names, then="it cannot be loaded, and the hub before it stays"))
        return False


def _environment() -> dict[str, str]:
    # Compiled files are recognised by the second of a change: two changes in one second would be taken for one.
    return {**os.environ, "PYTHONDONTWRITEBYTECODE": "1"}


async def end_process(hub: asyncio.subprocess.Process, seconds: float) -> int:
    """Ask a hub to stop, and return how it ended; one that takes longer than so many seconds is killed."""
    with suppress(ProcessLookupError):
        hub.terminate()
    try:
        return await asyncio.wait_for(hub.wait(), seconds)
    except TimeoutError:
        hub.kill()
        return await hub.wait()


def _list_names(files: Iterable[Path], folder: Path) -> str:
    return ", ".join(sorted(str(file.relative_to(folder) if file.is_relative_to(folder) else file) for file in files))


# In the processes that are started


def serve_inherited() -> int:
    """Serve as the command line says, on a socket of the process that started this one, and end with that process."""
    from waypost.cli.serve import Share

    socket, watched, *words = sys.argv[1:]
    return serve_share(words, Share(int(socket)), int(watched))


def serve_share(words: list[str], share: Share, watched: int) -> int:
    """Serve as the command line says, until the other end of a pipe is closed; returns the exit status."""
    from waypost.cli.main import build_parser
    from waypost.cli.serve import serve

    threading.Thread(target=_end_with, args=(watched,), daemon=True).start()
    try:
        return serve(build_parser("serve").parse_args(words), share).status
    except WaypostError as error:
        sys.stderr.write(f"waypost: {error}\n")
        return 1


def _end_with(pipe: int) -> None:
    os.read(pipe, 1)
    os.kill(os.getpid(), signal.SIGTERM)


def load_target() -> int:
    """Load a hub, and print why it cannot be loaded."""
    from waypost.cli.target import load_hub

    try:
        load_hub(sys.argv[1])
    except WaypostError as error:
        sys.stderr.write(f"waypost: {error}\n")
        return 1
    return 0
