"""Runs a program with a deadline, a limit for its output, and no process left behind."""

from __future__ import annotations

import asyncio
import os
import signal
from collections.abc import Coroutine, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

# Everything else in the environment may be a secret of the hub.
PASSED_VARIABLES: Final = ("PATH", "LANG", "LC_ALL", "LC_CTYPE", "TZ")
KILL_TIMEOUT_S: Final = 2.0
"""How long to wait for a killed process."""


@dataclass(frozen=True)
class ProcessResult:
    """The exit code and output of a program; `truncated` when there was more output."""

    code: int
    out: bytes
    err: bytes
    truncated: bool


def make_environment(directory: Path) -> dict[str, str]:
    """The few variables a program gets; `HOME` is its working directory, not the operator's."""
    return {name: os.environ[name] for name in PASSED_VARIABLES if name in os.environ} | {"HOME": str(directory)}


async def run_process(
    argv: Sequence[str],
    directory: Path,
    variables: Mapping[str, str],
    *,
    within: float,
    max_bytes: int,
    stdin_data: bytes = b"",
) -> ProcessResult:
    """Run a program, without a shell, in a process group that is killed at the end, `TimeoutError` or cancellation."""
    process = await _start(
        asyncio.create_subprocess_exec(
            *argv,
            stdin=asyncio.subprocess.PIPE if stdin_data else asyncio.subprocess.DEVNULL,
            stdout=asyncio.subprocess.PIPE,
            stderr=asyncio.subprocess.PIPE,
            cwd=directory,
            env=dict(variables),
            # A group of its own, so that `_end` also kills what the program started.
            start_new_session=True,
        )
    )
    try:
        async with asyncio.timeout(within):
            return await _communicate(process, stdin_data, max_bytes)
    finally:
        # Also after a regular end: the program may have left children behind.
        await _end(process)


async def _start(starting: Coroutine[Any, Any, asyncio.subprocess.Process]) -> asyncio.subprocess.Process:
    """Start a process, uncancelled: asyncio may hang or leave a child behind if it is cancelled while it starts one."""
    start = asyncio.ensure_future(starting)
    try:
        return await asyncio.shield(start)
    except asyncio.CancelledError:
        with suppress(OSError, ValueError):
            await _end(await start)
        raise


async def _communicate(process: asyncio.subprocess.Process, stdin_data: bytes, max_bytes: int) -> ProcessResult:
    assert process.stdout is not None
    assert process.stderr is not None
    _, (out, out_truncated), (err, err_truncated) = await asyncio.gather(
        _write_stdin(process.stdin, stdin_data),
        _read_limited(process.stdout, max_bytes),
        _read_limited(process.stderr, max_bytes),
    )
    return ProcessResult(await process.wait(), out, err, out_truncated or err_truncated)


async def _write_stdin(stdin: asyncio.StreamWriter | None, stdin_data: bytes) -> None:
    if stdin is None:
        return
    # A program may end without reading its input.
    with suppress(ConnectionError):
        stdin.write(stdin_data)
        await stdin.drain()
        stdin.close()


async def _read_limited(stream: asyncio.StreamReader, max_bytes: int) -> tuple[bytes, bool]:
    """The first `max_bytes` bytes, and whether there were more, which are read and dropped."""
    data = bytearray()
    truncated = False
    while chunk := await stream.read(65536):
        truncated = truncated or len(data) + len(chunk) > max_bytes
        data += chunk[: max_bytes - len(data)]
    return bytes(data), truncated


async def _end(process: asyncio.subprocess.Process) -> None:
    with suppress(ProcessLookupError, PermissionError):
        os.killpg(process.pid, signal.SIGKILL)
    with suppress(TimeoutError):
        async with asyncio.timeout(KILL_TIMEOUT_S):
            await process.wait()
