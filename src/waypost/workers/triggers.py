"""Triggers: trigger types, their providers, and the bindings that have functions called.

A trigger type has a provider, a worker or the hub. Other workers that offer the same type wait until the provider
disconnects. A binding names a type and a function. It waits while its type has no provider, is passed to the provider
when there is one, and is removed with the listener that made it. A function may be the substitute for a provider.

Bindings of workers of other replicas are here too, each served by one replica: that of its worker if there is a
provider, else the one with the lowest id of those that have a provider. What only one replica sees, that one fires.
"""

from __future__ import annotations

import uuid
from collections import Counter
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Final, Generic, Protocol, TypeAlias, TypeVar

import msgspec
from msgspec import UNSET, Raw, Struct

from waypost.capabilities.context import Caller
from waypost.loops import running_loop
from waypost.settings import WorkerLimits
from waypost.workers import frames
from waypost.workers.frames import NULL, RegisterTrigger, RegisterTriggerType, TriggerRegistrationResult, encode
from waypost.workers.functions import DEFAULT
from waypost.workers.remote import RemoteWorker
from waypost.workers.worker import Worker

if TYPE_CHECKING:
    from waypost.workers.observer_registry import ObserverRegistry

_BINDINGS: Final = "triggers"
_TYPES: Final = "trigger types"
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


class Budget:
    """What each worker may register: how many of a kind, how large each, and how large all of them together."""

    def __init__(self, limits: WorkerLimits) -> None:
        self.limits = limits
        self._sizes: dict[tuple[Listener, str], dict[object, int]] = {}
        self._bytes: Counter[Listener] = Counter()

    def take(self, maker: Listener, kind: str, limit: int, key: object, size: int) -> str | None:
        """Count a registration of so many bytes, in place of one with the same key; returns why not, if too much."""
        sizes = self._sizes.setdefault((maker, kind), {})
        before, limits = sizes.get(key, 0), self.limits
        if size > limits.registration_bytes:
            return f"it has {size} bytes, and workers.limits.registrationBytes is {limits.registration_bytes}"
        if key not in sizes and len(sizes) >= limit:
            return f"{maker.name} has {limit} {kind} already"
        if self._bytes[maker] - before + size > limits.total_bytes:
            return f"{maker.name} has registered {self._bytes[maker]} of {limits.total_bytes} bytes already"
        sizes[key] = size
        self._bytes[maker] += size - before
        return None

    def release(self, maker: Listener, kind: str, key: object) -> None:
        """A registration is gone."""
        self._bytes[maker] -= self._sizes.get((maker, kind), {}).pop(key, 0)

    def forget(self, maker: Listener) -> None:
        """A worker is gone, with all that it registered."""
        del self._bytes[maker]
        for place in [one for one in self._sizes if one[0] is maker]:
            del self._sizes[place]


@dataclass(eq=False, slots=True)
class Binding:
    """A function that is called when a trigger fires."""

    id: str
    type: str
    function_id: str
    config: Raw
    metadata: frames.Given
    namespace: str
    """The namespace of the function."""
    type_namespace: str | None
    """The namespace of the trigger type; where it is not given, the maker's own, then the default one."""
    maker: Listener
    provider: TriggerType | None = None
    is_sent: bool = False
    """Whether it was sent to its provider, a worker."""
    is_refused: bool = False
    """Whether a provider refused it."""


@dataclass(eq=False, slots=True)
class TriggerType:
    """A trigger type and its provider: a worker, or the hub."""

    id: str
    description: str = ""
    config_format: Any = None
    payload_format: Any = None
    namespace: str = DEFAULT
    worker: Worker | RemoteWorker | None = None
    is_ready: bool = False
    """Whether the worker can handle bindings by now."""
    fires_everywhere: bool = False
    """Whether the hub fires for the bindings of all replicas, because no other replica sees the event."""
    source: Key | None = None
    """The function whose observers the bindings become, if it is the substitute for a provider."""

    @property
    def key(self) -> Key:
        """Its namespace and id, which are unique."""
        return self.namespace, self.id


