"""Work that runs as a task: what it asks, how it ends, and what is written about it."""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import AsyncIterator, Callable, Iterator, Mapping
from contextlib import asynccontextmanager, contextmanager, suppress
from typing import Any, Final, Protocol

import msgspec

from waypost.capabilities.asking import Question
from waypost.capabilities.principals import Principal
from waypost.errors import NoAnswer, StaleVersion, StoreUnavailable
from waypost.protocol.failures import failure
from waypost.protocol.streams import Outlet
from waypost.protocol.task_views import now
from waypost.stores.tasks import TaskRecord

_log: Final = logging.getLogger(__name__)

LOOK_AGAIN: Final = 0.25
CANCELLED: Final = "The task was cancelled."
_STOPPED: Final = "The server was stopped while the task was running."
LOST: Final[dict[str, Any]] = {
    "status": "failed",
    "error": {"code": -32603, "message": _STOPPED},
    "status_message": _STOPPED,
}
"""How a task ends that was still running when its hub ended."""
_LONGEST_PAUSE: Final = 30.0


class Keeper(Protocol):
    """Where the records of tasks are kept."""

    @property
    def is_stopping(self) -> bool: ...
    async def load(self, task_id: str) -> TaskRecord | None: ...
    async def save(self, record: TaskRecord) -> TaskRecord: ...


class LiveTask:
    """Work that runs as a task."""

    def __init__(
        self, record: TaskRecord, keeper: Keeper, version: str, principal: Principal, owner: str | None = None
    ) -> None:
        self.record = record
        self.principal = principal
        self.owner = owner
        """The session that started it, the only one that is sent what it asks."""
        self.work: asyncio.Task[dict[str, Any]] | None = None
        self.ended = asyncio.Event()
        self._keeper = keeper
        self._version = version
        self._questions: dict[str, asyncio.Future[Any]] = {}
        self._asked = 0
        self._turn = asyncio.Lock()
        self._ends_as: dict[str, Any] = {"status": "cancelled", "status_message": CANCELLED}
        self._outlets: list[Outlet] = []
        self.heard = asyncio.Event()
        """Set while its session waits for the result, which questions can be sent with."""

    @property
    def outlet(self) -> Outlet | None:
        """The way to its session where that waits for the result."""
        return self._outlets[-1] if self._outlets else None

    @contextmanager
    def heard_through(self, outlet: Outlet) -> Iterator[None]:
        """Let questions reach its session through `outlet` for as long as that waits for the result."""
        self._outlets.append(outlet)
        self.heard.set()
        try:
            yield
        finally:
            self._outlets.remove(outlet)
            if not self._outlets:
                self.heard.clear()

    async def ask(self, question: Question) -> Any:
        """Put a question to whoever looks at the task, and wait for its answer."""
        key = self._key(question)
        future = self._questions[key] = asyncio.get_running_loop().create_future()
        if not await self._show(key, question):
            self._stop_work()
            raise asyncio.CancelledError
        try:
            async with asyncio.timeout(question.within):
                return await future
        except TimeoutError:
            await self.answer({key: None})
            raise NoAnswer(f"Nobody answered {question.method} within {question.within:g} s.") from None

    @asynccontextmanager
    async def asking(self, question: Question) -> AsyncIterator[None]:
        """Show that the task waits for an answer that comes some other way; while that cannot be written, it waits."""
        key = self._key(question)
        with suppress(StoreUnavailable):
            await self._show(key, question)
        try:
            yield
        finally:
            with suppress(StoreUnavailable):
                await self._hide([key])

    async def answer(self, responses: Mapping[str, Any]) -> None:
        """Take answers; those to nothing that is asked are dropped."""
        taken = [key for key in responses if key in self._questions]
        if taken and await self._hide(taken):
            for key in taken:
                future = self._questions.pop(key, None)
                if future is not None and not future.done():
                    future.set_result(responses[key])

    def _key(self, question: Question) -> str:
        self._asked += 1
        return f"{question.key or question.method.partition('/')[0]}-{self._asked}"

    async def _show(self, key: str, question: Question) -> bool:
        asked = {"method": question.method, "params": question.params}
        return await self._change(
            lambda record: {"status": "input_required", "input_requests": {**record.input_requests, key: asked}}
        )

    async def _hide(self, taken: list[str]) -> bool:
        def answered(record: TaskRecord) -> dict[str, Any]:
            left = {key: asked for key, asked in record.input_requests.items() if key not in taken}
            return {"status": "input_required" if left else "working", "input_requests": left, "answers": {}}

        return await self._change(answered)

    def expire(self) -> None:
        """Stop the work because its time is over."""
        self._end_because(f"its time, {self.record.ttl_ms} ms, was over")

    def refuse(self) -> None:
        """Stop the work because who started it is let in no more."""
        self._end_because("its key is refused by now")

    def _end_because(self, why: str) -> None:
        self._ends_as = {**self._ends_as, "status_message": f"The task was stopped: {why}."}
        self._stop_work()

    def lose(self) -> None:
        """Stop the work because the hub stops."""
        self._ends_as = LOST
        self._stop_work()

    async def cancel(self) -> None:
        """Stop the work; what it was about to say is not heard any more."""
        if await self._end(status="cancelled", status_message=CANCELLED):
            self._stop_work()

    async def run(self, work: asyncio.Task[dict[str, Any]]) -> None:
        """Follow the work to its end."""
        self.work = work
        try:
            result = await work
        except asyncio.CancelledError:
            if not work.cancelled():
                work.cancel()
                raise
            await self._end_surely(**self._ends_as)
        except Exception as error:
            told = failure(error, self._version)
            problem = {"code": told.code, "message": told.message, **({} if told.data is None else {"data": told.data})}
            await self._end_surely(status="failed", error=problem, status_message=told.message)
        else:
            await self._end_surely(status="completed", result=result)
        self.ended.set()

    async def catch_up(self) -> None:
        """Look at what another hub wrote about this task: that it is over, or answers to its questions."""
        async with self._turn:
            stored = await self._keeper.load(self.record.id)
            if stored is None:
                stored = msgspec.structs.replace(self.record, status="cancelled", status_message=CANCELLED)
            self.record = stored
        if stored.is_over:
            self._stop_work()
        elif stored.answers:
            await self.answer(stored.answers)

    def _stop_work(self) -> None:
        if self.work is not None:
            self.work.cancel()

    async def _end(self, **changes: Any) -> bool:
        expires_at = time.time() + self.record.ttl_ms / 1000
        return await self._change(
            lambda _: {"input_requests": {}, "answers": {}, "holder": "", "expires_at": expires_at, **changes}
        )

    async def _end_surely(self, **changes: Any) -> None:
        """Write how it ended, however long the store takes to come back, until the hub stops."""
        pause = LOOK_AGAIN
        while True:
            try:
                await self._end(**changes)
            except StoreUnavailable as error:
                if self._keeper.is_stopping:
                    _log.error("the end of the task %s is not in the store: %s", self.record.id, error.message)
                    return
                await asyncio.sleep(pause)
                pause = min(2 * pause, _LONGEST_PAUSE)
            else:
                return

    async def _change(self, changes: Callable[[TaskRecord], dict[str, Any]]) -> bool:
        """Write a change of the record as it is then; false when the task is over by then."""
        while True:
            async with self._turn:
                if self.record.is_over:
                    return False
                fresh = msgspec.structs.replace(self.record, updated_at=now(), **changes(self.record))
                try:
                    self.record = await self._keeper.save(fresh)
                except StaleVersion:
                    pass
                else:
                    return True
            await self.catch_up()
