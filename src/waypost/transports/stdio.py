"""Standard streams: one JSON message per line on stdin and stdout, and nothing else on stdout."""

from __future__ import annotations

import asyncio
import logging
import os
import signal
import stat
import sys
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from typing import BinaryIO, Final, Protocol

from waypost.loops import freeze_gc
from waypost.protocol.connection import Connection
from waypost.protocol.engine import Engine
from waypost.wire import messages

_log: Final = logging.getLogger(__name__)

_CHUNK_BYTES: Final = 65536
_MAX_UNREAD_BYTES: Final = 64 * 1024 * 1024
_FINISH_TIMEOUT_S: Final = 1.0
"""How long calls may take after the end of the input."""
_CLOSE_TIMEOUT_S: Final = 5.0
"""How long a client may take to read the last responses after it closed its end."""


class _LineReader(asyncio.Protocol):
    """Splits the input into lines; one that is too long is reported and skipped."""

    def __init__(self, receive: Callable[[bytes], None], report_too_long: Callable[[], None], max_line: int) -> None:
        self._receive = receive
        self._report_too_long = report_too_long
        self._max_line = max_line
        self._rest = b""
        self._skipping = False
        self.is_stopped = False
        self.ended = asyncio.get_running_loop().create_future()

    def data_received(self, data: bytes) -> None:
        lines = (self._rest + data).split(b"\n")
        self._rest = lines.pop()
        for line in lines:
            if self._skipping:
                self._skipping = False
            elif len(line) > self._max_line:
                self._report_too_long()
            elif line.strip():
                self._receive(line)
        if len(self._rest) > self._max_line:
            self._rest = b""
            if not self._skipping:
                self._skipping = True
                self._report_too_long()

    def eof_received(self) -> None:
        last, self._rest = self._rest, b""
        if last.strip() and not self._skipping:
            self._receive(last)

    def stop(self) -> None:
        """End as if the input had ended, without waiting for running calls."""
        self.is_stopped = True
        self.connection_lost(None)

    def connection_lost(self, exc: Exception | None) -> None:
        if not self.ended.done():
            self.ended.set_result(None)


class _LineWriter(asyncio.BaseProtocol):
    """Writes the lines of one turn of the event loop together: a system call for each would be the larger cost."""

    def __init__(self, on_overflow: Callable[[], None]) -> None:
        self._on_overflow = on_overflow
        self._loop = asyncio.get_running_loop()
        self._lines: list[bytes] = []
        self._is_closed = asyncio.Event()
        self._transport: asyncio.WriteTransport | None = None
        self._file: BinaryIO | None = None

    async def open(self, stdout: BinaryIO) -> None:
        """Write to `stdout`."""
        if _is_pollable(stdout):
            self._transport, _ = await self._loop.connect_write_pipe(lambda: self, stdout)
        else:
            self._file = stdout

    def write(self, message: bytes) -> None:
        """Send one line."""
        if not self._lines:
            self._loop.call_soon(self._flush)
        self._lines.append(message)

    @property
    def is_open(self) -> bool:
        """Whether the client may still read."""
        return self._transport is None or not self._transport.is_closing()

    def connection_lost(self, _exc: Exception | None) -> None:
        self._is_closed.set()

    async def close(self) -> None:
        """Write what is left and close."""
        self._flush()
        if self._transport is None:
            return
        self._transport.close()
        try:
            async with asyncio.timeout(_CLOSE_TIMEOUT_S):
                await self._is_closed.wait()
        except TimeoutError:
            self._transport.abort()

    def _flush(self) -> None:
        if not self._lines:
            return
        data = b"\n".join([*self._lines, b""])
        self._lines.clear()
        if self._file is not None:
            self._file.write(data)
        elif self._transport is not None and not self._transport.is_closing():
            self._transport.write(data)
            if self._transport.get_write_buffer_size() > _MAX_UNREAD_BYTES:
                _log.error("the client does not read its messages; the connection is closed")
                self._transport.abort()
                self._on_overflow()


