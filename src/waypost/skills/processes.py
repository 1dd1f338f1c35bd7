"""The processes that run skills: one process, and the pool that all calls share."""

from __future__ import annotations

import asyncio
import builtins
import fcntl
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
from contextlib import ExitStack, asynccontextmanager, suppress
from contextvars import ContextVar
from dataclasses import dataclass
from functools import cache, lru_cache
from pathlib import Path
from typing import Any, Final, cast

import msgspec

from waypost.capabilities.context import Context, Handler
from waypost.errors import ToolError
from waypost.execution.breakers import ARGUMENT_ERRORS
from waypost.execution.limits import FairSlots
from waypost.loops import maybe_await, running_loop, start_task
from waypost.settings import SkillLimits
from waypost.skills.child import isolation, messages
from waypost.skills.child.messages import Ask, Call, Done, Failed, FromChild, Ready, Reply, Start, take_body

_log: Final = logging.getLogger(__name__)


class ProcessEnded(RuntimeError):
    """The skill's process ended before it answered."""


class SkillCrash(RuntimeError):
    """A skill raised an exception; subclasses have the name of its class."""

    is_refusal = False
    """Whether the skill was denied something, which does not count against it in the circuit breaker."""
    is_argument_error = False
    """Whether the skill failed on its arguments, so that no breaker counts it."""


def to_exception(name: str, failed: Failed) -> Exception:
    """Return the exception for a failure, and log its traceback unless the skill meant it as an answer."""
    if failed.is_answer:
        return ToolError(failed.message)
    _log.error("skill %s failed\n%s", name, failed.traceback.rstrip())
    return _crash_class(failed.kind[:100])(failed.message)


# Bounded, because skills choose the names.
@lru_cache(maxsize=256)
def _crash_class(kind: str) -> type[SkillCrash]:
    raised = getattr(builtins, kind, None)
    is_argument_error = isinstance(raised, type) and issubclass(raised, ARGUMENT_ERRORS)
    attributes = {"is_refusal": kind == PermissionError.__name__, "is_argument_error": is_argument_error}
    return type(kind, (SkillCrash,), attributes)


def explain_exit(code: int, cpu_seconds: int) -> ProcessEnded:
    """Return the error for a process that ended; a negative code is that of a signal."""
    if code >= 0:
        return ProcessEnded(f"the skill's process ended: exit code {code}")
    if -code == signal.SIGXCPU:
        return ProcessEnded(f"the skill's process ended: it used up its CPU time of {cpu_seconds} s")
    try:
        name = signal.Signals(-code).name
    except ValueError:
        name = f"signal {-code}"
    return ProcessEnded(f"the skill's process ended: killed by {name}")


_CHUNK_BYTES: Final = 64 * 1024


class Output:
    """The hub's end of the pipe that a skill's process has as stdout and stderr."""

    def __init__(self, name: str, number: int, max_bytes: int) -> None:
        self._name = name
        self._number = number
        self._max_bytes = max_bytes
        self._left = max_bytes
        self._line = b""
        os.set_blocking(number, False)
        self._loop = running_loop()
        self._loop.add_reader(number, self._read)

    def reset(self) -> None:
        """Allow a new call as much output as the one before."""
        self._left = self._max_bytes

    def close(self) -> None:
        """Log what is left in the pipe, and close it."""
        self._loop.remove_reader(self._number)
        while self._read_chunk():
            pass
        if self._line:
            self._log_line(self._line)
        os.close(self._number)

    def _read(self) -> None:
        if not self._read_chunk():
            self._loop.remove_reader(self._number)

    def _read_chunk(self) -> bool:
        try:
            data = os.read(self._number, _CHUNK_BYTES)
        except BlockingIOError:
            return False
        # Beyond the limit the pipe is read on and its content dropped: a full pipe would block the skill in `print`.
        if data and self._left > 0:
            kept = data[: self._left]
            *lines, self._line = (self._line + kept).split(b"\n")
            for line in lines:
                self._log_line(line)
        if 0 < self._left <= len(data):
            _log.warning(
                "skill %s printed more than %d bytes in one call; the rest is dropped", self._name, self._max_bytes
            )
        self._left -= len(data)
        return bool(data)

    def _log_line(self, line: bytes) -> None:
        _log.info("skill %s: %s", self._name, line.decode(errors="replace").rstrip("\r"))


