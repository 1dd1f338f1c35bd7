"""An observer: which calls of a function it receives, and how they are delivered to its own function.

A call that ends becomes an `Event`; a `Watch` creates events for the observers of one function, and `Delivering` calls
the observers' functions within the limits for concurrency, backlog and depth.
"""

from __future__ import annotations

import asyncio
import logging
import time
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any, Final, Literal, TypeAlias

import msgspec
from msgspec import UNSET, Raw

from waypost.capabilities.schemas.validators import Validator
from waypost.errors import DefinitionError, InvocationFailed, WaypostError
from waypost.loops import running_loop
from waypost.workers.calls import CallRunner, caller_of
from waypost.workers.filters import ROOTS, Filter
from waypost.workers.frames import (
    NULL,
    Activation,
    Failure,
    Given,
    LegacyTrigger,
    Observe,
    Observed,
    ObserverInfo,
    Origin,
    encode,
    to_failure,
)
from waypost.workers.functions import DEFAULT, Call, Function
from waypost.workers.triggers import Listener
from waypost.workers.worker import Worker, invocation_id

State: TypeAlias = Literal["pending", "active", "suspended", "error", "disposed"]

DEFAULT_CONCURRENCY: Final = 256
"""Activations that run at once where an observer does not say."""
_MAX_OBSERVER_BYTES: Final = 32 * 1024
_CAPTURED: Final = ("input", "output", "caller")
_ENDS: Final = {"success": ("success",), "error": ("error",), "complete": ("success", "error")}
_FORMS: Final = ("envelope", "input", "output")


@dataclass(eq=False, slots=True, kw_only=True)
class Observer:
    """That a function wants to hear of the calls of another."""

    id: str
    maker: Listener
    asked: bytes
    """The wish as it came, to know it again."""
    source: tuple[str, str]
    """The namespace and the id of the function that is observed."""
    target: tuple[str, str]
    """The namespace and the id of the function that is called."""
    args: dict[str, Any]
    filter: Filter
    capture: tuple[str, ...]
    on: str
    deliver: str
    metadata: Given
    max_fires: int | None
    expires_in: float | None
    max_in_flight: int
    places: asyncio.Semaphore
    state: State = "pending"
    reason: Failure | None = None
    function: Function | None = None
    """What is observed, while somebody offers it."""
    is_accepted: bool = False
    """Whether the owner of the function knows it."""
    refusal: Failure | None = None
    """Why it may not observe the function."""
    revision: int | None = None
    """With which message the owner heard of it."""
    is_answered: bool = False
    """Whether its maker heard how it stands."""
    was_active: bool = False
    is_dropped: bool = False
    """Whether nobody wants what still waits to be delivered."""
    fires: int = 0
    unfinished: int = 0
    """Activations that run or wait."""
    held: int = 0
    """The bytes of those that nobody asked for an answer."""
    missed: int = 0
    """Events that could not be delivered."""
    expires_at: float | None = None
    timers: dict[str, asyncio.TimerHandle] = field(default_factory=dict)
    legacy: LegacyTrigger | None = None
    """The binding that it stands for."""

    def wants(self, status: str) -> bool:
        """Whether it hears of calls that end so."""
        return status in _ENDS[self.on]

    def told(self) -> ObserverInfo:
        """As the owner of the function hears of it."""
        needed = self.capture if self.deliver == "envelope" else {*self.capture, self.deliver}
        capture = [part for part in ROOTS if part in needed]
        legacy = UNSET if self.legacy is None else self.legacy
        return ObserverInfo(self.id, self.args, self.filter.source, self.target[1], capture, self.on, legacy)

    def forget(self, timer: str) -> None:
        """Wait for something no longer."""
        handle = self.timers.pop(timer, None)
        if handle is not None:
            handle.cancel()