Fire: TypeAlias = Callable[[Binding, Any], None]
"""Calls the function of a binding with a payload, without waiting for an answer."""


class Triggers:
    """All trigger types and bindings of a hub."""

    def __init__(
        self,
        fire: Fire,
        budget: Budget,
        observers: ObserverRegistry,
        keeps_owners: Callable[[], bool],
        replica: str = "",
        changed: Callable[[Worker], None] = lambda worker: None,
    ) -> None:
        self._fire = fire
        self._replica = replica
        self._changed = changed
        """Called with a worker that provides or binds something else than before."""
        self._observers = observers
        self._budget = budget
        self._keeps_owners = keeps_owners
        self._types: dict[Key, TriggerType] = {}
        self._substitutes: dict[Key, TriggerType] = {}
        self._claims: Claims[TriggerType] = Claims()
        self._bindings: dict[str, Binding] = {}
        self._elsewhere: dict[Key, dict[str, TriggerType]] = {}
        """The trigger types that workers of other replicas provide, by replica."""

    @property
    def types(self) -> Iterable[TriggerType]:
        """Every trigger type that has a provider or a substitute, at any replica."""
        elsewhere = {key: next(iter(types.values())) for key, types in self._elsewhere.items()}
        return (elsewhere | self._substitutes | self._types).values()

    @property
    def bindings(self) -> Iterable[Binding]:
        """Every binding."""
        return self._bindings.values()

    def is_active(self, binding: Binding) -> bool:
        """Whether the function of a binding is called when the trigger fires."""
        provider = binding.provider
        if provider is None:
            return any(key in self._elsewhere for key in _type_keys(binding))
        return provider.source is None or self._observers.is_accepted(binding)

    def provide(self, new: TriggerType) -> str | None:
        """Add a trigger type and pass the bindings that wait for it to its provider; returns why not, if refused."""
        before = self._types.get(new.key) or self._substitutes.get(new.key)
        if isinstance(new.worker, Worker):
            problem = self._find_refusal(new, new.worker, before)
            if problem is not None:
                return problem
            self._claims.pop(new.worker, new.key)
        if before is not None and before.source is not None:
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
        elif self._claims.pop(worker, (namespace, type_id)) is not None:
            self._budget.release(worker, _TYPES, (namespace, type_id))

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

    def bind(self, binding: Binding) -> str | None:
        """Add a binding, or replace one of the same maker; returns why not, if it is refused."""
        before = self._bindings.get(binding.id)
        # Ids are chosen by workers. Without this check one worker could redirect the events of another to itself.
        if before is not None and before.maker is not binding.maker:
            return "it is another worker's"
        metadata = NULL if binding.metadata is UNSET else binding.metadata
        parts = (binding.id, binding.type, binding.function_id, binding.config, metadata)
        limit = self._budget.limits.triggers
        problem = _find_unreadable(binding)
        if problem is None:
            problem = self._budget.take(binding.maker, _BINDINGS, limit, binding.id, len(encode(parts)))
        if problem is not None:
            return problem
        # Only now: a binding stays when its replacement is refused. It is not counted any more, the new one is.
        if before is not None:
            del self._bindings[before.id]
            self._release(before)
        self._bindings[binding.id] = binding
        self._assign(binding)
        self._note(binding.maker)
        return None

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
        if result.error is not UNSET and bytes(result.error) != b"null":  # `null` means success too
            binding.provider, binding.is_refused = None, True
            binding.maker.send(TriggerRegistrationResult(binding.id, binding.type, binding.function_id, result.error))

    def unbind_all(self, maker: Listener) -> None:
        """Remove every binding of a listener."""
        for binding in [one for one in self._bindings.values() if one.maker is maker]:
            self._end(binding)

    def disconnect(self, worker: Worker) -> None:
        """Remove what a worker provided and bound."""
        self._claims.pop_all(worker)
        self.unbind_all(worker)
        for provided in [one for one in self._types.values() if one.worker is worker]:
            self._remove(provided)

    def list_frames(self, worker: Worker) -> tuple[list[RegisterTriggerType], list[RegisterTrigger]]:
        """What a worker provides and binds, as messages to other replicas."""
        provided = [_to_type_frame(one) for one in self._types.values() if one.worker is worker]
        return provided, [_to_frame(one) for one in self._bindings.values() if one.maker is worker]

    def update_remote(self, workers: Iterable[RemoteWorker]) -> None:
        """Serve the bindings of workers of other replicas, as far as this one has to."""
        wanted: dict[str, Binding] = {}
        self._elsewhere = {}
        for worker in workers:
            for provided in _list_types(worker):
                self._elsewhere.setdefault(provided.key, {}).setdefault(worker.replica, provided)
            for frame in worker.offered.bindings:
                binding = build_binding(frame, worker)
                binding.id = f"{worker.replica}/{frame.id}"  # ids are unique at one replica
                wanted[binding.id] = binding
        for before in [one for one in self._bindings.values() if isinstance(one.maker, RemoteWorker)]:
            after = wanted.pop(before.id, None)
            if after is None or after.maker is not before.maker or _to_frame(after) != _to_frame(before):
                self._end(before)
                if after is not None:
                    wanted[after.id] = after
        # Another replica may be of an earlier version, which accepts such bindings.
        self._bindings |= {key: one for key, one in wanted.items() if _find_unreadable(one) is None}
        self._serve_remote()

    def _serve_remote(self) -> None:
        """Pass each binding of another replica to the provider here, or take it away, if that has changed."""
        for binding in self._bindings.values():
            is_remote = isinstance(binding.maker, RemoteWorker) and not binding.is_refused
            if is_remote and self._find_type(binding) is not binding.provider:
                self._release(binding)
                self._assign(binding)

    def _note(self, maker: Listener | None) -> None:
        if isinstance(maker, Worker):
            self._changed(maker)

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
        provider = None if before is None or before.source is not None else before.worker
        if provider is not None and worker.identity != provider.identity and self._keeps_owners():
            return f"it is provided by {provider.name}"
        parts = (new.id, new.description, new.config_format, new.payload_format)
        limit = self._budget.limits.trigger_types
        problem = self._budget.take(worker, _TYPES, limit, new.key, len(encode(parts)))
        if problem is not None or provider is None or provider is worker:
            return problem
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
        self._note(new.worker)

    def _remove(self, old: TriggerType) -> None:
        del self._types[old.key]
        if old.worker is not None:
            self._budget.release(old.worker, _TYPES, old.key)
        claim = self._claims.pop_first(old.key)
        if claim is not None:
            self._put(claim[1], old)
        for binding in self._bindings.values():
            if binding.provider is old:
                self._assign(binding)
        self._note(old.worker)

    def _find_type(self, binding: Binding) -> TriggerType | None:
        for key in _type_keys(binding):
            found = self._types.get(key) or self._substitutes.get(key)
            if found is not None:
                return found if self._serves(found, binding.maker) else None
        return None

    def _serves(self, provided: TriggerType, maker: Listener) -> bool:
        """Whether the provider here is the one for the bindings of a maker."""
        if not isinstance(maker, RemoteWorker):
            return True
        if provided.worker is None:
            return provided.fires_everywhere
        others = self._elsewhere.get(provided.key, {})
        # All replicas compute this from the same rows, so that exactly one serves the binding.
        return maker.replica not in others and all(self._replica < other for other in others)

    def _assign(self, binding: Binding) -> None:
        """Pass a binding to the provider of its type; it waits if there is none."""
        binding.provider = None
        found = self._find_type(binding)
        if found is not None:
            self._pass_to(binding, found)

    def _pass_to(self, binding: Binding, provider: TriggerType) -> None:
        binding.provider, binding.is_sent = provider, False
        if provider.source is not None:
            self._observers.add_binding(binding, provider.source)
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
        self._budget.release(binding.maker, _BINDINGS, binding.id)
        self._release(binding)
        self._note(binding.maker)

    def _release(self, binding: Binding) -> None:
        """Take a binding from its provider."""
        provider = binding.provider
        if provider is None:
            return
        if provider.source is not None:
            self._observers.unobserve(binding.maker, binding.id)
        elif provider.worker is not None and binding.is_sent:
            provider.worker.send(frames.UnregisterTrigger(binding.id, binding.type))


