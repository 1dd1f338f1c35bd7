"""The stdio transport: the server is a child process, and each message is one line."""

from __future__ import annotations

import asyncio
import logging
import os
import signal
import subprocess
import sys
from collections.abc import Callable, Mapping
from contextlib import suppress
from functools import partial
from typing import Any, Final, cast

from waypost.config.models import McpConnection
from waypost.loops import wait_for_event
from waypost.redaction import redacted, secrets_of
from waypost.upstreams.transport import NO_HEADERS, Lost, Receive, UpstreamUnavailable, shorten

INHERITED: Final = ("PATH", "HOME", "LANG", "TZ", "TMPDIR")
"""The variables of the hub's environment that a server gets, beside `LC_*`; it gets secrets by name only."""

MAX_LINE_BYTES: Final = 64 * 1024 * 1024
MAX_QUEUED_BYTES: Final = 1024 * 1024
"""Bytes that may wait for a server to read them; beyond that, senders wait as well."""
MAX_SLICE_BYTES: Final = 16 * 1024
"""Bytes of a server's output that are handled before the loop turns to something else."""
EXIT_TIMEOUT_S: Final = 2.0
"""How long a server has to exit by itself when its input is closed."""

_MAX_LOG_LINE_BYTES: Final = 2000
_LAST_OUTPUT_S: Final = 0.5
_POLL_EXIT_S: Final = 0.05

_log: Final = logging.getLogger(__name__)


class StdioTransport:
    """Talks to a server that it starts; `lost` is called once when the server is gone or its output is unusable."""

    round_trips: Final = False

    def __init__(
        self,
        name: str,
        connection: McpConnection,
        lost: Lost,
        *,
        max_line: int = MAX_LINE_BYTES,
        exit_timeout: float = EXIT_TIMEOUT_S,
    ) -> None:
        self._name = name
        self._connection = connection
        self._exit_timeout = exit_timeout
        self._child = _Child(name, lost, max_line)

    async def open(self, receive: Receive) -> None:
        """Start the server, unless it runs already."""
        self._child.receive = receive
        if not self._child.is_started:
            await self._start()

    async def send(
        self, data: bytes, version: str, method: str | None, name: str | None, extra: Mapping[str, str] = NO_HEADERS
    ) -> None:
        """Write one message, when the server has read enough of those before it."""
        await self._child.write(data)

    async def close(self) -> None:
        """Let the server end by itself for a while, then kill all of its process group."""
        child = self._child
        if not child.is_started:
            return
        try:
            child.close_input()
            await wait_for_event(child.exited, self._exit_timeout)
        finally:
            child.kill()
        await wait_for_event(child.exited, EXIT_TIMEOUT_S)

    async def _start(self) -> None:
        start = asyncio.ensure_future(self._child.start(self._connection))
        try:
            await asyncio.shield(start)
        except asyncio.CancelledError:
            # A pipe that is only half connected could not be closed, so the start runs to its end.
            start.add_done_callback(lambda _: self._child.kill())
            await asyncio.wait({start})
            raise
        except (OSError, ValueError) as error:
            reason = _explain_start_error(self._connection, error)
            failed = f'The connection "{self._name}" cannot start {self._connection.command}: {reason}.'
            raise UpstreamUnavailable(failed) from None


def _explain_start_error(connection: McpConnection, error: OSError | ValueError) -> str:
    folder = connection.working_directory
    if folder is not None and not os.path.isdir(folder):
        return f"its workingDirectory {folder} does not exist"
    if isinstance(error, FileNotFoundError):
        return "there is no such program; install it, or correct its command"
    if isinstance(error, PermissionError):
        return "it may not be executed; correct its command, or its permissions"
    return error.strerror if isinstance(error, OSError) and error.strerror else str(error)


def build_environment(own: Mapping[str, str]) -> dict[str, str]:
    """The variables that a server gets: the few that every program needs, and its own."""
    inherited = {name: text for name, text in os.environ.items() if name in INHERITED or name.startswith("LC_")}
    return {**inherited, **own}