def observer_of(wish: Observe, maker: Worker) -> Observer:
    """The observer that a worker wishes for; `InvocationFailed` says why there cannot be one."""
    source, target = wish.source, wish.target
    asked = encode(wish)
    if len(asked) > _MAX_OBSERVER_BYTES:
        raise _invalid(f"it has {len(asked)} bytes and may have {_MAX_OBSERVER_BYTES}")
    on, deliver = source.on or "success", source.deliver or "envelope"
    capture = tuple(_CAPTURED if source.capture is None else source.capture)
    if not (wish.id and source.function_id and target.function_id):
        raise _invalid("it needs an id, and the ids of two functions")
    if on not in _ENDS:
        raise _invalid(f"`on` is one of {', '.join(_ENDS)}, not {on!r}")
    if deliver not in _FORMS:
        raise _invalid(f"`deliver` is one of {', '.join(_FORMS)}, not {deliver!r}")
    if not set(capture).issubset(ROOTS):
        raise _invalid(f"`capture` takes {', '.join(ROOTS)}")
    for name in ("max_fires", "expires_in_ms", "max_in_flight"):
        value = getattr(wish, name)
        if value is not None and value < 1:
            raise _invalid(f"`{name}` is at least 1, not {value}")
    at_once = wish.max_in_flight or DEFAULT_CONCURRENCY
    return Observer(
        id=wish.id,
        maker=maker,
        asked=asked,
        source=(_namespace(source.namespace), source.function_id),
        target=(_namespace(target.namespace), target.function_id),
        args=source.args or {},
        filter=Filter(source.filters),
        capture=capture,
        on=on,
        deliver=deliver,
        metadata=wish.metadata,
        max_fires=wish.max_fires,
        expires_in=None if wish.expires_in_ms is None else wish.expires_in_ms / 1000,
        max_in_flight=at_once,
        places=asyncio.Semaphore(at_once),
    )


def is_owner_delivered(function: Function) -> bool:
    """Whether the owner of a function says itself what its observers hear."""
    return function.observable is not None and function.observable.delivery == "owner"


def admit(observer: Observer, function: Function) -> None:
    """Refuse an observer that a function does not take."""
    terms = function.observable
    if function.id.startswith("engine::") or (terms is not None and terms.allow is False):
        raise InvocationFailed(f"{function.id} cannot be observed.", "NOT_OBSERVABLE")
    if observer.legacy is not None:
        return
    if not is_owner_delivered(function):
        if observer.args:
            raise InvocationFailed(f"{function.id} is observed without arguments.", "INVALID_ARGS")
        return
    assert terms is not None
    if not isinstance(terms.args_format, dict):
        return
    try:
        problems = Validator(terms.args_format).problems(observer.args)
    except DefinitionError:  # its owner is asked in any case
        return
    if problems:
        raise InvocationFailed(f"The arguments for {function.id} do not fit: {'; '.join(problems)}.", "INVALID_ARGS")


def _namespace(given: str | None) -> str:
    if given is None:
        return DEFAULT
    if not given.strip():
        raise InvocationFailed("The namespace is blank; leave it out for the default one.", "INVALID_NAMESPACE")
    return given


def _invalid(why: str) -> InvocationFailed:
    return InvocationFailed(f"The observer cannot be made: {why}.", "INVALID_OBSERVER")


@dataclass(eq=False, slots=True, kw_only=True)
class Event:
    """A call, as observers see it; its parts stay the bytes that they were until a filter looks at them."""

    function: Function
    invocation_id: str
    status: str
    parts: dict[str, Raw]
    started_at_ms: int
    duration_ms: float
    depth: int
    """How many observers stand between it and what began it all."""
    traceparent: str | None = None
    baggage: str | None = None
    _seen: dict[str, Any] = field(default_factory=dict)

    def matches(self, wanted: Filter) -> bool:
        """Whether a filter lets it through; one that looks at what cannot be read does not."""
        try:
            for root in wanted.roots:
                if root in self.parts and root not in self._seen:
                    self._seen[root] = msgspec.json.decode(self.parts[root])
            return wanted.matches(self._seen)
        except (msgspec.MsgspecError, RecursionError):
            return False

    def told(self, observer: Observer, activation: str) -> Raw:
        """What an observer's function is given."""
        if observer.deliver != "envelope":
            return self.parts.get(observer.deliver, NULL)
        envelope: dict[str, Any] = {
            "observer_id": observer.id,
            "activation_id": activation,
            "function_id": self.function.id,
            "namespace": self.function.namespace,
            "invocation_id": self.invocation_id,
            "status": self.status,
        }
        envelope.update((part, self.parts[part]) for part in observer.capture if part in self.parts)
        envelope["started_at_ms"] = self.started_at_ms
        envelope["duration_ms"] = self.duration_ms
        return Raw(encode(envelope))

    @property
    def origin(self) -> Origin:
        """Who makes the calls that come of it."""
        owner = self.function.owner
        return Origin(
            None if owner is None else owner.id,
            None if owner is None else owner.name,
            self.function.id,
            self.invocation_id,
        )


