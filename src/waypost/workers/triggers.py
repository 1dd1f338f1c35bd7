"""Triggers: trigger types, who provides them, and the bindings that have functions called.

A kind of trigger has a provider, a worker or the hub itself. Other workers that offer the same kind wait until the
provider disconnects. A binding names a kind and a function. It waits while its kind has no provider, is passed to the
provider when there is one, and is removed with the listener that made it. A function may stand in for a provider.
"""

from __future__ import annotations

import uuid
from collections import Counter
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field
from typing import Any, Final, Generic, Protocol, TypeAlias, TypeVar

from msgspec import UNSET, Raw, Struct

from waypost.capabilities.context import Caller
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


class Listener(Protocol):
    """What makes bindings and observers, as far as they need to know it."""

    caller: Caller | None
    """Who it is to the rules, once that was asked."""

    @property
    def id(self) -> str: ...
    @property
    def name(self) -> str: ...
    @property
    def namespace(self) -> str: ...
    @property
    def owner(self) -> str:
        """What the hub calls it where it keeps what belongs to it."""

    @property
    def is_gone(self) -> bool: ...
    def send(self, message: Struct) -> None:
        """Send it the result of a registration."""


@dataclass(eq=False, slots=True)
class HubListener:
    """A part of the hub that has bindings."""

    name: str
    caller: Caller | None
    send: Callable[[Struct], None]
    id: str = field(default_factory=lambda: str(uuid.uuid4()))
    namespace: str = DEFAULT
    owner: str = "hub"
    is_gone: bool = False


Key: TypeAlias = tuple[str, str]
"""A namespace, and an id in it."""
Claim = TypeVar("Claim")


class Claims(Generic[Claim]):
    """Registrations that wait because another worker has the same id, in order of arrival."""

    def __init__(self) -> None:
        self._at: dict[Key, dict[Worker, Claim]] = {}
        self._of: dict[Worker, dict[Key, None]] = {}

    def __len__(self) -> int:
        return sum(map(len, self._at.values()))

    def count(self, worker: Worker) -> int:
        """The number of registrations of a worker that wait."""
        return len(self._of.get(worker, ()))

    def has(self, worker: Worker, key: Key) -> bool:
        """Whether a registration of a worker waits."""
        return worker in self._at.get(key, ())

    def put(self, worker: Worker, key: Key, claim: Claim) -> None:
        """Add or replace a waiting registration; one that is replaced keeps its place."""
        self._at.setdefault(key, {})[worker] = claim
        self._of.setdefault(worker, {})[key] = None

    def pop(self, worker: Worker, key: Key) -> Claim | None:
        """Remove a waiting registration and return it."""
        waiting = self._at.get(key, {})
        claim = waiting.pop(worker, None)
        if claim is None:
            return None
        if not waiting:
            del self._at[key]
        mine = self._of[worker]
        del mine[key]
        if not mine:
            del self._of[worker]
        return claim

    def leave(self, worker: Worker) -> list[Claim]:
        """Remove all waiting registrations of a worker and return them."""
        return [claim for key in list(self._of.get(worker, ())) if (claim := self.pop(worker, key)) is not None]

    def clear(self) -> None:
        """Drop all waiting registrations."""
        self._at.clear()
        self._of.clear()

    def heir(self, key: Key) -> tuple[Worker, Claim] | None:
        """Remove and return the first registration that waits for an id, with its worker."""
        for worker, claim in self._at.get(key, {}).items():
            self.pop(worker, key)
            return worker, claim
        return None


MAX_BINDINGS: Final = 10_000
"""Bindings of one listener."""
PROVIDER_DELAY_S: Final = 0.25
"""Seconds after which a new provider on the Python SDK hears of bindings: it offers a kind a moment before it can take
any, and says nothing to those that come too early."""
MAX_KINDS_OF_WORKER: Final = 1_000
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
    """Where the kind is; its maker's own place first and the hub's then, where it does not say."""
    maker: Listener
    provider: Kind | None = None
    is_told: bool = False
    """Whether its provider, a worker, has heard of it."""

    @property
    def is_active(self) -> bool:
        """Whether somebody calls its function when the time comes."""
        kind = self.provider
        return kind is not None and (kind.stand_in is None or kind.stand_in.has(self))

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


class StandIn(Protocol):
    """What is there instead of a provider."""

    def bound(self, binding: Binding) -> None:
        """A binding is its own from now on."""

    def unbound(self, binding: Binding) -> None:
        """A binding is its own no longer."""

    def has(self, binding: Binding) -> bool:
        """Whether it took a binding, and did not refuse it."""