_MAX_UNREAD_MESSAGES: Final = 64
_decoder: Final[msgspec.json.Decoder[FromChild]] = msgspec.json.Decoder(FromChild)


class Connection(asyncio.Protocol):
    """The hub's end of the socket to a skill's process; one task at a time waits for a message."""

    def __init__(self, max_bytes: int) -> None:
        self._max_bytes = max_bytes + messages.SLACK
        self._buffer = bytearray()
        self._inbox: deque[FromChild] = deque()
        self._waiter: asyncio.Future[None] | None = None
        self._error: BaseException | None = None
        self._transport: asyncio.Transport | None = None
        self._is_paused = False

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Keep the transport."""
        self._transport = cast(asyncio.Transport, transport)

    def data_received(self, data: bytes) -> None:
        """Decode the messages that have arrived; an unreadable one closes the connection."""
        self._buffer += data
        try:
            while (body := take_body(self._buffer, self._max_bytes)) is not None:
                self._inbox.append(_decoder.decode(body))
        except (msgspec.MsgspecError, RecursionError, ValueError) as error:
            self.close(ProcessEnded(f"the skill's process sent a message that cannot be read: {error}"))
        # A skill that floods the socket is slowed down by it, instead of filling the hub's memory.
        if len(self._inbox) > _MAX_UNREAD_MESSAGES and self._transport is not None and not self._is_paused:
            self._is_paused = True
            self._transport.pause_reading()
        self._wake()

    def connection_lost(self, exc: Exception | None) -> None:
        """Note that the process ended or closed its end."""
        self.fail(exc or EOFError())

    @property
    def is_open(self) -> bool:
        """Whether messages can be sent."""
        return self._error is None

    def send(self, message: messages.FromHub) -> None:
        """Send a message."""
        if self._error is None and self._transport is not None:
            self._transport.write(messages.frame(messages.encode(message)))

    async def receive(self) -> FromChild:
        """Return the next message; raises the error of the connection once there is none."""
        while not self._inbox:
            if self._error is not None:
                raise self._error
            self._waiter = running_loop().create_future()
            await self._waiter
        message = self._inbox.popleft()
        self._resume_reading()
        return message

    def clear(self) -> None:
        """Drop messages of earlier calls."""
        self._inbox.clear()
        self._resume_reading()

    def _resume_reading(self) -> None:
        if self._is_paused and self._transport is not None and len(self._inbox) <= _MAX_UNREAD_MESSAGES:
            self._is_paused = False
            self._transport.resume_reading()

    def fail(self, error: BaseException) -> None:
        """Raise an error from `receive`, for the task that waits and all later ones."""
        if self._error is None:
            self._error = error
        self._wake()

    def close(self, error: BaseException) -> None:
        """Close the connection."""
        self.fail(error)
        if self._transport is not None:
            self._transport.abort()

    def _wake(self) -> None:
        if self._waiter is not None and not self._waiter.done():
            self._waiter.set_result(None)


_PROGRAM: Final = Path(__file__).parent / "child" / "__main__.py"
_INHERITED_VARIABLES: Final = ("PATH", "LANG", "LC_ALL", "TZ")
_MAX_OPEN_REQUESTS: Final = 64
_EXIT_TIMEOUT_S: Final = 0.5
_KEEPER_TIMEOUT_S: Final = 5.0
_CHILDREN_INTERVAL_S: Final = 0.25
_PR_SET_DUMPABLE: Final = 4
_SCRATCH_PREFIX: Final = "waypost-skill-"

Answerer = Callable[[Ask], Awaitable[Reply]]
"""Answers a request of a running skill."""


@dataclass(eq=False, slots=True)
class Program:
    """A version of a skill, as its processes need it; a process of a retired one gets no further call."""

    name: str
    file: str
    source: bytes
    folder: str = ""
    """The directory of skills, which its processes may read."""
    permissions: tuple[str, ...] = ()
    is_external: bool = False
    """Whether it may start other processes."""
    retired: bool = False


class Scratch:
    """The temporary directory of one process; a lock on it marks it as used while the hub lives."""

    def __init__(self, parent: Path | None) -> None:
        if parent is not None:
            parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        while True:
            with ExitStack() as undo:
                self.path = tempfile.mkdtemp(prefix=_SCRATCH_PREFIX, dir=parent)
                undo.callback(shutil.rmtree, self.path, ignore_errors=True)
                self._number = os.open(self.path, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
                undo.callback(os.close, self._number)
                fcntl.flock(self._number, fcntl.LOCK_EX)
                # Another hub that starts on the same directory may have removed it before it was locked.
                if os.path.exists(self.path):
                    undo.pop_all()
                    return

    def remove(self) -> None:
        """Delete the directory; one that is not empty in a thread."""
        os.close(self._number)
        try:
            os.rmdir(self.path)
        except OSError:
            running_loop().run_in_executor(None, shutil.rmtree, self.path, True)


def remove_stale_scratch(parent: Path) -> None:
    """Delete the temporary directories that killed hubs left; those of running ones are locked."""
    for path in parent.glob(f"{_SCRATCH_PREFIX}*"):
        with suppress(OSError):
            number = os.open(path, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC | os.O_NOFOLLOW)
            try:
                fcntl.flock(number, fcntl.LOCK_EX | fcntl.LOCK_NB)
                shutil.rmtree(path, ignore_errors=True)
            finally:
                os.close(number)


@cache
def _protect_hub() -> None:
    """Keep processes of the same user from reading this one's environment and memory, also without Landlock."""
    if sys.platform == "linux":
        import ctypes

        ctypes.CDLL(None).prctl(_PR_SET_DUMPABLE, 0, 0, 0, 0)


