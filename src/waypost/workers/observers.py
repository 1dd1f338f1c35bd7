"""An observer: which calls of a function it receives, and how they are delivered to its own function.

A call that ends becomes an `Event`; a `Watch` creates events for the observers of one function, and `ObserverDelivery`
calls the observers' functions within the limits for concurrency, backlog and depth.
"""

from __future__ import annotations

import asyncio
import logging
import time
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from typing import Any, Final, Literal, TypeAlias

import msgspec
from msgspec import UNSET, Raw

from waypost.capabilities.schemas.validators import Validator
from waypost.errors import DefinitionError, InvocationFailed, WaypostError
from waypost.loops import cancel_tasks, start_task
from waypost.workers import frames
from waypost.workers.calls import CallRunner, caller_of, read_namespace
from waypost.workers.filters import ROOTS, Filter
from waypost.workers.frames import NULL, Activation, Failure, Observe, Origin, WorkerUnreachable, encode, to_failure
from waypost.workers.functions import Call, Function
from waypost.workers.remote import RemoteWorker
from waypost.workers.triggers import Binding, Key, Listener
from waypost.workers.worker import invocation_id

State: TypeAlias = Literal["pending", "active", "suspended", "error", "disposed"]

_log: Final = logging.getLogger(__name__)
DEFAULT_CONCURRENCY: Final = 256
"""Activations of one observer that run at once, unless it sets another limit."""
_MAX_OBSERVER_BYTES: Final = 32 * 1024
_DEFAULT_CAPTURE: Final = ("input", "output", "caller")
_STATUSES: Final = {"success": ("success",), "error": ("error",), "complete": ("success", "error")}
_FORMS: Final = ("envelope", "input", "output")
MAX_FOLLOWED_CALLS: Final = 1_000
"""Calls of one function whose end only observers wait for; the end of further ones is not seen."""
MAX_DEPTH: Final = 8
"""Observers that may cause each other in a row."""
MAX_WAITING: Final = 10_000
"""Activations of one observer that wait for a slot."""
MAX_WAITING_OF_WORKER: Final = 20_000
"""Activations of all observers of one worker."""
MAX_WAITING_BYTES: Final = 64 * 1024 * 1024
"""Bytes that wait for one observer."""
_STOPPED: Final = Failure("invocation_stopped", "Invocation stopped: its caller is gone.")


@dataclass(frozen=True, slots=True, kw_only=True)
class ObserverSpec:
    """What an observer was registered with; it never changes."""

    source: Key
    """The namespace and the id of the function that is observed."""
    target: Key
    """The namespace and the id of the function that is called."""
    filter: Filter
    capture: tuple[str, ...] = _DEFAULT_CAPTURE
    on: str = "success"
    deliver: str = "envelope"
    metadata: frames.Given = UNSET
    args: dict[str, Any] = field(default_factory=dict)
    max_fires: int | None = None
    expires_in: float | None = None
    max_in_flight: int = DEFAULT_CONCURRENCY
    message: bytes = b""
    """The message that registered it, to recognise it when it is sent again."""
    frame: Observe | None = None
    """The same as other replicas read it."""
    binding: Binding | None = None
    """The binding that it was made from, if its function is the substitute for the provider of a trigger type."""


@dataclass(slots=True)
class Approval:
    """The answer of the function's owner to an observer."""

    is_given: bool = False
    refusal: Failure | None = None
    revision: int | None = None
    """The number of the message that the owner was asked with; only an answer to that one counts."""
    timer: asyncio.TimerHandle | None = None

    def stop_waiting(self) -> None:
        """Wait for the owner's answer no longer."""
        if self.timer is not None:
            self.timer.cancel()
            self.timer = None


@dataclass(slots=True)
class Backlog:
    """The activations of an observer."""

    slots: asyncio.Semaphore
    fires: int = 0
    unfinished: int = 0
    """Activations that run or wait."""
    waiting_bytes: int = 0
    missed: int = 0
    """Events that exceeded a limit."""
    is_dropped: bool = False
    """Whether what still waits is not to be delivered."""


