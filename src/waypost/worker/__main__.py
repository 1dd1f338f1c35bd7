"""Runs a program of a worker, `await` at its top level included, and serves until it is stopped."""

from __future__ import annotations

import ast
import asyncio
import signal
import sys
from collections.abc import Sequence
from pathlib import Path
from types import FunctionType
from typing import Any, Final

from waypost.loops import maybe_await
from waypost.worker.worker import Worker

_STOP_SIGNALS: Final = (signal.SIGINT, signal.SIGTERM)


def main(arguments: Sequence[str]) -> int:
    """Run the file in the first argument; the others are for the program."""
    if not arguments or arguments[0].startswith("-"):
        sys.stderr.write("usage: python -m waypost.worker FILE [ARGUMENT ...]\n")
        return 0 if arguments and arguments[0] in ("-h", "--help") else 2
    file = Path(arguments[0])
    try:
        program = compile(file.read_bytes(), str(file), "exec", flags=ast.PyCF_ALLOW_TOP_LEVEL_AWAIT)
    except OSError as error:
        sys.stderr.write(f"waypost.worker: {file} cannot be read: {error.strerror}\n")
        return 1
    sys.argv = list(arguments)
    sys.path.insert(0, str(file.resolve().parent))
    asyncio.run(_run(FunctionType(program, {"__name__": "__main__", "__file__": str(file)})))
    return 0


async def _run(program: FunctionType) -> None:
    stopped = asyncio.Event()
    for number in _STOP_SIGNALS:
        asyncio.get_running_loop().add_signal_handler(number, stopped.set)
    running = asyncio.ensure_future(maybe_await(program()))
    await _wait_for(running, stopped)
    workers = [one for one in program.__globals__.values() if isinstance(one, Worker)]
    if running.done():
        await running
        await _wait_for(asyncio.gather(*(one.closed() for one in workers)), stopped)
    else:
        running.cancel()
    await asyncio.gather(*(one.shutdown() for one in workers))


async def _wait_for(work: asyncio.Future[Any], stopped: asyncio.Event) -> None:
    """Wait until the work is done, or the process is asked to stop."""
    stopping = asyncio.ensure_future(stopped.wait())
    await asyncio.wait((work, stopping), return_when=asyncio.FIRST_COMPLETED)
    stopping.cancel()


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
