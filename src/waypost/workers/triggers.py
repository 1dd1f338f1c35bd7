"""Triggers: trigger types, who provides them, and the bindings that have functions called.

A trigger type has a provider, a worker or the hub. Other workers that offer the same type wait until the provider
disconnects. A binding names a type and a function. It waits while its type has no provider, is passed to the provider
when there is one, and is removed with the listener that made it. A function may be the substitute for a provider.
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
    Given,
    RegisterTrigger,
    TriggerRegistrationResult,
    UnregisterTrigger,
    to_raw_failure,
)
from waypost.workers.functions import DEFAULT
from waypost.workers.worker import Worker

MAX_BINDINGS: Final = 10_000
"""Bindings of one listener."""
MAX_TYPES_OF_WORKER: Final = 1_000
PROVIDER_DELAY_S: Final = 0.25
"""How long bindings are kept from a new provider on the iii SDK for Python: it registers a type a moment before it can
handle bindings, and ignores those that come too early."""

Key: TypeAlias = tuple[str, str]
"""A namespace, and an id in it."""
Claim = TypeVar("Claim")


class Listener(Protocol):
    """The maker of bindings and observers: a worker, or a part of the hub."""

    caller: Caller | None
    """Its principal for policies, once it was needed."""

    @property
    def id(self) -> str: ...
    @property
    def name(self) -> str: ...
    @property
    def namespace(self) -> str: ...
    @property
    def owner(self) -> str:
        """The name under which the hub stores what belongs to it."""

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


class Claims(Generic[Claim]):
    """Registrations that wait because another worker has the same id, in order of arrival."""

    def __init__(self) -> None:
        self._by_key: dict[Key, dict[Worker, Claim]] = {}
        self._by_worker: dict[Worker, dict[Key, None]] = {}

    def count(self, worker: Worker) -> int:
        """The number of registrations of a worker that wait."""
        return len(self._by_worker.get(worker, ()))

    def has(self, worker: Worker, key: Key) -> bool:
        """Whether a registration of a worker waits."""
        return worker in self._by_key.get(key, ())

    def put(self, worker: Worker, key: Key, claim: Claim) -> None:
        """Add or replace a waiting registration; one that is replaced keeps its place."""
        self._by_key.setdefault(key, {})[worker] = claim
        self._by_worker.setdefault(worker, {})[key] = None

    def pop(self, worker: Worker, key: Key) -> Claim | None:
        """Remove a waiting registration and return it."""
        claim = self._by_key.get(key, {}).pop(worker, None)
        if claim is None:
            return None
        if not self._by_key[key]:
            del self._by_key[key]
        del self._by_worker[worker][key]
        if not self._by_worker[worker]:
            del self._by_worker[worker]
        return claim

    def pop_all(self, worker: Worker) -> list[Claim]:
        """Remove all waiting registrations of a worker and return them."""
        keys = list(self._by_worker.get(worker, ()))
        return [claim for key in keys if (claim := self.pop(worker, key)) is not None]

    def pop_first(self, key: Key) -> tuple[Worker, Claim] | None:
        """Remove and return the first registration that waits for an id, with its worker."""
        for worker, claim in self._by_key.get(key, {}).items():
            self.pop(worker, key)
            return worker, claim
        return None

    def clear(self) -> None:
        """Drop all waiting registrations."""
        self._by_key.clear()
        self._by_worker.clear()


@dataclass(eq=False, slots=True)
class Binding:
    """A function that is called when a trigger fires."""

    id: str
    type: str
    function_id: str
    config: Raw
    metadata: Given
    namespace: str
    """The namespace of the function."""
    type_namespace: str | None
    """The namespace of the trigger type; where it is not given, the maker's own, then the default one."""
    maker: Listener
    provider: TriggerType | None = None
    is_sent: bool = False
    """Whether it was sent to its provider, a worker."""

    @property
    def is_active(self) -> bool:
        """Whether its function is called when the trigger fires."""
        provider = self.provider
        return provider is not None and (provider.substitute is None or provider.substitute.accepts(self))


class Substitute(Protocol):
    """What serves the bindings of a trigger type that has no provider."""

    def bind(self, binding: Binding) -> None:
        """Serve a binding."""

    def unbind(self, binding: Binding) -> None:
        """Serve a binding no longer."""

    def accepts(self, binding: Binding) -> bool:
        """Whether it serves a binding, and did not refuse it."""


@dataclass(eq=False, slots=True)
class TriggerType:
    """A trigger type and its provider: a worker, or the hub."""

    id: str
    description: str = ""
    config_format: Any = None
    payload_format: Any = None
    namespace: str = DEFAULT
    worker: Worker | None = None
    is_ready: bool = False
    """Whether the worker can handle bindings by now."""
    substitute: Substitute | None = None

    @property
    def key(self) -> Key:
        """Its namespace and id, which are unique."""
        return self.namespace, self.id


