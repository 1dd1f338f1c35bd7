"""Triggers: functions that are to be called when something happens, and whoever knows when that is.

A kind of trigger has a provider, a worker or the hub itself. A binding names a kind and a function. It waits while
nobody provides its kind, is handed to the provider when there is one, and goes when the worker that made it does.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from typing import Any, Final, TypeAlias

from msgspec import UNSET, Raw

from waypost.loops import running_loop
from waypost.workers.frames import (
    NULL,
    Failure,
    Given,
    RegisterTrigger,
    TriggerRegistrationResult,
    UnregisterTrigger,
    encode,
)
from waypost.workers.functions import DEFAULT
from waypost.workers.worker import Worker

MOST: Final = 10_000
"""Bindings of one worker."""
_AGAIN: Final = 1.0
"""Seconds in which a new provider answers to a binding, or hears of it once more: the Python SDK offers a kind a moment
before it can take bindings, and says nothing to those that come too early."""
MOST_KINDS: Final = 1_000
"""Kinds of triggers of one worker."""


@dataclass(eq=False, slots=True)
class Binding:
    """That a function is to be called when something happens."""

    id: str
    type: str
    function_id: str
    config: Raw
    metadata: Given
    namespace: str
    """Where the function is."""
    type_namespace: str | None
    """Where the kind is; the binding worker's own place first and the hub's then, where it does not say."""
    maker: Worker
    provider: Kind | None = None
    is_known: bool = False
    """Whether its provider answered."""

    def told(self) -> RegisterTrigger:
        """As its provider hears of it."""
        return RegisterTrigger(
            self.id,
            self.type,
            self.function_id,
            self.config,
            self.metadata,
            None if self.namespace == DEFAULT else self.namespace,
        )


Fire: TypeAlias = Callable[[Binding, Any], None]
"""Calls the function of a binding with a payload, expecting no answer."""


@dataclass(eq=False, slots=True)
class Kind:
    """A kind of trigger, and who provides it: a worker, or the hub."""

    id: str
    description: str = ""
    config_format: Any = None
    payload_format: Any = None
    namespace: str = DEFAULT
    worker: Worker | None = None
    since: float = 0.0
    """When a worker came to provide it, by the loop's clock."""


