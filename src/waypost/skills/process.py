"""One process of a dynamic skill, as the hub sees it."""

from __future__ import annotations

import asyncio
import os
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
from collections.abc import Awaitable, Callable
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

from waypost.loops import running_loop
from waypost.skills.child.messages import Ask, Call, Done, Failed, Ready, Reply, Start
from waypost.skills.connection import Connection
from waypost.skills.crashes import ProcessEnded, crash, ended
from waypost.skills.limits import Limits
from waypost.skills.output import Output

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
