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
    INTRODUCTION,
    MAX_MESSAGE_BYTES,
    NULL,
    FromWorker,
    InvocationResult,
    InvokeFunction,
    Origin,
    WorkerRegistered,
    WorkerUnreachable,
    encode,
    to_exception,
    to_raw_failure,
)
from waypost.workers.functions import DEFAULT, Call, Function
from waypost.workers.sockets import Socket

if TYPE_CHECKING:
    from waypost.workers.workers import Workers


_log: Final = logging.getLogger(__name__)
MAX_WARNINGS: Final = 3
MAX_PENDING_CALLS: Final = 10_000
"""Calls to one worker, and calls by one worker, that have no answer yet."""
INTRODUCTION_TIMEOUT_S: Final = 0.25
"""How long a worker has to introduce itself; then its functions are registered without a name."""
BATCH_WINDOW_S: Final = 0.02
"""How long a later registration waits for others, so that they are one change; any other message ends the wait."""
MAX_HELD_MESSAGES: Final = 20_000
MAX_HELD_CALLS: Final = 64

_boot: Final = str(uuid.UUID(bytes=secrets.token_bytes(16), version=4))[:24]
_numbers: Final = itertools.count(secrets.randbits(32))


def invocation_id() -> str:
    """A new id in the form of a UUID; counting is much cheaper than random bytes for each call."""
    return f"{_boot}{next(_numbers) & 0xFFFFFFFFFFFF:012x}"


@dataclass(eq=False, slots=True)
class PendingCalls:
    """The calls to one worker that it has not answered."""

    futures: dict[str, asyncio.Future[Raw]] = field(default_factory=dict)
    depths: dict[str, int] = field(default_factory=dict)
    """The observer depths of those calls, for workers that do not report them themselves."""
    busy_poll: BusyPoll = field(default_factory=BusyPoll)

    def pop(self, invocation: str) -> asyncio.Future[Raw] | None:
        """Take out a call that still waits for its answer."""
        future = self.futures.pop(invocation, None)
        return None if future is None or future.done() else future


@dataclass(eq=False, slots=True)
class Worker:
    """One connection, from its first message to its last."""

    socket: Socket
    id: str = field(default_factory=lambda: str(uuid.uuid4()))
    token: str = field(default_factory=lambda: secrets.token_urlsafe(24))
    """What it presents when it connects again."""
    name: str = ""
    namespace: str = DEFAULT
    about: dict[str, Any] = field(default_factory=dict)
    """The rest of its introduction: its runtime, version, host and so on."""
    connected_at: float = field(default_factory=time.time)
    functions: dict[str, Function] = field(default_factory=dict)
    calls: set[asyncio.Task[None]] = field(default_factory=set)
    """The calls that it made and waits for."""
    is_gone: bool = False
    caller: Caller | None = None
    """Its principal for policies, once it called something."""
    origin: Origin | None = None
    """How it appears to the functions that it calls, once it called something."""
    observes: bool = False
    """Whether it supports observers."""
    _pending: PendingCalls = field(default_factory=PendingCalls)
    _warnings: Counter[str] = field(default_factory=Counter)

    def __post_init__(self) -> None:
        self.name = self.name or self.id

    @property
    def owner(self) -> str:
        """The name under which the hub stores what belongs to it."""
        return f"worker:{self.name}"

    @property
    def unanswered(self) -> int:
        """How many calls it has not answered."""
        return len(self._pending.futures)

    @property
    def depth(self) -> int:
        """The observer depth of the calls it runs now, for workers that do not report it themselves."""
        return max(self._pending.depths.values(), default=0)

    def send(self, message: msgspec.Struct) -> None:
        """Send it a message; `InvocationFailed` if the message is too large."""
        data = encode(message)
        if len(data) > MAX_MESSAGE_BYTES:
            raise InvocationFailed(
                f"The message has {len(data)} bytes and a message to a worker has at most {MAX_MESSAGE_BYTES};"
                " use a channel.",
                "payload_too_large",
            )
        self.socket.send(data)

    async def call(self, function_id: str, call: Call) -> Raw:
        """Call one of its functions; `InvocationFailed` when it fails, or disconnects before it answers."""
        if self.is_gone:
            raise self._disconnected(f" before {function_id} was called")
        if call.is_void:
            self.send(self._to_frame(function_id, call, None))
            return NULL
        pending = self._pending
        if len(pending.futures) >= MAX_PENDING_CALLS:
            raise Busy(f"The worker {self.name} has {MAX_PENDING_CALLS} calls to answer already; try again later.")
        invocation = call.invocation or invocation_id()
        future: asyncio.Future[Raw] = running_loop().create_future()
        pending.futures[invocation] = future
        if call.observe_depth and not self.observes:
            pending.depths[invocation] = call.observe_depth
        try:
            self.send(self._to_frame(function_id, call, invocation))
            # A lone call is answered sooner if the loop polls for a moment instead of sleeping; with several calls in
            # flight there is other work to do.
            if len(pending.futures) == 1:
                pending.busy_poll.wait_for(future)
            return await future
        finally:
            pending.futures.pop(invocation, None)
            if pending.depths:
                pending.depths.pop(invocation, None)

    def resolve(self, answer: InvocationResult) -> None:
        """Complete the pending call that an answer belongs to; a late answer is ignored."""
        future = self._pending.pop(answer.invocation_id or "")
        if future is None:
            return
        problem = None if answer.error is UNSET else to_exception(answer)
        if problem is not None:
            future.set_exception(problem)
        else:
            future.set_result(NULL if answer.result is UNSET else answer.result)

    def fail_first(self, invocations: Iterable[str], why: str) -> None:
        """Fail the first pending call of these: the worker's answer cannot be decoded."""
        for invocation in invocations:
            future = self._pending.pop(invocation)
            if future is not None:
                future.set_exception(InvocationFailed(f"The answer of the worker {self.name} cannot be used: {why}."))
                return

    def warn(self, message: str, *values: object) -> None:
        """Log a warning about the worker, the first few times."""
        self._warnings[message] += 1
        if self._warnings[message] <= MAX_WARNINGS:
            _log.warning(message, *values)

    def disconnect(self) -> None:
        """Fail the calls to it and cancel the calls it made."""
        self.is_gone = True
        for future in self._pending.futures.values():
            if not future.done():
                future.set_exception(self._disconnected())
        for task in self.calls:
            task.cancel()

    def _disconnected(self, when: str = "") -> InvocationFailed:
        return WorkerUnreachable(
            f"Invocation stopped: the worker {self.name} disconnected{when}.", "invocation_stopped"
        )

    def _to_frame(self, function_id: str, call: Call, invocation: str | None) -> InvokeFunction:
        frame = InvokeFunction(function_id, call.data, invocation, call.metadata, call.traceparent, call.baggage)
        if self.observes:
            frame.caller, frame.activation = call.origin, call.activation
            frame.observe_depth = call.observe_depth or None
        return frame


