"""One connected worker: its identity, its functions, its pending calls, and the session that reads its messages."""

from __future__ import annotations

import asyncio
import itertools
import logging
import secrets
import time
import uuid
from collections import Counter, deque
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from itertools import groupby
from typing import TYPE_CHECKING, Any, Final

import msgspec
from msgspec import UNSET, Raw

from waypost.capabilities.context import Caller
from waypost.capabilities.principals import Chain, Principal
from waypost.capabilities.schemas.validators import MULTIPLYING
from waypost.errors import Busy, InvocationFailed, ProtocolError
from waypost.loops import BusyPoll, running_loop, start_task
from waypost.workers import frames
from waypost.workers.frames import CALL_ENTRY, NULL, InvocationResult, InvokeFunction, encode, split_baggage
from waypost.workers.functions import DEFAULT, Call, Function
from waypost.workers.sockets import Receiver, Socket
from waypost.workers.tools import has_own_name, in_turns

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
MAX_WORK_PER_TURN: Final = 16 * 1024
"""Bytes of functions with simple schemas that are registered in one turn of the loop; more take several turns."""
MAX_INTRODUCTION_BYTES: Final = 64 * 1024
"""What a worker says about itself; lists of workers repeat it to every caller."""
MAX_REMEMBERED_CALLS: Final = 1_000
"""Calls to one worker that have ended and whose callers it may still act for."""
_ANSWERS_AVERAGED: Final = 8

_boot: Final = str(uuid.UUID(bytes=secrets.token_bytes(16), version=4))[:24]
_numbers: Final = itertools.count(secrets.randbits(32))


def invocation_id() -> str:
    """A new id in the form of a UUID; counting is much cheaper than random bytes for each call."""
    return f"{_boot}{next(_numbers) & 0xFFFFFFFFFFFF:012x}"


class Latency:
    """How long a worker takes to answer: a moving average, in which the last few answers count most."""

    __slots__ = ("seconds",)

    def __init__(self) -> None:
        self.seconds: float | None = None
        """`None` before the first answer."""

    def add(self, seconds: float) -> None:
        """Count one answer."""
        known = self.seconds
        self.seconds = seconds if known is None else known + (seconds - known) / _ANSWERS_AVERAGED


