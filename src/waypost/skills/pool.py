"""The processes of all skills, and the calls that run on them."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from contextvars import ContextVar
from typing import Any, Final

from waypost.capabilities.context import Context, Handler
from waypost.errors import Busy
from waypost.loops import maybe_await, running_loop
from waypost.skills.files import Limits
from waypost.skills.process import ImportFailed, Process, Program


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
