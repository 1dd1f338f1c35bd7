"""The processes that run skills: one process, and the pool that all calls share."""

from __future__ import annotations

import asyncio
import logging
import os
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
from collections import deque
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager, suppress
from contextvars import ContextVar
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path
from typing import Any, Final, cast

import msgspec

from waypost.capabilities.context import Context, Handler
from waypost.errors import Busy, ToolError
from waypost.loops import maybe_await, running_loop
from waypost.skills.child.messages import (
    HEAD,
    SLACK,
    Ask,
    Call,
    Done,
    Failed,
    FromChild,
    FromHub,
    Ready,
    Reply,
    Start,
    encode,
    framed,
)
from waypost.skills.files import Limits

_log: Final = logging.getLogger(__name__)


class ProcessEnded(RuntimeError):
    """The skill's process ended before it answered."""


class SkillCrash(RuntimeError):
    """A skill raised something; subclasses bear the name of what it was."""

    is_refusal = False
    """Whether the skill was not allowed something: its caller's affair, and no fault that others should feel."""


def crash(name: str, failed: Failed) -> Exception:
    """The exception that stands for one in a skill's process, whose traceback goes to the log."""
    if failed.told:
        return ToolError(failed.message)
    _log.error("skill %s failed\n%s", name, failed.traceback.rstrip())
    return _named(failed.kind[:100])(failed.message)


@lru_cache(maxsize=256)
def _named(kind: str) -> type[SkillCrash]:
    return type(kind, (SkillCrash,), {"is_refusal": kind == PermissionError.__name__})


def ended(code: int, cpu: int) -> ProcessEnded:
    """What the end of a process says: a positive code is its own, a negative one a signal's."""
    if code >= 0:
        return ProcessEnded(f"the skill's process ended: exit code {code}")
    if -code == signal.SIGXCPU:
        return ProcessEnded(f"the skill's process ended: it used up its CPU time of {cpu} s")
    try:
        named = signal.Signals(-code).name
    except ValueError:
        named = f"signal {-code}"
    return ProcessEnded(f"the skill's process ended: killed by {named}")


_CHUNK: Final = 64 * 1024


class Output:
    """The hub's end of the pipe that a skill's process has as stdout and stderr."""

    def __init__(self, name: str, number: int, most: int) -> None:
        self._name = name
        self._number = number
        self._most = most
        self._left = most
        self._line = b""
        os.set_blocking(number, False)
        self._loop = running_loop()
        self._loop.add_reader(number, self._read)

    def renew(self) -> None:
        """A new call may print as much as the one before."""
        self._left = self._most

    def close(self) -> None:
        """Take what is left, and no more."""
        self._loop.remove_reader(self._number)
        while self._take():
            pass
        if self._line:
            self._write(self._line)
        os.close(self._number)

    def _read(self) -> None:
        if not self._take():
            self._loop.remove_reader(self._number)

    def _take(self) -> bool:
        try:
            data = os.read(self._number, _CHUNK)
        except BlockingIOError:
            return False
        if data and self._left > 0:
            kept = data[: self._left]
            *lines, self._line = (self._line + kept).split(b"\n")
            for line in lines:
                self._write(line)
        if 0 < self._left <= len(data):
            _log.warning("skill %s prints more than %d bytes; the rest is dropped", self._name, self._most)
        self._left -= len(data)
        return bool(data)

    def _write(self, line: bytes) -> None:
        _log.info("skill %s: %s", self._name, line.decode(errors="replace").rstrip("\r"))


_MOST_UNREAD: Final = 64
_decoder: Final[msgspec.json.Decoder[FromChild]] = msgspec.json.Decoder(FromChild)


