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
from waypost.settings import Workers as WorkerSettings
from waypost.stores.store import Store
from waypost.workers.builtins import FUNCTIONS_AVAILABLE, KINDS, WORKERS_AVAILABLE, Builtins, describe_function
from waypost.workers.calls import CallQueue, CallRunner, caller_of, on_behalf_of
from waypost.workers.channels import Channels
from waypost.workers.frames import (
    Reattach,
    RegisterFunction,
    RegisterTrigger,
    RegisterTriggerType,
    RegistrationRejected,
    encode,
)
from waypost.workers.functions import DEFAULT, Call, Function, Functions, HttpFunctions, Run, trace_here
from waypost.workers.observer_registry import FEATURE, ObserverRegistry, TriggerReplacements
from waypost.workers.sockets import Port, Receiver
from waypost.workers.state import SharedState
from waypost.workers.tools import Offers
from waypost.workers.triggers import Binding, Claims, Kind, Listener, Triggers, binding_of, kind_refused, refused
from waypost.workers.worker import Worker, WorkerSession

if TYPE_CHECKING:
    from waypost.runtime.core import Core

_log: Final = logging.getLogger(__name__)
_CONFLICT: Final = "FUNCTION_NAMESPACE_CONFLICT"
MAX_FUNCTIONS_OF_WORKER: Final = 10_000
"""Functions of one worker."""


