"""A bus through a server: a local bus, and one connection to the server at a time.

`RemoteBus` is the same for every server: it gives messages to its own process at once, keeps the connection, and tells
each new one what it has to receive. A `Link` is one connection; once it is lost it is dropped with all that it had
queued, so that nothing old is sent late.
"""

from __future__ import annotations

import asyncio
import logging
import random
from abc import ABC, abstractmethod
from collections import Counter
from collections.abc import AsyncIterator, Awaitable, Callable, Coroutine
from contextlib import asynccontextmanager, suppress
from functools import partial
from typing import Any, Final, Literal, Protocol

import msgspec

from waypost.buses.bus import Health, Receive, Respond, Subscription, check_message, check_subject
from waypost.buses.local import LocalBus, Member
from waypost.errors import DeadlineExceeded, NoHolder, RemoteError, WaypostError
from waypost.loops import start_task

_log: Final = logging.getLogger(__name__)
_CONNECT_TIMEOUT_S: Final = 5.0
_FLUSH_TIMEOUT_S: Final = 5.0
_MIN_PAUSE_S: Final = 0.05
_MAX_PAUSE_S: Final = 1.0
_LOSS_PAUSE_S: Final = 1.0
_SILENCE_S: Final = 2.0
"""How long a server may take to answer a check until the bus counts as degraded; it is lost only later."""
_NOT_HELD: Final = -32001
"""The code of the reply of a process that responds to a name no longer."""


class _Request(msgspec.Struct, array_like=True):
    within: float
    message: bytes


class _Reply(msgspec.Struct, array_like=True):
    message: bytes = b""
    error: str | None = None
    code: int = 0


_encode: Final = msgspec.msgpack.Encoder().encode
_read_request: Final = msgspec.msgpack.Decoder(_Request).decode
_read_reply: Final = msgspec.msgpack.Decoder(_Reply).decode


Kind = Literal["messages", "requests"]


class Link(ABC):
    """One connection to a server; a method that fails raises `ConnectionError`, and `lost` is set."""

    failures: tuple[type[Exception], ...] = (OSError, TimeoutError)
    """The exceptions of the driver that mean that the connection is lost."""

    def __init__(self, receiver: Receiver) -> None:
        self.lost = asyncio.Event()
        self.deadlines: set[asyncio.Timeout] = set()
        """Those of the requests that wait for a reply; a link that is lost ends them."""
        self.asked_at: float | None = None
        """When the server was asked whether it is there, until it answers."""
        self._receiver = receiver
        self._loops: set[asyncio.Task[None]] = set()
        self._answers: set[asyncio.Task[None]] = set()

    @abstractmethod
    def send(self, subject: str, message: bytes) -> None:
        """Queue a message; too many that wait are dropped."""

    @abstractmethod
    async def add(self, kind: Kind, subject: str) -> None:
        """Receive the messages of a subject or pattern, or the requests to a name, from now on."""

    @abstractmethod
    async def remove(self, kind: Kind, subject: str) -> None:
        """Receive them no longer."""

    @abstractmethod
    async def request(self, name: str, message: bytes) -> bytes:
        """Send a request to one holder of a name, and wait for its reply; `NoHolder` if there is none."""

    @abstractmethod
    async def refuse_requests(self) -> None:
        """Have the server send requests to others; those that it sent before have arrived then."""

    @abstractmethod
    async def flush(self) -> None:
        """Send what is queued."""

    @abstractmethod
    async def disconnect(self) -> None:
        """Disconnect; nothing is sent any more."""

    @property
    def is_silent(self) -> bool:
        """Whether the server has not answered for longer than one that is only slow."""
        return self.asked_at is not None and asyncio.get_running_loop().time() > self.asked_at + _SILENCE_S

    def lose(self) -> None:
        """The connection has failed or was closed."""
        self.lost.set()
        for deadline in self.deadlines:
            if not deadline.expired():
                # A time in the past ends the wait now. A task that watches `lost` beside each request would cost more.
                deadline.reschedule(0)

    async def close(self) -> None:
        """Finish and send replies that are due, unless the link is lost, and disconnect."""
        if not self.lost.is_set():
            with suppress(*self.failures):
                async with asyncio.timeout(_FLUSH_TIMEOUT_S):
                    # In this order: a request that arrives after the last answer was sent would be lost.
                    await self.refuse_requests()
                    if self._answers:
                        await asyncio.wait(self._answers)
                    await self.flush()
        tasks = self._loops | self._answers
        for task in tasks:
            task.cancel()
        if tasks:
            await asyncio.wait(tasks)
        try:
            await self.disconnect()
        except self.failures:
            self.lose()

    @asynccontextmanager
    async def watch(self) -> AsyncIterator[None]:
        """Raise `ConnectionError`, and set `lost`, if the connection fails inside."""
        try:
            yield
        except self.failures as error:
            self.lose()
            raise ConnectionError(describe(error)) from error

    def run(self, work: Coroutine[Any, Any, None], *, answers: bool = False) -> None:
        """Run a part of the link in the background; its failure is the end of the link."""

        async def watched() -> None:
            with suppress(ConnectionError):
                async with self.watch():
                    await work

        start_task(watched(), self._answers if answers else self._loops)