class StdioHub(Protocol):
    """What this transport needs of a hub."""

    @property
    def engine(self) -> Engine: ...
    @property
    def max_body_bytes(self) -> int: ...
    async def start(self) -> None: ...
    async def stop(self) -> None: ...


async def serve(engine: Engine, stdin: BinaryIO, stdout: BinaryIO, *, max_line: int) -> bool:
    """Serve one client until it closes its end and its calls are answered; false if a call ignores its cancellation."""
    output = _LineWriter(lambda: lines.connection_lost(None))
    await output.open(stdout)
    connection = Connection(engine, output.write)

    def report_too_long() -> None:
        output.write(messages.error(None, -32600, f"A message is over the limit of {max_line} bytes (maxBodyBytes)."))

    lines = _LineReader(connection.receive, report_too_long, max_line)
    close = await _read(stdin, lines)
    try:
        with _stop_at_sigterm(lines.stop):
            await lines.ended
            if output.is_open and not lines.is_stopped:
                await connection.finish(_FINISH_TIMEOUT_S)
    finally:
        close()
        stopped = await connection.close()
        await output.close()
    return stopped


@contextmanager
def _stop_at_sigterm(stop: Callable[[], None]) -> Iterator[None]:
    """Call `stop` at the first SIGTERM; a second one ends the process as usual."""
    loop = asyncio.get_running_loop()

    def once() -> None:
        loop.remove_signal_handler(signal.SIGTERM)
        stop()

    with suppress(NotImplementedError, RuntimeError, ValueError):  # not every thread and system has signals
        loop.add_signal_handler(signal.SIGTERM, once)
    try:
        yield
    finally:
        with suppress(NotImplementedError, RuntimeError, ValueError):
            loop.remove_signal_handler(signal.SIGTERM)


async def _read(stdin: BinaryIO, lines: _LineReader) -> Callable[[], None]:
    """Feed `stdin` to `lines`, until the returned function is called."""
    loop = asyncio.get_running_loop()
    if _is_pollable(stdin):
        transport, _ = await loop.connect_read_pipe(lambda: lines, stdin)
        return transport.close
    threading.Thread(target=_read_file, args=(stdin, lines, loop), daemon=True).start()
    return lambda: None


def _is_pollable(stream: BinaryIO) -> bool:
    """Whether the event loop can wait for a stream; files and devices need a thread."""
    mode = os.fstat(stream.fileno()).st_mode
    return stat.S_ISFIFO(mode) or stat.S_ISSOCK(mode)


def _read_file(stdin: BinaryIO, lines: _LineReader, loop: asyncio.AbstractEventLoop) -> None:
    with suppress(RuntimeError):  # the loop may have ended while this thread was reading
        while data := os.read(stdin.fileno(), _CHUNK_BYTES):
            loop.call_soon_threadsafe(lines.data_received, data)
        loop.call_soon_threadsafe(lines.eof_received)
        loop.call_soon_threadsafe(lines.connection_lost, None)


def claim_stdout() -> BinaryIO:
    """A copy of stdout for the protocol; what the process and its children print goes to stderr from now on."""
    original = os.fdopen(os.dup(1), "wb", buffering=0)
    # The descriptor too: programs that the hub starts inherit it, and extensions in C write to it.
    os.dup2(2, 1)
    sys.stdout = sys.stderr
    return original


def run(hub: StdioHub, stdout: BinaryIO | None = None) -> None:
    """Serve a hub on this process's standard streams until the client disconnects."""
    original = claim_stdout() if stdout is None else stdout

    async def main() -> None:
        await hub.start()
        freeze_gc()
        try:
            stopped = await serve(hub.engine, sys.stdin.buffer, original, max_line=hub.max_body_bytes)
        finally:
            await hub.stop()
        if not stopped:
            # Work that ignores its cancellation would keep the loop, and so the process, alive for ever.
            os._exit(0)

    with asyncio.Runner(loop_factory=_loop_factory()) as runner, suppress(KeyboardInterrupt):
        runner.run(main())


def _loop_factory() -> Callable[[], asyncio.AbstractEventLoop] | None:
    try:
        import uvloop
    except ImportError:
        return None
    return uvloop.new_event_loop