class WorkerSession:
    """Reads the messages of one worker.

    The SDKs send what a worker offers before its name and namespace. So the first messages are held for a moment, and
    the functions among them become one change of the registry; so do functions that follow each other later.
    """

    def __init__(self, workers: Workers) -> None:
        self._workers = workers
        self._worker: Worker | None = None
        self._held: list[FromWorker] = []
        self._held_calls = 0
        self._is_introduced = False
        self._timer: asyncio.TimerHandle | None = None

    def on_open(self, socket: Socket) -> None:
        """Greet the worker."""
        worker = self._worker = Worker(socket)
        self._workers.connect(worker)
        worker.send(WorkerRegistered(worker.id, worker.token, self._workers.features))
        self._timer = running_loop().call_later(INTRODUCTION_TIMEOUT_S, self._release)

    def on_text(self, data: bytes) -> None:
        """Handle a text message; one that cannot be decoded is logged, the first few times."""
        worker = self._here
        if worker.is_gone:  # it came back on another socket, and this one is not closed yet
            return
        try:
            frame = frames.decode_message(data)
        except ProtocolError as error:
            worker.warn("a message of the worker %s was ignored: %s", worker.name, error.message)
            self._fail_undecodable(data, error.message)
            return
        if type(frame) is InvocationResult and not self._held:
            worker.resolve(frame)
            return
        # Only messages that the hub answers may be held back; see `Socket.hold`.
        if worker.socket.is_full and not (frame.is_void if type(frame) is InvokeFunction else _is_result(frame)):
            worker.socket.hold()
        if type(frame) is InvokeFunction and frame.function_id == INTRODUCTION:
            self._introduce(frame)
        elif type(frame) is frames.Reattach:
            self._workers.reattach(worker, frame)
        elif type(frame) is frames.RegisterFunction or not (self._is_introduced or _is_result(frame)):
            self._hold(frame)
        else:
            if self._is_introduced and self._held:
                self._release()
            self._dispatch(frame)

    def on_binary(self, data: bytes) -> None:
        """Handle a binary message: some workers send JSON so; telemetry is ignored."""
        if data.startswith(b"{"):
            self.on_text(data)

    def on_close(self) -> None:
        """Remove the worker."""
        if self._timer is not None:
            self._timer.cancel()
        self._held.clear()
        if self._worker is not None:
            self._workers.disconnect(self._worker)

    @property
    def _here(self) -> Worker:
        assert self._worker is not None
        return self._worker

    def _introduce(self, frame: InvokeFunction) -> None:
        worker = self._here
        try:
            about = None if frame.data is UNSET else msgspec.json.decode(frame.data)
        except (msgspec.MsgspecError, RecursionError):
            about = None
        self._workers.introduce(worker, about if isinstance(about, dict) else {})
        if not frame.is_void:
            answer = Raw(encode({"worker_id": worker.id}))
            worker.send(InvocationResult(frame.invocation_id, frame.function_id, answer))
        self._release()

    def _hold(self, frame: FromWorker) -> None:
        self._held.append(frame)
        self._held_calls += type(frame) is InvokeFunction
        if len(self._held) >= MAX_HELD_MESSAGES or self._held_calls >= MAX_HELD_CALLS:
            self._release()
        elif self._timer is None:
            self._timer = running_loop().call_later(BATCH_WINDOW_S, self._release)

    def _release(self) -> None:
        """Handle the held messages; the functions among them are registered together, as one change."""
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        held, self._held, self._is_introduced, self._held_calls = self._held, [], True, 0
        if not held or self._here.is_gone:
            return
        # Functions come first, because calls and bindings may name them. Where one is withdrawn too, the order counts.
        is_ordered = any(type(frame) is frames.UnregisterFunction for frame in held)
        if not is_ordered:
            functions = [frame for frame in held if type(frame) is frames.RegisterFunction]
            self._workers.register(self._here, functions)
        for frame in held:
            if is_ordered or type(frame) is not frames.RegisterFunction:
                self._dispatch(frame)

    def _dispatch(self, frame: FromWorker) -> None:
        handle = _HANDLERS.get(type(frame))
        if handle is None and self._here.observes:
            handle = _OBSERVE_HANDLERS.get(type(frame))
        if handle is not None:
            handle(self._workers, self._here, frame)

    def _fail_undecodable(self, data: bytes, why: str) -> None:
        """Fail the call that an undecodable message belongs to at once, instead of letting it time out."""
        kind, ids = frames.find_invocation_ids(data)
        if kind is InvocationResult:
            self._here.fail_first(ids, why)
        elif kind is InvokeFunction and ids:
            error = to_raw_failure("invocation_failed", f"The call cannot be made: {why}.")
            self._here.send(InvocationResult(ids[0], error=error))
            self._here.socket.hold()