def describe(error: BaseException) -> str:
    """What an exception of a driver says, for the end of a sentence."""
    return (str(error) or type(error).__name__).strip().rstrip(".").replace("\n", " ")


class Receiver(Protocol):
    """What a link calls with what arrives."""

    def deliver(self, subject: str, message: bytes, pattern: str | None = None) -> None:
        """Give a message to all subscribers, or only to those of a pattern."""

    def note_loss(self) -> None:
        """Report that something that arrived was dropped."""

    async def answer(self, name: str, request: bytes) -> bytes:
        """The reply to a request; in a task that has no other work."""


Connect = Callable[[Receiver], Awaitable[Link]]
"""Connects; raises `ConnectionError`, or `WaypostError` if the server refuses."""


class RemoteBus:
    """A bus whose messages reach other processes through a server while it is connected."""

    def __init__(self, name: str, connect: Connect) -> None:
        self.name = name
        self._connect = connect
        self._local = LocalBus()
        self._link: Link | None = None
        self._keeper: asyncio.Task[None] | None = None
        self._is_refused = False
        self._wanted: Counter[tuple[Kind, str]] = Counter()
        """What every link has to receive, and how many members here want it."""
        self._reconnect_calls: list[Callable[[], None]] = []
        self._loss_timer: asyncio.TimerHandle | None = None

    @property
    def health(self) -> Health:
        """Whether messages reach other processes at the moment."""
        if self._link is not None:
            # Until the loss is announced: what reads the store while the bus is down must do so here too.
            return "ok" if self._loss_timer is None and not self._link.is_silent else "degraded"
        return "degraded" if self._keeper is not None and not self._is_refused else "down"

    def on_reconnect(self, call: Callable[[], None]) -> None:
        """Call a function after each connection but the first, and after messages were dropped."""
        self._reconnect_calls.append(call)

    async def open(self) -> None:
        """Connect once, and keep connecting in the background; raises `WaypostError` if the server refuses."""
        if self._keeper is not None:
            return
        try:
            self._link = await self._open_link()
        except ConnectionError as error:
            _log.warning("bus not connected, trying again: %s: %s", self.name, error)
        self._keeper = asyncio.get_running_loop().create_task(self._keep_connected())

    async def close(self) -> None:
        """End all subscriptions, wait for what they are processing, and disconnect."""
        # Responders end first, while the link can still send their answers; later requests get `_NOT_HELD`.
        await self._local.close()
        keeper, self._keeper = self._keeper, None
        if keeper is not None:
            keeper.cancel()
            await asyncio.wait({keeper})
        link, self._link = self._link, None
        if link is not None:
            await link.close()
        self._stop_loss_timer()
        self._wanted.clear()

    async def publish(self, subject: str, message: bytes) -> None:
        """Send a message to all subscribers, here and, while connected, in other processes."""
        await self._local.publish(subject, message)
        if self._link is not None:
            self._link.send(subject, message)

    async def subscribe(self, subject: str, receive: Receive) -> Subscription:
        """Receive the messages of a subject or a pattern of subjects."""
        return await self._join(("messages", subject), await self._local.subscribe(subject, receive))

    async def serve(self, name: str, respond: Respond) -> Subscription:
        """Respond to requests to a name."""
        return await self._join(("requests", name), await self._local.serve(name, respond))

    async def request(self, name: str, message: bytes, within: float) -> bytes:
        """Send a request to a responder of a name, one in this process first, and wait for the response."""
        if self._local.has_responder(check_subject(name)):
            return await self._local.request(name, message, within)
        check_message(message)
        link = self._link
        if link is None or link.lost.is_set():
            raise NoHolder(f"Nothing responds to {name} here, and {self.name} is not connected.")
        deadline = asyncio.timeout(within)
        try:
            async with deadline:
                link.deadlines.add(deadline)
                reply = _read_reply(await link.request(name, _encode(_Request(within, message))))
        except (TimeoutError, ConnectionError):
            if link.lost.is_set():
                raise DeadlineExceeded(f"{self.name} was lost before {name} answered.") from None
            raise DeadlineExceeded(f"{name} did not answer within {within:g} s.") from None
        finally:
            link.deadlines.discard(deadline)
        if reply.error is None:
            return reply.message
        if reply.code == _NOT_HELD:
            raise NoHolder(reply.error)
        raise RemoteError(reply.error, reply.code)

    def deliver(self, subject: str, message: bytes, pattern: str | None = None) -> None:
        """Give a message of another process to subscribers here."""
        self._local.deliver(subject, message, pattern)

    def note_loss(self) -> None:
        """Log that messages of other processes were dropped, and have what they announced read again soon."""
        # Not at once for each: in a flood thousands are dropped, and reading everything again costs much.
        if self._loss_timer is None:
            _log.warning("bus gets more than it can process and loses messages: %s", self.name)
            self._loss_timer = asyncio.get_running_loop().call_later(_LOSS_PAUSE_S, self._announce_loss)

    def _announce_loss(self) -> None:
        self._stop_loss_timer()
        for call in self._reconnect_calls:
            call()

    def _stop_loss_timer(self) -> None:
        timer, self._loss_timer = self._loss_timer, None
        if timer is not None:
            timer.cancel()

    async def answer(self, name: str, request: bytes) -> bytes:
        """The reply to a request of another process, which gives up after the time that the request names."""
        try:
            asked = _read_request(request)
            return _encode(_Reply(await self._local.answer(name, asked.message, asked.within)))
        except NoHolder as error:
            return _encode(_Reply(error=error.message, code=_NOT_HELD))
        except RemoteError as error:
            return _encode(_Reply(error=error.message, code=error.code))
        except (WaypostError, msgspec.MsgspecError) as error:
            return _encode(_Reply(error=str(error)))

    async def _keep_connected(self) -> None:
        """Replace each lost link by a new one, after growing pauses."""
        pause = _MIN_PAUSE_S
        while True:
            if self._link is not None:
                await self._link.lost.wait()
                link, self._link = self._link, None
                _log.warning("bus lost, connecting again: %s", self.name)
                await link.close()
                pause = _MIN_PAUSE_S
            await asyncio.sleep(pause * random.uniform(0.5, 1))  # noqa: S311  # so that replicas do not connect in step
            pause = min(2 * pause, _MAX_PAUSE_S)
            try:
                self._link = await self._open_link()
            except ConnectionError as error:
                self._is_refused = False
                _log.debug("bus not connected: %s: %s", self.name, error)
            except WaypostError as error:
                if not self._is_refused:
                    _log.error("bus refused the connection, trying again: %s", error.message)
                self._is_refused = True
            else:
                self._is_refused = False
                _log.info("bus connected: %s", self.name)
                self._announce_loss()

    async def _open_link(self) -> Link:
        """A link that receives everything that is subscribed to and held here."""
        try:
            async with asyncio.timeout(_CONNECT_TIMEOUT_S):
                link = await self._connect(self)
                try:
                    # Until nothing begins or ends while this waits: nothing else asks a link that is not yet ours.
                    done: set[tuple[Kind, str]] = set()
                    while done != (wanted := set(self._wanted)):
                        for one in wanted - done:
                            await link.add(*one)
                        for one in done - wanted:
                            await link.remove(*one)
                        done = wanted
                except BaseException:
                    await link.close()
                    raise
                return link
        except TimeoutError:
            raise ConnectionError(f"no answer within {_CONNECT_TIMEOUT_S:g} s") from None

    async def _join(self, wanted: tuple[Kind, str], local: Member) -> Subscription:
        # Counted before the link is asked: a link that is being opened looks here for what it has to receive.
        self._wanted[wanted] += 1
        if self._wanted[wanted] == 1 and self._link is not None:
            with suppress(ConnectionError):  # the next link announces it
                await self._link.add(*wanted)
        return _RemoteMember(local, partial(self._leave, wanted))

    async def _leave(self, wanted: tuple[Kind, str], local: Member) -> None:
        if wanted[0] == "messages":  # requests are responded to until the server sends them to others
            local.detach()
        self._wanted[wanted] -= 1
        if self._wanted[wanted] <= 0:
            del self._wanted[wanted]
            if self._link is not None:
                with suppress(ConnectionError):
                    await self._link.remove(*wanted)


class _RemoteMember:
    """A subscription here, which the server has to know too."""

    def __init__(self, local: Member, leave: Callable[[Member], Awaitable[None]]) -> None:
        self._local = local
        self._leave: Callable[[Member], Awaitable[None]] | None = leave

    async def end(self) -> None:
        """Receive nothing new, and wait until what arrived before is processed."""
        leave, self._leave = self._leave, None
        if leave is not None:
            await leave(self._local)
        await self._local.end()