class Connection(asyncio.Protocol):
    """Messages out and in; one at a time waits for the next."""

    def __init__(self, largest: int) -> None:
        self._largest = largest + SLACK
        self._buffer = bytearray()
        self._inbox: deque[FromChild] = deque()
        self._waiter: asyncio.Future[None] | None = None
        self._error: BaseException | None = None
        self._transport: asyncio.Transport | None = None
        self._is_paused = False

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Remember where to write."""
        self._transport = cast(asyncio.Transport, transport)

    def data_received(self, data: bytes) -> None:
        """Take messages out of what came; nonsense ends the connection."""
        self._buffer += data
        try:
            while (body := self._next_body()) is not None:
                self._inbox.append(_decoder.decode(body))
        except (msgspec.MsgspecError, RecursionError, ValueError) as error:
            self.close(ProcessEnded(f"the skill's process sent a message that cannot be read: {error}"))
        if len(self._inbox) > _MOST_UNREAD and self._transport is not None and not self._is_paused:
            self._is_paused = True
            self._transport.pause_reading()
        self._wake()

    def _next_body(self) -> bytes | None:
        if len(self._buffer) < HEAD:
            return None
        size = int.from_bytes(self._buffer[:HEAD], "big")
        if size > self._largest:
            raise ValueError(f"it has {size} bytes")
        if len(self._buffer) < HEAD + size:
            return None
        body = bytes(self._buffer[HEAD : HEAD + size])
        del self._buffer[: HEAD + size]
        return body

    def connection_lost(self, exc: Exception | None) -> None:
        """The process is gone, or has closed its end."""
        self.fail(exc or EOFError())

    @property
    def is_open(self) -> bool:
        """Whether the process can be talked to."""
        return self._error is None

    def send(self, message: FromHub) -> None:
        """Send a message."""
        if self._error is None and self._transport is not None:
            self._transport.write(framed(encode(message)))

    async def receive(self) -> FromChild:
        """The next message; raises what the connection failed with when there is none."""
        while not self._inbox:
            if self._error is not None:
                raise self._error
            self._waiter = running_loop().create_future()
            await self._waiter
        message = self._inbox.popleft()
        self._read_on()
        return message

    def forget(self) -> None:
        """Drop messages that came when nobody waited for any."""
        self._inbox.clear()
        self._read_on()

    def _read_on(self) -> None:
        if self._is_paused and self._transport is not None and len(self._inbox) <= _MOST_UNREAD:
            self._is_paused = False
            self._transport.resume_reading()

    def fail(self, error: BaseException) -> None:
        """Let whoever waits for a message have this instead."""
        if self._error is None:
            self._error = error
        self._wake()

    def close(self, error: BaseException) -> None:
        """End the connection."""
        self.fail(error)
        if self._transport is not None:
            self._transport.abort()

    def _wake(self) -> None:
        if self._waiter is not None and not self._waiter.done():
            self._waiter.set_result(None)


_PROGRAM: Final = Path(__file__).parent / "child" / "__main__.py"
_INHERITED: Final = ("PATH", "LANG", "LC_ALL", "TZ")
_MOST_ASKED: Final = 64
_TO_EXIT: Final = 0.5

Answerer = Callable[[Ask], Awaitable[Reply]]
"""Answers what a running skill asks the hub for."""


@dataclass(eq=False, slots=True)
class Program:
    """A version of a skill, as its processes need it; a retired one gets no second call."""

    name: str
    file: str
    source: bytes
    permissions: tuple[str, ...] = ()
    retired: bool = False


class Process:
    """A running process that has imported its skill, for one call at a time."""

    def __init__(self, program: Program, limits: Limits, popen: subprocess.Popen[bytes], scratch: str) -> None:
        self.program = program
        self.idle_since = 0.0
        self.is_worn = False
        self.ready = Ready({}, [])
        self.connection = Connection(limits.result)
        self._limits = limits
        self._popen = popen
        self._scratch = scratch
        self._calls = 0
        self._output: Output | None = None
        self.over: asyncio.Task[int] = running_loop().create_task(self._reaped())

    @classmethod
    async def started(cls, program: Program, limits: Limits) -> Process:
        """A new process that has imported the skill; what its import raises is raised here."""
        ours, theirs = socket.socketpair()
        reading, writing = os.pipe()
        scratch = tempfile.mkdtemp(prefix="waypost-skill-")
        try:
            process = cls(program, limits, _spawned(theirs.fileno(), writing, scratch), scratch)
        except BaseException:
            ours.close()
            os.close(reading)
            os.rmdir(scratch)
            raise
        finally:
            theirs.close()
            os.close(writing)
        process._output = Output(program.name, reading, limits.output)
        try:
            await running_loop().create_unix_connection(lambda: process.connection, sock=ours)
            await process._imported()
        except BaseException:
            process.kill()
            raise
        return process

    async def _imported(self) -> None:
        program, limits = self.program, self._limits
        self.connection.send(
            Start(
                program.name, program.file, program.source, os.getpid(),
                limits.cpu, limits.memory, limits.files, limits.file_size, limits.result,
            )
        )  # fmt: skip
        try:
            async with asyncio.timeout(limits.start):
                answer = await self._received()
        except TimeoutError:
            raise ProcessEnded(f"the skill was not imported within {limits.start:g} s") from None
        if isinstance(answer, Failed):
            raise ImportFailed(answer, program.name)
        assert isinstance(answer, Ready)
        self.ready = answer

    @property
    def pid(self) -> int:
        """The id of the process, which is that of its group too."""
        return self._popen.pid

    @property
    def is_fit(self) -> bool:
        """Whether another call may be made."""
        return self.connection.is_open and not self.is_worn and not self.program.retired

    async def call(self, args: dict[str, Any], caller: dict[str, Any], answer: Answerer) -> Done | Failed:
        """Run the skill once; whoever gives up waiting has to kill the process."""
        self._calls += 1
        number = self._calls
        if self._output is not None:
            self._output.renew()
        self.connection.forget()
        self.connection.send(Call(number, args, **caller))
        asked: set[asyncio.Task[None]] = set()
        try:
            while True:
                message = await self._received()
                if isinstance(message, Ask) and message.call == number:
                    asked.add(task := running_loop().create_task(self._answered(message, answer)))
                    task.add_done_callback(asked.discard)
                    if len(asked) >= _MOST_ASKED:
                        await asyncio.wait(asked, return_when=asyncio.FIRST_COMPLETED)
                elif isinstance(message, Done | Failed) and message.call == number:
                    self.is_worn = isinstance(message, Failed) and message.kind == "MemoryError"
                    return message
        finally:
            for task in asked:
                task.cancel()

    async def _answered(self, ask: Ask, answer: Answerer) -> None:
        try:
            self.connection.send(await answer(ask))
        except asyncio.CancelledError:
            raise
        except BaseException as error:  # ends the whole call, as when a client has to be asked first
            self.connection.fail(error)

    async def _received(self) -> Ready | Ask | Done | Failed:
        try:
            return await self.connection.receive()
        except (EOFError, ConnectionError):
            raise await self._ending() from None

    async def _ending(self) -> ProcessEnded:
        """Why the process is gone; one that only hung up is ended."""
        await asyncio.wait((self.over,), timeout=_TO_EXIT)
        self.kill()
        return ended(await asyncio.shield(self.over), self._limits.cpu)

    def kill(self) -> None:
        """End the process and all it has started, at once."""
        if self._popen.returncode is None:
            with suppress(ProcessLookupError, PermissionError):
                os.killpg(self._popen.pid, signal.SIGKILL)

    async def _reaped(self) -> int:
        try:
            await _exit_of(self._popen)
        finally:
            # The number of the group is nobody else's until its leader has been waited for.
            self.kill()
            code = self._popen.wait()
            self.connection.close(EOFError())
            if self._output is not None:
                self._output.close()
            self._clear_scratch()
        return code

    def _clear_scratch(self) -> None:
        try:
            os.rmdir(self._scratch)
        except OSError:
            running_loop().run_in_executor(None, shutil.rmtree, self._scratch, True)


class ImportFailed(Exception):
    """A skill could not be imported."""

    def __init__(self, failed: Failed, name: str) -> None:
        super().__init__(f"{failed.kind}: {failed.message}")
        self.failed = failed
        self.name = name

    def crash(self) -> Exception:
        """What a call comes to that would have needed it."""
        return crash(self.name, self.failed)


def _spawned(channel: int, output: int, scratch: str) -> subprocess.Popen[bytes]:
    """The process, with nothing of the hub's but its socket and the few variables every program needs."""
    environment = {name: os.environ[name] for name in _INHERITED if name in os.environ}
    return subprocess.Popen(  # noqa: S603  # our own program
        [sys.executable, "-I", "-B", "-X", "utf8", str(_PROGRAM), str(channel)],
        stdin=subprocess.DEVNULL,
        stdout=output,
        stderr=output,
        cwd=scratch,
        env={**environment, "HOME": scratch, "TMPDIR": scratch},
        pass_fds=[channel],
        start_new_session=True,
        umask=0o077,
    )


