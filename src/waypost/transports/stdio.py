"""Standard streams: one JSON message a line, in on stdin, out on stdout, and nothing else there."""

from __future__ import annotations

import asyncio
import os
import sys
from collections.abc import Callable
from contextlib import suppress
from typing import BinaryIO, Protocol

from waypost.protocol.connection import Connection
from waypost.protocol.engine import Engine
from waypost.transports.memory_use import settle
from waypost.wire import messages


class _Lines(asyncio.Protocol):
    """Splits what arrives into lines, and what leaves into as few writes as possible."""

    def __init__(self, receive: Callable[[bytes], None], too_long: Callable[[], None], max_line: int) -> None:
        self._receive = receive
        self._too_long = too_long
        self._max_line = max_line
        self._rest = b""
        self._skipping = False
        self.ended = asyncio.get_running_loop().create_future()

    def data_received(self, data: bytes) -> None:
        lines = (self._rest + data).split(b"\n")
        self._rest = lines.pop()
        for line in lines:
            if self._skipping:
                self._skipping = False
            elif line.strip():
                self._receive(line)
        if len(self._rest) > self._max_line:
            self._rest = b""
            if not self._skipping:
                self._skipping = True
                self._too_long()

    def connection_lost(self, exc: Exception | None) -> None:
        if not self.ended.done():
            self.ended.set_result(None)


class _Output(asyncio.BaseProtocol):
    """Collects the lines of one turn of the loop and writes them at once."""

    def __init__(self) -> None:
        self._loop = asyncio.get_running_loop()
        self._lines: list[bytes] = []
        self.transport: asyncio.WriteTransport | None = None

    def write(self, message: bytes) -> None:
        """Send one line."""
        if not self._lines:
            self._loop.call_soon(self.flush)
        self._lines.append(message)

    def flush(self) -> None:
        """Hand over what was collected."""
        if self._lines and self.transport is not None and not self.transport.is_closing():
            self._lines.append(b"")
            self.transport.write(b"\n".join(self._lines))
        self._lines.clear()


class ServedOnStdio(Protocol):
    """What standard streams need of a hub."""

    engine: Engine
    max_body: int

    async def start(self) -> None: ...
    async def stop(self) -> None: ...


async def serve(engine: Engine, stdin: BinaryIO, stdout: BinaryIO, *, max_line: int) -> None:
    """Serve one client until it closes its end."""
    loop = asyncio.get_running_loop()
    output = _Output()
    output.transport, _ = await loop.connect_write_pipe(lambda: output, stdout)
    connection = Connection(engine, output.write)

    def too_long() -> None:
        output.write(messages.error(None, -32600, f"A message is over the limit of {max_line} bytes."))

    lines = _Lines(connection.receive, too_long, max_line)
    transport, _ = await loop.connect_read_pipe(lambda: lines, stdin)
    try:
        await lines.ended
    finally:
        transport.close()
        await connection.close()
        output.flush()
        output.transport.close()


def own_stdout() -> BinaryIO:
    """Keep stdout for the protocol: whatever else the process prints goes to stderr from now on."""
    kept = os.fdopen(os.dup(1), "wb", buffering=0)
    os.dup2(2, 1)
    sys.stdout = sys.stderr
    return kept


def run(hub: ServedOnStdio) -> None:
    """Serve a hub on this process's standard streams until the client leaves."""
    stdout = own_stdout()

    async def main() -> None:
        await hub.start()
        settle()
        try:
            await serve(hub.engine, sys.stdin.buffer, stdout, max_line=hub.max_body)
        finally:
            await hub.stop()

    with asyncio.Runner(loop_factory=_loop_factory()) as runner, suppress(KeyboardInterrupt):
        runner.run(main())


def _loop_factory() -> Callable[[], asyncio.AbstractEventLoop] | None:
    try:
        import uvloop
    except ImportError:
        return None
    return uvloop.new_event_loop