def parts_of(**parts: Given) -> dict[str, Raw]:
    """The parts of a call that there are; metadata that say nothing are none."""
    return {
        name: part
        for name, part in parts.items()
        if not isinstance(part, msgspec.UnsetType) and not (name == "metadata" and bytes(part) == b"null")
    }


def event_of(told: Observed, function: Function) -> Event:
    """What the owner of a function tells of it."""
    return Event(
        function=function,
        invocation_id=told.invocation_id,
        status=told.status,
        parts=parts_of(**{part: getattr(told, part, UNSET) for part in ROOTS}),
        started_at_ms=told.started_at_ms,
        duration_ms=told.duration_ms,
        depth=max(told.observe_depth, 0),
        traceparent=told.traceparent,
        baggage=told.baggage,
    )


MAX_FOLLOWED_CALLS: Final = 1_000
"""Calls of one function that nobody but observers waits for; of more the end is not seen."""
_STOPPED: Final = Failure("invocation_stopped", "Invocation stopped: nobody waits for it any more.")


class Watch:
    """The observers of a function, and how it is run for them."""

    __slots__ = ("_fire", "_followed", "_function", "observers")

    def __init__(self, function: Function, fire: Callable[[Observer, Event], None]) -> None:
        self._function = function
        self._fire = fire
        self._followed = 0
        self.observers: dict[Observer, None] = {}

    async def run(self, call: Call) -> Raw:
        """Run the function, and tell whoever wants to know how it ended."""
        if not call.is_void:
            return await self._run(call)
        if self._followed >= MAX_FOLLOWED_CALLS:
            return await self._function.run(call)
        call.is_void = False  # nobody waits for it, but observers want to know how it ends
        self._followed += 1
        try:
            return await self._run(call)
        finally:
            self._followed -= 1

    async def _run(self, call: Call) -> Raw:
        call.invocation = invocation_id()
        observers = tuple(self.observers)  # who comes later has not seen it begin
        started, began = time.time(), time.perf_counter()
        try:
            answer = await self._function.run(call)
        except BaseException as error:
            failure = _failure(error)
            if failure is not None:
                self._tell(observers, call, started, began, error=Raw(encode(failure)))
            raise
        self._tell(observers, call, started, began, output=answer)
        return answer

    def _tell(self, observers: tuple[Observer, ...], call: Call, started: float, began: float, **end: Raw) -> None:
        event = Event(
            function=self._function,
            invocation_id=call.invocation,
            status="error" if "error" in end else "success",
            parts=parts_of(
                input=call.data,
                caller=UNSET if call.origin is None else Raw(encode(call.origin)),
                metadata=call.metadata,
                **end,
            ),
            started_at_ms=int(started * 1000),
            duration_ms=round((time.perf_counter() - began) * 1000, 3),
            depth=call.observe_depth,
            traceparent=call.traceparent,
            baggage=call.baggage,
        )
        for observer in observers:
            if observer.wants(event.status) and event.matches(observer.filter):
                self._fire(observer, event)


def _failure(error: BaseException) -> Failure | None:
    """What observers hear of an error; nothing of what ends the process."""
    if isinstance(error, InvocationFailed):
        return Failure(error.code, error.message)
    if isinstance(error, WaypostError):
        return to_failure(error)
    if isinstance(error, asyncio.CancelledError):
        return _STOPPED
    if isinstance(error, Exception):
        return Failure("invocation_error", f"{type(error).__name__}: {error}")
    return None