@dataclass(eq=False, slots=True)
class Observer:
    """A function that is called for the calls of another."""

    id: str
    maker: Listener
    spec: ObserverSpec
    args: dict[str, Any] = field(init=False)
    """The arguments for the owner of the function."""
    backlog: Backlog = field(init=False)
    state: State = "pending"
    reason: Failure | None = None
    function: Function | None = None
    """The function that is observed, while a worker offers it."""
    approval: Approval = field(default_factory=Approval)
    is_answered: bool = False
    """Whether its maker knows its state; before that, changes are not reported."""
    was_active: bool = False
    expires_at: float | None = None
    expiry: asyncio.TimerHandle | None = None
    shared_id: str = ""
    """Its id at other replicas, if they report calls to it; each registration has another one."""

    def __post_init__(self) -> None:
        self.args = self.spec.args
        self.backlog = Backlog(asyncio.Semaphore(self.spec.max_in_flight))

    @property
    def is_remote(self) -> bool:
        """Whether it is the observer of a worker at another replica, which is sent the events of functions here."""
        return isinstance(self.maker, RemoteWorker) and self.spec.binding is None

    @property
    def is_accepted(self) -> bool:
        """Whether events of the function here are for it."""
        return self.state == "active" and self.approval.is_given

    @property
    def given_id(self) -> str:
        """The id that its maker gave it."""
        return self.id if self.spec.frame is None else self.spec.frame.id

    def wants(self, event: Event) -> bool:
        """Whether it receives an event."""
        return event.status in _STATUSES[self.spec.on] and event.matches(self.spec.filter)

    def info(self) -> frames.ObserverInfo:
        """Its description for the owner of the function."""
        spec = self.spec
        needed = spec.capture if spec.deliver == "envelope" else {*spec.capture, spec.deliver}
        capture = [part for part in ROOTS if part in needed]
        info = frames.ObserverInfo(self.id, self.args, spec.filter.source, spec.target[1], capture, spec.on)
        if spec.binding is not None:
            info.legacy = {"trigger_type": spec.binding.type, "config": spec.binding.config}
        return info


def read_observer(frame: Observe, maker: Listener) -> Observer:
    """The observer that a worker registers; `InvocationFailed` if it is not valid."""
    source, target, message = frame.source, frame.target, encode(frame)
    if len(message) > _MAX_OBSERVER_BYTES:
        raise _invalid(f"it has {len(message)} bytes and may have {_MAX_OBSERVER_BYTES}")
    on, deliver = source.on or "success", source.deliver or "envelope"
    capture = tuple(_DEFAULT_CAPTURE if source.capture is None else source.capture)
    if not (frame.id and source.function_id and target.function_id):
        raise _invalid("it needs an id, and the ids of two functions")
    if on not in _STATUSES:
        raise _invalid(f"`on` is one of {', '.join(_STATUSES)}, not {on!r}")
    if deliver not in _FORMS:
        raise _invalid(f"`deliver` is one of {', '.join(_FORMS)}, not {deliver!r}")
    if not set(capture).issubset(ROOTS):
        raise _invalid(f"`capture` takes {', '.join(ROOTS)}")
    for name in ("max_fires", "expires_in_ms", "max_in_flight"):
        value = getattr(frame, name)
        if value is not None and value < 1:
            raise _invalid(f"`{name}` is at least 1, not {value}")
    spec = ObserverSpec(
        source=(read_namespace(source.namespace), source.function_id),
        target=(read_namespace(target.namespace), target.function_id),
        filter=Filter(source.filters),
        capture=capture,
        on=on,
        deliver=deliver,
        metadata=frame.metadata,
        args=source.args or {},
        max_fires=frame.max_fires,
        expires_in=None if frame.expires_in_ms is None else frame.expires_in_ms / 1000,
        max_in_flight=frame.max_in_flight or DEFAULT_CONCURRENCY,
        message=message,
        frame=frame,
    )
    return Observer(frame.id, maker, spec)


