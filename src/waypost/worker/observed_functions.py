"""Observers of a worker's own functions: the hooks for them, and the events that they are sent."""

from __future__ import annotations

import asyncio
import logging
import threading
import time
import uuid
from collections.abc import Awaitable, Callable, Coroutine, Mapping
from dataclasses import dataclass
from functools import partial
from typing import Any, Final, Literal, NamedTuple, TypeAlias

import msgspec
from msgspec import UNSET, Raw, Struct

from waypost.capabilities.results import encode_json
from waypost.errors import DefinitionError, InvocationFailed
from waypost.loops import maybe_await, running_loop
from waypost.worker.invocations import current, parent_of, trace_context
from waypost.worker.loop import Answer, WorkerLoop
from waypost.workers.filters import Filter
from waypost.workers.frames import (
    Activation,
    Failure,
    FunctionRegistered,
    InvokeFunction,
    ObserverAck,
    ObserverAdded,
    ObserverInfo,
    ObserverRemoved,
    Origin,
)

_log: Final = logging.getLogger(__name__)
HOOK_TIMEOUT_S: Final = 30.0
MAX_EVENTS: Final = 10_000
"""Events that may wait to be sent."""
MAX_EVENT_BYTES: Final = 8 * 1024 * 1024
_BATCH_SIZE: Final = 256

Delivery: TypeAlias = Literal["auto", "owner"]
Hook: TypeAlias = "Callable[[Observer], Awaitable[None] | None]"
Send: TypeAlias = Callable[[Struct], None]
ObserverMessage: TypeAlias = FunctionRegistered | ObserverAdded | ObserverRemoved
Work: TypeAlias = Callable[[], Coroutine[Any, Any, None]]
_LEFT_OUT: Final[Any] = object()
_FIELDS: Final = ("delivery", "args_format", "legacy_trigger_type", "allow", "on_observer_added", "on_observer_removed")


class ObserveRejection(InvocationFailed):
    """Raised in `on_observer_added` to refuse an observer, which gets the code."""

    def __init__(self, code: str, message: str) -> None:
        super().__init__(message, code)

    def __reduce__(self) -> tuple[type[ObserveRejection], tuple[str, str]]:
        return type(self), (self.code, self.message)


class ObserveHooks:
    """How events of a function reach its observers, and what is called when an observer is added or removed.

    Made with keywords, or by a subclass that has these as attributes and methods. The two functions are plain or
    asynchronous, and called one at a time. An error of `on_observer_added` refuses the observer.
    """

    delivery: Delivery | None = None
    """`auto`: every call is offered to every observer; `owner`: the worker hands events to observers itself."""
    args_format: Any = None
    """What the arguments of observers look like, if it is `owner`: a JSON Schema, or a type."""
    legacy_trigger_type: str | None = None
    """The kind of trigger that it takes the place of."""
    allow: bool | None = None
    """Whether it may be observed at all."""
    on_observer_added: Hook | None = None
    on_observer_removed: Hook | None = None

    def __init__(
        self,
        *,
        delivery: Delivery | None = _LEFT_OUT,
        args_format: Any = _LEFT_OUT,
        legacy_trigger_type: str | None = _LEFT_OUT,
        allow: bool | None = _LEFT_OUT,
        on_observer_added: Hook | None = _LEFT_OUT,
        on_observer_removed: Hook | None = _LEFT_OUT,
    ) -> None:
        given = (delivery, args_format, legacy_trigger_type, allow, on_observer_added, on_observer_removed)
        for name, value in zip(_FIELDS, given, strict=True):
            if value is not _LEFT_OUT:
                setattr(self, name, value)

    @property
    def is_active(self) -> bool:
        """Whether it needs an engine that supports observers."""
        return self.delivery == "owner" or bool(self.on_observer_added or self.on_observer_removed)


