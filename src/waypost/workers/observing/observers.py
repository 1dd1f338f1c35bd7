"""One observer: what it wants to hear of, who is told, and where it stands."""

from __future__ import annotations

import asyncio
from dataclasses import dataclass, field
from typing import Any, Final, Literal, TypeAlias

from msgspec import UNSET

from waypost.capabilities.schemas.validators import Validator
from waypost.errors import DefinitionError, InvocationFailed
from waypost.workers.frames import Failure, Given, Observe, encode
from waypost.workers.functions import DEFAULT, Function
from waypost.workers.listeners import Listener
from waypost.workers.observing.filters import Filter
from waypost.workers.observing.messages import LegacyTrigger, ObserverInfo
from waypost.workers.observing.paths import ROOTS
from waypost.workers.worker import Worker

State: TypeAlias = Literal["pending", "active", "suspended", "error", "disposed"]

AT_ONCE: Final = 256
"""Activations that run at once where an observer does not say."""
_MOST_BYTES: Final = 32 * 1024
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
    if len(asked) > _MOST_BYTES:
        raise _invalid(f"it has {len(asked)} bytes and may have {_MOST_BYTES}")
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
    at_once = wish.max_in_flight or AT_ONCE
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