class Triggers:
    """All kinds and bindings of a hub."""

    def __init__(self, fire: Fire) -> None:
        self._fire = fire
        self._kinds: dict[tuple[str, str], Kind] = {}
        self._bindings: dict[str, Binding] = {}
        self._count: Counter[Worker] = Counter()

    @property
    def kinds(self) -> Iterable[Kind]:
        """Every kind that has a provider."""
        return self._kinds.values()

    @property
    def bindings(self) -> Iterable[Binding]:
        """Every binding."""
        return self._bindings.values()

    def provide(self, kind: Kind) -> bool:
        """Have a kind, in place of one that another provided, and give its provider every binding that waits for it.

        False when a worker wants one that the hub itself provides, or provides too many.
        """
        key = kind.namespace, kind.id
        before = self._kinds.get(key)
        if kind.worker is not None and self._is_refused(kind, before):
            return False
        if before is not None:
            self._take_back(before, kind)
        self._kinds[key] = kind
        if kind.worker is not None:
            kind.since = running_loop().time()
        for binding in self._bindings.values():
            if binding.type == kind.id and binding.provider in (None, before) and self._found(binding) is kind:
                self._hand_over(binding, kind)
        return True

    def withdraw(self, kind_id: str, namespace: str, worker: Worker) -> None:
        """A worker provides a kind no longer; its bindings wait for another."""
        kind = self._kinds.get((namespace, kind_id))
        if kind is not None and kind.worker is worker:
            self._drop(kind)

    def bind(self, binding: Binding) -> bool:
        """Have a binding, in place of an older one of the same maker; false when the id is another worker's."""
        before = self._bindings.get(binding.id)
        if before is not None and before.maker is not binding.maker:
            return False
        if before is not None:
            self._end(before)
        if self._count[binding.maker] >= MOST:
            return False
        self._count[binding.maker] += 1
        self._bindings[binding.id] = binding
        kind = self._found(binding)
        if kind is not None:
            self._hand_over(binding, kind)
        return True

    def unbind(self, binding_id: str, maker: Worker) -> bool:
        """Forget a binding of a worker."""
        binding = self._bindings.get(binding_id)
        if binding is None or binding.maker is not maker:
            return False
        self._end(binding)
        return True

    def answered(self, said: TriggerRegistrationResult, worker: Worker) -> None:
        """A provider says what it thinks of a binding; only the provider's word counts."""
        binding = self._bindings.get(said.id)
        if binding is None or binding.provider is None or binding.provider.worker is not worker:
            return
        binding.is_known = True
        if said.error is UNSET or bytes(said.error) == b"null":
            return
        binding.provider = None
        binding.maker.send(TriggerRegistrationResult(binding.id, binding.type, binding.function_id, said.error))

    def leave(self, worker: Worker) -> None:
        """A worker is gone, and with it what it provided and bound."""
        for kind in [kind for kind in self._kinds.values() if kind.worker is worker]:
            self._drop(kind)
        for binding in [one for one in self._bindings.values() if one.maker is worker]:
            self._end(binding)
        del self._count[worker]

    def of(self, kind_id: str) -> Iterator[Binding]:
        """The bindings of a kind that the hub provides."""
        for binding in self._bindings.values():
            if binding.type == kind_id and binding.provider is not None and binding.provider.worker is None:
                yield binding

    def fire(self, kind_id: str, payload: Any, fits: Callable[[Binding], bool] = lambda _: True) -> None:
        """Call every function that is bound to a kind which the hub provides."""
        for binding in list(self.of(kind_id)):
            if fits(binding):
                self._fire(binding, payload)

    def _is_refused(self, kind: Kind, before: Kind | None) -> bool:
        if before is not None:
            return before.worker is None
        return sum(one.worker is kind.worker for one in self._kinds.values()) >= MOST_KINDS

    def _take_back(self, before: Kind, kind: Kind) -> None:
        """Who provided a kind hears that its bindings are another's now, so that they are not served twice."""
        if before.worker is None or before.worker is kind.worker:
            return
        for binding in self._bindings.values():
            if binding.provider is before:
                before.worker.send(UnregisterTrigger(binding.id, binding.type))

    def _found(self, binding: Binding) -> Kind | None:
        if binding.type_namespace is not None:
            return self._kinds.get((binding.type_namespace, binding.type))
        return self._kinds.get((binding.maker.namespace, binding.type)) or self._kinds.get((DEFAULT, binding.type))

    def _hand_over(self, binding: Binding, kind: Kind) -> None:
        binding.provider, binding.is_known = kind, False
        if kind.worker is None:
            return
        kind.worker.send(binding.told())
        loop = running_loop()
        if loop.time() - kind.since < _AGAIN:
            loop.call_later(_AGAIN, self._tell_again, binding, kind)

    def _tell_again(self, binding: Binding, kind: Kind) -> None:
        is_waiting = binding.provider is kind and not binding.is_known and self._bindings.get(binding.id) is binding
        if kind.worker is not None and is_waiting:
            kind.worker.send(binding.told())

    def _end(self, binding: Binding) -> None:
        del self._bindings[binding.id]
        self._count[binding.maker] -= 1
        if binding.provider is not None and binding.provider.worker is not None:
            binding.provider.worker.send(UnregisterTrigger(binding.id, binding.type))

    def _drop(self, kind: Kind) -> None:
        del self._kinds[kind.namespace, kind.id]
        for binding in self._bindings.values():
            if binding.provider is kind:
                binding.provider = None


def refused(binding: RegisterTrigger, message: str) -> TriggerRegistrationResult:
    """What the maker of a binding hears that the hub does not take."""
    error = Raw(encode(Failure("trigger_registration_failed", message)))
    return TriggerRegistrationResult(binding.id, binding.trigger_type, binding.function_id, error)


def binding_of(given: RegisterTrigger, maker: Worker) -> Binding:
    """The binding that a worker asks for."""
    return Binding(
        given.id,
        given.trigger_type,
        given.function_id,
        NULL if given.config is UNSET else given.config,
        given.metadata,
        given.namespace or maker.namespace,
        given.trigger_namespace,
        maker,
    )