async def _exit_of(popen: subprocess.Popen[bytes]) -> None:
    """Wait for the end of a process, without a thread and without taking its exit code."""
    loop = running_loop()
    gone: asyncio.Future[None] = loop.create_future()
    if sys.platform != "linux":
        _look(popen.pid, gone)
        return await gone
    number = os.pidfd_open(popen.pid)
    loop.add_reader(number, _settle, gone)
    try:
        await gone
    finally:
        loop.remove_reader(number)
        os.close(number)


def _settle(gone: asyncio.Future[None]) -> None:
    if not gone.done():
        gone.set_result(None)


def _look(pid: int, gone: asyncio.Future[None]) -> None:
    """Look every 10 ms where the system has no better way."""
    if os.waitid(os.P_PID, pid, os.WEXITED | os.WNOHANG | os.WNOWAIT) is not None:
        _settle(gone)
    elif not gone.done():
        gone.get_loop().call_later(0.01, _look, pid, gone)


class Calls:
    """How many calls of some handlers run."""

    def __init__(self) -> None:
        self._running = 0
        self._over: Callable[[], None] | None = None

    def counted(self, run: Handler) -> Handler:
        """A handler whose calls count."""

        async def counted(arguments: Any, ctx: Context) -> Any:
            self._running += 1
            try:
                return await maybe_await(run(arguments, ctx))
            finally:
                self._running -= 1
                self._tell()

        return counted

    def when_over(self, over: Callable[[], None]) -> None:
        """Have something done when no call runs, and again after each that was let in before and begins only then."""
        self._over = over
        self._tell()

    def _tell(self) -> None:
        if self._over is not None and not self._running:
            self._over()