def read_hooks(given: ObserveHooks | Mapping[str, Any] | None) -> ObserveHooks:
    """The hooks of a function; a `DefinitionError` says what is wrong with them."""
    if not isinstance(given, ObserveHooks | Mapping | None):
        raise DefinitionError(f"observe takes ObserveHooks or a dict of its fields, not {type(given).__name__}.")
    if isinstance(given, Mapping):
        unknown = [name for name in given if name not in _FIELDS]
        if unknown:
            raise DefinitionError(f"observe has no {unknown[0]!r}; there are {', '.join(_FIELDS)}.")
        given = ObserveHooks(**given)
    hooks = given or ObserveHooks()
    if hooks.delivery not in (None, "auto", "owner"):
        raise DefinitionError(f"observe.delivery is 'auto' or 'owner', not {hooks.delivery!r}.")
    if hooks.args_format is not None and hooks.delivery != "owner":
        raise DefinitionError("observe.args_format needs delivery='owner': other functions take no arguments.")
    return hooks


class InvocationsObserved(Struct, tag="invocationsobserved"):
    """Events, and the observers that they are for."""

    items: list[dict[str, Any]]


class Event(NamedTuple):
    """One event that waits to be sent."""

    item: dict[str, Any]
    size: int
    is_due: Callable[[], bool]
    """Whether the engine knows the function, so that it can be sent."""


class EventQueue:
    """Events for observers that wait to be sent; those beyond the limits are dropped, and logged."""

    def __init__(self, loop: WorkerLoop, send: Send) -> None:
        self._loop = loop
        self._send = send
        self._lock = threading.Lock()
        self._waiting: list[Event] = []
        self._bytes = 0
        self._dropped = 0
        self._is_flushing = False
        """Whether `flush` is about to be called."""

    def put(self, item: dict[str, Any], event: Raw, is_due: Callable[[], bool]) -> None:
        """Send an event soon, or when the worker is connected; from any thread."""
        size = len(event)
        with self._lock:
            if len(self._waiting) >= MAX_EVENTS or self._bytes + size > MAX_EVENT_BYTES:
                self._dropped += 1
                if self._dropped % 1000 == 1:
                    _log.warning("%d events for observers were dropped: too many wait for the engine", self._dropped)
                return
            self._waiting.append(Event(item, size, is_due))
            self._bytes += size
            was_flushing, self._is_flushing = self._is_flushing, True
        if not was_flushing:
            self._loop.call(lambda: running_loop().call_soon(self.flush))

    def flush(self) -> None:
        """Send the events that are due."""
        with self._lock:
            self._is_flushing = False
            due = [event for event in self._waiting if event.is_due()]
            self._keep([event for event in self._waiting if not event.is_due()])
        for start in range(0, len(due), _BATCH_SIZE):
            self._send(InvocationsObserved([event.item for event in due[start : start + _BATCH_SIZE]]))

    def forget(self, function_id: str) -> None:
        """Drop the events of a function."""
        with self._lock:
            self._keep([event for event in self._waiting if event.item["function_id"] != function_id])

    def _keep(self, events: list[Event]) -> None:
        self._waiting, self._bytes = events, sum(event.size for event in events)


@dataclass(frozen=True, slots=True)
class WorkerAccess:
    """What observed functions need of their worker."""

    loop: WorkerLoop
    events: EventQueue
    identity: Callable[[], Origin]
    """The worker, as the origin of a call."""
    send: Callable[[Struct], None]
    call: Callable[[InvokeFunction, Any, int | None], Answer[Any]]
    start: Callable[[Coroutine[Any, Any, None]], None]
    """Runs something in the background."""


