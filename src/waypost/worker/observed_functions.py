"""How a function may be observed, as whoever offers it says: `register_function(..., observe=ObserveHooks(...))`."""

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
from msgspec import Raw, Struct

from waypost.capabilities.results import encode_json
from waypost.errors import DefinitionError, InvocationFailed
from waypost.loops import maybe_await, running_loop
from waypost.worker.connection import Added, Announced, Known, News, Removed
from waypost.worker.formats import request_format
from waypost.worker.invocations import current, parent_of, trace_context
from waypost.worker.loop import Answer, Home
from waypost.workers.frames import Activation, Failure, InvokeFunction, Observable, ObserverAck, Origin
from waypost.workers.observing.filters import Filter

Delivery: TypeAlias = Literal["auto", "owner"]
Hook: TypeAlias = "Callable[[Observer], Awaitable[None] | None]"
_LEFT_OUT: Final[Any] = object()
_FIELDS: Final = ("delivery", "args_format", "legacy_trigger_type", "allow", "on_observer_added", "on_observer_removed")


class ObserveRejection(InvocationFailed):
    """An observer is not wanted; raised in `on_observer_added`, its code is told to whoever observes."""

    def __init__(self, code: str, message: str) -> None:
        super().__init__(message, code)

    def __reduce__(self) -> tuple[type[ObserveRejection], tuple[str, str]]:
        return type(self), (self.code, self.message)