def read_remote_observer(frame: Observe, maker: RemoteWorker, shared_id: str) -> Observer:
    """The observer of a worker at another replica, which alone counts how often it fires and when it expires."""
    observer = read_observer(frame, maker)
    observer.id = shared_id
    observer.spec = replace(observer.spec, max_fires=None, expires_in=None)
    return observer


def _invalid(why: str) -> InvocationFailed:
    return InvocationFailed(f"The observer cannot be made: {why}.", "INVALID_OBSERVER")


def is_owner_delivered(function: Function) -> bool:
    """Whether the owner of a function reports events to its observers, instead of the hub."""
    return function.frame.observe is not None and function.frame.observe.delivery == "owner"


def check_observable(observer: Observer, function: Function) -> None:
    """Raise `InvocationFailed` if a function does not allow an observer, or not with its arguments."""
    terms = function.frame.observe
    if function.id.startswith("engine::") or (terms is not None and terms.allow is False):
        raise InvocationFailed(f"{function.id} cannot be observed.", "NOT_OBSERVABLE")
    if observer.spec.binding is not None:
        return
    if not is_owner_delivered(function):
        if observer.args:
            raise InvocationFailed(f"{function.id} is observed without arguments.", "INVALID_ARGS")
        return
    problems = find_args_problems(observer.args, function)
    if problems:
        raise InvocationFailed(f"The arguments for {function.id} do not fit: {'; '.join(problems)}.", "INVALID_ARGS")


def find_args_problems(args: dict[str, Any], function: Function) -> list[str]:
    """Why arguments do not fit the format that the owner declares; a format that is no schema is left to the owner."""
    wanted = None if function.frame.observe is None else function.frame.observe.args_format
    if not isinstance(wanted, dict):
        return []
    if function.args_validator is None:  # compiling takes up to 100 ms, and a function may have many observers
        try:
            function.args_validator = Validator(wanted)
        except DefinitionError:
            function.args_validator = False
    return [] if function.args_validator is False else function.args_validator.problems(args)


@dataclass(eq=False, slots=True, kw_only=True)
class Event:
    """A call, as observers see it; its parts stay raw bytes until a filter reads them."""

    function: Function
    invocation_id: str
    status: str
    parts: dict[str, Raw]
    started_at_ms: int
    duration_ms: float
    depth: int
    """How many observers in a row caused it."""
    traceparent: str | None = None
    baggage: str | None = None
    _decoded: dict[str, Any] = field(default_factory=dict)

    def matches(self, wanted: Filter) -> bool:
        """Whether a filter matches; one that reads a part that cannot be decoded does not."""
        try:
            for root in wanted.roots:
                if root in self.parts and root not in self._decoded:
                    self._decoded[root] = msgspec.json.decode(self.parts[root])
            return wanted.matches(self._decoded)
        except (msgspec.MsgspecError, RecursionError):
            return False

    def to_payload(self, observer: Observer, activation: str) -> Raw:
        """The argument of an observer's function."""
        if observer.spec.deliver != "envelope":
            return self.parts.get(observer.spec.deliver, NULL)
        envelope: dict[str, Any] = {
            "observer_id": observer.given_id,
            "activation_id": activation,
            "function_id": self.function.id,
            "namespace": self.function.namespace,
            "invocation_id": self.invocation_id,
            "status": self.status,
        }
        envelope.update((part, self.parts[part]) for part in observer.spec.capture if part in self.parts)
        envelope["started_at_ms"] = self.started_at_ms
        envelope["duration_ms"] = self.duration_ms
        return Raw(encode(envelope))

    @property
    def origin(self) -> Origin:
        """The origin of the calls that it causes."""
        owner = self.function.owner
        worker_id, name = (None, None) if owner is None else (owner.id, owner.name)
        return Origin(worker_id, name, self.function.id, self.invocation_id)


def select_parts(**parts: frames.Given) -> dict[str, Raw]:
    """The parts of a call that are set; metadata that is null counts as not set."""
    return {
        name: part
        for name, part in parts.items()
        if not isinstance(part, msgspec.UnsetType) and not (name == "metadata" and bytes(part) == b"null")
    }