@dataclass(eq=False, slots=True)
class PendingCalls:
    """The calls to one worker that it has not answered."""

    futures: dict[str, asyncio.Future[Raw]] = field(default_factory=dict)
    depths: dict[str, int] = field(default_factory=dict)
    """The observer depths of those calls, for workers that do not report them themselves."""
    busy_poll: BusyPoll = field(default_factory=BusyPoll)
    latency: Latency = field(default_factory=Latency)
    callers: dict[str, tuple[Principal, Chain]] = field(default_factory=dict)
    """The callers of those calls and of the last ones that ended: a handler may act for its caller after its answer."""
    _ended: deque[str] = field(default_factory=deque)

    def end(self, invocation: str) -> None:
        """A call was answered or given up; its caller is remembered for a while."""
        self.futures.pop(invocation, None)
        self._ended.append(invocation)
        if len(self._ended) > MAX_REMEMBERED_CALLS:
            self.callers.pop(self._ended.popleft(), None)

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
    is_named: bool = False
    """Whether its name is final: proven by a token, or said in its introduction."""
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
    def identity(self) -> str:
        """Its name; without the process id at the end of the SDKs' default name, which changes with every start."""
        return self.name.removesuffix(f":{self.about.get('pid')}")

    @property
    def unanswered(self) -> int:
        """How many calls it has not answered."""
        return len(self._pending.futures)

    @property
    def latency(self) -> Latency:
        """How long it takes to answer."""
        return self._pending.latency

    @property
    def depth(self) -> int:
        """The observer depth of the calls it runs now, for workers that do not report it themselves."""
        depths = self._pending.depths
        return max(depths.values()) if depths else 0

    def send(self, message: msgspec.Struct) -> None:
        """Send it a message; `InvocationFailed` if the message is too large."""
        data = encode(message)
        if len(data) > frames.MAX_MESSAGE_BYTES:
            raise InvocationFailed(
                f"The message has {len(data)} bytes and a message to a worker has at most {frames.MAX_MESSAGE_BYTES};"
                " use a channel.",
                "payload_too_large",
            )
        self.socket.send(data)

    async def call(self, function_id: str, call: Call) -> Raw:
        """Call one of its functions; `InvocationFailed` when it fails, or disconnects before it answers."""
        if self.is_gone:  # a call may have waited in the pipeline for a slot while the worker left
            raise frames.NotStarted(
                f"Invocation stopped: the worker {self.name} disconnected before {function_id} was called.",
                "invocation_stopped",
            )
        pending = self._pending
        if call.is_void:
            # Its caller does not wait, but the handler may make calls for it, and names it by this id.
            parent = invocation_id()
            self.send(self._to_frame(function_id, call, None, parent))
            pending.callers[parent] = call.caller.principal, call.caller.chain
            pending.end(parent)
            return NULL
        if len(pending.futures) >= MAX_PENDING_CALLS:
            raise Busy(f"The worker {self.name} has {MAX_PENDING_CALLS} calls to answer already; try again later.")
        invocation = call.invocation or invocation_id()
        future: asyncio.Future[Raw] = running_loop().create_future()
        pending.futures[invocation] = future
        pending.callers[invocation] = call.caller.principal, call.caller.chain
        if call.observe_depth and not self.observes:
            pending.depths[invocation] = call.observe_depth
        try:
            self.send(self._to_frame(function_id, call, invocation, invocation))
            # A lone call is answered sooner if the loop polls for a moment instead of sleeping; with several calls in
            # flight there is other work to do.
            if len(pending.futures) == 1:
                pending.busy_poll.wait_for(future)
            began = time.perf_counter()
            answer = await future
            pending.latency.add(time.perf_counter() - began)
            return answer
        finally:
            pending.end(invocation)
            if pending.depths:
                pending.depths.pop(invocation, None)
            # An error that the future holds refers to this frame: together they would keep all that the callers of this
            # function refer to, payloads and schemas too, until the garbage collector finds them.
            del future

    def resolve(self, answer: InvocationResult) -> None:
        """Complete the pending call that an answer belongs to; a late answer is ignored."""
        future = self._pending.pop(answer.invocation_id or "")
        if future is None:
            return
        problem = None if answer.error is UNSET else frames.to_exception(answer)
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

    def _disconnected(self) -> InvocationFailed:
        return frames.WorkerUnreachable(
            f"Invocation stopped: the worker {self.name} disconnected.", "invocation_stopped"
        )

    def find_caller(self, frame: InvokeFunction) -> tuple[Principal, Chain] | None:
        """The principal and chain of the call that a message was made from, as far as the worker says which it was.

        Only calls that this worker received count. All SDKs return the baggage of a call with the calls that its
        handler makes, in threads and tasks too; those that know observers say the id as well.
        """
        if frame.baggage is None and frame.caller is None:
            return None
        _, parent = split_baggage(frame.baggage)
        callers = self._pending.callers
        return callers.get(parent) or callers.get((frame.caller.invocation_id if frame.caller else None) or "")

    def _to_frame(self, function_id: str, call: Call, invocation: str | None, parent: str) -> InvokeFunction:
        entry = f"{CALL_ENTRY}{parent}"
        baggage = f"{call.baggage},{entry}" if call.baggage else entry
        frame = InvokeFunction(function_id, call.data, invocation, call.metadata, call.traceparent, baggage)
        if self.observes:
            frame.caller, frame.activation = call.origin, call.activation
            frame.observe_depth = call.observe_depth or None
        return frame


