"""`Workers`, the component that workers connect to: it owns the parts in the other modules of this package."""

from __future__ import annotations

import hmac
import logging
from collections.abc import Callable, Iterable
from functools import partial
from typing import TYPE_CHECKING, Any, Final
from urllib.parse import SplitResult, parse_qs

import msgspec
from msgspec import UNSET, Raw

from waypost.capabilities.context import Caller
from waypost.capabilities.registry import Registry
from waypost.errors import InvocationFailed
from waypost.execution.pipeline import Pipeline
from waypost.runtime.component import Component
from waypost.settings import Limits
from waypost.settings import Workers as WorkerSettings
from waypost.stores.store import Store
from waypost.workers.builtins import FUNCTIONS_AVAILABLE, TRIGGER_TYPES, WORKERS_AVAILABLE, Builtins, describe_function
from waypost.workers.calls import CallQueue, CallRunner, caller_of, worker_caller
from waypost.workers.channels import Channels
from waypost.workers.frames import (
    FUNCTION_CONFLICT,
    OBSERVE_FEATURE,
    Reattach,
    RegisterFunction,
    RegisterTrigger,
    RegisterTriggerType,
    RegistrationRejected,
    encode,
)
from waypost.workers.functions import DEFAULT, Call, Function, Functions, HttpFunctions, trace_here
from waypost.workers.observer_registry import ObserverRegistry, TriggerSubstitutes
from waypost.workers.sockets import Port, Receiver
from waypost.workers.state import SharedState
from waypost.workers.tools import PublishedFunctions
from waypost.workers.triggers import (
    Binding,
    Claims,
    Listener,
    Triggers,
    TriggerType,
    build_binding,
    refuse_binding,
    refuse_type,
)
from waypost.workers.worker import Worker, WorkerSession

if TYPE_CHECKING:
    from waypost.runtime.core import Core

_log: Final = logging.getLogger(__name__)
MAX_FUNCTIONS_OF_WORKER: Final = 10_000


class Registrations:
    """Which worker offers which function, and what follows when that changes.

    A function is entered in the table before it is published, and published before observers and trigger types are
    updated: each step looks up what the one before it wrote.
    """

    def __init__(self, functions: Functions, registry: Registry, http: HttpFunctions) -> None:
        self._functions = functions
        self._published = PublishedFunctions(registry)
        self._http = http
        self._claims: Claims[RegisterFunction] = Claims()

    def host(self, functions: list[Function]) -> None:
        """Add functions of the hub."""
        for function in functions:
            self._functions.put(function)
        self._published.replace((), functions)

    def add(self, worker: Worker, offered: Iterable[RegisterFunction]) -> tuple[list[Function], list[Function]]:
        """Register functions of a worker; returns those that are replaced, and the new ones.

        A function that another worker offers is rejected, and registered when that worker withdraws it.
        """
        new: dict[str, Function] = {}
        for frame in offered:
            other = self._functions.find(frame.id, worker.namespace)
            count = len(worker.functions) + self._claims.count(worker) + len(new)
            if not frame.id or (frame.id not in worker.functions and count >= MAX_FUNCTIONS_OF_WORKER):
                worker.warn("a function of the worker %s was not taken: it has no id, or too many", worker.name)
            elif other is not None and other.owner is not worker:
                owner = "waypost" if other.owner is None else other.owner.id
                worker.send(RegistrationRejected(FUNCTION_CONFLICT, worker.namespace, owner, worker.name, frame.id))
                if other.owner is not None:  # the hub never withdraws a function
                    self._claims.put(worker, (worker.namespace, frame.id), frame)
            else:
                new[frame.id] = self._build(worker, frame)
        old = [worker.functions[function_id] for function_id in new if function_id in worker.functions]
        for function in new.values():
            self._claims.pop(worker, function.key)
            worker.functions[function.id] = function
            self._functions.put(function)
        if new:
            self._published.replace(old, new.values())
        return old, list(new.values())

    def remove(self, worker: Worker, functions: list[Function]) -> list[tuple[Worker, Function]]:
        """Remove functions of a worker; returns those that pass to a worker whose claim waited, with that worker."""
        for function in functions:
            worker.functions.pop(function.id, None)
            self._functions.pop(function)
        claims = [self._claims.pop_first(function.key) for function in functions]
        heirs = [(claim[0], self._build(*claim)) for claim in claims if claim is not None]
        for heir, function in heirs:
            heir.functions[function.id] = function
            self._functions.put(function)
        self._published.replace(functions, [function for _, function in heirs])
        return heirs

    def publish_again(self, worker: Worker) -> None:
        """Publish the functions of a worker under its new name."""
        functions = list(worker.functions.values())
        self._published.replace(functions, functions)

    def drop_claim(self, worker: Worker, function_id: str) -> None:
        """Drop a rejected registration."""
        self._claims.pop(worker, (worker.namespace, function_id))

    def drop_claims(self, worker: Worker) -> list[RegisterFunction]:
        """Drop all rejected registrations of a worker and return them."""
        return self._claims.pop_all(worker)

    def close(self) -> None:
        """Drop all rejected registrations."""
        self._claims.clear()

    def _build(self, worker: Worker, frame: RegisterFunction) -> Function:
        http = frame.invocation
        return Function(
            id=frame.id,
            run=partial(worker.call, frame.id) if http is None else partial(self._http.call, frame.id, http),
            namespace=worker.namespace,
            description=frame.description,
            request_format=frame.request_format,
            response_format=frame.response_format,
            metadata=frame.metadata,
            owner=worker,
            observable=frame.observe,
            frame=frame,
        )