class Process:
    """A running process that has imported its skill, for one call at a time."""

    def __init__(self, program: Program, limits: SkillLimits, popen: subprocess.Popen[bytes], scratch: Scratch) -> None:
        self.program = program
        self.idle_since = 0.0
        self.is_worn = False
        self.ready = Ready({}, [])
        self.connection = Connection(limits.result_bytes)
        self.pid = popen.pid
        """The id of the process and of its process group."""
        self._limits = limits
        self._popen = popen
        self._scratch = scratch
        self._calls = 0
        can_start = program.is_external and sys.platform == "linux"
        self._max_children = limits.children if can_start else 0
        self._output: Output | None = None
        self.ended: asyncio.Task[int] = running_loop().create_task(self._wait_and_clean_up())

    @classmethod
    async def start(cls, program: Program, limits: SkillLimits, temporary: Path | None = None) -> Process:
        """Return a new process that has imported the skill; raises ImportFailed or ProcessEnded."""
        with ExitStack() as copies, ExitStack() as owned:
            ours, theirs = socket.socketpair()
            owned.callback(ours.close)
            # The process has its own copies. While the hub held these open, the end of the process would not be seen.
            copies.callback(theirs.close)
            reading, writing = os.pipe()
            owned.callback(os.close, reading)
            copies.callback(os.close, writing)
            _protect_hub()
            scratch = Scratch(temporary)
            owned.callback(scratch.remove)
            process = cls(program, limits, _spawn(theirs.fileno(), writing, scratch.path), scratch)
            owned.pop_all()
        process._output = Output(program.name, reading, limits.output_bytes)
        try:
            await running_loop().create_unix_connection(lambda: process.connection, sock=ours)
            await process._import()
        except BaseException:
            process.kill()
            raise
        return process

    async def _import(self) -> None:
        program, limits = self.program, self._limits
        self.connection.send(
            Start(
                program.name, program.file, program.source, program.folder, os.getpid(),
                limits.cpu_seconds, limits.memory_bytes, limits.files, limits.file_bytes, limits.result_bytes,
                self._max_children, "web_read" in program.permissions,
            )
        )  # fmt: skip
        try:
            async with asyncio.timeout(limits.start_ms / 1000):
                answer = await self._receive()
        except TimeoutError:
            raise ProcessEnded(f"the skill was not imported within {limits.start_ms / 1000:g} s") from None
        if isinstance(answer, Failed):  # the first message of a process is the outcome of its import
            raise ImportFailed(answer, program.name)
        assert isinstance(answer, Ready)
        self.ready = answer

    @property
    def is_reusable(self) -> bool:
        """Whether another call may be made."""
        return self.connection.is_open and not self.is_worn and not self.program.retired

    async def call(self, args: dict[str, Any], caller: dict[str, Any], answer: Answerer) -> Done | Failed:
        """Run the skill once; a caller that stops waiting must kill the process."""
        if not self._max_children:
            return await self._call(args, caller, answer)
        watching = running_loop().create_task(self._watch_children())
        try:
            outcome = await self._call(args, caller, answer)
            # What the call left running ends with it: the process is not used again.
            self.is_worn = self.is_worn or await self._count_children() > 0
            return outcome
        finally:
            watching.cancel()

    async def _count_children(self) -> int:
        found = await asyncio.to_thread(isolation.find_descendants, self.pid)
        return len(found) - 1  # the skill's own process is below its keeper

    async def _watch_children(self) -> None:
        """End a skill that has too many processes; the kernel has no such limit for one tree."""
        while True:
            await asyncio.sleep(_CHILDREN_INTERVAL_S)
            if await self._count_children() > self._max_children:
                why = f"it had more than {self._max_children} other processes (skills.limits.children)"
                # Before the kill, whose signal would otherwise be given as the reason.
                self.connection.fail(ProcessEnded(f"the skill's process ended: {why}"))
                self.kill()
                return

    async def _call(self, args: dict[str, Any], caller: dict[str, Any], answer: Answerer) -> Done | Failed:
        self._calls += 1
        number = self._calls
        if self._output is not None:
            self._output.reset()
        # Threads that an earlier call left running may still have asked for something.
        self.connection.clear()
        self.connection.send(Call(number, args, **caller))
        open_requests: set[asyncio.Task[None]] = set()
        try:
            while True:
                message = await self._receive()
                if isinstance(message, Ask) and message.call == number:
                    start_task(self._answer(message, answer), open_requests)
                    if len(open_requests) >= _MAX_OPEN_REQUESTS:
                        await asyncio.wait(open_requests, return_when=asyncio.FIRST_COMPLETED)
                elif isinstance(message, Done | Failed) and message.call == number:
                    self.is_worn = isinstance(message, Failed) and message.kind == "MemoryError"
                    return message
        finally:
            for task in open_requests:
                task.cancel()

    async def _answer(self, ask: Ask, answer: Answerer) -> None:
        try:
            self.connection.send(await answer(ask))
        except asyncio.CancelledError:
            raise
        except BaseException as error:  # ends the whole call, as a pause for the client's answer does
            self.connection.fail(error)

    async def _receive(self) -> Ready | Ask | Done | Failed:
        try:
            return await self.connection.receive()
        except (EOFError, ConnectionError):
            raise await self._explain_end() from None

    async def _explain_end(self) -> ProcessEnded:
        """Return why the process ended; one that only closed its socket is killed."""
        await asyncio.wait((self.ended,), timeout=_EXIT_TIMEOUT_S)
        self.kill()
        # Shielded: a caller that stops waiting must not cancel the clean-up.
        return explain_exit(await asyncio.shield(self.ended), self._limits.cpu_seconds)

    def kill(self) -> None:
        """Kill the process and everything it started."""
        if self._popen.returncode is None and self._max_children:
            # The keeper goes last, by itself: as long as it lives, everything that the skill started is below it.
            running_loop().run_in_executor(None, isolation.kill_descendants, self.pid)
            running_loop().call_later(_KEEPER_TIMEOUT_S, self._kill_group)
        else:
            self._kill_group()

    def _kill_group(self) -> None:
        if self._popen.returncode is None:
            with suppress(ProcessLookupError, PermissionError):
                os.killpg(self.pid, signal.SIGKILL)

    async def _wait_and_clean_up(self) -> int:
        try:
            await _wait_for_exit(self._popen)
        finally:
            # Only while its leader has not been waited for is the number of the group certainly still this group.
            self._kill_group()
            code = self._popen.wait()
            self.connection.close(EOFError())
            if self._output is not None:
                self._output.close()
            self._scratch.remove()
        return code