class WorkerSession(Receiver):
    """Reads the messages of one worker.

    The SDKs send what a worker offers before its name and namespace. So the first messages are held for a moment, and
    the functions among them become one change of the registry; so do functions that follow each other later.
    """

    def __init__(self, workers: Workers, name: str = "") -> None:
        self._workers = workers
        self._name = name
        """The name that the token of the connection proves, if any."""
        self._worker: Worker | None = None
        self._held: list[frames.FromWorker] = []
        self._held_calls = self._held_work = 0
        self._is_introduced = False
        self._registering: set[asyncio.Task[None]] = set()
        """The registration that takes several turns of the loop, if there is one."""
        self._behind: list[tuple[frames.FromWorker, int]] = []
        """The messages that were read with those that are registered, and wait for them."""
        self._timer: asyncio.TimerHandle | None = None

    def on_open(self, socket: Socket) -> None:
        """Greet the worker."""
        worker = self._worker = Worker(socket, name=self._name, is_named=bool(self._name))
        self._workers.connect(worker)
        worker.send(frames.WorkerRegistered(worker.id, worker.token, self._workers.features))
        # A worker of another make may never introduce itself.
        self._timer = running_loop().call_later(INTRODUCTION_TIMEOUT_S, self._release)

    def on_text(self, data: bytes) -> None:
        """Handle a text message; one that cannot be decoded is logged, the first few times."""
        worker = self._here
        if worker.is_gone:  # it came back on another socket, and this one is not closed yet
            return
        try:
            frame = frames.decode_message(data)
        except ProtocolError as error:
            # The connection stays: the calls of one worker share it, and one bad payload must not end the others.
            worker.warn("a message of the worker %s was ignored: %s", worker.name, error.message)
            self._fail_undecodable(data, error.message)
            return
        work = _estimate_work(data) if type(frame) is frames.RegisterFunction else 0
        if self._registering:
            self._behind.append((frame, work))
        else:
            self._receive(worker, frame, work)

    def _receive(self, worker: Worker, frame: frames.FromWorker, work: int) -> None:
        is_result = type(frame) is InvocationResult
        # Most messages are results and need nothing of what follows. Where functions wait to be registered, those come
        # first: who receives the result may call them next.
        if type(frame) is InvocationResult and not self._held:
            worker.resolve(frame)
            return
        # Only messages that the hub answers may be held back; see `Socket.hold`.
        if worker.socket.is_full and not (frame.is_void if type(frame) is InvokeFunction else is_result):
            worker.socket.hold()
        if type(frame) is InvokeFunction and frame.function_id == frames.INTRODUCTION:
            self._introduce(frame)
        elif type(frame) is frames.Reattach:
            self._workers.reattach(worker, frame)
        elif type(frame) is frames.RegisterFunction or not (self._is_introduced or is_result):
            self._hold(frame, work)
        elif self._held and self._is_introduced:
            self._held.append(frame)
            self._release()
        else:
            self._dispatch(worker, frame)

    def on_binary(self, data: bytes) -> None:
        """Handle a binary message: some workers send JSON so; telemetry is ignored."""
        if data.startswith(b"{"):
            self.on_text(data)

    def on_close(self) -> None:
        """Remove the worker."""
        if self._timer is not None:
            self._timer.cancel()
        self._held.clear()
        for task in self._registering:
            task.cancel()
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
        if isinstance(about, dict) and len(frame.data or b"") > MAX_INTRODUCTION_BYTES:
            worker.warn("the introduction of the worker %s is too large; only its name is kept", worker.name)
            about = {key: about[key] for key in ("name", "namespace", "features") if key in about}
        self._workers.introduce(worker, about if isinstance(about, dict) else {})
        self._held.append(frame)  # it is answered when the functions before it are registered
        self._release()

    def _hold(self, frame: frames.FromWorker, work: int) -> None:
        self._held.append(frame)
        self._held_work += work
        self._held_calls += type(frame) is InvokeFunction
        if len(self._held) >= MAX_HELD_MESSAGES or self._held_calls >= MAX_HELD_CALLS:
            self._release()
        elif self._timer is None:
            # A worker that registers a hundred functions one by one would otherwise be a hundred `list_changed`.
            self._timer = running_loop().call_later(BATCH_WINDOW_S, self._release)

    def _release(self) -> None:
        """Handle the held messages; functions that follow each other are registered together, as one change."""
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        held, work = self._held, self._held_work
        self._held, self._is_introduced, self._held_calls, self._held_work = [], True, 0, 0
        if not held or self._here.is_gone:
            return
        # Functions come first, because calls and bindings may name them. Where one is withdrawn too, the order counts.
        if not any(type(frame) is frames.UnregisterFunction for frame in held):
            held.sort(key=_is_function, reverse=True)
        if work > MAX_WORK_PER_TURN:
            self._here.socket.pause()
            start_task(self._handle_in_turns(held), self._registering)
            return
        for are_functions, run in groupby(held, _is_function):
            if are_functions:
                self._workers.register(self._here, self._workers.build(self._here, run))  # type: ignore[arg-type]  # all are
            else:
                for frame in run:
                    self._dispatch(self._here, frame)

    async def _handle_in_turns(self, held: list[frames.FromWorker]) -> None:
        """Handle held messages with much to check, and then those that came behind them; others go on meanwhile."""
        worker, workers = self._here, self._workers
        try:
            for are_functions, run in groupby(held, _is_function):
                if are_functions:
                    functions = workers.build(worker, run)  # type: ignore[arg-type]  # all are
                    for part in in_turns(sorted(functions, key=has_own_name, reverse=True)):
                        await workers.schemas.check(part)
                        if worker.is_gone:
                            return
                        workers.register(worker, part)
                    continue
                for frame in run:
                    self._dispatch(worker, frame)
                    await asyncio.sleep(0)
        except Exception:
            _log.exception("functions of the worker %s were not registered", worker.name)
        finally:
            if not worker.is_gone:
                self._go_on()

    def _go_on(self) -> None:
        self._registering.clear()
        behind, self._behind = self._behind, []
        for frame, work in behind:
            if self._registering:  # one of these messages began the next
                self._behind.append((frame, work))
                continue
            try:
                self._receive(self._here, frame, work)
            except Exception:
                _log.exception("a message of the worker %s could not be handled", self._here.name)
        if not self._registering:
            self._here.socket.resume()

    def _dispatch(self, worker: Worker, frame: frames.FromWorker) -> None:
        if type(frame) is InvokeFunction and frame.function_id == frames.INTRODUCTION:
            if not frame.is_void:
                answer = Raw(encode({"worker_id": worker.id}))
                worker.send(InvocationResult(frame.invocation_id, frame.function_id, answer))
            return
        handle = _HANDLERS.get(type(frame))
        if handle is None and worker.observes:
            handle = _OBSERVE_HANDLERS.get(type(frame))
        if handle is not None:
            handle(self._workers, worker, frame)

    def _fail_undecodable(self, data: bytes, why: str) -> None:
        """Answer what an undecodable message belongs to at once, instead of letting its sender wait."""
        kind, ids = frames.find_ids(data)
        if kind is InvocationResult:
            self._here.fail_first(ids, why)
        elif kind is InvokeFunction and ids:
            error = frames.to_raw_failure("invocation_failed", f"The call cannot be made: {why}.")
            self._here.send(InvocationResult(ids[0], error=error))
            self._here.socket.hold()
        elif kind is frames.Observe and ids and self._here.observes:
            problem = frames.Failure("INVALID_OBSERVER", f"The observer cannot be made: {why}.")
            self._here.send(frames.ObserveResult(ids[0], "error", problem))


def _is_function(frame: frames.FromWorker) -> bool:
    return type(frame) is frames.RegisterFunction


def _estimate_work(data: bytes) -> int:
    """How much there is to check in a message that offers a function: its size, if its schemas are simple."""
    # A large one takes several turns in any case, and to search it would take longer than to decode it.
    if len(data) > MAX_WORK_PER_TURN:
        return len(data)
    return len(data) + (MAX_WORK_PER_TURN if any(word in data for word in MULTIPLYING) else 0)


_HANDLERS: Final[dict[type, Callable[[Any, Worker, Any], None]]] = {
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
