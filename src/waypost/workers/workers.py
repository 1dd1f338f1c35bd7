"""`Workers`, the component that workers connect to: it owns the parts in the other modules of this package."""

from __future__ import annotations

import asyncio
import base64
import hmac
import logging
import secrets
from collections.abc import Callable, Collection, Iterable
from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING, Any, Final

from msgspec import UNSET, Raw
from websockets.frames import CloseCode

from waypost.capabilities.context import Caller
from waypost.capabilities.principals import ANONYMOUS
from waypost.capabilities.registry import Registry
from waypost.errors import InvocationFailed
from waypost.execution.pipeline import Pipeline
from waypost.runtime.component import Component
from waypost.settings import Limits
from waypost.settings import Workers as WorkerSettings
from waypost.stores.directory import derive_key
from waypost.stores.store import Store
from waypost.workers import frames, triggers
from waypost.workers.builtins import FUNCTIONS_AVAILABLE, TRIGGER_TYPES, WORKERS_AVAILABLE, Builtins, describe_functions
from waypost.workers.calls import CallRunner, caller_of
from waypost.workers.channels import Channels
from waypost.workers.frames import RegisterFunction, RegistrationRejected, encode
from waypost.workers.functions import DEFAULT, Call, Function, Functions, HttpFunctions, trace_here
from waypost.workers.observer_registry import ObserverRegistry, TriggerSubstitutes
from waypost.workers.remote import RemoteWorker
from waypost.workers.sharing import KIND, SharedWorkers
from waypost.workers.sockets import Port
from waypost.workers.state import SharedState
from waypost.workers.tools import PublishedFunctions, SchemaChecker, has_own_name, in_turns
from waypost.workers.triggers import Binding, Budget, Claims, Key, Listener, Triggers, TriggerType
from waypost.workers.worker import Worker, WorkerSession

if TYPE_CHECKING:
    from waypost.runtime.core import Core

_log: Final = logging.getLogger(__name__)
_FUNCTIONS: Final = "functions"
MAX_OWNERS: Final = 100_000
"""Functions whose first owners are remembered."""