Fire: TypeAlias = Callable[[Binding, Any], None]
"""Calls the function of a binding with a payload, without waiting for an answer."""


class Triggers:
    """All trigger types and bindings of a hub."""

    def __init__(self, fire: Fire) -> None:
        self._fire = fire
        self._types: dict[Key, TriggerType] = {}
        self._substitutes: dict[Key, TriggerType] = {}
        self._claims: Claims[TriggerType] = Claims()
        self._bindings: dict[str, Binding] = {}
        self._count: Counter[Listener] = Counter()

    @property
    def types(self) -> Iterable[TriggerType]:
        """Every trigger type that has a provider or a substitute."""
        return (self._substitutes | self._types).values()

    @property
    def bindings(self) -> Iterable[Binding]:
        """Every binding."""
        return self._bindings.values()

    def provide(self, new: TriggerType) -> str | None:
        """Add a trigger type and pass the bindings that wait for it to its provider; returns why not, if refused."""
        before = self._types.get(new.key) or self._substitutes.get(new.key)
        if new.worker is not None:
            problem = self._find_refusal(new, new.worker, before)
            if problem is not None:
                return problem
            self._claims.pop(new.worker, new.key)
        if before is not None and before.substitute is not None:
            # The substitute must stop first, or an event would reach the bound functions twice.
            for binding in self._bindings.values():
                if binding.provider is before:
                    self._release(binding)
        self._put(new, before)
        return None

    def withdraw(self, type_id: str, namespace: str, worker: Worker) -> None:
        """Remove a trigger type of a worker, or its claim; the bindings pass to the next provider, or wait."""
        found = self._types.get((namespace, type_id))
        if found is not None and found.worker is worker:
            self._remove(found)
        else:
            self._claims.pop(worker, (namespace, type_id))

    def close(self) -> None:
        """Drop all waiting registrations."""
        self._claims.clear()

    def set_substitute(self, key: Key, new: TriggerType | None) -> None:
        """Set or remove what serves a trigger type while it has no provider."""
        before = self._substitutes.pop(key, None)
        if new is not None:
            self._substitutes[key] = new
        if before is new:
            return
        for binding in self._bindings.values():
            if before is not None and binding.provider is before:
                self._release(binding)
                self._assign(binding)
            elif binding.type == key[1] and binding.provider is None and self._find_type(binding) is new:
                self._assign(binding)

    def bind(self, binding: Binding) -> bool:
        """Add a binding, or replace one of the same maker; false if the id is taken, or the maker has too many."""
        before = self._bindings.get(binding.id)
        if before is not None and before.maker is not binding.maker:
            return False
        if before is not None:
            self._end(before)
        if self._count[binding.maker] >= MAX_BINDINGS:
            return False
        self._count[binding.maker] += 1
        self._bindings[binding.id] = binding
        self._assign(binding)
        return True

    def unbind(self, binding_id: str, maker: Listener) -> bool:
        """Remove a binding of a listener."""
        binding = self._bindings.get(binding_id)
        if binding is None or binding.maker is not maker:
            return False
        self._end(binding)
        return True

    def handle_result(self, result: TriggerRegistrationResult, worker: Worker) -> None:
        """A worker accepts or refuses a binding; ignored unless it is the provider."""
        binding = self._bindings.get(result.id)
        if binding is None or binding.provider is None or binding.provider.worker is not worker:
            return
        if result.error is not UNSET and bytes(result.error) != b"null":
            binding.provider = None
            binding.maker.send(TriggerRegistrationResult(binding.id, binding.type, binding.function_id, result.error))

    def unbind_all(self, maker: Listener) -> None:
        """Remove every binding of a listener."""
        for binding in [one for one in self._bindings.values() if one.maker is maker]:
            self._end(binding)
        del self._count[maker]

    def disconnect(self, worker: Worker) -> None:
        """Remove what a worker provided and bound."""
        self._claims.pop_all(worker)
        self.unbind_all(worker)
        for provided in [one for one in self._types.values() if one.worker is worker]:
            self._remove(provided)

    def of(self, type_id: str) -> Iterator[Binding]:
        """The bindings of a trigger type that the hub provides."""
        for binding in self._bindings.values():
            if binding.type == type_id and binding.provider is not None and binding.provider.worker is None:
                yield binding

    def fire(self, type_id: str, payload: Any, fits: Callable[[Binding], bool] = lambda _: True) -> None:
        """Call every function that is bound to a trigger type which the hub provides."""
        for binding in list(self.of(type_id)):
            if fits(binding):
                self._fire(binding, payload)

    def _find_refusal(self, new: TriggerType, worker: Worker, before: TriggerType | None) -> str | None:
        """Why a worker does not provide a trigger type, or not yet."""
        if before is not None and before.worker is None:
            return "it is the hub's"
        provider = None if before is None or before.substitute is not None else before.worker
        if provider is worker:
            return None
        provided = sum(one.worker is worker for one in self._types.values()) + self._claims.count(worker)
        if not self._claims.has(worker, new.key) and provided >= MAX_TYPES_OF_WORKER:
            return "it has too many"
        if provider is None:
            return None
        self._claims.put(worker, new.key, new)
        return f"it is provided by {provider.name}, and will be by this one when that leaves"

    def _put(self, new: TriggerType, before: TriggerType | None) -> None:
        self._types[new.key] = new
        if new.worker is not None:
            # A provider that registers its type again can handle bindings already.
            is_known = before is not None and before.worker is new.worker and before.is_ready
            new.is_ready = is_known or not _needs_delay(new.worker)
            if not new.is_ready:
                running_loop().call_later(PROVIDER_DELAY_S, self._send_bindings, new)
        for binding in self._bindings.values():
            if binding.type == new.id and binding.provider in (None, before) and self._find_type(binding) is new:
                self._pass_to(binding, new)

    def _remove(self, old: TriggerType) -> None:
        del self._types[old.key]
        claim = self._claims.pop_first(old.key)
        if claim is not None:
            self._put(claim[1], old)
        for binding in self._bindings.values():
            if binding.provider is old:
                self._assign(binding)

    def _find_type(self, binding: Binding) -> TriggerType | None:
        given = binding.type_namespace
        for namespace in (binding.maker.namespace, DEFAULT) if given is None else (given,):
            key = namespace, binding.type
            found = self._types.get(key) or self._substitutes.get(key)
            if found is not None:
                return found
        return None

    def _assign(self, binding: Binding) -> None:
        """Pass a binding to the provider of its type; it waits if there is none."""
        binding.provider = None
        found = self._find_type(binding)
        if found is not None:
            self._pass_to(binding, found)

    def _pass_to(self, binding: Binding, provider: TriggerType) -> None:
        binding.provider, binding.is_sent = provider, False
        if provider.substitute is not None:
            provider.substitute.bind(binding)
        elif provider.is_ready:
            self._send(binding)

    def _send_bindings(self, provider: TriggerType) -> None:
        provider.is_ready = True
        for binding in self._bindings.values():
            if binding.provider is provider:
                self._send(binding)

    def _send(self, binding: Binding) -> None:
        provider = binding.provider
        if provider is not None and provider.worker is not None:
            binding.is_sent = True
            namespace = None if binding.namespace == DEFAULT else binding.namespace
            frame = RegisterTrigger(
                binding.id, binding.type, binding.function_id, binding.config, binding.metadata, namespace
            )
            provider.worker.send(frame)

    def _end(self, binding: Binding) -> None:
        del self._bindings[binding.id]
        self._count[binding.maker] -= 1
        self._release(binding)

    def _release(self, binding: Binding) -> None:
        """Take a binding from its provider."""
        provider = binding.provider
        if provider is None:
            return
        if provider.substitute is not None:
            provider.substitute.unbind(binding)
        elif provider.worker is not None and binding.is_sent:
            provider.worker.send(UnregisterTrigger(binding.id, binding.type))