def read_event(report: frames.ObservedEvent, function: Function) -> Event:
    """The event that the owner of a function reports."""
    return Event(
        function=function,
        invocation_id=report.invocation_id,
        status=report.status,
        parts=select_parts(**{part: getattr(report, part, UNSET) for part in ROOTS}),
        started_at_ms=report.started_at_ms,
        duration_ms=report.duration_ms,
        depth=max(report.observe_depth, 0),
        traceparent=report.traceparent,
        baggage=report.baggage,
    )


class Watch:
    """Runs a function that has observers, and creates an event for each call that ends."""

    __slots__ = ("_fire", "_followed", "_function", "observers")

    def __init__(self, function: Function, fire: Callable[[Observer, Event], None]) -> None:
        self._function = function
        self._fire = fire
        self._followed = 0
        self.observers: dict[Observer, None] = {}

    async def run(self, call: Call) -> Raw:
        """Run the function, and fire its observers."""
        if not call.is_void:
            return await self._run(call)
        if self._followed >= MAX_FOLLOWED_CALLS:
            return await self._function.run(call)
        call.is_void = False  # its caller does not wait, but only an answer shows when and how it ends
        self._followed += 1
        try:
            return await self._run(call)
        finally:
            self._followed -= 1

    async def _run(self, call: Call) -> Raw:
        call.invocation = invocation_id()
        observers = tuple(self.observers)  # an observer sees only calls that began after it was added
        started, began = time.time(), time.perf_counter()
        try:
            answer = await self._function.run(call)
        except BaseException as error:  # a call that is cancelled has ended too, and its observers wait for the end
            failure = _to_failure(error)
            if failure is not None:
                self._fire_all(observers, call, started, began, error=Raw(encode(failure)))
            raise
        self._fire_all(observers, call, started, began, output=answer)
        return answer

    def _fire_all(self, observers: tuple[Observer, ...], call: Call, started: float, began: float, **end: Raw) -> None:
        origin = UNSET if call.origin is None else Raw(encode(call.origin))
        event = Event(
            function=self._function,
            invocation_id=call.invocation,
            status="error" if "error" in end else "success",
            parts=select_parts(input=call.data, caller=origin, metadata=call.metadata, **end),
            started_at_ms=int(started * 1000),
            duration_ms=round((time.perf_counter() - began) * 1000, 3),
            depth=call.observe_depth,
            traceparent=call.traceparent,
            baggage=call.baggage,
        )
        for observer in observers:
            if observer.wants(event):
                self._fire(observer, event)


def _to_failure(error: BaseException) -> Failure | None:
    """The error that observers see; none for what ends the process."""
    if isinstance(error, InvocationFailed):
        return Failure(error.code, error.message)
    if isinstance(error, WaypostError):
        return to_failure(error)
    if isinstance(error, asyncio.CancelledError):
        return _STOPPED
    return Failure("invocation_error", f"{type(error).__name__}: {error}") if isinstance(error, Exception) else None