class Registrations:
    """Which worker offers which function, and what follows when that changes.

    A function is entered in the table before it is published, and published before observers and trigger types are
    updated: each step looks up what the one before it wrote.
    """

    def __init__(
        self,
        functions: Functions,
        registry: Registry,
        http: HttpFunctions,
        budget: Budget,
        keeps_owners: Callable[[], bool],
        shared: SharedWorkers | None,
    ) -> None:
        self._functions = functions
        self._shared = shared
        self.budget = budget
        self._keeps_owners = keeps_owners
        self._owners: dict[Key, str] = {}
        """The identities of the workers that offered each function first, while they may come back."""
        self._published = PublishedFunctions(registry)
        self._http = http
        self.claims: Claims[Function] = Claims()
        """Registrations that were rejected; each waits until the worker that has the function withdraws it."""

    def host(self, functions: list[Function]) -> None:
        """Add functions of the hub."""
        for function in functions:
            self._functions.put(function)
        self._published.replace((), functions)

    def add(self, worker: Worker, offered: Iterable[Function]) -> tuple[list[Function], list[Function]]:
        """Register functions of a worker; returns those that are replaced, and the new ones.

        A function that another worker offers is rejected, and registered when that worker withdraws it.
        """
        new: dict[str, Function] = {}
        for function in offered:
            frame = function.frame
            # Who may have the name is decided before anything is counted: a refused name costs its sender nothing. A
            # claim is counted though, because it is kept until the name is free.
            other = self._functions.find(frame.id, worker.namespace)
            is_taken = other is not None and other.owner is not worker and not other.is_remote
            owner = self._owners.get((worker.namespace, frame.id), worker.identity)
            if other is not None and other.is_remote and other.owner is not None:
                owner = other.owner.identity
            is_hubs = other is not None and other.owner is None  # the hub never withdraws a function
            if is_hubs or (owner != worker.identity and self._keeps_owners()):
                self._reject(worker, frame, other)
            elif (why := self._find_problem(worker, function)) is not None:
                worker.warn("a function of the worker %s was not taken: %s", worker.name, why)
            elif is_taken:
                self._reject(worker, frame, other)
                self.claims.put(worker, function.key, function)
            else:
                new[frame.id] = function
        old = [worker.functions[function_id] for function_id in new if function_id in worker.functions]
        for function in new.values():
            self.claims.pop(worker, function.key)
            worker.functions[function.id] = function
            self._functions.put(function)
            self._owners[function.key] = worker.identity
        while len(self._owners) > MAX_OWNERS:  # the oldest first: a dict keeps the order of its keys
            del self._owners[next(iter(self._owners))]
        if new:
            self._published.replace(old, new.values())
        return old, list(new.values())

    def remove(self, worker: Worker, functions: list[Function]) -> list[tuple[Worker, Function]]:
        """Remove functions of a worker; returns those that pass to a worker whose claim waited, with that worker."""
        for function in functions:
            worker.functions.pop(function.id, None)
            self._functions.pop(function)
            self.budget.release(worker, _FUNCTIONS, function.id)
        claims = [self.claims.pop_first(function.key) for function in functions]
        heirs = [claim for claim in claims if claim is not None]
        for heir, function in heirs:
            heir.functions[function.id] = function
            self._functions.put(function)
        # One change for both: clients never see a list in which the tool is missing between its old and new worker.
        passed = {function.key for _, function in heirs}
        remote = self._put_remote(function.key for function in functions if function.key not in passed)
        for function in functions:
            successor = self._functions.get(*function.key)
            if successor is not None:
                function.run = successor.run  # for calls that wait in the pipeline and have not started
        self._published.replace(functions, [*(function for _, function in heirs), *remote])
        return heirs

    def update_remote(self, keys: Collection[Key]) -> tuple[list[Function], list[Function]]:
        """Publish what workers of other replicas offer, where none here does; returns what is replaced, and by what."""
        old = [one for key in keys if (one := self._functions.get(*key)) is not None and one.is_remote]
        for function in old:
            self._functions.pop(function)
        new = self._put_remote(key for key in keys if self._functions.get(*key) is None)
        if old or new:
            self._published.replace(old, new)
        return old, new

    def reject_late(self, keys: Iterable[Key]) -> list[tuple[Worker, Function]]:
        """Reject functions here that belong to a worker of another replica; two that were offered at once meet here."""
        if self._shared is None or not self._keeps_owners():
            return []
        rejected = []
        for key in keys:
            mine, other = self._functions.get(*key), self._shared.find(key)
            if mine is None or other is None or other.owner is None or not isinstance(mine.owner, Worker):
                continue
            is_later = (other.owner.connected_at, other.owner.id) < (mine.owner.connected_at, mine.owner.id)
            if is_later and mine.owner.identity != other.owner.identity:
                self._reject(mine.owner, mine.frame, other)
                self._owners.pop(key, None)
                rejected.append((mine.owner, mine))
        return rejected

    def _put_remote(self, keys: Iterable[Key]) -> list[Function]:
        if self._shared is None:
            return []
        found = [function for key in keys if (function := self._shared.find(key)) is not None]
        for function in found:
            self._functions.put(function)
        return found

    def _find_problem(self, worker: Worker, function: Function) -> str | None:
        """Why a function is not taken; otherwise it is counted."""
        if not function.id:
            return "it has no id"
        return self.budget.take(worker, _FUNCTIONS, self.budget.limits.functions, function.id, function.size)

    def _reject(self, worker: Worker, frame: RegisterFunction, other: Function | None) -> None:
        owner = "waypost" if other is None or other.owner is None else other.owner.id
        worker.send(RegistrationRejected(frames.FUNCTION_CONFLICT, worker.namespace, owner, worker.name, frame.id))

    def release(self, function: Function) -> None:
        """Any worker may offer a function that its owner withdrew."""
        self._owners.pop(function.key, None)

    def drop_claim(self, worker: Worker, function_id: str) -> None:
        """Drop a rejected registration."""
        if self.claims.pop(worker, (worker.namespace, function_id)) is not None:
            self.budget.release(worker, _FUNCTIONS, function_id)

    def publish_again(self, worker: Worker) -> None:
        """Publish the functions of a worker under its new name."""
        functions = list(worker.functions.values())
        self._owners.update((function.key, worker.identity) for function in functions)
        self._published.replace(functions, functions)

    def build(self, worker: Worker, frame: RegisterFunction) -> Function:
        """The function that a message of a worker offers."""
        http = frame.invocation
        run = partial(worker.call, frame.id) if http is None else partial(self._http.call, frame.id, http)
        return Function(frame, run, worker.namespace, worker)

    async def close(self) -> None:
        """Close the connections to functions over HTTP."""
        await self._http.close()