_log: Final = logging.getLogger(__name__)
MAX_DEPTH: Final = 8
"""Observers that may hear of each other in a row."""
MAX_WAITING: Final = 10_000
"""Activations of one observer that wait for their turn."""
MAX_WAITING_OF_WORKER: Final = 20_000
"""Activations of all observers of one worker."""
MAX_WAITING_BYTES: Final = 64 * 1024 * 1024
"""Bytes that wait for one observer."""


class ObserverDelivery:
    """Calls the functions of observers."""

    def __init__(self, calling: CallRunner, used_up: Callable[[Observer], None]) -> None:
        self._calling = calling
        self._used_up = used_up
        self._tasks: set[asyncio.Task[None]] = set()
        self._of: Counter[Listener] = Counter()

    @property
    def running(self) -> int:
        """How many activations run or wait that nobody asked for an answer."""
        return len(self._tasks)

    async def close(self) -> None:
        """Stop them all."""
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)

    def fire(self, observer: Observer, event: Event) -> None:
        """Let an observer hear of something, if it can."""
        if event.depth >= MAX_DEPTH:
            _miss(observer, f"{event.depth} observers stand before it already")
            return
        if self._is_full(observer):
            _miss(observer, "too much waits to be delivered already")
            return
        activation = invocation_id()
        call = Call(
            observer.target[1],
            event.told(observer, activation),
            observer.metadata,
            event.traceparent,
            event.baggage,
            event.origin,
            observer.maker.id,
            event.depth + 1,
            activation=Activation(observer.id, activation),
        )
        self._start(observer, call)
        self._count(observer)

    async def call(self, observer: Observer, call: Call) -> Raw:
        """Make the call of an owner to an observer's function, and wait for what it answers."""
        if call.observe_depth >= MAX_DEPTH:
            why = f"{call.observe_depth} observers stand before this one already."
            raise InvocationFailed(why, "OBSERVE_DEPTH_EXCEEDED")
        call.function_id = observer.target[1]
        call.metadata = observer.metadata
        call.sender = observer.maker.id
        call.observe_depth += 1
        call.activation = Activation(observer.id, invocation_id())
        observer.unfinished += 1
        self._count(observer)
        try:
            return await self._made(observer, call)
        finally:
            observer.unfinished -= 1

    def _is_full(self, observer: Observer) -> bool:
        return (
            observer.unfinished >= observer.max_in_flight + MAX_WAITING
            or observer.held >= MAX_WAITING_BYTES
            or self._of[observer.maker] >= MAX_WAITING_OF_WORKER
        )

    def _start(self, observer: Observer, call: Call) -> None:
        task = running_loop().create_task(self._deliver(observer, call))
        self._tasks.add(task)
        self._of[observer.maker] += 1
        observer.unfinished += 1
        observer.held += len(call.data)

        def done(task: asyncio.Task[None]) -> None:
            self._tasks.discard(task)
            observer.held -= len(call.data)
            observer.unfinished -= 1
            self._of[observer.maker] -= 1
            if not self._of[observer.maker]:
                del self._of[observer.maker]

        task.add_done_callback(done)

    def _count(self, observer: Observer) -> None:
        observer.fires += 1
        if observer.max_fires is not None and observer.fires >= observer.max_fires:
            self._used_up(observer)

    async def _deliver(self, observer: Observer, call: Call) -> None:
        try:
            await self._made(observer, call)
        except WaypostError as error:
            _log.debug("the observer %s could not be told: %s", observer.id, error.message)
        except Exception as error:
            to_failure(error)

    async def _made(self, observer: Observer, call: Call) -> Raw:
        namespace, function_id = observer.target
        async with observer.places:
            if observer.is_dropped:
                raise InvocationFailed(f"The observer {observer.id} is not active.", "OBSERVER_NOT_ACTIVE")
            return await self._calling.invoke(function_id, call, caller_of(observer.maker), namespace=namespace)


def _miss(observer: Observer, why: str) -> None:
    observer.missed += 1
    if observer.missed % 1000 == 1:
        _log.warning("the observer %s missed %d events so far: %s", observer.id, observer.missed, why)