class _Child(asyncio.BaseProtocol):
    """The process: its input, the lines of its output, and its end.

    It is not started by the loop, because uvloop lets a child inherit more than its three streams, and because a group
    may only be killed by its number while its leader has not been waited for.
    """

    def __init__(self, name: str, lost: Lost, max_line: int) -> None:
        self.receive: Receive = lambda _: None
        self.exited = asyncio.Event()
        self._popen: subprocess.Popen[bytes] | None = None
        self._stdin: asyncio.WriteTransport | None = None
        self._outputs: list[asyncio.BaseTransport] = []
        self._name = name
        self._on_lost = lost
        self._lost: UpstreamUnavailable | None = None
        self._open_outputs = 2
        self._has_answered = False
        self._last_log = ""
        self._secrets: tuple[str, ...] = ()
        self._is_writable = asyncio.Event()
        self._is_writable.set()
        too_long = f"wrote a line of more than {max_line} bytes"
        self._message_lines = _Lines(max_line, self._take_message, lambda: self._fail(too_long))
        self._log_lines = _Lines(_MAX_LOG_LINE_BYTES, self._take_log, lambda: None)

    @property
    def is_started(self) -> bool:
        """Whether there has been a process."""
        return self._popen is not None

    async def start(self, connection: McpConnection) -> None:
        """Start the process and connect its streams."""
        self._secrets = secrets_of(connection.env)
        popen = self._popen = subprocess.Popen(  # noqa: S603, ASYNC220  # the operator's; asyncio does not wait here either
            [connection.command or "", *connection.args],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            cwd=connection.working_directory,
            env=build_environment(connection.env),
            # A process group of its own can be killed as a whole, and Ctrl-C at the hub's terminal does not reach it.
            start_new_session=True,
            bufsize=0,
        )
        try:
            self._watch_exit(popen)
            await self._connect(popen)
        except BaseException:
            self.kill()
            raise

    async def _connect(self, popen: subprocess.Popen[bytes]) -> None:
        loop = asyncio.get_running_loop()
        stdin, _ = await loop.connect_write_pipe(lambda: self, popen.stdin)
        self._stdin = stdin
        stdin.set_write_buffer_limits(high=MAX_QUEUED_BYTES)
        for lines, stream in ((self._message_lines, popen.stdout), (self._log_lines, popen.stderr)):
            output, _ = await loop.connect_read_pipe(partial(_Output, lines.feed, self._close_output), stream)
            self._outputs.append(output)

    def connection_lost(self, exc: Exception | None) -> None:
        self._stdin = None
        self._is_writable.set()

    def pause_writing(self) -> None:
        self._is_writable.clear()

    def resume_writing(self) -> None:
        self._is_writable.set()

    async def write(self, data: bytes) -> None:
        """Write a line; raises when that cannot reach the process any more."""
        # Again after each wake-up: another writer may have filled the buffer first.
        while not self._is_writable.is_set():
            await self._is_writable.wait()
        if self._stdin is None and self._lost is None:
            # A program that ends closes its input first. How it ended says more, and is known a little later.
            with suppress(TimeoutError):
                await asyncio.wait_for(self.exited.wait(), _LAST_OUTPUT_S)
                await asyncio.sleep(_LAST_OUTPUT_S)
        if self._lost is not None:
            raise UpstreamUnavailable(str(self._lost))
        if self._stdin is None:
            raise UpstreamUnavailable(f'The server of the connection "{self._name}" no longer reads its input.')
        self._stdin.write(data + b"\n")

    def close_input(self) -> None:
        """Close the process's input and expect nothing more of it."""
        self._fail("was closed")
        if self._stdin is not None:
            self._stdin.close()

    def kill(self) -> None:
        """End the process and all of its group, at once."""
        if not self.exited.is_set():
            self._kill_group()
        # `close` would first write what is buffered, and the process may never read it.
        if self._stdin is not None and self._stdin.get_write_buffer_size():
            self._stdin.abort()
        elif self._stdin is not None:
            self._stdin.close()  # asyncio does not survive an abort of what is closed already
        for output in self._outputs:
            output.close()

    def _kill_group(self) -> None:
        if self._popen is not None:
            with suppress(ProcessLookupError, PermissionError):
                os.killpg(self._popen.pid, signal.SIGKILL)

    def _watch_exit(self, popen: subprocess.Popen[bytes]) -> None:
        loop = asyncio.get_running_loop()
        if sys.platform == "linux":
            # A pidfd needs neither a thread nor the SIGCHLD handler of the program around the hub.
            number = os.pidfd_open(popen.pid)
            loop.add_reader(number, self._reap, popen, number)
        elif popen.poll() is None:
            loop.call_later(_POLL_EXIT_S, self._watch_exit, popen)
        else:
            self._reap(popen)

    def _reap(self, popen: subprocess.Popen[bytes], number: int | None = None) -> None:
        if number is not None:
            asyncio.get_running_loop().remove_reader(number)
            os.close(number)
        # Processes that the server has started do not outlive it.
        self._kill_group()
        popen.wait()
        self.exited.set()
        self._fail_soon()

    def _close_output(self) -> None:
        self._open_outputs -= 1
        self._fail_soon()

    def _fail_soon(self) -> None:
        """Count the process as gone when its output has ended too, or a little after the first sign of its end."""
        # What a crashing server last wrote to its standard error is the best explanation there is, so it is waited for.
        if not self._open_outputs and self.exited.is_set():
            self._fail(self._explain_end())
        else:
            asyncio.get_running_loop().call_later(_LAST_OUTPUT_S, lambda: self._fail(self._explain_end()))

    def _explain_end(self) -> str:
        code = None if self._popen is None else self._popen.returncode
        how = "closed its output"
        if code is not None:
            how = f"was killed by the signal {-code}" if code < 0 else f"ended with the exit code {code}"
        log = shorten(redacted(self._last_log, self._secrets)) if self._last_log else ""
        ended = f"{how}: {log}" if log else how
        return ended if self._has_answered else f"{ended}; check whether its command, with its args, is an MCP server"

    def _fail(self, how: str) -> None:
        if self._lost is not None:
            return
        self._lost = UpstreamUnavailable(f'The server of the connection "{self._name}" {how}.', delivered=True)
        self._is_writable.set()
        self._on_lost(self._lost)

    def _take_message(self, line: bytes) -> None:
        if self._lost is not None:
            return
        # Some servers print a banner to standard output; that is a log line, not a message.
        if line.lstrip().startswith(b"{"):
            self._has_answered = True
            self.receive(line)
        else:
            self._take_log(line[:_MAX_LOG_LINE_BYTES])

    def _take_log(self, line: bytes) -> None:
        if line.strip():
            self._last_log = line.decode(errors="replace")
            _log.debug("%s: %s", self._name, line.decode(errors="replace").rstrip())


