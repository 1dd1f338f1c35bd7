"""A function of a worker and its observers: who they are, what the worker thinks of them, and what it tells them."""

from __future__ import annotations

import asyncio
import logging
import time
import uuid
from collections.abc import Callable, Coroutine, Mapping
from dataclasses import dataclass
from functools import partial
from typing import Any, Final, TypeAlias

import msgspec
from msgspec import Raw, Struct

from waypost.capabilities.results import encode_json
from waypost.errors import InvocationFailed
from waypost.loops import awaited
from waypost.worker.announcing import Added, Announced, Known, Removed
from waypost.worker.answers import Answer, Home
from waypost.worker.hooks import Hook, ObserveHooks, ObserveRejection
from waypost.worker.invocations import current, parent_of, trace_context
from waypost.worker.reporting import Reporting
from waypost.workers.frames import Activation, Failure, InvokeFunction, ObserverAck, Origin
from waypost.workers.observing.filters import Filter

_log: Final = logging.getLogger(__name__)
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
        await awaited(await asyncio.to_thread(hook, observer))


def _is_good(task: asyncio.Future[None]) -> bool:
    return not task.cancelled() and task.exception() is None
