"""The bus within one process."""

from __future__ import annotations

import asyncio
import logging
from collections import deque
from collections.abc import Callable, Coroutine
from functools import partial
from itertools import chain, count
from typing import Any, Final, TypeVar

from waypost.buses.bus import MOST_WAITING, Answers, Heard, checked_message, checked_subject
from waypost.errors import DeadlineExceeded, NoHolder, RemoteError, WaypostError
from waypost.loops import maybe_await

_log: Final = logging.getLogger(__name__)
_FAILED: Final = -32603

T = TypeVar("T")


class LocalBus:
    """Everybody who has this object."""

    def __init__(self) -> None:
        self._exact: dict[str, list[_Listener]] = {}
        self._patterns: list[_Listener] = []
        self._holders: dict[str, list[_Holder]] = {}
        self._turns = count()

    async def publish(self, subject: str, message: bytes) -> None:
        """Tell everybody who listens now."""
        checked_subject(subject)
        checked_message(message)
        for listener in self._exact.get(subject, ()):
            listener.add(subject, message)
        if self._patterns:
            words = subject.split(".")
            for listener in self._patterns:
                if _matches(listener.words, words):
                    listener.add(subject, message)

    async def subscribe(self, subject: str, heard: Heard) -> _Listener:
        """Listen to a subject or a pattern of subjects."""
        words = checked_subject(subject, pattern=True).split(".")
        listener = _Listener(words, heard)
        if "*" in words or words[-1] == ">":
            self._patterns.append(listener)
            listener.leave = partial(self._patterns.remove, listener)
        else:
            listener.leave = _join(self._exact, subject, listener)
        return listener

    async def hold(self, name: str, answers: Answers) -> _Holder:
        """Answer questions to a name."""
        holder = _Holder(answers)
        holder.leave = _join(self._holders, checked_subject(name), holder)
        return holder

    async def request(self, name: str, question: bytes, within: float) -> bytes:
        """Ask whoever holds a name; several take turns."""
        holders = self._holders.get(checked_subject(name))
        if not holders:
            raise NoHolder(f"Nobody holds {name}.")
        holder = holders[next(self._turns) % len(holders)]
        try:
            async with asyncio.timeout(within):
                return checked_message(await holder.answer(checked_message(question)))
        except TimeoutError:
            raise DeadlineExceeded(f"{name} did not answer within {within:g} s.") from None

    async def close(self) -> None:
        """End all subscriptions, and wait for what they are dealing with."""
        listeners = [*chain.from_iterable(self._exact.values()), *self._patterns]
        holders = [*chain.from_iterable(self._holders.values())]
        await asyncio.gather(*(one.end() for one in listeners), *(one.end() for one in holders))


def _join(places: dict[str, list[T]], name: str, one: T) -> Callable[[], None]:
    """Put somebody in a place; what is returned takes them out again, and the place away when it is empty."""
    places.setdefault(name, []).append(one)

    def leave() -> None:
        places[name].remove(one)
        if not places[name]:
            del places[name]

    return leave


class _Member:
    """One who is on the bus, until it leaves."""

    def __init__(self) -> None:
        self.leave: Callable[[], None] | None = None
        self._running: set[asyncio.Task[Any]] = set()

    async def end(self) -> None:
        """Leave, and wait for what is being dealt with."""
        leave, self.leave = self.leave, None
        if leave is not None:
            leave()
        running = self._running - {asyncio.current_task()}
        if running:
            await asyncio.wait(running)

    def _run(self, work: Coroutine[Any, Any, T]) -> asyncio.Task[T]:
        task = asyncio.get_running_loop().create_task(work)
        self._running.add(task)
        task.add_done_callback(self._running.discard)
        return task


class _Listener(_Member):
    """One who listens, and what waits for it."""

    def __init__(self, words: list[str], heard: Heard) -> None:
        super().__init__()
        self.words = words
        self._heard = heard
        self._waiting: deque[tuple[str, bytes]] = deque(maxlen=MOST_WAITING)
        self._hearing = False

    def add(self, subject: str, message: bytes) -> None:
        """Let a message wait for its turn; the oldest makes room when there are too many."""
        if len(self._waiting) == MOST_WAITING:
            _log.warning("a listener to %s fell %s messages behind and misses some", ".".join(self.words), MOST_WAITING)
        self._waiting.append((subject, message))
        if not self._hearing:
            self._hearing = True
            self._run(self._hear())

    async def _hear(self) -> None:
        while self._waiting:
            subject, message = self._waiting.popleft()
            try:
                await maybe_await(self._heard(subject, message))
            except Exception:
                _log.exception("a listener to %s failed", subject)
        self._hearing = False


class _Holder(_Member):
    """One who answers to a name."""

    def __init__(self, answers: Answers) -> None:
        super().__init__()
        self._answers = answers

    async def answer(self, question: bytes) -> bytes:
        """Answer; what goes wrong is told as another process would tell it."""
        return await self._run(self._answered(question))

    async def _answered(self, question: bytes) -> bytes:
        try:
            return await self._answers(question)
        except WaypostError as error:
            raise RemoteError(error.message, _FAILED) from error
        except Exception as error:
            raise RemoteError(f"{type(error).__name__}: {error}", _FAILED) from error


def _matches(pattern: list[str], words: list[str]) -> bool:
    for place, word in enumerate(pattern):
        if word == ">":
            return len(words) > place
        if place >= len(words) or word not in ("*", words[place]):
            return False
    return len(pattern) == len(words)