class Workers(Component):
    """Every worker that is connected, what they offer, and what the hub offers them."""

    name = "workers"

    def __init__(
        self,
        registry: Registry,
        pipeline: Pipeline,
        store: Store,
        settings: WorkerSettings,
        limits: Limits | None = None,
        *,
        accepts: bool = True,
    ) -> None:
        self.settings = settings
        self._accepts = accepts
        self.features = [OBSERVE_FEATURE] if settings.observe else None
        self.functions = Functions()
        self._queue = CallQueue(store, self._make_queued)
        self.calls = CallRunner(self.functions, pipeline, self._queue)
        self.observers = ObserverRegistry(self.functions, self.calls)
        self.calls.call_observer = self.observers.call
        self.triggers = Triggers(self._fire)
        self._substitutes = TriggerSubstitutes(self.triggers, self.observers) if settings.observe else None
        self.channels = Channels()
        self._http = HttpFunctions(settings.allow_private, settings.secrets)
        self._registrations = Registrations(self.functions, registry, self._http)
        self._connected: dict[str, Worker] = {}
        self.on_change: Callable[[], None] = lambda: None
        """Called when workers offer other functions than before."""
        self._port = Port(
            settings.host, settings.port, settings.token, lambda: WorkerSession(self), self._open_channel, limits
        )
        state = SharedState(store, self.triggers, settings.state_timeout)
        builtins = Builtins(self.functions, self.triggers, self._connected.values)
        functions = [*builtins.functions(), *state.functions(), self.channels.function()]
        self.host(functions, [*TRIGGER_TYPES, state.trigger_type()])

    @property
    def address(self) -> str | None:
        """The URL that workers connect to, while it is open."""
        return self._port.address

    @property
    def connected(self) -> list[Worker]:
        """The workers that are connected."""
        return list(self._connected.values())

    def host(self, functions: Iterable[Function], types: Iterable[TriggerType] = ()) -> None:
        """Offer functions and trigger types of the hub to workers."""
        hosted = list(functions)
        self._registrations.host(hosted)
        self.observers.update_functions(hosted)
        for provided in types:
            self.triggers.provide(provided)

    def find(self, worker_id: str) -> Worker | None:
        """The worker with an id."""
        return self._connected.get(worker_id)

    def has(self, owner: str) -> bool:
        """Whether a worker is connected, by the name under which the hub stores what belongs to it."""
        return any(worker.owner == owner for worker in self._connected.values())

    def owner_of(self, call: Call) -> str:
        """The owner of what a call creates: the calling worker, or the hub."""
        worker = self._connected.get(call.sender)
        return "hub" if worker is None else worker.owner

    async def start(self, core: Core) -> None:
        """Accept connections where the settings ask for them."""
        if self._accepts:
            await self.open()

    async def stop(self) -> None:
        """Disconnect all workers."""
        await self.close()

    async def open(self) -> None:
        """Accept connections."""
        self.observers.open()
        await self._port.open()
        self._queue.start()

    async def close(self) -> None:
        """Disconnect all workers and stop their calls."""
        # Claims first: while the workers leave one by one, no function may pass from one to the next.
        self._registrations.close()
        self.triggers.close()
        await self.observers.close()
        await self._port.close()
        self.channels.close()
        for worker in self.connected:
            self.disconnect(worker)
        await self._queue.stop()
        await self.calls.close()
        await self._http.close()

    async def trigger(
        self, function_id: str, payload: Any, caller: Caller, within: float, namespace: str = DEFAULT
    ) -> Any:
        """Call a function from within the hub, with a limit in seconds, and return the answer."""
        call = Call(function_id, Raw(encode(payload)), UNSET, *trace_here())
        answer = await self.calls.invoke(function_id, call, caller, namespace=namespace, within=within)
        return msgspec.json.decode(answer)

    def connect(self, worker: Worker) -> None:
        """Add a worker that connected."""
        self._connected[worker.id] = worker

    def introduce(self, worker: Worker, about: dict[str, Any]) -> None:
        """Apply the introduction of a worker: its name, namespace, features and description."""
        worker.about = {key: value for key, value in about.items() if key not in ("name", "namespace", "features")}
        worker.caller = worker.origin = None  # both contain the name
        features = about.get("features")
        did_observe = worker.observes
        worker.observes = self.settings.observe and isinstance(features, list) and OBSERVE_FEATURE in features
        old_name, old_namespace = worker.name, worker.namespace
        worker.name = _text_or(about.get("name"), old_name)
        worker.namespace = _text_or(about.get("namespace"), old_namespace)
        if old_namespace != worker.namespace:
            claims = self._registrations.drop_claims(worker)
            functions = list(worker.functions.values())
            self._withdraw(worker, functions)
            self.register(worker, [*(one.frame for one in functions if one.frame is not None), *claims])
        elif old_name != worker.name:
            self._registrations.publish_again(worker)
        if worker.observes and not did_observe:
            self.observers.add_functions(worker, list(worker.functions.values()))
        self._fire_worker_event("worker_connected", worker)

    def reattach(self, worker: Worker, claim: Reattach) -> None:
        """Close the previous connection of a worker that presents its reattach token."""
        before = self._connected.get(claim.previous_worker_id)
        if before is None or before is worker or claim.reattach_token is None:
            return
        if hmac.compare_digest(claim.reattach_token.encode(), before.token.encode()):
            self.disconnect(before)
            before.socket.close(1000, "the worker came back")

    def disconnect(self, worker: Worker) -> None:
        """Remove a worker that disconnected, and everything it registered."""
        if self._connected.pop(worker.id, None) is None:
            return
        worker.disconnect()
        self.triggers.disconnect(worker)
        self.channels.close_unused(worker.id)
        self.observers.disconnect(worker)
        self._registrations.drop_claims(worker)
        self._withdraw(worker, list(worker.functions.values()))
        self._fire_worker_event("worker_disconnected", worker)

    def register(self, worker: Worker, offered: Iterable[RegisterFunction]) -> None:
        """Register functions of a worker, as one change."""
        old, new = self._registrations.add(worker, offered)
        if new:
            self.observers.add_functions(worker, new)
            self._after_change(old, new)

    def unregister(self, worker: Worker, function_id: str) -> None:
        """Withdraw a function of a worker, or its rejected registration."""
        function = worker.functions.get(function_id)
        if function is not None:
            self._withdraw(worker, [function])
        else:
            self._registrations.drop_claim(worker, function_id)

    def provide(self, worker: Worker, frame: RegisterTriggerType) -> None:
        """Register a trigger type of a worker; one that another worker provides waits until that leaves."""
        provided = TriggerType(
            frame.id,
            frame.description or "",
            frame.trigger_request_format,
            frame.call_request_format,
            frame.namespace or worker.namespace,
            worker,
        )
        problem = self.triggers.provide(provided)
        if problem is not None:
            worker.warn("the kind of trigger %s of the worker %s was not taken: %s", frame.id, worker.name, problem)
            worker.send(refuse_type(provided, problem))

    def bind(self, maker: Listener, frame: RegisterTrigger) -> None:
        """Bind a function of a listener to a trigger type."""
        if not self.triggers.bind(build_binding(frame, maker)):
            maker.send(refuse_binding(frame, f"The binding {frame.id} is another worker's, or there are too many."))

    def _withdraw(self, worker: Worker, functions: list[Function]) -> None:
        if not functions:
            return
        heirs = self._registrations.remove(worker, functions)
        for heir, function in heirs:
            self.observers.add_functions(heir, [function])
        self.observers.update_functions(functions)
        self._after_change(functions, [function for _, function in heirs])

    def _after_change(self, old: list[Function], new: list[Function]) -> None:
        if self._substitutes is not None:
            self._substitutes.replace(old, new)
        self.on_change()
        if any(self.triggers.of(FUNCTIONS_AVAILABLE)):
            listed = [describe_function(one) for one in self.functions if not one.id.startswith("engine::")]
            self.triggers.fire(FUNCTIONS_AVAILABLE, {"event": "functions_changed", "functions": listed})

    def _fire_worker_event(self, event: str, worker: Worker) -> None:
        payload = {"event": event, "worker_id": worker.id, "worker_name": worker.name}
        self.triggers.fire(WORKERS_AVAILABLE, payload)

    def _open_channel(self, url: SplitResult) -> Receiver:
        query = parse_qs(url.query)
        channel_id = url.path.rsplit("/", 1)[-1]
        return self.channels.open_end(channel_id, query.get("key", [""])[-1], query.get("dir", [""])[-1])

    def _fire(self, binding: Binding, payload: Any) -> None:
        call = Call(binding.function_id, Raw(encode(payload)), binding.metadata, is_void=True)
        self.calls.start_background(self._call_bound(binding, call))

    async def _call_bound(self, binding: Binding, call: Call) -> None:
        try:
            await self.calls.invoke(binding.function_id, call, caller_of(binding.maker), namespace=binding.namespace)
        except InvocationFailed as error:
            _log.debug("the trigger %s failed: %s", binding.id, error.message)
        except Exception:
            _log.exception("the trigger %s failed", binding.id)

    async def _make_queued(self, call: Call, namespace: str, sender: str) -> Raw:
        return await self.calls.invoke(call.function_id, call, worker_caller(sender), namespace=namespace)


def _text_or(given: Any, default: str) -> str:
    return given if isinstance(given, str) and given.strip() else default
