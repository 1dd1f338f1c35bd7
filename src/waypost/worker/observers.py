"""Observers: the functions of a worker that others observe, and those that it registers to observe others."""

from __future__ import annotations

import asyncio
import logging
import threading
import time
import uuid
from collections.abc import Awaitable, Callable, Coroutine, Mapping
from functools import partial
from typing import TYPE_CHECKING, Any, Final, Literal, NamedTuple, TypeAlias, cast

import msgspec
from msgspec import UNSET, Raw, Struct

from waypost.capabilities.results import encode_json
from waypost.errors import DefinitionError, InvocationFailed
from waypost.loops import maybe_await, running_loop
from waypost.worker.connection import Answer, WorkerLoop, current, parent_of, to_raw, trace_context
from waypost.workers import frames
from waypost.workers.filters import Filter
from waypost.workers.frames import Failure, FunctionRegistered, Observe, ObserverAdded, ObserverInfo

if TYPE_CHECKING:
    from waypost.worker.worker import Session


_log: Final = logging.getLogger(__name__)
HOOK_TIMEOUT_S: Final = 30.0
MAX_EVENTS: Final = 10_000
"""Events that may wait to be sent."""
MAX_EVENT_BYTES: Final = 8 * 1024 * 1024
_BATCH_SIZE: Final = 256

Delivery: TypeAlias = Literal["auto", "owner"]
Hook: TypeAlias = "Callable[[Observer], Awaitable[None] | None]"
Send: TypeAlias = Callable[[Struct], None]
ObserverMessage: TypeAlias = FunctionRegistered | ObserverAdded | frames.ObserverRemoved
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
            # Only what was given: a subclass has the others as attributes of its own.
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
            # In the next turn of the loop, so that events that are put until then go out in the same message.
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
        """Whether its filters match an event; those that read a part that cannot be decoded do not."""
        try:
            return self.matches({one: msgspec.json.decode(parts[one]) for one in self._filter.roots if one in parts})
        except (msgspec.MsgspecError, RecursionError):
            return False

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

    def __init__(self, function_id: str, hooks: ObserveHooks, session: Session) -> None:
        self.function_id = function_id
        self.hooks = hooks
        self.is_known = False
        """Whether the connected engine has accepted the function from this worker."""
        self.active: tuple[Observer, ...] = ()
        self._session = session
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
        self._session.events.forget(self.function_id)
        # Not a partial: the observers are those at the time when their turn comes.
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
        self._session.events.put(given, parts["input"], lambda: self.is_known)
        return True

    def call(self, observer: Observer, payload: Any, timeout_ms: int | None) -> Answer[Any]:
        """Call the function of an observer, from any thread."""
        self._require_owner("call")
        if not observer.gets_events:
            raise InvocationFailed(f"The observer {observer.id} is not active.", "OBSERVER_NOT_ACTIVE")
        if not observer.wants(self._parts(payload)):
            raise InvocationFailed(f"The filters of the observer {observer.id} do not match.", "FILTERS_NOT_MATCHED")
        frame = frames.InvokeFunction(observer.target, activation=frames.Activation(observer.id))
        return self._session.invoke(frame, payload, timeout_ms)

    def reject(self, observer: Observer, why: Failure) -> None:
        """Refuse an observer, from any thread; one whose hook still runs is refused when that is done."""
        observer.rejection = why

        def apply() -> None:
            if self._observers.get(observer.id) is observer:
                self._deactivate(observer)
                self._ack(observer.id, observer.revision, observer.rejection)

        self._session.loop.call(apply)

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
            caller: frames.Origin | None = self._session.origin()
        elif call.function_id == self.function_id:
            caller = call.caller
        else:
            caller = self._session.origin()
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
            self._session.events.flush()

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
            # Not `wait_for`, which would cancel the hook: one that succeeds too late has to be undone.
            done, _ = await asyncio.wait({running}, timeout=HOOK_TIMEOUT_S)
        except asyncio.CancelledError:
            running.cancel()
            raise
        if not done:
            if too_late is not None:
                running.add_done_callback(lambda it: None if it.cancelled() or it.exception() else too_late())
            return Failure("OWNER_TIMEOUT", f"A hook of {self.function_id} took longer than {HOOK_TIMEOUT_S:g} s.")
        error = InvocationFailed("The hook was cancelled.") if running.cancelled() else running.exception()
        if isinstance(error, ObserveRejection):
            return Failure(error.code, error.message)
        return None if error is None else Failure("OBSERVE_REJECTED", str(error) or type(error).__name__)

    def _deactivate(self, observer: Observer) -> None:
        observer.is_active = False
        self.active = tuple(one for one in self.active if one is not observer)

    def _ack(self, observer_id: str, revision: int, refusal: Failure | None) -> None:
        self._session.send_soon(frames.ObserverAck(self.function_id, observer_id, revision, self._namespace, refusal))

    def _run_next(self, work: Work) -> None:
        async def run_in_order() -> None:
            async with self._order:
                try:
                    await work()
                except Exception:
                    _log.exception("a change of the observers of %s could not be handled", self.function_id)

        self._session.start(run_in_order())