class Workers(Component):
    """Every worker that is connected, what they offer, and what the hub offers them."""

    name = "workers"

    def __init__(
        self, registry: Registry, pipeline: Pipeline, store: Store, settings: WorkerSettings, *, accepts: bool = True
    ) -> None:
        self.settings = settings
        self._accepts = accepts
        self.functions = Functions()
        self.features = [FEATURE] if settings.observe else None
        self._queueing = CallQueue(store, self._make_later)
        self.calling = CallRunner(self.functions, pipeline, self._queueing)
        self.observing = ObserverRegistry(self.functions, self.calling)
        self.calling.route = self.observing.route
        self.triggers = Triggers(self._fire)
        self._replacing = TriggerReplacements(self.triggers, self.observing) if settings.observe else None
        self.channels = Channels()
        self._way_out = HttpFunctions(settings.allow_private, settings.secrets)
        self._offers = Offers(registry)
        self._claims: Claims[RegisterFunction] = Claims()
        self._there: dict[str, Worker] = {}
        self.exchanged: Callable[[], None] = lambda: None
        """Called when workers offer other functions than before."""
        self._port = Port(settings.host, settings.port, settings.token, lambda: WorkerSession(self), self._channel)
        state = SharedState(store, self.triggers, settings.state_timeout)
        builtins = Builtins(self.functions, self.triggers, self._there.values)
        self.host([*builtins.functions(), *state.functions(), self.channels.function()], [*KINDS, state.kind()])

    @property
    def address(self) -> str | None:
        """Where workers connect to, once it is open."""
        return self._port.address

    @property
    def connected(self) -> list[Worker]:
        """The workers that are connected."""
        return list(self._there.values())

    def host(self, functions: Iterable[Function], kinds: Iterable[Kind] = ()) -> None:
        """Offer workers functions and kinds of triggers of the hub's own."""
        offered = list(functions)
        for function in offered:
            self.functions.put(function)
        self._offers.exchange((), offered)
        self.observing.changed(offered)
        for kind in kinds:
            self.triggers.provide(kind)

    def find(self, worker_id: str) -> Worker | None:
        """The worker with an id."""
        return self._there.get(worker_id)

    def has(self, owner: str) -> bool:
        """Whether a worker is connected, by the name that what belongs to it is kept under."""
        return any(worker.owner == owner for worker in self._there.values())

    def owner_of(self, call: Call) -> str:
        """The owner of what a call creates: the calling worker, or the hub."""
        worker = self._there.get(call.sender)
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
        self.observing.open()
        await self._port.open()
        self._queueing.start()

    async def close(self) -> None:
        """Disconnect all workers and stop their calls."""
        self._claims.clear()
        self.triggers.close()
        await self.observing.close()
        await self._port.close()
        self.channels.close()
        for worker in self.connected:
            self.leave(worker)
        await self._queueing.stop()
        await self.calling.close()
        await self._way_out.close()

    async def trigger(
        self, function_id: str, payload: Any, caller: Caller, within: float, namespace: str = DEFAULT
    ) -> Any:
        """Call a function from within the hub, and wait so long for what it answers."""
        call = Call(function_id, Raw(encode(payload)), UNSET, *trace_here())
        answer = await self.calling.invoke(function_id, call, caller, namespace=namespace, within=within)
        return msgspec.json.decode(answer)

    def arrive(self, worker: Worker) -> None:
        """A worker connected."""
        self._there[worker.id] = worker

    def introduce(self, worker: Worker, about: dict[str, Any]) -> None:
        """A worker says who it is."""
        name, namespace = about.get("name"), about.get("namespace")
        worker.about = {key: value for key, value in about.items() if key not in ("name", "namespace", "features")}
        features = about.get("features")
        features = features if isinstance(features, list) else []
        worker.features = frozenset(one for one in features if isinstance(one, str))
        worker.caller = worker.origin = None
        knew, worker.observes = worker.observes, self.settings.observe and FEATURE in worker.features
        self._rename(worker, _or(name, worker.name), _or(namespace, worker.namespace))
        if worker.observes and not knew:
            self.observing.registered(worker, list(worker.functions.values()))
        self._tell_of_workers("worker_connected", worker)

    def _rename(self, worker: Worker, name: str, namespace: str) -> None:
        """A worker is called otherwise, or elsewhere, and so is what it offers already."""
        before, (worker.name, worker.namespace) = (worker.name, worker.namespace), (name, namespace)
        moving = list(worker.functions.values())
        if before[1] != namespace:
            claimed = self._claims.leave(worker)
            self._withdraw(worker, moving)
            self.register(worker, [*(_again(function) for function in moving), *claimed])
        elif before[0] != name:
            self._offers.exchange(moving, moving)

    def reattach(self, worker: Worker, claim: Reattach) -> None:
        """Close the previous connection of a worker that presents its reattach token."""
        before = self._there.get(claim.previous_worker_id)
        if before is None or before is worker or claim.reattach_token is None:
            return
        if hmac.compare_digest(claim.reattach_token.encode(), before.token.encode()):
            self.leave(before)
            before.socket.close(1000, "the worker came back")

    def leave(self, worker: Worker) -> None:
        """Remove a worker that disconnected, and everything it registered."""
        if self._there.pop(worker.id, None) is None:
            return
        worker.leave()
        self.triggers.leave(worker)
        self.channels.leave(worker.id)
        self.observing.leave(worker)
        self._claims.leave(worker)
        self._withdraw(worker, list(worker.functions.values()))
        self._tell_of_workers("worker_disconnected", worker)

    def register(self, worker: Worker, offered: Iterable[RegisterFunction]) -> None:
        """A worker offers functions; one that another offers already is refused, and waits for the other to go."""
        new: dict[str, Function] = {}
        for frame in offered:
            function = self._function(worker, frame)
            other = self.functions.find(function.id, function.namespace)
            if not function.id or self._is_too_much(worker, function.id, len(new)):
                worker.complain("a function of the worker %s was not taken: it has no id, or too many", worker.name)
            elif other is not None and other.owner is not worker:
                self._reject(worker, frame, other)
            else:
                new[function.id] = function
        if not new:
            return
        old = [worker.functions[function_id] for function_id in new if function_id in worker.functions]
        for function in new.values():
            self._claims.pop(worker, function.key)
            worker.functions[function.id] = function
            self.functions.put(function)
        self._offers.exchange(old, new.values())
        self.observing.registered(worker, new.values())
        self._replace(old, new.values())
        self._tell_of_functions()

    def unregister(self, worker: Worker, function_id: str) -> None:
        """A worker takes a function back."""
        function = worker.functions.get(function_id)
        if function is not None:
            self._withdraw(worker, [function])
        else:
            self._claims.pop(worker, (worker.namespace, function_id))

    def provide(self, worker: Worker, frame: RegisterTriggerType) -> None:
        """A worker offers a kind of trigger; one that another provides already waits for the other to go."""
        kind = Kind(
            frame.id,
            frame.description or "",
            frame.trigger_request_format,
            frame.call_request_format,
            frame.namespace or worker.namespace,
            worker,
        )
        problem = self.triggers.provide(kind)
        if problem is not None:
            worker.complain("the kind of trigger %s of the worker %s was not taken: %s", kind.id, worker.name, problem)
            worker.send(kind_refused(kind, problem))

    def bind(self, maker: Listener, frame: RegisterTrigger) -> None:
        """A listener wants a function to be called when something happens."""
        if not self.triggers.bind(binding_of(frame, maker)):
            maker.send(refused(frame, f"The binding {frame.id} is another worker's, or there are too many."))

    def _function(self, worker: Worker, frame: RegisterFunction) -> Function:
        return Function(
            id=frame.id,
            run=self._run(worker, frame),
            namespace=worker.namespace,
            description=frame.description,
            request_format=frame.request_format,
            response_format=frame.response_format,
            metadata=frame.metadata,
            owner=worker,
            observable=frame.observe,
            outside=frame.invocation,
        )

    def _run(self, worker: Worker, frame: RegisterFunction) -> Run:
        if frame.invocation is not None:
            return self._way_out.runner(frame.id, frame.invocation)
        return partial(worker.call, frame.id)

    def _is_too_much(self, worker: Worker, function_id: str, more: int) -> bool:
        if function_id in worker.functions:
            return False
        return len(worker.functions) + self._claims.count(worker) + more >= MAX_FUNCTIONS_OF_WORKER

    def _reject(self, worker: Worker, frame: RegisterFunction, other: Function) -> None:
        owner = "waypost" if other.owner is None else other.owner.id
        worker.send(RegistrationRejected(_CONFLICT, worker.namespace, owner, worker.name, frame.id))
        if other.owner is not None:  # what the hub offers it offers for good
            self._claims.put(worker, (worker.namespace, frame.id), frame)

    def _withdraw(self, worker: Worker, functions: list[Function]) -> None:
        """Remove functions of a worker; one that another worker waits to register is taken over by that."""
        if not functions:
            return
        for function in functions:
            worker.functions.pop(function.id, None)
            self.functions.pop(function)
        heirs = [self._claims.heir(function.key) for function in functions]
        taken = [(found[0], self._function(*found)) for found in heirs if found is not None]
        for heir, function in taken:
            heir.functions[function.id] = function
            self.functions.put(function)
        new = [function for _, function in taken]
        self._offers.exchange(functions, new)
        for heir, function in taken:
            self.observing.registered(heir, [function])
        self.observing.changed(functions)
        self._replace(functions, new)
        self._tell_of_functions()

    def _replace(self, old: Iterable[Function], new: Iterable[Function]) -> None:
        if self._replacing is not None:
            self._replacing.exchange(old, new)

    def _channel(self, url: SplitResult) -> Receiver:
        asked = parse_qs(url.query)
        channel_id = url.path.rsplit("/", 1)[-1]
        return self.channels.end_for(channel_id, asked.get("key", [""])[-1], asked.get("dir", [""])[-1])

    def _fire(self, binding: Binding, payload: Any) -> None:
        call = Call(binding.function_id, Raw(encode(payload)), binding.metadata, is_void=True)
        self.calling.later(self._fired(binding, call))

    async def _fired(self, binding: Binding, call: Call) -> None:
        try:
            await self.calling.invoke(binding.function_id, call, caller_of(binding.maker), namespace=binding.namespace)
        except InvocationFailed as error:
            _log.debug("the trigger %s failed: %s", binding.id, error.message)
        except Exception:
            _log.exception("the trigger %s failed", binding.id)

    async def _make_later(self, call: Call, namespace: str, sender: str) -> Raw:
        return await self.calling.invoke(call.function_id, call, on_behalf_of(sender), namespace=namespace)

    def _tell_of_functions(self) -> None:
        self.exchanged()
        if any(self.triggers.of(FUNCTIONS_AVAILABLE)):
            listed = [describe_function(one) for one in self.functions if not one.id.startswith("engine::")]
            self.triggers.fire(FUNCTIONS_AVAILABLE, {"event": "functions_changed", "functions": listed})

    def _tell_of_workers(self, event: str, worker: Worker) -> None:
        told_of = {"event": event, "worker_id": worker.id, "worker_name": worker.name}
        self.triggers.fire(WORKERS_AVAILABLE, told_of)


def _or(given: Any, otherwise: str) -> str:
    """A text that says something, or what stands for it."""
    return given if isinstance(given, str) and given.strip() else otherwise


def _again(function: Function) -> RegisterFunction:
    return RegisterFunction(
        function.id,
        function.description,
        function.request_format,
        function.response_format,
        function.metadata,
        function.outside,
        function.observable,
    )