class ObserveHooks:
    """How the observers of a function hear of it, and what is called when one comes or goes.

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
        """Whether anything of it is of use only where the engine knows of observers."""
        return self.delivery == "owner" or bool(self.on_observer_added or self.on_observer_removed)


def hooks_of(given: ObserveHooks | Mapping[str, Any] | None) -> ObserveHooks:
    """The hooks of a function; a `DefinitionError` says what makes no sense."""
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


def terms_of(hooks: ObserveHooks) -> Observable | None:
    """What the engine is told of the hooks, if there is anything."""
    wanted = hooks.args_format
    if isinstance(wanted, type):
        wanted = request_format(wanted)
    terms = Observable(hooks.delivery, wanted, hooks.legacy_trigger_type, hooks.allow)
    return None if terms == Observable() else terms


_log: Final = logging.getLogger(__name__)
MOST: Final = 10_000
"""Events that wait to be sent."""
MOST_BYTES: Final = 8 * 1024 * 1024
_AT_ONCE: Final = 256

Send: TypeAlias = Callable[[Struct], None]


class Reported(Struct, tag="invocationsobserved"):
    """Events, and the observers that they are for."""

    items: list[dict[str, Any]]


class Event(NamedTuple):
    """One event that waits to be sent."""

    item: dict[str, Any]
    size: int
    is_due: Callable[[], bool]
    """Whether the engine knows by now whose it is."""


class Reporting:
    """Events on their way; those that find no room are missed, and told of in the log."""

    def __init__(self, home: Home, send: Send) -> None:
        self._home = home
        self._send = send
        self._lock = threading.Lock()
        self._waiting: list[Event] = []
        self._bytes = 0
        self._missed = 0
        self._is_flushing = False
        """Whether `flush` is about to be called."""

    def put(self, item: dict[str, Any], event: Raw, is_due: Callable[[], bool]) -> None:
        """Send an event soon, or when the worker is connected; from any thread."""
        size = len(event)
        with self._lock:
            if len(self._waiting) >= MOST or self._bytes + size > MOST_BYTES:
                self._miss()
                return
            self._waiting.append(Event(item, size, is_due))
            self._bytes += size
            was_flushing, self._is_flushing = self._is_flushing, True
        if not was_flushing:
            self._home.soon(lambda: running_loop().call_soon(self.flush))

    def flush(self) -> None:
        """Send what the engine can take now."""
        with self._lock:
            self._is_flushing = False
            going: list[Event] = []
            staying: list[Event] = []
            for event in self._waiting:
                (going if event.is_due() else staying).append(event)
            self._waiting = staying
            self._bytes = sum(event.size for event in self._waiting)
        for start in range(0, len(going), _AT_ONCE):
            self._send(Reported([event.item for event in going[start : start + _AT_ONCE]]))

    def forget(self, function_id: str) -> None:
        """What waits about a function is for nobody any more."""
        with self._lock:
            self._waiting = [event for event in self._waiting if event.item["function_id"] != function_id]
            self._bytes = sum(event.size for event in self._waiting)

    def _miss(self) -> None:
        self._missed += 1
        if self._missed % 1000 == 1:
            _log.warning("%d events found no room to wait for the engine", self._missed)


PATIENCE: Final = 30.0
"""Seconds that a hook has for an observer."""

Work: TypeAlias = Callable[[], Coroutine[Any, Any, None]]


@dataclass(frozen=True, slots=True)
class Ties:
    """What the owner of functions needs of its worker."""

    home: Home
    reporting: Reporting
    identity: Callable[[], Origin]
    """Who the worker is to the engine."""
    send: Callable[[Struct], None]
    call: Callable[[InvokeFunction, Any, int | None], Answer[Any]]
    aside: Callable[[Coroutine[Any, Any, None]], None]
    """Does something that nobody waits for."""


class Observer:
    """Somebody who observes a function of this worker; it is the same object as long as it does."""

    def __init__(self, owned: Owned, told: Known) -> None:
        self.id = told.id
        self.function_id = owned.function_id
        self.args = told.args
        self.legacy = told.legacy
        """The `trigger_type` and `config` of the binding that it stands for."""
        self.rejection: Failure | None = None
        """Why it is not wanted any more."""
        self.is_active = False
        self.revision = 0
        """With which message the engine told of it."""
        self._owned = owned
        self.update(told)

    @property
    def is_heard(self) -> bool:
        """Whether it hears of events: it is active, and nobody has begun to refuse it."""
        return self.is_active and self.rejection is None

    def update(self, told: Known) -> None:
        """Take over what may change about it."""
        self.filters: dict[str, Any] = told.filters or {}
        self._filter = Filter(told.filters)
        self.target = told.target
        self.capture = list(told.capture)
        self.on = told.on

    def matches(self, document: Mapping[str, Any]) -> bool:
        """Whether its filters let something through, by `input`, `output`, `error`, `caller` and `metadata`."""
        return self._filter.matches(document)

    def wants(self, parts: Mapping[str, Raw]) -> bool:
        """Whether its filters let something through that is on its way."""
        return self.matches({root: msgspec.json.decode(parts[root]) for root in self._filter.roots if root in parts})

    def emit(self, event: Any) -> bool:
        """Tell it of an event, and wait for nothing; false when it is not active, or its filters are against it."""
        return self._owned.emit(self, event)

    def call(self, payload: Any, *, timeout_ms: int | None = None) -> Any:
        """Call its function and wait for what it answers; not in the worker's own loop."""
        return self._owned.call(self, payload, timeout_ms).result()

    async def call_async(self, payload: Any, *, timeout_ms: int | None = None) -> Any:
        """Call its function and wait for what it answers."""
        return await self._owned.call(self, payload, timeout_ms)

    def reject(self, code: str, message: str) -> None:
        """Refuse it after all."""
        self._owned.reject(self, Failure(code, message))

    def to_dict(self) -> dict[str, Any]:
        """What there is to know of it."""
        names = ("id", "function_id", "args", "filters", "target", "capture", "on", "legacy")
        told = {name: getattr(self, name) for name in names}
        return {name: value for name, value in told.items() if name != "legacy" or value is not None}

    def __repr__(self) -> str:
        return f"Observer(id={self.id!r}, function_id={self.function_id!r}, target={self.target!r}, args={self.args!r})"