class _Output(asyncio.Protocol):
    """One output of the process, handled a slice at a time: a process that writes a lot must not block the loop."""

    def __init__(self, feed: Callable[[bytes], None], ended: Callable[[], None]) -> None:
        self._feed = feed
        self._ended = ended
        self._stream: asyncio.ReadTransport | None = None

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._stream = cast("asyncio.ReadTransport", transport)

    def data_received(self, data: bytes) -> None:
        if len(data) <= MAX_SLICE_BYTES or self._stream is None:
            self._feed(data)
            return
        # Nothing more is read while the slices of what arrived take their turns with other work.
        self._stream.pause_reading()
        self._feed_slice(self._stream, data, 0)

    def _feed_slice(self, stream: asyncio.ReadTransport, data: bytes, start: int) -> None:
        self._feed(data[start : start + MAX_SLICE_BYTES])
        if stream.is_closing():
            return
        if start + MAX_SLICE_BYTES < len(data):
            asyncio.get_running_loop().call_soon(self._feed_slice, stream, data, start + MAX_SLICE_BYTES)
        else:
            stream.resume_reading()

    def connection_lost(self, exc: Exception | None) -> None:
        self._ended()


class _Lines:
    """Cuts what arrives into lines; of a line that is too long, which is reported at once, only the start is kept."""

    def __init__(self, max_bytes: int, take: Callable[[bytes], None], too_long: Callable[[], Any]) -> None:
        self._max_bytes = max_bytes
        self._take = take
        self._too_long = too_long
        self._line = bytearray()

    def feed(self, data: bytes) -> None:
        """Take what has arrived."""
        *ends, rest = data.split(b"\n")
        for end in ends:
            self._add(end)
            self._take(bytes(self._line))
            self._line.clear()
        self._add(rest)

    def _add(self, part: bytes) -> None:
        room = self._max_bytes - len(self._line)
        if len(part) > room:
            self._too_long()
        self._line += part[:room]