class Observer:
    """An observer of a function of this worker; the same object for as long as it observes."""

    def __init__(self, function: ObservedFunction, info: ObserverInfo) -> None:
        self.id = info.id
        self.function_id = function.function_id
        self.args = info.args
        self.legacy = None if info.legacy is UNSET else info.legacy
        """The `trigger_type` and `config` of the binding that it stands for."""
        self.rejection: Failure | None = None
        """Why it was refused."""
        self.is_active = False
        self.revision = 0
        """The revision of the function at which it was added."""
        self._function = function
        self.update(info)

    @property
    def gets_events(self) -> bool:
        """Whether it is active, and was not refused."""
        return self.is_active and self.rejection is None

    def update(self, info: ObserverInfo) -> None:
        """Take over what may have changed."""
        self.filters: dict[str, Any] = info.filters or {}
        self._filter = Filter(info.filters)
        self.target = info.target
        self.capture = list(info.capture)
        self.on = info.on

    def matches(self, document: Mapping[str, Any]) -> bool:
        """Whether its filters match a document with `input`, `output`, `error`, `caller` and `metadata`."""
        return self._filter.matches(document)

    def wants(self, parts: Mapping[str, Raw]) -> bool:
        """Whether its filters match an event, of which only the parts they read are decoded."""
        return self.matches({root: msgspec.json.decode(parts[root]) for root in self._filter.roots if root in parts})

    def emit(self, event: Any) -> bool:
        """Send it an event, without waiting; false if it is not active, or its filters do not match."""
        return self._function.emit(self, event)

    def call(self, payload: Any, *, timeout_ms: int | None = None) -> Any:
        """Call its function and wait for the answer; not in the worker's own loop."""
        return self._function.call(self, payload, timeout_ms).result()

    async def call_async(self, payload: Any, *, timeout_ms: int | None = None) -> Any:
        """Call its function and wait for the answer."""
        return await self._function.call(self, payload, timeout_ms)

    def reject(self, code: str, message: str) -> None:
        """Refuse it later than in its hook."""
        self._function.reject(self, Failure(code, message))

    def to_dict(self) -> dict[str, Any]:
        """Its public attributes."""
        names = ("id", "function_id", "args", "filters", "target", "capture", "on", "legacy")
        values = {name: getattr(self, name) for name in names}
        return {name: value for name, value in values.items() if name != "legacy" or value is not None}

    def __repr__(self) -> str:
        return f"Observer(id={self.id!r}, function_id={self.function_id!r}, target={self.target!r}, args={self.args!r})"