def _needs_delay(worker: Worker) -> bool:
    """Whether a worker registers trigger types before it can handle bindings, as the iii SDK for Python does."""
    telemetry = worker.about.get("telemetry")
    framework = telemetry.get("framework") if isinstance(telemetry, dict) else None
    return worker.about.get("runtime") == "python" and framework != "waypost"


def refuse_binding(frame: RegisterTrigger, message: str) -> TriggerRegistrationResult:
    """The answer to a binding that the hub refuses."""
    error = to_raw_failure("trigger_registration_failed", message)
    return TriggerRegistrationResult(frame.id, frame.trigger_type, frame.function_id, error)


def refuse_type(refused: TriggerType, problem: str) -> TriggerRegistrationResult:
    """The answer to a trigger type that a worker does not provide, or not yet: a refusal without a function.

    The protocol has no message for this; workers understand the one for bindings.
    """
    message = f"The kind of trigger {refused.id} was not taken: {problem}."
    error = to_raw_failure("trigger_registration_failed", message)
    return TriggerRegistrationResult(refused.id, refused.id, "", error)


def build_binding(frame: RegisterTrigger, maker: Listener) -> Binding:
    """The binding that a listener registers."""
    return Binding(
        frame.id,
        frame.trigger_type,
        frame.function_id,
        NULL if frame.config is UNSET else frame.config,
        frame.metadata,
        frame.namespace or maker.namespace,
        frame.trigger_namespace,
        maker,
    )