class ImportFailed(Exception):
    """The import of a skill failed."""

    def __init__(self, failed: Failed, name: str) -> None:
        super().__init__(f"{failed.kind}: {failed.message}")
        self.failed = failed
        self.name = name


def _spawn(channel: int, output: int, scratch: str) -> subprocess.Popen[bytes]:
    """Start the process; of the hub it gets only its socket and the few variables that every program needs."""
    environment = {name: os.environ[name] for name in _INHERITED_VARIABLES if name in os.environ}
    return subprocess.Popen(  # noqa: S603  # our own program
        # `-I`: neither the environment nor the directory adds anything to import; `-B`: no bytecode is written.
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


async def _wait_for_exit(popen: subprocess.Popen[bytes]) -> None:
    """Wait for the end of a process, without a thread and without reaping it, so that its group can still be killed."""
    loop = running_loop()
    exited: asyncio.Future[None] = loop.create_future()
    if sys.platform != "linux":
        _poll_exit(popen.pid, exited)
        return await exited
    number = os.pidfd_open(popen.pid)
    loop.add_reader(number, _set_done, exited)
    try:
        await exited
    finally:
        loop.remove_reader(number)
        os.close(number)


def _set_done(exited: asyncio.Future[None]) -> None:
    if not exited.done():
        exited.set_result(None)


def _poll_exit(pid: int, exited: asyncio.Future[None]) -> None:
    """Poll every 10 ms where the system has no pidfd."""
    if os.waitid(os.P_PID, pid, os.WEXITED | os.WNOHANG | os.WNOWAIT) is not None:
        _set_done(exited)
    elif not exited.done():
        exited.get_loop().call_later(0.01, _poll_exit, pid, exited)


class Calls:
    """Counts the running calls of some handlers."""

    def __init__(self) -> None:
        self._running = 0
        self._on_idle: Callable[[], object] | None = None

    def count(self, run: Handler) -> Handler:
        """Wrap a handler so that its calls are counted."""

        async def counted(arguments: Any, ctx: Context) -> Any:
            self._running += 1
            try:
                return await maybe_await(run(arguments, ctx))
            finally:
                self._running -= 1
                self._notify_idle()

        return counted

    def when_idle(self, on_idle: Callable[[], object]) -> None:
        """Call a function when no call runs, and again after each admitted call that begins only afterwards."""
        self._on_idle = on_idle
        self._notify_idle()

    def _notify_idle(self) -> None:
        if self._on_idle is not None and not self._running:
            self._on_idle()


_depth: Final = ContextVar("waypost_skill_depth", default=0)


class Pool:
    """The processes of all skills; each call has one to itself.

    A skill that calls a skill holds its process meanwhile. If both took their slot from one set, enough outer
    calls would wait for inner ones that never get a slot. So there are `processes` slots for every depth of calls;
    principals share them fairly.
    """

    def __init__(self, limits: SkillLimits, temporary: Path | None = None) -> None:
        self.limits = limits
        self.temporary = temporary
        """Where the processes have their temporary directories."""
        self._slots: dict[int, FairSlots] = {}
        self._starting = 0
        self._busy: set[Process] = set()
        self._idle: list[Process] = []
        self._ending: set[Process] = set()
        self._reaper: asyncio.TimerHandle | None = None

    def list_pids(self, skill: str | None = None) -> list[int]:
        """The ids of the live processes, of one skill or of all."""
        return [
            process.pid
            for process in (*self._busy, *self._idle)
            if process.connection.is_open and skill in (None, process.program.name)
        ]

    @asynccontextmanager
    async def process(self, program: Program, principal: str) -> AsyncIterator[Process]:
        """Yield a process for one call of a principal; it is killed if the call raises."""
        depth = _depth.get()
        slots = self._slots.get(depth)
        if slots is None:
            name = "calls of skills are waiting for a process"
            slots = self._slots[depth] = FairSlots(self.limits.processes, self.limits.waiting, name)
        # The slot comes before the process: one that still starts counts too.
        await slots.acquire(principal)
        try:
            process = self._take_idle(program) or await self._start(program)
            token = _depth.set(depth + 1)
            self._busy.add(process)
            try:
                yield process
            except BaseException:
                # After a deadline or a crash nothing is known about its state, so that it gets no further call.
                self.discard(process)
                raise
            finally:
                _depth.reset(token)
                self._busy.discard(process)
            self.adopt(process)
        finally:
            slots.release(principal)

    def _take_idle(self, program: Program) -> Process | None:
        # The one that was used last: it is still in the caches, and the others reach their time limit.
        for process in reversed(self._idle):
            if process.program is program:
                self._idle.remove(process)
                if process.is_reusable:
                    return process
                self.discard(process)
                return self._take_idle(program)
        return None

    async def _start(self, program: Program) -> Process:
        self._starting += 1
        self._evict_idle()
        try:
            return await Process.start(program, self.limits, self.temporary)
        except ImportFailed as error:
            raise to_exception(error.name, error.failed) from None
        finally:
            self._starting -= 1

    def adopt(self, process: Process) -> None:
        """Keep a process for the next call, if it is reusable."""
        if not process.is_reusable:
            self.discard(process)
            return
        process.idle_since = running_loop().time()
        self._idle.append(process)
        self._evict_idle()
        if self._reaper is None:
            self._reaper = running_loop().call_later(self.limits.idle_ms / 1000, self._reap)

    def _evict_idle(self) -> None:
        maximum = self.limits.processes * max(1, len(self._slots))
        while self._idle and len(self._idle) + len(self._busy) + self._starting > maximum:
            self.discard(self._idle.pop(0))

    def _reap(self) -> None:
        """End processes that were idle too long, and set the timer for the next one."""
        loop = running_loop()
        while self._idle and self._idle[0].idle_since + self.limits.idle_ms / 1000 <= loop.time():
            self.discard(self._idle.pop(0))
        self._reaper = (
            loop.call_at(self._idle[0].idle_since + self.limits.idle_ms / 1000, self._reap) if self._idle else None
        )

    def retire(self, program: Program) -> None:
        """Start no further call on a version; running ones finish on it."""
        program.retired = True
        for process in [process for process in self._idle if process.program is program]:
            self._idle.remove(process)
            self.discard(process)

    def discard(self, process: Process) -> None:
        """End a process."""
        process.kill()
        # A killed process takes a moment to end. `close` waits for it, so that no directory is left behind.
        self._ending.add(process)
        process.ended.add_done_callback(lambda _: self._ending.discard(process))

    async def close(self) -> None:
        """Kill all processes; running calls fail, and later calls start new processes."""
        if self._reaper is not None:
            self._reaper.cancel()
            self._reaper = None
        for process in (*self._busy, *self._idle):
            self.discard(process)
        self._idle.clear()
        self._slots.clear()
        if self._ending:
            await asyncio.wait([process.ended for process in self._ending])
