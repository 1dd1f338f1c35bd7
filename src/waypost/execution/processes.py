"""Running a program that ends in time, says no more than it may and leaves nothing behind."""

from __future__ import annotations

import asyncio
import os
import signal
from collections.abc import Coroutine, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

ENVIRONMENT: Final = ("PATH", "LANG", "LC_ALL", "LC_CTYPE", "TZ")
GOING: Final = 2.0
"""Seconds in which a killed process is gone, whatever it was doing."""


@dataclass(frozen=True)
class Ended:
    """What a program said; `cut` when it said more than that."""

    code: int
    out: bytes
    err: bytes
    cut: bool


def environment(directory: Path) -> dict[str, str]:
    """The few variables a program is given; its home is where it works, not the operator's."""
    return {name: os.environ[name] for name in ENVIRONMENT if name in os.environ} | {"HOME": str(directory)}


async def run_process(
    argv: Sequence[str],
    directory: Path,
    variables: Mapping[str, str],
    *,
    within: float,
    most_bytes: int,
    given: bytes = b"",
) -> Ended:
    """Run a program, without a shell, in a process group that is killed at the end, `TimeoutError` or cancellation."""
    process = await _started(
        asyncio.create_subprocess_exec(
            *argv,
            stdin=asyncio.subprocess.PIPE if given else asyncio.subprocess.DEVNULL,
            stdout=asyncio.subprocess.PIPE,
            stderr=asyncio.subprocess.PIPE,
            cwd=directory,
            env=dict(variables),
            start_new_session=True,
        )
    )
    try:
        async with asyncio.timeout(within):
            return await _converse(process, given, most_bytes)
    finally:
        await _end(process)


async def _started(starting: Coroutine[Any, Any, asyncio.subprocess.Process]) -> asyncio.subprocess.Process:
    """The process, whole: asyncio hangs and leaves children behind if it is cancelled while it starts one."""
    start = asyncio.ensure_future(starting)
    try:
        return await asyncio.shield(start)
    except asyncio.CancelledError:
        with suppress(OSError, ValueError):
            await _end(await start)
        raise


async def _converse(process: asyncio.subprocess.Process, given: bytes, most: int) -> Ended:
    assert process.stdout is not None
    assert process.stderr is not None
    _, (out, out_cut), (err, err_cut) = await asyncio.gather(
        _give(process.stdin, given), _hear(process.stdout, most), _hear(process.stderr, most)
    )
    return Ended(await process.wait(), out, err, out_cut or err_cut)


async def _give(stdin: asyncio.StreamWriter | None, given: bytes) -> None:
    if stdin is None:
        return
    with suppress(ConnectionError):
        stdin.write(given)
        await stdin.drain()
        stdin.close()


async def _hear(stream: asyncio.StreamReader, most: int) -> tuple[bytes, bool]:
    """The first `most` bytes, and whether there were more, which are read and forgotten."""
    kept = bytearray()
    cut = False
    while chunk := await stream.read(65536):
        cut = cut or len(kept) + len(chunk) > most
        kept += chunk[: most - len(kept)]
    return bytes(kept), cut


async def _end(process: asyncio.subprocess.Process) -> None:
    with suppress(ProcessLookupError, PermissionError):
        os.killpg(process.pid, signal.SIGKILL)
    with suppress(TimeoutError):
        async with asyncio.timeout(GOING):
            await process.wait()