class ObservedFunction:
    """One function of the worker, and its observers, whose changes are handled one after the other."""

    def __init__(self, function_id: str, hooks: ObserveHooks, worker: WorkerAccess) -> None:
        self.function_id = function_id
        self.hooks = hooks
        self.is_known = False
        """Whether the connected engine has accepted the function from this worker."""
        self.active: tuple[Observer, ...] = ()
        self._worker = worker
        self._namespace: str | None = None
        # A message that was overtaken by a newer one has an older revision, and is ignored.
        self._revision = -1
        # Hooks take their time. What was started before the function was released must not activate an observer after
        # it, so each change remembers how often the function had been released.
        self._releases = 0
        self._observers: dict[str, Observer] = {}
        self._order = asyncio.Lock()

    def on_message(self, frame: ObserverMessage) -> None:
        """The engine has accepted the function, with all of its observers, or has added or removed one."""
        if isinstance(frame, FunctionRegistered):
            self._namespace, self._revision = frame.namespace, frame.revision
            self._run_next(partial(self._set_observers, frame, self._releases))
        elif frame.revision > self._revision:
            self._revision = frame.revision
            if isinstance(frame, ObserverAdded):
                self._run_next(partial(self._add, frame.observer, frame.revision, self._releases, is_new=True))
            else:
                self._run_next(partial(self._remove, frame.id))

    def release(self) -> None:
        """The function is no longer this worker's, at least for the engine."""
        self._releases += 1
        self.is_known = False
        for observer in self.active:
            observer.is_active = False
        self.active = ()
        self._worker.events.forget(self.function_id)
        self._run_next(lambda: self._remove(*self._observers))

    def emit(self, observer: Observer, event: Any) -> bool:
        """Send an event to an observer, from any thread."""
        self._require_owner("emit")
        if not observer.gets_events:
            return False
        parts = self._parts(event)
        if not observer.wants(parts):
            return False
        call = current.get()
        own = call if call is not None and call.function_id == self.function_id else None
        traceparent, baggage = trace_context()
        item = {
            "function_id": self.function_id,
            "namespace": self._namespace,
            "invocation_id": str(uuid.uuid4()) if own is None else own.invocation_id,
            "matched": [observer.id],
            "status": "success",
            **parts,
            "started_at_ms": int(time.time() * 1000),
            "duration_ms": 0,
            "observe_depth": 0 if call is None else call.observe_depth or 0,
            "traceparent": traceparent,
            "baggage": baggage,
        }
        given = {name: value for name, value in item.items() if value is not None}
        self._worker.events.put(given, parts["input"], lambda: self.is_known)
        return True

    def call(self, observer: Observer, payload: Any, timeout_ms: int | None) -> Answer[Any]:
        """Call the function of an observer, from any thread."""
        self._require_owner("call")
        if not observer.gets_events:
            raise InvocationFailed(f"The observer {observer.id} is not active.", "OBSERVER_NOT_ACTIVE")
        if not observer.wants(self._parts(payload)):
            raise InvocationFailed(f"The filters of the observer {observer.id} do not match.", "FILTERS_NOT_MATCHED")
        return self._worker.call(
            InvokeFunction(observer.target, activation=Activation(observer.id)), payload, timeout_ms
        )

    def reject(self, observer: Observer, why: Failure) -> None:
        """Refuse an observer, from any thread; one whose hook still runs is refused when that is done."""
        observer.rejection = why

        def apply() -> None:
            if self._observers.get(observer.id) is observer:
                self._deactivate(observer)
                self._ack(observer.id, observer.revision, observer.rejection)

        self._worker.loop.call(apply)

    def _require_owner(self, what: str) -> None:
        if self.hooks.delivery != "owner":
            raise InvocationFailed(
                f"{self.function_id} is not delivered by its owner, so {what} is not for its observers.",
                "NOT_OWNER_DELIVERED",
            )

    def _parts(self, event: Any) -> dict[str, Raw]:
        """What observers see of an event; its caller is that of the function, or else this worker."""
        call = current.get()
        parts = {"input": Raw(encode_json(event))}
        if call is None:
            caller: Origin | None = self._worker.identity()
        elif call.function_id == self.function_id:
            caller = call.caller
        else:
            caller = self._worker.identity()
            caller.function_id, caller.invocation_id = call.function_id, call.invocation_id
            caller.parent = parent_of(call)
        if caller is not None:
            parts["caller"] = Raw(encode_json(caller))
        if call is not None and isinstance(call.metadata, Raw):
            parts["metadata"] = call.metadata
        return parts

    async def _set_observers(self, frame: FunctionRegistered, releases: int) -> None:
        wanted = {one.id for one in frame.observers}
        await self._remove(*(one for one in self._observers if one not in wanted))
        for info in frame.observers:
            before = self._observers.get(info.id)
            if before is not None and (before.args, before.legacy) != (info.args, info.legacy or None):
                await self._remove(info.id)
            await self._add(info, frame.revision, releases)
        if releases == self._releases:
            self.is_known = True
            self._worker.events.flush()

    async def _add(self, info: ObserverInfo, revision: int, releases: int, *, is_new: bool = False) -> None:
        before = self._observers.get(info.id)
        if before is not None and is_new and before.rejection is not None:
            await self._remove(info.id)  # it is tried once more
            before = None
        if releases != self._releases:
            return
        try:
            if before is not None:
                before.update(info)
            observer = before or Observer(self, info)
        except InvocationFailed as error:
            if before is not None:
                self._deactivate(before)
            self._ack(info.id, revision, Failure(error.code, error.message))
            return
        observer.revision = revision
        refusal = await self._run_added_hook(observer, releases) if before is None else None
        if releases != self._releases:
            return
        if refusal is None:
            self._observers[info.id] = observer
            refusal = observer.rejection
        if refusal is None and not observer.is_active:
            observer.is_active = True
            self.active = (*self.active, observer)
        self._ack(info.id, revision, refusal)

    async def _run_added_hook(self, observer: Observer, releases: int) -> Failure | None:
        """Why the worker refuses a new observer, if it does; for one that is gone by then, the other hook is called."""
        hook = self.hooks.on_observer_added
        if hook is None:
            return None
        refusal = await self._run_hook(
            hook, observer, lambda: self._run_next(partial(self._run_removed_hook, observer))
        )
        if refusal is None and releases != self._releases:
            await self._run_removed_hook(observer)
        return refusal

    async def _remove(self, *observer_ids: str) -> None:
        for observer_id in observer_ids:
            observer = self._observers.pop(observer_id, None)
            if observer is not None:
                self._deactivate(observer)
                await self._run_removed_hook(observer)

    async def _run_removed_hook(self, observer: Observer) -> None:
        hook = self.hooks.on_observer_removed
        problem = None if hook is None else await self._run_hook(hook, observer)
        if problem is not None:
            _log.error("on_observer_removed of %s failed for %s: %s", self.function_id, observer.id, problem.message)

    async def _run_hook(
        self, hook: Hook, observer: Observer, too_late: Callable[[], None] | None = None
    ) -> Failure | None:
        """Call a hook with a time limit; `too_late` is called if it succeeds after that."""
        running = asyncio.ensure_future(_call_hook(hook, observer))
        try:
            done, _ = await asyncio.wait({running}, timeout=HOOK_TIMEOUT_S)
        except asyncio.CancelledError:
            running.cancel()
            raise
        if not done:
            running.add_done_callback(lambda task: too_late() if too_late and _succeeded(task) else None)
            return Failure("OWNER_TIMEOUT", f"A hook of {self.function_id} took longer than {HOOK_TIMEOUT_S:g} s.")
        error = InvocationFailed("The hook was cancelled.") if running.cancelled() else running.exception()
        if isinstance(error, ObserveRejection):
            return Failure(error.code, error.message)
        return None if error is None else Failure("OBSERVE_REJECTED", str(error) or type(error).__name__)

    def _deactivate(self, observer: Observer) -> None:
        observer.is_active = False
        self.active = tuple(one for one in self.active if one is not observer)

    def _ack(self, observer_id: str, revision: int, refusal: Failure | None) -> None:
        self._worker.send(ObserverAck(self.function_id, observer_id, revision, self._namespace, refusal))

    def _run_next(self, work: Work) -> None:
        async def run_in_order() -> None:
            async with self._order:
                try:
                    await work()
                except Exception:
                    _log.exception("a change of the observers of %s could not be handled", self.function_id)

        self._worker.start(run_in_order())