def _is_result(frame: FromWorker) -> bool:
    return type(frame) is InvocationResult


_HANDLERS: Final[dict[type, Callable[[Any, Worker, Any], None]]] = {
    frames.RegisterFunction: lambda workers, worker, frame: workers.register(worker, [frame]),
    frames.UnregisterFunction: lambda workers, worker, frame: workers.unregister(worker, frame.id),
    frames.InvokeFunction: lambda workers, worker, frame: workers.calls.start(worker, frame),
    frames.InvocationResult: lambda _, worker, frame: worker.resolve(frame),
    frames.RegisterTriggerType: lambda workers, worker, frame: workers.provide(worker, frame),
    frames.UnregisterTriggerType: lambda workers, worker, frame: workers.triggers.withdraw(
        frame.id, frame.namespace or worker.namespace, worker
    ),
    frames.RegisterTrigger: lambda workers, worker, frame: workers.bind(worker, frame),
    frames.UnregisterTrigger: lambda workers, worker, frame: workers.triggers.unbind(frame.id, worker),
    frames.TriggerRegistrationResult: lambda workers, worker, frame: workers.triggers.handle_result(frame, worker),
    frames.Ping: lambda _, worker, _frame: worker.send(frames.Pong()),
}
_OBSERVE_HANDLERS: Final[dict[type, Callable[[Any, Worker, Any], None]]] = {
    frames.Observe: lambda workers, worker, frame: workers.observers.observe(worker, frame),
    frames.Unobserve: lambda workers, worker, frame: workers.observers.unobserve(worker, frame.id),
    frames.ObserverAck: lambda workers, worker, frame: workers.observers.acknowledge(worker, frame),
    frames.InvocationsObserved: lambda workers, worker, frame: workers.observers.report(worker, frame),
}