_depth: Final = ContextVar("waypost_skill_depth", default=0)


class Pool:
    """Processes of all skills; each call has one to itself.

    A skill that calls a skill holds its process meanwhile. So there are `processes` places for every depth of such
    calls, lest all of them wait for one another.
    """

    def __init__(self, limits: Limits) -> None:
        self._limits = limits
        self._places: dict[int, asyncio.Semaphore] = {}
        self._waiting = 0
        self._starting = 0
        self._busy: set[Process] = set()
        self._idle: list[Process] = []
        self._leaving: set[Process] = set()
        self._reaper: asyncio.TimerHandle | None = None

    @property
    def pids(self) -> list[int]:
        """The processes that can be talked to."""
        return [process.pid for process in (*self._busy, *self._idle) if process.connection.is_open]

    @asynccontextmanager
    async def process(self, program: Program) -> AsyncIterator[Process]:
        """A process for one call; it is killed if the call ends in an exception."""
        depth = _depth.get()
        place = self._places.setdefault(depth, asyncio.Semaphore(self._limits.processes))
        await self._take(place)
        try:
            process = self._warm(program) or await self._started(program)
            token = _depth.set(depth + 1)
            self._busy.add(process)
            try:
                yield process
            except BaseException:
                self.discard(process)
                raise
            finally:
                _depth.reset(token)
                self._busy.discard(process)
            self.adopt(process)
        finally:
            place.release()

    async def _take(self, place: asyncio.Semaphore) -> None:
        if place.locked() and self._waiting >= self._limits.waiting:
            raise Busy(f"{self._waiting} calls of skills are waiting for a process already; try again later.")
        self._waiting += 1
        try:
            await place.acquire()
        finally:
            self._waiting -= 1

    def _warm(self, program: Program) -> Process | None:
        for process in reversed(self._idle):
            if process.program is program:
                self._idle.remove(process)
                if process.is_fit:
                    return process
                self.discard(process)
                return self._warm(program)
        return None

    async def _started(self, program: Program) -> Process:
        self._starting += 1
        self._make_room()
        try:
            return await Process.started(program, self._limits)
        except ImportFailed as error:
            raise error.crash() from None
        finally:
            self._starting -= 1

    def adopt(self, process: Process) -> None:
        """Keep a process for the next call, if it is fit for one."""
        if not process.is_fit:
            self.discard(process)
            return
        process.idle_since = running_loop().time()
        self._idle.append(process)
        self._make_room()
        if self._reaper is None:
            self._reaper = running_loop().call_later(self._limits.idle, self._reap)

    def _make_room(self) -> None:
        most = self._limits.processes * max(1, len(self._places))
        while self._idle and len(self._idle) + len(self._busy) + self._starting > most:
            self.discard(self._idle.pop(0))

    def _reap(self) -> None:
        """Let go of what was idle too long, and look again when the next one will have been."""
        loop = running_loop()
        while self._idle and self._idle[0].idle_since + self._limits.idle <= loop.time():
            self.discard(self._idle.pop(0))
        self._reaper = loop.call_at(self._idle[0].idle_since + self._limits.idle, self._reap) if self._idle else None

    def retire(self, program: Program) -> None:
        """Start no second call on a version; those that run end on it."""
        program.retired = True
        for process in [process for process in self._idle if process.program is program]:
            self._idle.remove(process)
            self.discard(process)

    def discard(self, process: Process) -> None:
        """End a process."""
        process.kill()
        self._leaving.add(process)
        process.over.add_done_callback(lambda _: self._leaving.discard(process))

    async def close(self) -> None:
        """End all processes; a call that runs fails, and whoever comes later gets new ones."""
        if self._reaper is not None:
            self._reaper.cancel()
            self._reaper = None
        for process in (*self._busy, *self._idle):
            self.discard(process)
        self._idle.clear()
        self._places.clear()
        if self._leaving:
            await asyncio.wait([process.over for process in self._leaving])