@dataclass(eq=False, slots=True)
class Kind:
    """A kind of trigger, and who provides it: a worker, or the hub."""

    id: str
    description: str = ""
    config_format: Any = None
    payload_format: Any = None
    namespace: str = DEFAULT
    worker: Worker | None = None
    is_settled: bool = False
    """Whether the worker takes bindings by now."""
    stand_in: StandIn | None = None

    @property
    def key(self) -> Key:
        """What tells it from all others."""
        return self.namespace, self.id


class Triggers:
    """All kinds and bindings of a hub."""

    def __init__(self, fire: Fire) -> None:
        self._fire = fire
        self._kinds: dict[Key, Kind] = {}
        self._lent: dict[Key, Kind] = {}
        self._claims: Claims[Kind] = Claims()
        self._bindings: dict[str, Binding] = {}
        self._count: Counter[Listener] = Counter()

    @property
    def kinds(self) -> Iterable[Kind]:
        """Every kind that has a provider."""
        return (self._lent | self._kinds).values()

    @property
    def bindings(self) -> Iterable[Binding]:
        """Every binding."""
        return self._bindings.values()

    def provide(self, kind: Kind) -> str | None:
        """Have a kind, and give its provider every binding that waits for it; what is against it, if anything is."""
        before = self._kinds.get(kind.key) or self._lent.get(kind.key)
        if kind.worker is not None:
            problem = self._refusal(kind, kind.worker, before)
            if problem is not None:
                return problem
            self._claims.pop(kind.worker, kind.key)
        if before is not None and before.stand_in is not None:
            self._take_back(before)
        self._put(kind, before)
        return None

    def withdraw(self, kind_id: str, namespace: str, worker: Worker) -> None:
        """A worker provides a kind no longer, or wants to; its bindings are another's, or wait for one."""
        kind = self._kinds.get((namespace, kind_id))
        if kind is not None and kind.worker is worker:
            self._drop(kind)
        else:
            self._claims.pop(worker, (namespace, kind_id))

    def close(self) -> None:
        """Drop all waiting registrations."""
        self._claims.clear()

    def lend(self, key: Key, kind: Kind | None) -> None:
        """Have something stand in for the provider of a kind while there is none, or nothing any more."""
        before = self._lent.pop(key, None)
        if kind is not None:
            self._lent[key] = kind
        if before is kind:
            return
        for binding in self._bindings.values():
            if before is not None and binding.provider is before:
                self._part(binding)
                self._find(binding)
            elif binding.type == key[1] and binding.provider is None and self._found(binding) is kind:
                self._find(binding)

    def bind(self, binding: Binding) -> bool:
        """Have a binding, in place of an older one of the same maker; false when the id is another's."""
        before = self._bindings.get(binding.id)
        if before is not None and before.maker is not binding.maker:
            return False
        if before is not None:
            self._end(before)
        if self._count[binding.maker] >= MAX_BINDINGS:
            return False
        self._count[binding.maker] += 1
        self._bindings[binding.id] = binding
        self._find(binding)
        return True

    def unbind(self, binding_id: str, maker: Listener) -> bool:
        """Forget a binding of a listener."""
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
        if said.error is UNSET or bytes(said.error) == b"null":
            return
        binding.provider = None
        binding.maker.send(TriggerRegistrationResult(binding.id, binding.type, binding.function_id, said.error))

    def unbind_all(self, maker: Listener) -> None:
        """Forget every binding of a listener."""
        for binding in [one for one in self._bindings.values() if one.maker is maker]:
            self._end(binding)
        del self._count[maker]

    def leave(self, worker: Worker) -> None:
        """A worker is gone, and with it what it provided and bound."""
        self._claims.leave(worker)
        self.unbind_all(worker)
        for kind in [kind for kind in self._kinds.values() if kind.worker is worker]:
            self._drop(kind)

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

    def _refusal(self, kind: Kind, worker: Worker, before: Kind | None) -> str | None:
        """Why a worker does not provide a kind, or not yet."""
        provider = None if before is None or before.stand_in is not None else before.worker
        if before is not None and before.worker is None:
            return "it is the hub's"
        if provider is worker:
            return None
        if not self._claims.has(worker, kind.key) and self._provided(worker) >= MAX_KINDS_OF_WORKER:
            return "it has too many"
        if provider is None:
            return None
        self._claims.put(worker, kind.key, kind)
        return f"it is provided by {provider.name}, and will be by this one when that leaves"

    def _provided(self, worker: Worker) -> int:
        return sum(one.worker is worker for one in self._kinds.values()) + self._claims.count(worker)

    def _put(self, kind: Kind, before: Kind | None) -> None:
        self._kinds[kind.key] = kind
        if kind.worker is not None:
            self._settle(kind, kind.worker, before)
        for binding in self._bindings.values():
            if binding.type == kind.id and binding.provider in (None, before) and self._found(binding) is kind:
                self._hand_over(binding, kind)

    def _take_back(self, before: Kind) -> None:
        """Whoever stood in for a provider hears that it does not any more, so that nothing is served twice."""
        for binding in self._bindings.values():
            if binding.provider is before:
                self._part(binding)

    def _found(self, binding: Binding) -> Kind | None:
        asked = binding.type_namespace
        for namespace in (binding.maker.namespace, DEFAULT) if asked is None else (asked,):
            key = namespace, binding.type
            kind = self._kinds.get(key) or self._lent.get(key)
            if kind is not None:
                return kind
        return None

    def _find(self, binding: Binding) -> None:
        """Hand a binding to whoever provides its kind now; it waits where nobody does."""
        binding.provider = None
        kind = self._found(binding)
        if kind is not None:
            self._hand_over(binding, kind)

    def _hand_over(self, binding: Binding, kind: Kind) -> None:
        binding.provider, binding.is_told = kind, False
        if kind.stand_in is not None:
            kind.stand_in.bound(binding)
        elif kind.is_settled:
            self._tell(binding)

    def _settle(self, kind: Kind, worker: Worker, before: Kind | None) -> None:
        """Have a provider hear of its bindings, if need be in a moment; one that only says its kind again is ready."""
        is_known = before is not None and before.worker is worker and before.is_settled
        kind.is_settled = is_known or not _is_early(worker)
        if not kind.is_settled:
            running_loop().call_later(PROVIDER_DELAY_S, self._settled, kind)

    def _settled(self, kind: Kind) -> None:
        kind.is_settled = True
        for binding in self._bindings.values():
            if binding.provider is kind:
                self._tell(binding)

    def _tell(self, binding: Binding) -> None:
        kind = binding.provider
        if kind is not None and kind.worker is not None:
            binding.is_told = True
            kind.worker.send(binding.told())

    def _end(self, binding: Binding) -> None:
        del self._bindings[binding.id]
        self._count[binding.maker] -= 1
        self._part(binding)

    def _part(self, binding: Binding) -> None:
        """Tell the provider of a binding that it is its own no longer."""
        kind = binding.provider
        if kind is None:
            return
        if kind.stand_in is not None:
            kind.stand_in.unbound(binding)
        elif kind.worker is not None and binding.is_told:
            kind.worker.send(UnregisterTrigger(binding.id, binding.type))

    def _drop(self, kind: Kind) -> None:
        del self._kinds[kind.key]
        heir = self._claims.heir(kind.key)
        if heir is not None:
            self._put(heir[1], kind)
        for binding in self._bindings.values():
            if binding.provider is kind:
                self._find(binding)


def _is_early(worker: Worker) -> bool:
    """Whether a worker offers kinds before it can take bindings, as those on the Python SDK do."""
    telemetry = worker.about.get("telemetry")
    framework = telemetry.get("framework") if isinstance(telemetry, dict) else None
    return worker.about.get("runtime") == "python" and framework != "waypost"


def refused(binding: RegisterTrigger, message: str) -> TriggerRegistrationResult:
    """What the maker of a binding hears that the hub does not take."""
    return TriggerRegistrationResult(binding.id, binding.trigger_type, binding.function_id, _failed(message))


def kind_refused(kind: Kind, problem: str) -> TriggerRegistrationResult:
    """What a worker hears that does not provide a kind of trigger, or not yet: a refusal that is about no function.

    The protocol has no answer to the offer of a kind, and workers know this one.
    """
    return TriggerRegistrationResult(
        kind.id, kind.id, "", _failed(f"The kind of trigger {kind.id} was not taken: {problem}.")
    )


def _failed(message: str) -> Raw:
    return Raw(encode(Failure("trigger_registration_failed", message)))


def binding_of(given: RegisterTrigger, maker: Listener) -> Binding:
    """The binding that a listener asks for."""
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
