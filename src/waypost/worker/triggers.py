"""Kinds of triggers that a worker provides, and the functions that others bound to them."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable, Iterable
from dataclasses import dataclass, field
from typing import Any, Final, NamedTuple, TypeAlias
from weakref import WeakValueDictionary

import msgspec
from msgspec import UNSET, Raw

from waypost.errors import WaypostError
from waypost.loops import maybe_await
from waypost.workers.frames import (
    Failure,
    Given,
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


Hears: TypeAlias = Callable[[Bound], Awaitable[None] | None]
Fire: TypeAlias = Callable[[Bound, Any], None]


@dataclass(eq=False, slots=True)
class TriggerType:
    """A kind of trigger that this worker provides."""

    frame: RegisterTriggerType
    call: Fire
    on_bind: Hears | None = None
    on_unbind: Hears | None = None
    bound: dict[str, Bound] = field(default_factory=dict)

    def fire(self, payload: Any) -> None:
        """Call every function that is bound to it, and wait for none; from any thread."""
        for one in list(self.bound.values()):
            self.call(one, payload)


class Provided:
    """Every kind of trigger of one worker."""

    def __init__(self) -> None:
        self._kinds: dict[str, TriggerType] = {}
        self._turns: WeakValueDictionary[str, asyncio.Lock] = WeakValueDictionary()
        """What happens to one binding happens one after the other."""

    def frames(self) -> Iterable[RegisterTriggerType]:
        """How they are told to the engine."""
        return [kind.frame for kind in self._kinds.values()]

    def put(self, kind: TriggerType) -> None:
        """Provide a kind."""
        self._kinds[kind.frame.id] = kind

    def pop(self, kind_id: str) -> None:
        """Provide a kind no more."""
        self._kinds.pop(kind_id, None)

    def clear(self) -> None:
        """Forget what is bound; the engine tells of it again when the worker comes back."""
        for kind in self._kinds.values():
            kind.bound = {}

    async def bind(self, frame: RegisterTrigger) -> TriggerRegistrationResult | None:
        """Somebody bound a function; what the engine is told of it, unless the worker has lost it meanwhile."""
        kind = self._kinds.get(frame.trigger_type)
        told = TriggerRegistrationResult(frame.id, frame.trigger_type, frame.function_id)
        if kind is None:
            told.error = _error("trigger_type_not_found", f"Trigger type {frame.trigger_type} is not provided here.")
            return told
        one = Bound(frame.id, frame.function_id, _value(frame.config), _value(frame.metadata), frame.namespace)
        bound = kind.bound
        async with self._turn(one.id):
            try:
                if kind.on_bind is not None:
                    await maybe_await(kind.on_bind(one))
                bound[one.id] = one
            except Exception as error:
                if not isinstance(error, WaypostError):
                    _log.exception("a function could not be bound to %s", frame.trigger_type)
                told.error = _error("trigger_registration_failed", str(error))
        return told if kind.bound is bound else None

    async def unbind(self, frame: UnregisterTrigger) -> None:
        """Somebody took a function back."""
        async with self._turn(frame.id):
            for kind in list(self._kinds.values()):
                one = kind.bound.pop(frame.id, None)
                if one is None or kind.on_unbind is None:
                    continue
                try:
                    await maybe_await(kind.on_unbind(one))
                except Exception:
                    _log.exception("a function could not be taken from %s", kind.frame.id)

    def _turn(self, binding_id: str) -> asyncio.Lock:
        return self._turns.setdefault(binding_id, asyncio.Lock())


def _value(given: Given) -> Any:
    return None if given is UNSET else msgspec.json.decode(given)


def _error(code: str, message: str) -> Raw:
    return Raw(encode(Failure(code, message)))