class Owned:
    """One function of the worker, and its observers; what happens to them is done one after the other."""

    def __init__(self, function_id: str, hooks: ObserveHooks, ties: Ties) -> None:
        self.function_id = function_id
        self.hooks = hooks
        self.is_known = False
        """Whether the engine, as far as the worker is connected to it, has the function from this worker."""
        self.active: tuple[Observer, ...] = ()
        self._ties = ties
        self._namespace: str | None = None
        self._revision = -1
        self._releases = 0
        self._there: dict[str, Observer] = {}
        self._turns = asyncio.Lock()

    def announced(self, frame: Announced) -> None:
        """The engine says who observes it, all of them."""
        self._namespace, self._revision = frame.namespace, frame.revision
        self._next(partial(self._have, frame, self._releases))

    def added(self, frame: Added) -> None:
        """One more observes it."""
        if frame.revision > self._revision:
            self._revision = frame.revision
            self._next(partial(self._add, frame.observer, frame.revision, self._releases, is_new=True))

    def removed(self, frame: Removed) -> None:
        """One observes it no longer."""
        if frame.revision > self._revision:
            self._revision = frame.revision
            self._next(partial(self._remove, frame.id))

    def release(self) -> None:
        """It is not this worker's any more, to the engine at least."""
        self._releases += 1
        self.is_known = False
        for observer in self.active:
            observer.is_active = False
        self.active = ()
        self._ties.reporting.forget(self.function_id)
        self._next(self._remove_all)

    def emit(self, observer: Observer, event: Any) -> bool:
        """Hand an event to an observer, from any thread."""
        self._require_owner("emit")
        if not observer.is_heard:
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
        self._ties.reporting.put(given, parts["input"], lambda: self.is_known)
        return True

    def call(self, observer: Observer, payload: Any, timeout_ms: int | None) -> Answer[Any]:
        """Call the function of an observer, from any thread."""
        self._require_owner("call")
        if not observer.is_heard:
            raise InvocationFailed(f"The observer {observer.id} is not active.", "OBSERVER_NOT_ACTIVE")
        if not observer.wants(self._parts(payload)):
            raise InvocationFailed(f"The filters of the observer {observer.id} are against it.", "FILTERS_NOT_MATCHED")
        return self._ties.call(InvokeFunction(observer.target, activation=Activation(observer.id)), payload, timeout_ms)

    def reject(self, observer: Observer, why: Failure) -> None:
        """Refuse an observer, from any thread; one whose hook still runs is refused when that is done."""
        observer.rejection = why
        self._ties.home.soon(self._rejected, observer)

    def _rejected(self, observer: Observer) -> None:
        if self._there.get(observer.id) is observer:
            self._deactivate(observer)
            self._ack(observer.id, observer.revision, observer.rejection)

    def _require_owner(self, what: str) -> None:
        if self.hooks.delivery != "owner":
            raise InvocationFailed(
                f"{self.function_id} is not delivered by its owner, so {what} is not for its observers.",
                "NOT_OWNER_DELIVERED",
            )

    def _parts(self, event: Any) -> dict[str, Raw]:
        """What observers see of an event: who caused it is who called the function, or who works here."""
        call = current.get()
        parts = {"input": Raw(encode_json(event))}
        if call is None:
            caller: Origin | None = self._ties.identity()
        elif call.function_id == self.function_id:
            caller = call.caller
        else:
            caller = self._ties.identity()
            caller.function_id, caller.invocation_id = call.function_id, call.invocation_id
            caller.parent = parent_of(call)
        if caller is not None:
            parts["caller"] = Raw(encode_json(caller))
        if call is not None and isinstance(call.metadata, Raw):
            parts["metadata"] = call.metadata
        return parts

    async def _have(self, frame: Announced, releases: int) -> None:
        wanted = {one.id for one in frame.observers}
        for observer_id in [one for one in self._there if one not in wanted]:
            await self._remove(observer_id)
        for told in frame.observers:
            before = self._there.get(told.id)
            if before is not None and (before.args, before.legacy) != (told.args, told.legacy):
                await self._remove(told.id)
            await self._add(told, frame.revision, releases)
        if releases == self._releases:
            self.is_known = True
            self._ties.reporting.flush()

    async def _add(self, told: Known, revision: int, releases: int, *, is_new: bool = False) -> None:
        before = self._there.get(told.id)
        if before is not None and is_new and before.rejection is not None:
            await self._remove(told.id)  # it is tried once more
            before = None
        if releases != self._releases:
            return
        try:
            if before is not None:
                before.update(told)
            observer = before or Observer(self, told)
        except InvocationFailed as error:
            if before is not None:
                self._deactivate(before)
            self._ack(told.id, revision, Failure(error.code, error.message))
            return
        observer.revision = revision
        refusal = await self._asked(observer, releases) if before is None else None
        if releases != self._releases:
            return
        if refusal is None:
            self._there[told.id] = observer
            refusal = observer.rejection
        if refusal is None and not observer.is_active:
            observer.is_active = True
            self.active = (*self.active, observer)
        self._ack(told.id, revision, refusal)

    async def _asked(self, observer: Observer, releases: int) -> Failure | None:
        """What the worker has against a new observer; what it did for one that is not there any more is undone."""
        hook = self.hooks.on_observer_added
        if hook is None:
            return None
        refusal = await self._run(hook, observer, lambda: self._next(partial(self._gone, observer)))
        if refusal is None and releases != self._releases:
            await self._gone(observer)
        return refusal

    async def _remove_all(self) -> None:
        for observer_id in list(self._there):
            await self._remove(observer_id)

    async def _remove(self, observer_id: str) -> None:
        observer = self._there.pop(observer_id, None)
        if observer is not None:
            self._deactivate(observer)
            await self._gone(observer)

    async def _gone(self, observer: Observer) -> None:
        hook = self.hooks.on_observer_removed
        problem = None if hook is None else await self._run(hook, observer)
        if problem is not None:
            _log.error("on_observer_removed of %s failed for %s: %s", self.function_id, observer.id, problem.message)

    async def _run(self, hook: Hook, observer: Observer, too_late: Callable[[], None] | None = None) -> Failure | None:
        """Call a hook, and wait a while; `too_late` is called when it comes to a good end after that."""
        going = asyncio.ensure_future(_hooked(hook, observer))
        try:
            done, _ = await asyncio.wait({going}, timeout=PATIENCE)
        except asyncio.CancelledError:
            going.cancel()
            raise
        if not done:
            going.add_done_callback(lambda task: too_late() if too_late and _is_good(task) else None)
            return Failure("OWNER_TIMEOUT", f"A hook of {self.function_id} took longer than {PATIENCE:g} s.")
        error = InvocationFailed("The hook was cancelled.") if going.cancelled() else going.exception()
        if isinstance(error, ObserveRejection):
            return Failure(error.code, error.message)
        return None if error is None else Failure("OBSERVE_REJECTED", str(error) or type(error).__name__)

    def _deactivate(self, observer: Observer) -> None:
        observer.is_active = False
        self.active = tuple(one for one in self.active if one is not observer)

    def _ack(self, observer_id: str, revision: int, refusal: Failure | None) -> None:
        self._ties.send(ObserverAck(self.function_id, observer_id, revision, self._namespace, refusal))

    def _next(self, work: Work) -> None:
        self._ties.aside(self._in_turn(work))

    async def _in_turn(self, work: Work) -> None:
        async with self._turns:
            try:
                await work()
            except Exception:
                _log.exception("an observer of %s was not looked after", self.function_id)