class ObserverDelivery:
    """Calls the functions of observers."""

    def __init__(self, calls: CallRunner, on_used_up: Callable[[Observer], None]) -> None:
        self._calls = calls
        self._on_used_up = on_used_up
        self._tasks: set[asyncio.Task[None]] = set()
        self._unfinished: Counter[Listener] = Counter()

    @property
    def running(self) -> int:
        """How many activations run or wait, without calls of owners."""
        return len(self._tasks)

    async def close(self) -> None:
        """Stop all activations."""
        await cancel_tasks(self._tasks)

    def fire(self, observer: Observer, event: Event) -> None:
        """Deliver an event to an observer, unless a limit is exceeded."""
        # Observers that call what they observe would never end; the depth travels with every call that they cause.
        if event.depth >= MAX_DEPTH:
            _miss(observer, f"{event.depth} observers stand before it already")
            return
        if self._is_full(observer):
            _miss(observer, "too much waits to be delivered already")
            return
        activation = invocation_id()
        call = Call(
            observer.spec.target[1],
            event.to_payload(observer, activation),
            observer.spec.metadata,
            event.traceparent,
            event.baggage,
            event.origin,
            observer.maker.id,
            event.depth + 1,
            # Between replicas there is no answer: the replica of the observer delivers and counts the event.
            is_void=observer.is_remote,
            activation=Activation(observer.given_id, activation),
        )
        self._start(observer, call)
        if not observer.is_remote:
            self._count(observer)

    def fire_from_elsewhere(self, observer: Observer, call: Call) -> None:
        """Make the call that another replica built from an event there, unless a limit is exceeded."""
        if self._is_full(observer):
            _miss(observer, "too much waits to be delivered already")
            return
        self._start(observer, call)
        self._count(observer)

    def _is_full(self, observer: Observer) -> bool:
        backlog = observer.backlog
        return (
            backlog.unfinished >= observer.spec.max_in_flight + MAX_WAITING
            or backlog.waiting_bytes >= MAX_WAITING_BYTES
            or self._unfinished[observer.maker] >= MAX_WAITING_OF_WORKER
        )

    async def call(self, observer: Observer, call: Call) -> Raw:
        """Make the call of an owner to an observer's function, and return the answer."""
        if observer.is_remote:
            return await self._invoke(observer, call)
        if call.observe_depth >= MAX_DEPTH:
            why = f"{call.observe_depth} observers stand before this one already."
            raise InvocationFailed(why, "OBSERVE_DEPTH_EXCEEDED")
        call.function_id = observer.spec.target[1]
        call.metadata = observer.spec.metadata
        call.sender = observer.maker.id
        call.observe_depth += 1
        call.activation = Activation(observer.id, invocation_id())
        observer.backlog.unfinished += 1
        self._count(observer)
        try:
            return await self._invoke(observer, call)
        finally:
            observer.backlog.unfinished -= 1

    def _start(self, observer: Observer, call: Call) -> None:
        task = start_task(self._deliver(observer, call), self._tasks)
        self._unfinished[observer.maker] += 1
        observer.backlog.unfinished += 1
        observer.backlog.waiting_bytes += len(call.data)

        def finish(_: asyncio.Task[None]) -> None:
            observer.backlog.waiting_bytes -= len(call.data)
            observer.backlog.unfinished -= 1
            self._unfinished[observer.maker] -= 1
            # Or the counter would keep every worker that was ever connected.
            if not self._unfinished[observer.maker]:
                del self._unfinished[observer.maker]

        task.add_done_callback(finish)

    def _count(self, observer: Observer) -> None:
        observer.backlog.fires += 1
        if observer.spec.max_fires is not None and observer.backlog.fires >= observer.spec.max_fires:
            self._on_used_up(observer)

    async def _deliver(self, observer: Observer, call: Call) -> None:
        try:
            await self._invoke(observer, call)
        except WaypostError as error:
            if observer.is_remote and isinstance(error, WorkerUnreachable):  # its replica, or the bus
                _miss(observer, error.message)
            _log.debug("an event could not be delivered to the observer %s: %s", observer.id, error.message)
        except Exception as error:
            to_failure(error)

    async def _invoke(self, observer: Observer, call: Call) -> Raw:
        async with observer.backlog.slots:
            if observer.backlog.is_dropped:  # it was removed while the call waited for a slot
                raise InvocationFailed(f"The observer {observer.id} is not active.", "OBSERVER_NOT_ACTIVE")
            if observer.is_remote:
                assert isinstance(observer.maker, RemoteWorker)
                call.caller = caller_of(observer.maker)
                return await observer.maker.calls.call(observer.maker, observer.spec.target[0], call, observer.id)
            return await self._calls.invoke(call, caller_of(observer.maker), observer.spec.target[0])


def _miss(observer: Observer, why: str) -> None:
    backlog = observer.backlog
    backlog.missed += 1
    if backlog.missed % 1000 == 1:
        _log.warning("the observer %s missed %d events so far: %s", observer.id, backlog.missed, why)