def _type_keys(binding: Binding) -> list[Key]:
    """The trigger types that a binding may mean, the first one before the others."""
    given = binding.type_namespace
    return [(one, binding.type) for one in ((binding.maker.namespace, DEFAULT) if given is None else (given,))]


def _to_type_frame(provided: TriggerType) -> RegisterTriggerType:
    return RegisterTriggerType(
        provided.id, provided.description, provided.config_format, provided.payload_format, provided.namespace
    )


def _list_types(worker: RemoteWorker) -> Iterator[TriggerType]:
    """The trigger types that a worker of another replica provides, and those that its functions are substitutes for."""
    for frame in worker.offered.types:
        yield build_type(frame, worker)
    for function in worker.offered.functions:
        if function.observe is not None and function.observe.legacy_trigger_type:
            yield TriggerType(
                function.observe.legacy_trigger_type,
                function.description or "",
                function.observe.args_format,
                namespace=worker.namespace,
                worker=worker,
            )


def build_type(frame: RegisterTriggerType, worker: Worker | RemoteWorker) -> TriggerType:
    """The trigger type that a worker provides."""
    return TriggerType(
        frame.id,
        frame.description or "",
        frame.trigger_request_format,
        frame.call_request_format,
        frame.namespace or worker.namespace,
        worker,
    )