async def _call_hook(hook: Hook, observer: Observer) -> None:
    if asyncio.iscoroutinefunction(hook):
        await hook(observer)
    else:
        # In a thread, because a plain hook may block.
        await maybe_await(await asyncio.to_thread(hook, observer))


_OPTIONS: Final = ("id", "max_fires", "expires_in_ms", "max_in_flight", "metadata")

State: TypeAlias = Literal["pending", "active", "suspended", "error", "disposed"]
Reason: TypeAlias = dict[str, str]
"""A `code` and a `message`."""
Listener: TypeAlias = Callable[[State, Reason | None], object]


class ObserverHandle:
    """An observer; it is registered again after each reconnection until it is disposed."""

    def __init__(self, observers: Observers, frame: Observe) -> None:
        self.id = frame.id
        self.state: State = "pending"
        """`pending`, `active`, `suspended`, `error` or `disposed`."""
        self.reason: Reason | None = None
        """Why it has that state: a `code` and a `message`."""
        self.frame = frame
        self._observers = observers
        self._listeners: list[Listener] = []
        self._changed = asyncio.Event()

    def ready(self) -> Answer[None]:
        """When it is active; an `ObserveRejection` with the code of its reason when it will not be."""
        return self._observers.loop.start(self._until_ready())

    def on_state_change(self, listener: Listener) -> Callable[[], None]:
        """Call `listener` with the state and the reason when they change, until the function returned is called."""
        self._listeners.append(listener)
        return lambda: self._listeners.remove(listener) if listener in self._listeners else None

    def dispose(self) -> None:
        """Stop observing."""
        self._observers.loop.call(self._observers.dispose, self)

    def set_state(self, state: str, reason: Failure | None) -> None:
        """Its state has changed."""
        shown = None if reason is None else {"code": reason.code, "message": reason.message}
        if self.state == "disposed" or (state, shown) == (self.state, self.reason):
            return
        self.state, self.reason = cast("State", state), shown
        self._changed.set()
        # A new event for the next change; setting and clearing one would miss waiters that wake up late.
        self._changed = asyncio.Event()
        for listener in list(self._listeners):
            try:
                listener(self.state, shown)
            except Exception:
                _log.exception("a listener for the state of the observer %s failed", self.id)

    async def _until_ready(self) -> None:
        while self.state != "active":
            if self.state in ("error", "disposed"):
                reason = self.reason or {
                    "code": "OBSERVE_FAILED",
                    "message": f"The observer {self.id} is {self.state}.",
                }
                raise ObserveRejection(reason["code"], reason["message"])
            await self._changed.wait()


