"""The bus within one process."""

from __future__ import annotations

import asyncio
import logging
from collections import deque
from collections.abc import Callable
from functools import partial
from itertools import chain, count
from typing import Any, Final, TypeVar

from waypost.buses.bus import MAX_WAITING_MESSAGES, Health, Receive, Respond, check_message, check_subject
from waypost.errors import DeadlineExceeded, NoHolder, ProtocolError, RemoteError, WaypostError
from waypost.loops import maybe_await, start_task

_log: Final = logging.getLogger(__name__)

T = TypeVar("T")


class LocalBus:
    """A bus between everything that has this object."""

    def __init__(self) -> None:
        self._exact: dict[str, list[_Subscriber]] = {}
        self._patterns: list[_Subscriber] = []
        self._responders: dict[str, list[_Responder]] = {}
        self._turns = count()

    @property
    def health(self) -> Health:
        """Always `ok`: there is nothing to lose."""
        return "ok"

    async def open(self) -> None:
        """Do nothing."""

    def on_reconnect(self, call: Callable[[], None]) -> None:
        """Do nothing: there is no connection."""

    async def publish(self, subject: str, message: bytes) -> None:
        """Send a message to all subscribers of a subject."""
        self.deliver(check_subject(subject), check_message(message))

    def deliver(self, subject: str, message: bytes, pattern: str | None = None) -> None:
        """Queue a message for all subscribers of a subject, or only for those of exactly this pattern."""
        if pattern is not None:
            asked = pattern.split(".")
            for subscriber in (*self._exact.get(pattern, ()), *self._patterns):
                if subscriber.words == asked:
                    subscriber.add(subject, message)
            return
        for subscriber in self._exact.get(subject, ()):
            subscriber.add(subject, message)
        if self._patterns:
            words = subject.split(".")
            for subscriber in self._patterns:
                if _matches(subscriber.words, words):
                    subscriber.add(subject, message)

    def has_responder(self, name: str) -> bool:
        """Whether a request to a name would be responded to here."""
        return name in self._responders

    async def subscribe(self, subject: str, receive: Receive) -> _Subscriber:
        """Receive the messages of a subject or a pattern of subjects."""
        words = check_subject(subject, pattern=True).split(".")
        subscriber = _Subscriber(words, receive)
        if "*" in words or words[-1] == ">":
            self._patterns.append(subscriber)
            subscriber.leave = partial(self._patterns.remove, subscriber)
        else:
            subscriber.leave = _join(self._exact, subject, subscriber)
        return subscriber

    async def serve(self, name: str, respond: Respond) -> _Responder:
        """Respond to requests to a name."""
        responder = _Responder(respond)
        responder.leave = _join(self._responders, check_subject(name), responder)
        return responder

    async def request(self, name: str, message: bytes, within: float) -> bytes:
        """Send a request to a responder of a name."""
        # In a task of its own: a responder that stops may cancel its work, but not that of the caller.
        return await asyncio.get_running_loop().create_task(self.answer(name, message, within))

    async def answer(self, name: str, message: bytes, within: float) -> bytes:
        """Respond to a request in the current task, which has no other work; several responders take turns."""
        responders = self._responders.get(check_subject(name))
        if not responders:
            raise NoHolder(f"Nothing responds to {name}.")
        responder = responders[next(self._turns) % len(responders)]
        try:
            async with asyncio.timeout(within):
                return check_message(await responder.respond(check_message(message)))
        except TimeoutError:
            raise DeadlineExceeded(f"{name} did not answer within {within:g} s.") from None

    async def close(self) -> None:
        """End all subscriptions, and wait for what they are processing."""
        subscribers = [*chain.from_iterable(self._exact.values()), *self._patterns]
        responders = [*chain.from_iterable(self._responders.values())]
        await asyncio.gather(*(one.end() for one in subscribers), *(one.end() for one in responders))


def _join(members: dict[str, list[T]], name: str, one: T) -> Callable[[], None]:
    """Add a member under a name; the returned function removes it, and the name with the last one."""
    members.setdefault(name, []).append(one)

    def leave() -> None:
        members[name].remove(one)
        if not members[name]:
            del members[name]

    return leave


class Member:
    """A subscriber or responder, until it ends."""

    def __init__(self) -> None:
        self.leave: Callable[[], None] | None = None
        self._running: set[asyncio.Task[Any]] = set()

    def detach(self) -> None:
        """Receive nothing new."""
        leave, self.leave = self.leave, None
        if leave is not None:
            leave()

    async def end(self) -> None:
        """Receive nothing new, and wait for what is being processed."""
        self.detach()
        # A subscriber may end itself while it processes a message, and must not wait for that.
        running = self._running - {asyncio.current_task()}
        if running:
            await asyncio.wait(running)


class _Subscriber(Member):
    """A subscriber, and the messages that wait for it."""

    def __init__(self, words: list[str], receive: Receive) -> None:
        super().__init__()
        self.words = words
        self._receive = receive
        self._waiting: deque[tuple[str, bytes]] = deque(maxlen=MAX_WAITING_MESSAGES)
        self._is_receiving = False

    def add(self, subject: str, message: bytes) -> None:
        """Queue a message; with too many, the oldest is dropped."""
        if len(self._waiting) == MAX_WAITING_MESSAGES:
            _log.warning(
                "a subscriber of %s is %s messages behind and loses some", ".".join(self.words), MAX_WAITING_MESSAGES
            )
        self._waiting.append((subject, message))
        if not self._is_receiving:
            self._is_receiving = True
            start_task(self._receive_all(), self._running)

    async def _receive_all(self) -> None:
        while self._waiting:
            subject, message = self._waiting.popleft()
            try:
                await maybe_await(self._receive(subject, message))
            except Exception:
                _log.exception("a subscriber of %s failed", subject)
        # No await since the queue was found empty: what is added from now on starts a new task.
        self._is_receiving = False


class _Responder(Member):
    """Responds to requests to a name."""

    def __init__(self, respond: Respond) -> None:
        super().__init__()
        self._respond = respond

    async def respond(self, message: bytes) -> bytes:
        """Respond; a failure looks as if the responder were in another process."""
        task = asyncio.current_task()
        assert task is not None
        self._running.add(task)
        try:
            return await self._respond(message)
        except WaypostError as error:
            raise RemoteError(error.message, ProtocolError.code) from error
        except Exception as error:
            raise RemoteError(f"{type(error).__name__}: {error}", ProtocolError.code) from error
        finally:
            self._running.discard(task)


def _matches(pattern: list[str], words: list[str]) -> bool:
    for place, word in enumerate(pattern):
        if word == ">":
            return len(words) > place
        if place >= len(words) or word not in ("*", words[place]):
            return False
    return len(pattern) == len(words)