def _to_frame(binding: Binding) -> RegisterTrigger:
    return RegisterTrigger(
        binding.id,
        binding.type,
        binding.function_id,
        binding.config,
        binding.metadata,
        binding.namespace,
        binding.type_namespace,
    )


def _needs_delay(worker: Worker | RemoteWorker) -> bool:
    """Whether a worker registers trigger types before it can handle bindings, as the iii SDK for Python does."""
    telemetry = worker.about.get("telemetry")
    framework = telemetry.get("framework") if isinstance(telemetry, dict) else None
    return worker.about.get("runtime") == "python" and framework != "waypost"


def _find_unreadable(binding: Binding) -> str | None:
    """Why the config or the metadata of a binding cannot be decoded, if so."""
    # Checked once, here: one binding with such a part would make every list of bindings and every change of the state
    # fail. Decoding it as `Raw` does not find numbers that are out of range.
    for name, part in (("config", binding.config), ("metadata", binding.metadata)):
        try:
            msgspec.json.decode(NULL if part is UNSET else part)
        except (msgspec.MsgspecError, RecursionError) as error:
            return f"its {name} cannot be read: {error}"
    return None


def refuse_binding(frame: RegisterTrigger, message: str) -> TriggerRegistrationResult:
    """The answer to a binding that the hub refuses."""
    error = frames.to_raw_failure("trigger_registration_failed", message)
    return TriggerRegistrationResult(frame.id, frame.trigger_type, frame.function_id, error)


def refuse_type(refused: TriggerType, problem: str) -> TriggerRegistrationResult:
    """The answer to a trigger type that a worker does not provide, or not yet: a refusal without a function.

    The protocol has no message for this; workers understand the one for bindings.
    """
    message = f"The kind of trigger {refused.id} was not taken: {problem}."
    error = frames.to_raw_failure("trigger_registration_failed", message)
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
