"""Calls that go on at a server while a stateless client is asked: its request comes again, and finds its call."""

from __future__ import annotations

import asyncio
import itertools
import secrets
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass
from functools import partial
from typing import Any, Final

from waypost.capabilities.context import Context
from waypost.capabilities.questions import ANSWER_TIMEOUT_S
from waypost.errors import RemoteError, ToolError
from waypost.imports.relay import asked, can_answer
from waypost.imports.reports import Remarks, Reports
from waypost.loops import running_loop

_MOST: Final = 1000
_REMEMBERED: Final = 256

Data = dict[str, Any]
Begin = Callable[["Parked"], Awaitable[Data]]


class Complete(Exception):
    """A result that came without a question, so that nothing has to be remembered of it."""

    def __init__(self, answer: Data) -> None:
        super().__init__()
        self.answer = answer


@dataclass(eq=False, slots=True)
class _Open:
    """A question that nobody has answered yet."""

    key: str
    method: str
    params: Data
    answer: asyncio.Future[Any]

    def settle(self, told: Any) -> None:
        """Answer it, or refuse to, unless it was taken back."""
        if self.answer.done():
            return
        if isinstance(told, RemoteError):
            self.answer.set_exception(told)
        else:
            self.answer.set_result(told)


class Parked:
    """One call at a server with a session, and the client's request that is with it at the moment."""

    def __init__(self, begin: Begin, ctx: Context) -> None:
        self.handle = secrets.token_urlsafe(12)
        self.timer: asyncio.TimerHandle | None = None
        self._ctx = ctx
        self._reports, self._remarks = Reports(ctx), Remarks(ctx)
        self._open: list[_Open] = []
        self._numbers = itertools.count(1)
        self._news = asyncio.Event()
        self.task = running_loop().create_task(_awaited(begin(self)))
        self.task.add_done_callback(self._ended)

    @property
    def owner(self) -> object:
        """It shares nothing with other calls."""
        return self

    def can_answer(self, method: str, params: Mapping[str, Any]) -> bool:
        """Whether the client said that it can."""
        return can_answer(self._ctx, method, params)

    async def ask(self, method: str, params: Data) -> Any:
        """Keep a question until a request of the client brings the answer."""
        key = f"{self.handle}.{next(self._numbers)}"
        question = _Open(key, method, params, running_loop().create_future())
        self._open.append(question)
        self._news.set()
        try:
            return await question.answer
        finally:
            self._open.remove(question)

    def tell(self, note: Mapping[str, Any]) -> None:
        """Hand on a log message."""
        self._remarks.take(note)

    def report(self, told: Mapping[str, Any]) -> None:
        """Hand on how far it is."""
        self._reports.take(told)

    async def asks_or_ends(self) -> bool:
        """Wait for the first question, or for the end without one; whether it is a question."""
        await self._news.wait()
        if self.task.done():
            await self._told()
        return not self.task.done()

    async def go_on(self, ctx: Context) -> Data:
        """The result of the call; a run of the client's request that cannot answer what is asked ends before."""
        self._ctx, self._reports, self._remarks = ctx, Reports(ctx), Remarks(ctx)
        try:
            while not self.task.done():
                await self._ask(ctx)
                await self._news.wait()
                self._news.clear()
            await self._told()
            return self.task.result()
        finally:
            self._reports.stop()
            self._remarks.stop()

    async def _told(self) -> None:
        await self._reports.delivered()
        await self._remarks.delivered()

    async def _ask(self, ctx: Context) -> None:
        """Answer what can be answered; the rest becomes one question to the client."""
        unanswered: BaseException | None = None
        for question in tuple(self._open):
            if question.answer.done():
                continue
            try:
                question.settle(await asked(ctx, question.method, question.params, question.key))
            except RemoteError as refusal:
                question.settle(refusal)
            except (Exception, asyncio.CancelledError):
                raise
            except BaseException as needed:
                unanswered = needed
        if unanswered is not None:
            raise unanswered

    def _ended(self, task: asyncio.Task[Data]) -> None:
        self._news.set()
        if not task.cancelled():
            task.exception()


class Parking:
    """Where calls wait for their clients to come back."""

    def __init__(self) -> None:
        self._waiting: dict[str, Parked] = {}
        self._done: dict[str, asyncio.Task[Data]] = {}
        self._ending: set[asyncio.Task[Data]] = set()

    async def converse(self, ctx: Context, name: str, begin: Begin) -> Data:
        """Make a call, or go on with the one that an earlier run of the same request began under that name."""
        try:
            handle = await ctx.once(name, partial(self._begin, begin, ctx))
        except Complete as complete:
            return complete.answer
        if handle in self._done:
            return self._done[handle].result()
        parked = self._waiting.pop(handle, None)
        if parked is None:
            raise ToolError("The call no longer waits for an answer; make it again.")
        if parked.timer is not None:
            parked.timer.cancel()
        try:
            return await parked.go_on(ctx)
        except (Exception, asyncio.CancelledError):
            raise
        except BaseException:
            self._park(parked)
            raise
        finally:
            if handle not in self._waiting:
                self._end(parked)

    async def close(self) -> None:
        """Give up all that waits."""
        for parked in tuple(self._waiting.values()):
            self._give_up(parked)
        await asyncio.gather(*self._ending, return_exceptions=True)

    async def _begin(self, begin: Begin, ctx: Context) -> str:
        """Make a call; the handle it is found by when it asks something."""
        parked = Parked(begin, ctx)
        try:
            is_asking = await parked.asks_or_ends()
        except BaseException:
            self._stop(parked)
            raise
        if not is_asking:
            raise Complete(parked.task.result())
        self._park(parked)
        return parked.handle

    def _park(self, parked: Parked) -> None:
        if len(self._waiting) >= _MOST:
            self._give_up(next(iter(self._waiting.values())))
        self._waiting[parked.handle] = parked
        parked.timer = running_loop().call_later(ANSWER_TIMEOUT_S, self._give_up, parked)

    def _give_up(self, parked: Parked) -> None:
        del self._waiting[parked.handle]
        if parked.timer is not None:
            parked.timer.cancel()
        self._stop(parked)

    def _end(self, parked: Parked) -> None:
        """Remember how a call ended that asked something, for when its request asks something else and comes again."""
        self._stop(parked)
        if parked.task.done():
            self._done[parked.handle] = parked.task
            if len(self._done) > _REMEMBERED:
                del self._done[next(iter(self._done))]

    def _stop(self, parked: Parked) -> None:
        if parked.task.done():
            return
        parked.task.cancel()
        self._ending.add(parked.task)
        parked.task.add_done_callback(self._ending.discard)


async def _awaited(work: Awaitable[Data]) -> Data:
    return await work
