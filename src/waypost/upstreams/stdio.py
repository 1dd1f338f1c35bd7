"""The link to a server that is a child process: one message a line, both ways."""

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

from waypost.config.executors import McpConnection
from waypost.redaction import redacted, secrets_of
from waypost.upstreams import advice
from waypost.upstreams.transport import UpstreamUnavailable

NO_HEADERS: Final[Mapping[str, str]] = {}
INHERITED: Final = ("PATH", "HOME", "LANG", "TZ", "TMPDIR")
"""What a server gets of the hub's environment, beside `LC_*`; secrets are handed over by name only."""

LONGEST_LINE: Final = 64 * 1024 * 1024
QUEUED: Final = 1024 * 1024
"""Bytes that may wait for a server to read them; whoever sends more waits as well."""
SLICE: Final = 16 * 1024
"""Bytes of a server's output that are looked at before others have their turn."""
PATIENCE: Final = 2.0
"""Seconds a server has to end by itself when its input is closed."""

_LONGEST_REMARK: Final = 2000
_GRACE: Final = 0.5
_LOOK_EVERY: Final = 0.05

_log: Final = logging.getLogger(__name__)


class StdioLink:
    """Talks to a server it starts; `lost` is called once when the server is gone or can no longer be followed."""

    round_trips: Final = False

    def __init__(
        self,
        name: str,
        connection: McpConnection,
        lost: Callable[[UpstreamUnavailable], None],
        *,
        longest_line: int = LONGEST_LINE,
        patience: float = PATIENCE,
    ) -> None:
        self._name = name
        self._connection = connection
        self._patience = patience
        self._child = _Child(name, lost, longest_line)

    async def open(self, receive: Callable[[bytes], None]) -> None:
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
            child.hang_up()
            with suppress(TimeoutError):
                async with asyncio.timeout(self._patience):
                    await child.exited.wait()
        finally:
            child.kill()
        with suppress(TimeoutError):
            async with asyncio.timeout(PATIENCE):
                await child.exited.wait()

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
            raise UpstreamUnavailable(advice.not_started(self._name, self._connection, error)) from None


def environment(own: Mapping[str, str]) -> dict[str, str]:
    """The variables a server is given: the few every program needs, and its own."""
    inherited = {name: text for name, text in os.environ.items() if name in INHERITED or name.startswith("LC_")}
    return {**inherited, **own}