async def _call_hook(hook: Hook, observer: Observer) -> None:
    if asyncio.iscoroutinefunction(hook):
        await hook(observer)
    else:
        await maybe_await(await asyncio.to_thread(hook, observer))


def _succeeded(task: asyncio.Future[None]) -> bool:
    return not task.cancelled() and task.exception() is None


class ObservedFunctions:
    """The functions of a worker, with their observers."""

    def __init__(self, worker: WorkerAccess) -> None:
        self._worker = worker
        self._functions: dict[str, ObservedFunction] = {}

    def build(self, function_id: str, hooks: ObserveHooks) -> ObservedFunction:
        """A function that is about to be offered."""
        return ObservedFunction(function_id, hooks, self._worker)

    def add(self, function: ObservedFunction) -> None:
        """A function is offered, in place of another with its id."""
        self.remove(function.function_id)
        self._functions[function.function_id] = function

    def remove(self, function_id: str) -> None:
        """A function is no longer offered."""
        self.release(function_id)
        self._functions.pop(function_id, None)

    def release(self, function_id: str) -> None:
        """The engine does not accept a function from this worker."""
        function = self._functions.get(function_id)
        if function is not None:
            function.release()

    def connected(self, is_supported: bool) -> None:
        """The engine has said whether it supports observers."""
        idle = [] if is_supported else [one.function_id for one in self._functions.values() if one.hooks.is_active]
        if idle:
            unused = ", ".join(idle)
            _log.warning("the engine does not support observers, so the hooks of %s are never called", unused)

    def disconnected(self) -> None:
        """The connection is lost; events for observers wait."""
        for function in self._functions.values():
            function.is_known = False

    def on_message(self, frame: ObserverMessage) -> None:
        """The engine reports observers of a function."""
        function = self._functions.get(frame.id if isinstance(frame, FunctionRegistered) else frame.function_id)
        if function is not None:
            function.on_message(frame)