class Observers:
    """Every observer of one worker."""

    def __init__(self, loop: WorkerLoop, send: Send) -> None:
        self.loop = loop
        self._send = send
        self._handles: dict[str, ObserverHandle] = {}
        self._is_supported: bool | None = None
        """Whether the engine supports observers; unknown without a connection."""

    @property
    def is_supported(self) -> bool:
        """Whether the engine that the worker is connected to supports observers."""
        return self._is_supported is True

    def add(self, frame: Observe) -> ObserverHandle:
        """Register an observer."""
        if frame.id in self._handles:
            raise DefinitionError(f"There is an observer {frame.id} already.")
        handle = self._handles[frame.id] = ObserverHandle(self, frame)
        self.loop.call(self._register, handle)
        return handle

    def dispose(self, handle: ObserverHandle) -> None:
        """Remove an observer."""
        if self._handles.pop(handle.id, None) is not None and self._is_supported:
            self._send(frames.Unobserve(handle.id))
        handle.set_state("disposed", Failure("UNOBSERVED", "The worker disposed the observer."))

    def connected(self, features: list[str]) -> None:
        """The engine has said which features it has."""
        self._is_supported = frames.OBSERVE_FEATURE in features
        for handle in list(self._handles.values()):
            self._register(handle)

    def disconnected(self) -> None:
        """The connection is lost."""
        self._is_supported = None

    def close(self, why: InvocationFailed) -> None:
        """There will be no connection any more."""
        self._is_supported = None
        for handle in self._handles.values():
            handle.set_state("disposed", Failure(why.code, why.message))
        self._handles.clear()

    def on_message(self, frame: frames.ObserveResult | frames.ObserverStateChanged) -> None:
        """The engine reports the state of an observer."""
        if isinstance(frame, frames.ObserveResult):
            reason = frame.error
            for warning in frame.warnings or ():
                _log.warning("the observer %s: %s", frame.id, warning)
        else:
            reason = frame.reason
        handle = self._handles.get(frame.id)
        if handle is not None:
            if frame.state == "disposed":
                del self._handles[frame.id]
            handle.set_state(frame.state, reason)

    def _register(self, handle: ObserverHandle) -> None:
        if self._is_supported:
            self._send(handle.frame)
        elif self._is_supported is False:
            handle.set_state("error", Failure("UNSUPPORTED", "The engine does not support observers."))


def build_observe(
    source: Mapping[str, Any], target: str | Mapping[str, Any], options: Mapping[str, Any], namespace: str | None
) -> Observe:
    """The message that registers an observer; a `DefinitionError` says what is wrong with it."""
    unknown = [name for name in options if name not in _OPTIONS]
    if unknown:
        raise DefinitionError(f"An observer has no option {unknown[0]!r}; there are {', '.join(_OPTIONS)}.")
    given = {"function_id": target} if isinstance(target, str) else target
    frame = Observe(
        options.get("id") or str(uuid.uuid4()),
        _part(source, frames.ObserveSource, "source", namespace),
        _part(given, frames.ObserveTarget, "target", namespace),
        to_raw(options.get("metadata")),
        options.get("max_fires"),
        options.get("expires_in_ms"),
        options.get("max_in_flight"),
    )
    try:
        msgspec.json.decode(encode_json(frame), type=Observe)
    except msgspec.ValidationError as error:
        raise DefinitionError(f"The observer is not valid: {error}.") from None
    return frame


def _part(given: Mapping[str, Any], kind: type[Any], name: str, namespace: str | None) -> Any:
    unknown = [key for key in given if key not in kind.__struct_fields__]
    if unknown:
        fields = ", ".join(kind.__struct_fields__)
        raise DefinitionError(f"The {name} of an observer has no {unknown[0]!r}; there are {fields}.")
    try:
        part = msgspec.convert(given, kind)
    except msgspec.ValidationError as error:
        raise DefinitionError(f"The {name} of an observer is not valid: {error}.") from None
    if part.namespace is None and not part.function_id.startswith(("engine::", "configuration::")):
        part.namespace = namespace
    return part
