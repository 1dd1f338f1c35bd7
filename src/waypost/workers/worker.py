"""One connected worker: who it is, what it offers, and the calls it has not answered yet."""

from __future__ import annotations

import asyncio
import itertools
import logging
import secrets
import time
import uuid
from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Any, Final

import msgspec
from msgspec import UNSET, Raw

from waypost.capabilities.context import Caller
from waypost.errors import Busy, InvocationFailed
from waypost.loops import BusyPoll, running_loop
from waypost.workers.failures import Unreached
from waypost.workers.frames import MOST, NULL, InvocationResult, InvokeFunction, Origin, encode, failed
from waypost.workers.functions import DEFAULT, Call, Function
from waypost.workers.sockets import Socket

_log: Final = logging.getLogger(__name__)
_MOST_COMPLAINTS: Final = 3
MOST_UNANSWERED: Final = 10_000
"""Calls that one worker may owe answers for, and may have made itself."""

_boot: Final = str(uuid.UUID(bytes=secrets.token_bytes(16), version=4))[:24]
_numbers: Final = itertools.count(secrets.randbits(32))


def invocation_id() -> str:
    """An id that looks like any other UUID and costs less."""
    return f"{_boot}{next(_numbers) & 0xFFFFFFFFFFFF:012x}"


@dataclass(eq=False, slots=True)
class Worker:
    """One connection, from its first message to its last."""

    socket: Socket
    id: str = field(default_factory=lambda: str(uuid.uuid4()))
    token: str = field(default_factory=lambda: secrets.token_urlsafe(24))
    """What it shows when it comes back."""
    name: str = ""
    namespace: str = DEFAULT
    about: dict[str, Any] = field(default_factory=dict)
    """What it says of itself."""
    features: frozenset[str] = frozenset()
    connected_at: float = field(default_factory=time.time)
    functions: dict[str, Function] = field(default_factory=dict)
    calls: set[asyncio.Task[None]] = field(default_factory=set)
    """What it called and waits for."""
    is_gone: bool = False
    caller: Caller | None = None
    """Who it is to the rules, once it called something."""
    origin: Origin | None = None
    """Who it is to the functions that it calls, once it called something."""
    observes: bool = False
    """Whether it knows of observers."""
    _complaints: Counter[str] = field(default_factory=Counter)
    _unanswered: dict[str, asyncio.Future[Raw]] = field(default_factory=dict)
    _depths: dict[str, int] = field(default_factory=dict)
    _busy_poll: BusyPoll = field(default_factory=BusyPoll)

    def __post_init__(self) -> None:
        self.name = self.name or self.id

    @property
    def owner(self) -> str:
        """What the hub calls it where it keeps what belongs to it."""
        return f"worker:{self.name}"

    @property
    def unanswered(self) -> int:
        """How many calls it has not answered."""
        return len(self._unanswered)

    @property
    def depth(self) -> int:
        """How many observers stand behind what it does now, as far as it cannot tell that itself."""
        return max(self._depths.values(), default=0)

    def send(self, message: msgspec.Struct) -> None:
        """Send it a message."""
        data = encode(message)
        if len(data) > MOST:
            raise InvocationFailed(
                f"The message has {len(data)} bytes and a message to a worker has at most {MOST}; use a channel.",
                "payload_too_large",
            )
        self.socket.send(data)

    async def call(self, function_id: str, call: Call) -> Raw:
        """Call one of its functions; `InvocationFailed` when it fails, or is gone before it answers."""
        if self.is_gone:
            raise self._stopped(function_id)
        if call.is_void:
            self.send(self._invocation(function_id, call, None))
            return NULL
        if len(self._unanswered) >= MOST_UNANSWERED:
            raise Busy(f"The worker {self.name} has {MOST_UNANSWERED} calls to answer already; try again later.")
        invocation = call.invocation or invocation_id()
        future: asyncio.Future[Raw] = running_loop().create_future()
        self._unanswered[invocation] = future
        if call.observe_depth and not self.observes:
            self._depths[invocation] = call.observe_depth
        try:
            self.send(self._invocation(function_id, call, invocation))
            if len(self._unanswered) == 1:
                self._busy_poll.wait_for(future)
            return await future
        finally:
            self._unanswered.pop(invocation, None)
            if self._depths:
                self._depths.pop(invocation, None)

    def settle(self, answer: InvocationResult) -> None:
        """Hand an answer to whoever waits for it; nobody waits for one that comes too late."""
        future = self._unanswered.pop(answer.invocation_id or "", None)
        if future is None or future.done():
            return
        problem = None if answer.error is UNSET else failed(answer)
        if problem is not None:
            future.set_exception(problem)
        else:
            future.set_result(NULL if answer.result is UNSET else answer.result)

    def misunderstood(self, invocations: Iterable[str], why: str) -> None:
        """It answered a call, the first of these that waits, and nobody can read the answer."""
        for invocation in invocations:
            future = self._unanswered.pop(invocation, None)
            if future is not None and not future.done():
                future.set_exception(InvocationFailed(f"The answer of the worker {self.name} cannot be used: {why}."))
                return

    def complain(self, what: str, *about: object) -> None:
        """Tell in the log what is wrong with it, the first few times."""
        self._complaints[what] += 1
        if self._complaints[what] <= _MOST_COMPLAINTS:
            _log.warning(what, *about)

    def leave(self) -> None:
        """It is gone: everything it owes an answer for has failed, and nobody waits for what it called."""
        self.is_gone = True
        for future in self._unanswered.values():
            if not future.done():
                future.set_exception(self._stopped(""))
        for task in self.calls:
            task.cancel()

    def _stopped(self, function_id: str) -> InvocationFailed:
        what = f" before {function_id} was called" if function_id else ""
        return Unreached(f"Invocation stopped: the worker {self.name} disconnected{what}.", "invocation_stopped")

    def _invocation(self, function_id: str, call: Call, invocation: str | None) -> InvokeFunction:
        frame = InvokeFunction(function_id, call.data, invocation, call.metadata, call.traceparent, call.baggage)
        if self.observes:
            frame.caller, frame.activation = call.origin, call.activation
            frame.observe_depth = call.observe_depth or None
        return frame