class Workers(Component):
    """Every worker that is connected, what they offer, and what the hub offers them."""

    name = "workers"
    reads = (KIND,)

    def __init__(
        self,
        registry: Registry,
        pipeline: Pipeline,
        store: Store,
        settings: WorkerSettings,
        limits: Limits | None = None,
        *,
        accepts: bool = True,
        is_token_needed: Callable[[], bool] = lambda: False,
        shared: SharedWorkers | None = None,
    ) -> None:
        self.settings = settings
        self.shared = shared
        """The workers of other replicas, where there can be any."""
        self._accepts = accepts
        # Where callers are authenticated, a worker sees the arguments of others only if the operator says so.
        self.observes = not is_token_needed() if settings.observe is None else settings.observe
        self.functions = Functions()
        self.calls = CallRunner(self.functions, pipeline, store, settings.max_depth, settings.limits.call_bytes)
        self.observers = ObserverRegistry(self.functions, self.calls, shared)
        self.calls.call_observer = self.observers.call
        budget = Budget(settings.limits)
        replica = "" if shared is None else shared.replica
        self.triggers = Triggers(self._fire, budget, self.observers, self._keeps_owners, replica, self.share)
        self._substitutes = TriggerSubstitutes(self.triggers) if self.observes else None
        self.channels = Channels(settings.limits.channels, replica)
        http = HttpFunctions(settings.allow_private, settings.secrets)
        self._registrations = Registrations(self.functions, registry, http, budget, self._keeps_owners, shared)
        self.schemas = SchemaChecker()
        self._connected: dict[str, Worker] = {}
        self.on_change: Callable[[], None] = lambda: None
        """Called when workers offer other functions than before."""
        self._port = Port(settings, is_token_needed, partial(WorkerSession, self), self.channels.open_end, limits)
        state = SharedState(store, self.triggers, settings.state_timeout)
        builtins = Builtins(self.functions, self.triggers, self._connected.values, shared or ())
        functions = [*builtins.functions(), *state.functions(), self.channels.function()]
        self.host(functions, [*TRIGGER_TYPES, state.trigger_type()])

    @property
    def address(self) -> str | None:
        """The URL that workers connect to, while it is open."""
        return self._port.address

    @property
    def connected(self) -> list[Worker]:
        """The workers that are connected here."""
        return list(self._connected.values())

    @property
    def everywhere(self) -> list[Worker | RemoteWorker]:
        """The workers that are connected to any replica."""
        return [*self._connected.values(), *(self.shared or ())]

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

    @property
    def features(self) -> list[str] | None:
        """What the hub supports beyond the basic protocol."""
        return [frames.OBSERVE_FEATURE] if self.observes else None

    @property
    def made_token(self) -> str | None:
        """The token that was made at the start, where the settings name none."""
        return self._port.made_token or None

    @property
    def needs_token(self) -> bool:
        """Whether workers have to send a token to connect."""
        return self._port.needs_token

    def has(self, owner: str) -> bool:
        """Whether a worker is connected, by the name under which the hub stores what belongs to it."""
        return any(worker.owner == owner for worker in self.everywhere)

    def _keeps_owners(self) -> bool:
        """Whether what a worker registered stays its own when it disconnects."""
        return self._port.needs_token and not self.settings.share

    def owner_of(self, call: Call) -> str:
        """The owner of what a call creates: the calling worker, or the hub."""
        worker = self._connected.get(call.sender)
        return "hub" if worker is None else worker.owner

    async def start(self, core: Core) -> None:
        """Accept connections where the settings ask for them."""
        if self.shared is not None:
            await self.shared.start(self)
            await self.refresh()
        if self._accepts:
            if not (self.settings.token or self.settings.tokens):
                self._port.made_token = await _make_token(core)
            self._port.refused_tokens.record = partial(_record_refusal, core)
            self.observers.open()
            await self._port.open()
            self.calls.queue.start()

    def stop_listening(self) -> None:
        """Accept no further worker; those that are connected stay."""
        self._port.stop_listening()

    def release_idle(self) -> int:
        """Ask the workers without a running call to connect again, elsewhere; returns how many are connected."""
        for worker in self.connected:
            if not worker.unanswered and not worker.calls:
                worker.socket.close(CloseCode.SERVICE_RESTART, "the hub stops; connect again")
        return len(self._connected)

    async def stop(self) -> None:
        """Disconnect all workers and stop their calls."""
        # Claims first: while the workers leave one by one, no function may pass from one to the next.
        self._registrations.claims.clear()
        self.triggers.close()
        await self.observers.close()
        await self._port.close()
        self.channels.close()
        for worker in self.connected:
            self.disconnect(worker)
        await self.calls.close()
        if self.shared is not None:
            await self.shared.stop()
            self._registrations.update_remote([one.key for one in self.functions if one.is_remote])
            self.triggers.update_remote(())
        await self._registrations.close()
        self.schemas.close()

    async def refresh(self) -> None:
        """Offer what workers of other replicas offer."""
        if self.shared is None:
            return
        news = await self.shared.refresh()
        if news is None:
            return
        self.triggers.update_remote(self.shared)
        for worker, function in self._registrations.reject_late(news.functions):
            self._withdraw(worker, [function])
        await self._update_remote(news.functions, self.shared)
        if self.observes:
            self.observers.update_remote(self.shared, news.names)
        for gone in news.left:
            self._registrations.budget.forget(gone)
            self._fire_worker_event("worker_disconnected", gone)
        for arrived in news.arrived:
            self._fire_worker_event("worker_connected", arrived)

    async def _update_remote(self, keys: Iterable[Key], shared: SharedWorkers) -> None:
        """Publish functions of other replicas in several turns; what each turn finds there is what counts."""
        offered = {key: shared.find(key) for key in keys}
        functions = sorted(filter(None, offered.values()), key=has_own_name, reverse=True)
        self._publish_remote([key for key, function in offered.items() if function is None])
        for part in in_turns(functions):
            await self.schemas.check(part)
            self._publish_remote([function.key for function in part])

    def _publish_remote(self, keys: Collection[Key]) -> None:
        old, new = self._registrations.update_remote(keys)
        if old or new:
            self._after_change([], [])

    def share(self, *workers: Worker) -> None:
        """Let other replicas know what workers here offer."""
        if self.shared is not None:
            self.shared.write(workers)

    async def trigger(
        self, function_id: str, payload: Any, caller: Caller, within: float, namespace: str = DEFAULT
    ) -> Any:
        """Call a function from within the hub, with a limit in seconds, and return the answer."""
        call = Call(function_id, Raw(encode(payload)), UNSET, *trace_here())
        return frames.decode_part(await self.calls.invoke(call, caller, namespace, within), f"answer of {function_id}")

    def connect(self, worker: Worker) -> None:
        """Add a worker that connected."""
        self._connected[worker.id] = worker

    def introduce(self, worker: Worker, about: dict[str, Any]) -> None:
        """Apply the introduction of a worker: its name, namespace, features and description."""
        worker.about = {key: value for key, value in about.items() if key not in ("name", "namespace", "features")}
        worker.caller = None  # it contains the name
        features = about.get("features")
        did_observe = worker.observes
        worker.observes = self.observes and isinstance(features, list) and frames.OBSERVE_FEATURE in features
        old_name, old_namespace = worker.name, worker.namespace
        if not self._name(worker, _text_or(about.get("name"), old_name)):
            return
        worker.namespace = _text_or(about.get("namespace"), old_namespace)
        if old_namespace != worker.namespace:
            # Names belong to a namespace. What was registered in the old one is given up there, its claims included,
            # and arbitrated anew in the new one.
            claims = self._registrations.claims.pop_all(worker)
            functions = list(worker.functions.values())
            for function in functions:
                self._registrations.release(function)
            self._withdraw(worker, functions)
            moved = [replace(one, namespace=worker.namespace, offer=None, watch=None) for one in functions + claims]
            self.register(worker, moved)
        elif old_name != worker.name:
            self._registrations.publish_again(worker)
        if worker.observes and not did_observe:
            self.observers.add_functions(worker, list(worker.functions.values()))
        self.share(worker)
        self._fire_worker_event("worker_connected", worker)

    def _name(self, worker: Worker, name: str) -> bool:
        """Give a worker the name that it says; false if the name is another's, and the worker was disconnected."""
        if worker.is_named:
            if name != worker.name:
                worker.warn("the worker %s cannot change its name to %s", worker.name, name)
        elif name in self.settings.tokens:
            worker.warn("a worker at %s has no token for the name %s and is disconnected", worker.socket.peer, name)
            self.disconnect(worker)
            worker.socket.close(1008, "the name has a token of its own")
            return False
        else:
            worker.name, worker.is_named = name, True
        return True

    def reattach(self, worker: Worker, claim: frames.Reattach) -> None:
        """Close the previous connection of a worker that presents its reattach token."""
        before = self._connected.get(claim.previous_worker_id)
        if before is None or before is worker or claim.reattach_token is None:
            return
        if hmac.compare_digest(claim.reattach_token.encode(), before.token.encode()):
            # Before the new connection registers anything: its functions would otherwise wait behind its own old ones,
            # until the dead socket is noticed.
            self.disconnect(before)
            before.socket.close(1000, "the worker came back")

    def disconnect(self, worker: Worker) -> None:
        """Remove a worker that disconnected, and everything it registered."""
        if self._connected.pop(worker.id, None) is None:
            return
        # Bindings and observers go before the functions: the withdrawal must fire nothing for a worker that is gone.
        worker.disconnect()
        self.triggers.disconnect(worker)
        self.channels.close_unused(worker.id)
        self.observers.disconnect(worker)
        self._registrations.claims.pop_all(worker)
        self._withdraw(worker, list(worker.functions.values()))
        self._registrations.budget.forget(worker)
        self.share(worker)
        self._fire_worker_event("worker_disconnected", worker)

    def build(self, worker: Worker, offered: Iterable[RegisterFunction]) -> list[Function]:
        """The functions that messages of a worker offer, to be registered."""
        return [self._registrations.build(worker, frame) for frame in offered]

    def register(self, worker: Worker, offered: Iterable[Function]) -> None:
        """Register functions of a worker, as one change."""
        old, new = self._registrations.add(worker, offered)
        if new:
            self.observers.add_functions(worker, new)
            self.share(worker)
            self._after_change(old, new)

    def unregister(self, worker: Worker, function_id: str) -> None:
        """Withdraw a function of a worker, or its rejected registration."""
        function = worker.functions.get(function_id)
        if function is not None:
            self._registrations.release(function)
            self._withdraw(worker, [function])
        else:
            self._registrations.drop_claim(worker, function_id)

    def provide(self, worker: Worker, frame: frames.RegisterTriggerType) -> None:
        """Register a trigger type of a worker; one that another worker provides waits until that leaves."""
        provided = triggers.build_type(frame, worker)
        problem = self.triggers.provide(provided)
        if problem is not None:
            worker.warn("the kind of trigger %s of the worker %s was not taken: %s", frame.id, worker.name, problem)
            worker.send(triggers.refuse_type(provided, problem))

    def bind(self, maker: Listener, frame: frames.RegisterTrigger) -> None:
        """Bind a function of a listener to a trigger type."""
        problem = self.triggers.bind(triggers.build_binding(frame, maker))
        if problem is not None:
            maker.send(triggers.refuse_binding(frame, f"The binding {frame.id} cannot be made: {problem}."))

    def _withdraw(self, worker: Worker, functions: list[Function]) -> None:
        if not functions:
            return
        heirs = self._registrations.remove(worker, functions)
        for heir, function in heirs:
            self.observers.add_functions(heir, [function])
        self.observers.update_functions(functions)
        self.share(worker, *(heir for heir, _ in heirs))
        self._after_change(functions, [function for _, function in heirs])

    def _after_change(self, old: list[Function], new: list[Function]) -> None:
        if self._substitutes is not None:
            self._substitutes.replace(old, new)
        self.on_change()
        if any(self.triggers.of(FUNCTIONS_AVAILABLE)):
            self.calls.start_background(self._announce_functions(self.functions.changes))

    async def _announce_functions(self, change: int) -> None:
        """Fire with all functions there are, unless they have changed again, which is announced too."""
        if change == self.functions.changes:
            listed = await describe_functions([one for one in self.functions if not one.id.startswith("engine::")])
            self.triggers.fire(FUNCTIONS_AVAILABLE, {"event": "functions_changed", "functions": listed})

    def _fire_worker_event(self, event: str, worker: Worker | RemoteWorker) -> None:
        payload = {"event": event, "worker_id": worker.id, "worker_name": worker.name}
        self.triggers.fire(WORKERS_AVAILABLE, payload)

    def _fire(self, binding: Binding, payload: Any) -> None:
        call = Call(binding.function_id, Raw(encode(payload)), binding.metadata, is_void=True)
        self.calls.start_background(self._call_bound(binding, call))

    async def _call_bound(self, binding: Binding, call: Call) -> None:
        try:
            await self.calls.invoke(call, caller_of(binding.maker), binding.namespace)
        except InvocationFailed as error:
            _log.debug("the trigger %s failed: %s", binding.id, error.message)
        except Exception:
            _log.exception("the trigger %s failed", binding.id)


def _record_refusal(core: Core, peer: str, reason: str) -> None:
    core.guard.record_act("worker.refused", ANONYMOUS.id, "worker", "workers", reason, peer)


async def _make_token(core: Core) -> str:
    """A token for workers; a hub with a durable store has the same one after a restart, when workers come back."""
    if not core.store.database.is_durable:
        return secrets.token_urlsafe(32)
    secret = await asyncio.to_thread(core.secret.read)
    return base64.urlsafe_b64encode(derive_key(secret, "worker token")).decode().rstrip("=")


def _text_or(given: Any, default: str) -> str:
    return given if isinstance(given, str) and given.strip() else default