class _Child(asyncio.BaseProtocol):
    """The process: its lines as they come, its input as far as it reads, its end.

    It is not started by way of the loop, because uvloop lets a child inherit more than its three streams, and because
    a group may only be killed by its number while its leader has not been waited for.
    """

    def __init__(self, name: str, lost: Callable[[UpstreamUnavailable], None], longest_line: int) -> None:
        self.receive: Callable[[bytes], None] = lambda _: None
        self.exited = asyncio.Event()
        self._popen: subprocess.Popen[bytes] | None = None
        self._stdin: asyncio.WriteTransport | None = None
        self._outputs: list[asyncio.BaseTransport] = []
        self._name = name
        self._tell = lost
        self._lost: UpstreamUnavailable | None = None
        self._open_outputs = 2
        self._has_spoken = False
        self._remark = ""
        self._secrets: tuple[str, ...] = ()
        self._flowing = asyncio.Event()
        self._flowing.set()
        too_long = f"wrote a line of more than {longest_line} bytes"
        self._messages = _Lines(longest_line, self._hand_on, lambda: self._lose(too_long))
        self._remarks = _Lines(_LONGEST_REMARK, self._note, lambda: None)

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
            env=environment(connection.env),
            start_new_session=True,
            bufsize=0,
        )
        try:
            self._watch(popen)
            await self._connect(popen)
        except BaseException:
            self.kill()
            raise

    async def _connect(self, popen: subprocess.Popen[bytes]) -> None:
        loop = asyncio.get_running_loop()
        stdin, _ = await loop.connect_write_pipe(lambda: self, popen.stdin)
        self._stdin = stdin
        stdin.set_write_buffer_limits(high=QUEUED)
        for lines, stream in ((self._messages, popen.stdout), (self._remarks, popen.stderr)):
            output, _ = await loop.connect_read_pipe(partial(_Output, lines.feed, self._fall_silent), stream)
            self._outputs.append(output)

    def connection_lost(self, exc: Exception | None) -> None:
        self._stdin = None
        self._flowing.set()

    def pause_writing(self) -> None:
        self._flowing.clear()

    def resume_writing(self) -> None:
        self._flowing.set()

    async def write(self, data: bytes) -> None:
        """Write a line; raises when that cannot reach the process any more."""
        while not self._flowing.is_set():
            await self._flowing.wait()
        if self._lost is not None:
            raise UpstreamUnavailable(str(self._lost))
        if self._stdin is None:
            raise UpstreamUnavailable(f'The server of the connection "{self._name}" no longer reads its input.')
        self._stdin.write(data + b"\n")

    def hang_up(self) -> None:
        """Close the process's input and expect nothing more of it."""
        self._lose("was closed")
        if self._stdin is not None:
            self._stdin.close()

    def kill(self) -> None:
        """End the process and all of its group, at once."""
        if not self.exited.is_set():
            self._kill_group()
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

    def _watch(self, popen: subprocess.Popen[bytes]) -> None:
        loop = asyncio.get_running_loop()
        if sys.platform == "linux":
            number = os.pidfd_open(popen.pid)
            loop.add_reader(number, self._reap, popen, number)
        elif popen.poll() is None:
            loop.call_later(_LOOK_EVERY, self._watch, popen)
        else:
            self._reap(popen)

    def _reap(self, popen: subprocess.Popen[bytes], number: int | None = None) -> None:
        if number is not None:
            asyncio.get_running_loop().remove_reader(number)
            os.close(number)
        # What the process has started does not outlive it.
        self._kill_group()
        popen.wait()
        self.exited.set()
        self._end_in_time()

    def _fall_silent(self) -> None:
        self._open_outputs -= 1
        self._end_in_time()

    def _end_in_time(self) -> None:
        """Count the process as gone when it has said its last, or soon after a first sign of that."""
        if not self._open_outputs and self.exited.is_set():
            self._lose(self._how_it_ended())
        else:
            asyncio.get_running_loop().call_later(_GRACE, lambda: self._lose(self._how_it_ended()))

    def _how_it_ended(self) -> str:
        code = None if self._popen is None else self._popen.returncode
        how = "closed its output"
        if code is not None:
            how = f"was killed by the signal {-code}" if code < 0 else f"ended with the exit code {code}"
        return advice.ended(how, redacted(self._remark, self._secrets), self._has_spoken)

    def _lose(self, how: str) -> None:
        if self._lost is not None:
            return
        self._lost = UpstreamUnavailable(f'The server of the connection "{self._name}" {how}.', delivered=True)
        self._flowing.set()
        self._tell(self._lost)

    def _hand_on(self, line: bytes) -> None:
        if self._lost is not None:
            return
        if line.lstrip().startswith(b"{"):
            self._has_spoken = True
            self.receive(line)
        else:
            self._note(line[:_LONGEST_REMARK])

    def _note(self, line: bytes) -> None:
        if line.strip():
            self._remark = line.decode(errors="replace")
            _log.debug("%s: %s", self._name, line.decode(errors="replace").rstrip())


class _Output(asyncio.Protocol):
    """A stream of the process that is read, a slice at a time: one that floods us takes its turn like all others."""

    def __init__(self, feed: Callable[[bytes], None], ended: Callable[[], None]) -> None:
        self._feed = feed
        self._ended = ended
        self._stream: asyncio.ReadTransport | None = None

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._stream = cast("asyncio.ReadTransport", transport)

    def data_received(self, data: bytes) -> None:
        if len(data) <= SLICE or self._stream is None:
            self._feed(data)
            return
        self._stream.pause_reading()
        self._go_on(self._stream, data, 0)

    def _go_on(self, stream: asyncio.ReadTransport, data: bytes, place: int) -> None:
        self._feed(data[place : place + SLICE])
        if stream.is_closing():
            return
        if place + SLICE < len(data):
            asyncio.get_running_loop().call_soon(self._go_on, stream, data, place + SLICE)
        else:
            stream.resume_reading()

    def connection_lost(self, exc: Exception | None) -> None:
        self._ended()


class _Lines:
    """Cuts what arrives into lines; of one that is too long, which is told at once, only the beginning is kept."""

    def __init__(self, longest: int, take: Callable[[bytes], None], too_long: Callable[[], Any]) -> None:
        self._longest = longest
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
        room = self._longest - len(self._line)
        if len(part) > room:
            self._too_long()
        self._line += part[:room]
