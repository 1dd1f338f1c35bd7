"""One connected worker: its identity, its functions, its pending calls, and the session that reads its messages."""

from __future__ import annotations

import asyncio
import itertools
import logging
import secrets
import time
import uuid
from collections import Counter
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Final

import msgspec
from msgspec import UNSET, Raw

from waypost.capabilities.context import Caller
from waypost.errors import Busy, InvocationFailed, ProtocolError
from waypost.loops import BusyPoll, running_loop
from waypost.workers import frames
from waypost.workers.frames import (
    MAX_MESSAGE_BYTES,
    NULL,
    FromWorker,
    InvocationResult,
    InvokeFunction,
    Origin,
    Pong,
    WorkerRegistered,
    WorkerUnreachable,
    encode,
    to_exception,
)
from waypost.workers.functions import DEFAULT, Call, Function
from waypost.workers.sockets import Socket

if TYPE_CHECKING:
    from waypost.workers.workers import Workers


_log: Final = logging.getLogger(__name__)
MAX_WARNINGS: Final = 3
MAX_PENDING_CALLS: Final = 10_000
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
        """The name under which the hub stores what belongs to it."""
        return f"worker:{self.name}"

    @property
    def unanswered(self) -> int:
        """How many calls it has not answered."""
        return len(self._unanswered)

    @property
    def depth(self) -> int:
        """The observer depth of the calls it runs now, for workers that do not report it themselves."""
        return max(self._depths.values(), default=0)

    def send(self, message: msgspec.Struct) -> None:
        """Send it a message."""
        data = encode(message)
        if len(data) > MAX_MESSAGE_BYTES:
            raise InvocationFailed(
                f"The message has {len(data)} bytes and a message to a worker has at most {MAX_MESSAGE_BYTES};"
                " use a channel.",
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
        if len(self._unanswered) >= MAX_PENDING_CALLS:
            raise Busy(f"The worker {self.name} has {MAX_PENDING_CALLS} calls to answer already; try again later.")
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
        """Complete the pending call that an answer belongs to; a late answer is ignored."""
        future = self._unanswered.pop(answer.invocation_id or "", None)
        if future is None or future.done():
            return
        problem = None if answer.error is UNSET else to_exception(answer)
        if problem is not None:
            future.set_exception(problem)
        else:
            future.set_result(NULL if answer.result is UNSET else answer.result)

    def misunderstood(self, invocations: Iterable[str], why: str) -> None:
        """Fail the first pending call of these: the worker's answer cannot be decoded."""
        for invocation in invocations:
            future = self._unanswered.pop(invocation, None)
            if future is not None and not future.done():
                future.set_exception(InvocationFailed(f"The answer of the worker {self.name} cannot be used: {why}."))
                return

    def complain(self, what: str, *about: object) -> None:
        """Log a warning about the worker, the first few times."""
        self._complaints[what] += 1
        if self._complaints[what] <= MAX_WARNINGS:
            _log.warning(what, *about)

    def leave(self) -> None:
        """The worker disconnected: fail the calls to it and cancel the calls it made."""
        self.is_gone = True
        for future in self._unanswered.values():
            if not future.done():
                future.set_exception(self._stopped(""))
        for task in self.calls:
            task.cancel()

    def _stopped(self, function_id: str) -> InvocationFailed:
        what = f" before {function_id} was called" if function_id else ""
        return WorkerUnreachable(
            f"Invocation stopped: the worker {self.name} disconnected{what}.", "invocation_stopped"
        )

    def _invocation(self, function_id: str, call: Call, invocation: str | None) -> InvokeFunction:
        frame = InvokeFunction(function_id, call.data, invocation, call.metadata, call.traceparent, call.baggage)
        if self.observes:
            frame.caller, frame.activation = call.origin, call.activation
            frame.observe_depth = call.observe_depth or None
        return frame


INTRODUCTION: Final = "engine::workers::register"
INTRODUCTION_TIMEOUT_S: Final = 0.25
"""Seconds a worker has to introduce itself; then its functions are registered without a name."""
BATCH_WINDOW_S: Final = 0.02
"""Seconds a later registration waits for others, so that they are one change; any other message ends the wait."""
MAX_HELD_MESSAGES: Final = 20_000
MAX_HELD_CALLS: Final = 64


class WorkerSession:
    """One worker's side of the hub.

    A worker says what it offers before it says its name and namespace. So what it says first is held for a moment, and
    what it offers becomes one change of the registry; so do functions that it offers one right after the other later.
    """

    def __init__(self, workers: Workers) -> None:
        self._workers = workers
        self._worker: Worker | None = None
        self._held: list[FromWorker] = []
        self._is_known = False
        self._timer: asyncio.TimerHandle | None = None
        self._calls_held = 0

    def opened(self, socket: Socket) -> None:
        """Greet the worker."""
        worker = self._worker = Worker(socket)
        self._workers.arrive(worker)
        worker.send(WorkerRegistered(worker.id, worker.token, self._workers.features))
        self._timer = running_loop().call_later(INTRODUCTION_TIMEOUT_S, self._release)

    def text(self, data: bytes) -> None:
        """Handle a text message; one that cannot be decoded is logged, the first few times."""
        worker = self._here
        if worker.is_gone:  # it came back on another socket, and this one is not closed yet
            return
        try:
            frame = frames.decode_message(data)
        except ProtocolError as error:
            worker.complain("a message of the worker %s was ignored: %s", worker.name, error.message)
            self._give_back(data, error.message)
            return
        if type(frame) is InvocationResult and not self._held:
            worker.settle(frame)
            return
        if worker.socket.is_full and _is_answered(frame):
            worker.socket.hold()
        if type(frame) is InvokeFunction and frame.function_id == INTRODUCTION:
            self._introduced(frame)
        elif type(frame) is frames.Reattach:
            self._workers.reattach(worker, frame)
        elif self._waits(frame):
            self._hold(frame)
        else:
            if self._is_known and self._held:
                self._release()
            self._sort(frame)

    def _waits(self, frame: FromWorker) -> bool:
        if self._is_known:
            return type(frame) is frames.RegisterFunction
        return type(frame) is not frames.InvocationResult

    def _hold(self, frame: FromWorker) -> None:
        self._held.append(frame)
        self._calls_held += type(frame) is InvokeFunction
        if len(self._held) >= MAX_HELD_MESSAGES or self._calls_held >= MAX_HELD_CALLS:
            self._release()
        elif self._timer is None:
            self._timer = running_loop().call_later(BATCH_WINDOW_S, self._release)

    def binary(self, data: bytes) -> None:
        """Handle a binary message: some workers send JSON so; telemetry is ignored."""
        if data.startswith(b"{"):
            self.text(data)

    def closed(self) -> None:
        """The connection is closed: remove the worker."""
        if self._timer is not None:
            self._timer.cancel()
        self._held.clear()
        if self._worker is not None:
            self._workers.leave(self._worker)

    @property
    def _here(self) -> Worker:
        assert self._worker is not None
        return self._worker

    def _introduced(self, frame: InvokeFunction) -> None:
        worker = self._here
        self._workers.introduce(worker, _said(frame))
        if frame.invocation_id is not None and (frame.action is None or frame.action.type != "void"):
            answer = msgspec.Raw(frames.encode({"worker_id": worker.id}))
            worker.send(frames.InvocationResult(frame.invocation_id, frame.function_id, answer))
        self._release()

    def _release(self) -> None:
        """Handle the held messages; the functions among them are registered together, as one change."""
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        held, self._held, self._is_known, self._calls_held = self._held, [], True, 0
        if not held or self._here.is_gone:
            return
        functions = [frame for frame in held if type(frame) is frames.RegisterFunction]
        is_plain = all(type(frame) is not frames.UnregisterFunction for frame in held)
        if is_plain:
            self._workers.register(self._here, functions)
        for frame in held:
            if not is_plain or type(frame) is not frames.RegisterFunction:
                self._sort(frame)

    def _sort(self, frame: FromWorker) -> None:
        take = _HANDLERS.get(type(frame))
        if take is None and self._here.observes:
            take = _OBSERVE_HANDLERS.get(type(frame))
        if take is not None:
            take(self._workers, self._here, frame)

    def _give_back(self, data: bytes, why: str) -> None:
        """Fail the call that an undecodable message belongs to at once, instead of letting it time out."""
        kind, ids = frames.find_invocation_ids(data)
        if kind is InvocationResult:
            self._here.misunderstood(ids, why)
        elif kind is InvokeFunction and ids:
            error = msgspec.Raw(frames.encode(frames.Failure("invocation_failed", f"The call cannot be made: {why}.")))
            self._here.send(InvocationResult(ids[0], error=error))
            self._here.socket.hold()


def _is_answered(frame: FromWorker) -> bool:
    """Whether the hub answers a message; results and calls without an answer are never held back."""
    if type(frame) is InvokeFunction:
        return frame.invocation_id is not None and (frame.action is None or frame.action.type != "void")
    return type(frame) is not InvocationResult


def _said(frame: InvokeFunction) -> dict[str, Any]:
    """The description that a worker gives of itself; empty if it is not an object."""
    try:
        about = None if frame.data is msgspec.UNSET else msgspec.json.decode(frame.data)
    except (msgspec.MsgspecError, RecursionError):
        return {}
    return about if isinstance(about, dict) else {}


def _pong(_workers: Workers, worker: Worker, _frame: Any) -> None:
    worker.send(Pong())


_HANDLERS: Final[dict[type, Callable[[Any, Worker, Any], None]]] = {
    frames.RegisterFunction: lambda workers, worker, frame: workers.register(worker, [frame]),
    frames.UnregisterFunction: lambda workers, worker, frame: workers.unregister(worker, frame.id),
    frames.InvokeFunction: lambda workers, worker, frame: workers.calling.take(worker, frame),
    frames.InvocationResult: lambda _, worker, frame: worker.settle(frame),
    frames.RegisterTriggerType: lambda workers, worker, frame: workers.provide(worker, frame),
    frames.UnregisterTriggerType: lambda workers, worker, frame: workers.triggers.withdraw(
        frame.id, frame.namespace or worker.namespace, worker
    ),
    frames.RegisterTrigger: lambda workers, worker, frame: workers.bind(worker, frame),
    frames.UnregisterTrigger: lambda workers, worker, frame: workers.triggers.unbind(frame.id, worker),
    frames.TriggerRegistrationResult: lambda workers, worker, frame: workers.triggers.answered(frame, worker),
    frames.Ping: _pong,
}
_OBSERVE_HANDLERS: Final[dict[type, Callable[[Any, Worker, Any], None]]] = {
    frames.Observe: lambda workers, worker, frame: workers.observing.observe(worker, frame),
    frames.Unobserve: lambda workers, worker, frame: workers.observing.unobserve(worker, frame.id),
    frames.ObserverAck: lambda workers, worker, frame: workers.observing.acknowledge(worker, frame),
    frames.InvocationsObserved: lambda workers, worker, frame: workers.observing.report(worker, frame),
}
