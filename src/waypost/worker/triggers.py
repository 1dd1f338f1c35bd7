"""Triggers: the types that a worker provides, and the functions that are bound to them and by it."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field
from typing import Any, Final, NamedTuple, TypeAlias
from weakref import WeakValueDictionary

from msgspec import Raw

from waypost.errors import WaypostError
from waypost.loops import maybe_await
from waypost.worker.invocations import from_raw
from waypost.workers.frames import (
    Failure,
    RegisterTrigger,
    RegisterTriggerType,
    TriggerRegistrationResult,
    UnregisterTrigger,
    encode,
)

_log: Final = logging.getLogger(__name__)


class Bound(NamedTuple):
    """A function that is to be called when a trigger fires."""

    id: str
    function_id: str
    config: Any = None
    metadata: Any = None
    namespace: str | None = None


BindingHook: TypeAlias = Callable[[Bound], Awaitable[None] | None]
Fire: TypeAlias = Callable[[Bound, Any], None]


@dataclass(eq=False, slots=True)
class TriggerType:
    """A type of trigger that this worker provides."""

    frame: RegisterTriggerType
    call: Fire
    on_bind: BindingHook | None = None
    on_unbind: BindingHook | None = None
    bound: dict[str, Bound] = field(default_factory=dict)

    def fire(self, payload: Any) -> None:
        """Call every function that is bound to it, without waiting; from any thread."""
        for one in list(self.bound.values()):
            self.call(one, payload)


class Triggers:
    """The trigger types and the bindings of one worker."""

    def __init__(self) -> None:
        self.types: dict[str, TriggerType] = {}
        """Those that it provides."""
        self.bindings: dict[str, RegisterTrigger] = {}
        """Those of its functions to triggers, its own or of others."""
        self._locks: WeakValueDictionary[str, asyncio.Lock] = WeakValueDictionary()
        """By binding: the hooks for one are called one after the other."""

    async def bind(self, frame: RegisterTrigger) -> TriggerRegistrationResult | None:
        """A function was bound; the reply to the engine, unless the connection was lost meanwhile."""
        kind = self.types.get(frame.trigger_type)
        reply = TriggerRegistrationResult(frame.id, frame.trigger_type, frame.function_id)
        if kind is None:
            reply.error = _error("trigger_type_not_found", f"Trigger type {frame.trigger_type} is not provided here.")
            return reply
        one = Bound(frame.id, frame.function_id, from_raw(frame.config), from_raw(frame.metadata), frame.namespace)
        bound = kind.bound
        async with self._lock(one.id):
            try:
                if kind.on_bind is not None:
                    await maybe_await(kind.on_bind(one))
                bound[one.id] = one
            except Exception as error:
                if not isinstance(error, WaypostError):
                    _log.exception("a function could not be bound to %s", frame.trigger_type)
                reply.error = _error("trigger_registration_failed", str(error))
        return reply if kind.bound is bound else None

    async def unbind(self, frame: UnregisterTrigger) -> None:
        """A binding ended."""
        async with self._lock(frame.id):
            for kind in list(self.types.values()):
                one = kind.bound.pop(frame.id, None)
                if one is None or kind.on_unbind is None:
                    continue
                try:
                    await maybe_await(kind.on_unbind(one))
                except Exception:
                    _log.exception("a function could not be unbound from %s", kind.frame.id)

    def _lock(self, binding_id: str) -> asyncio.Lock:
        return self._locks.setdefault(binding_id, asyncio.Lock())


def _error(code: str, message: str) -> Raw:
    return Raw(encode(Failure(code, message)))
