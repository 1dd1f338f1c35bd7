"""Functions in place of kinds of triggers: whoever binds to the kind observes the function, and need not know.

A function says with `legacy_trigger_type` which kind it takes the place of. It does so while nobody provides the kind.
A binding becomes an observer that is given just what happened, as functions that are bound to triggers always were.
"""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any

import msgspec
from msgspec import Raw

from waypost.capabilities.schemas.validators import Validator
from waypost.errors import DefinitionError
from waypost.workers.frames import TriggerRegistrationResult, encode
from waypost.workers.functions import Function
from waypost.workers.observing.filters import Filter
from waypost.workers.observing.messages import LegacyTrigger
from waypost.workers.observing.observers import AT_ONCE, Observer, is_owner_delivered
from waypost.workers.triggers import Binding

if TYPE_CHECKING:
    from waypost.workers.observing.observing import Observing


class Source:
    """A function that stands in for the provider of a kind of trigger."""

    def __init__(self, observing: Observing, function: Function) -> None:
        self._observing = observing
        self._source = function.key

    def bound(self, binding: Binding) -> None:
        """Have the function of a binding observe this one."""
        self._observing.adopt(_observer(binding, self._source))

    def unbound(self, binding: Binding) -> None:
        """Have it observe no longer."""
        self._observing.unobserve(binding.maker, binding.id)

    def has(self, binding: Binding) -> bool:
        """Whether it observes, or will."""
        observer = self._observing.get(binding.id)
        return observer is not None and observer.maker is binding.maker and observer.state != "error"


def fitting_args(legacy: LegacyTrigger, function: Function) -> dict[str, Any]:
    """What a binding asks for as the arguments of an observer, where they fit; its owner sees what it was."""
    try:
        config = msgspec.json.decode(legacy.config)
    except (msgspec.MsgspecError, RecursionError):
        return {}
    if not isinstance(config, dict) or not is_owner_delivered(function):
        return {}
    wanted = None if function.observable is None else function.observable.args_format
    try:
        is_unfit = isinstance(wanted, dict) and Validator(wanted).problems(config)
    except DefinitionError:
        return config
    return {} if is_unfit else config


def refusal_of(observer: Observer, legacy: LegacyTrigger) -> TriggerRegistrationResult:
    """What the maker of a binding hears that nobody takes."""
    error = Raw(encode(observer.reason))
    return TriggerRegistrationResult(observer.id, legacy.trigger_type, observer.target[1], error)


def _observer(binding: Binding, source: tuple[str, str]) -> Observer:
    return Observer(
        id=binding.id,
        maker=binding.maker,
        asked=b"",
        source=source,
        target=(binding.namespace, binding.function_id),
        args={},
        filter=Filter(),
        capture=("input", "caller"),
        on="success",
        deliver="input",
        metadata=binding.metadata,
        max_fires=None,
        expires_in=None,
        max_in_flight=AT_ONCE,
        places=asyncio.Semaphore(AT_ONCE),
        legacy=LegacyTrigger(binding.type, binding.config),
    )