async def _hooked(hook: Hook, observer: Observer) -> None:
    if asyncio.iscoroutinefunction(hook):
        await hook(observer)
    else:
        await maybe_await(await asyncio.to_thread(hook, observer))


def _is_good(task: asyncio.Future[None]) -> bool:
    return not task.cancelled() and task.exception() is None


class Owning:
    """Every function of a worker, and their observers."""

    def __init__(self, ties: Ties) -> None:
        self._ties = ties
        self._rows: dict[str, Owned] = {}

    def made(self, function_id: str, hooks: ObserveHooks) -> Owned:
        """A function that is about to be offered."""
        return Owned(function_id, hooks, self._ties)

    def put(self, owned: Owned) -> None:
        """A function is offered, in place of another of its name."""
        self.pop(owned.function_id)
        self._rows[owned.function_id] = owned

    def pop(self, function_id: str) -> None:
        """A function is offered no longer."""
        self.refuse(function_id)
        self._rows.pop(function_id, None)

    def refuse(self, function_id: str) -> None:
        """The engine does not take a function from this worker."""
        owned = self._rows.get(function_id)
        if owned is not None:
            owned.release()

    def connected(self, is_able: bool) -> None:
        """The engine says whether it knows of observers."""
        idle = [] if is_able else [one.function_id for one in self._rows.values() if one.hooks.is_active]
        if idle:
            _log.warning("the engine knows nothing of observers, so the hooks of %s are never called", ", ".join(idle))

    def lost(self) -> None:
        """There is no connection; what observers are to hear waits."""
        for owned in self._rows.values():
            owned.is_known = False

    def take(self, frame: News) -> None:
        """Hear of the observers of a function."""
        owned = self._rows.get(frame.id if isinstance(frame, Announced) else frame.function_id)
        if owned is None:
            return
        match frame:
            case Announced():
                owned.announced(frame)
            case Added():
                owned.added(frame)
            case Removed():
                owned.removed(frame)
