"""All observers of a hub: registration, state, and functions that are substitutes for trigger types.

A function names with `legacy_trigger_type` the trigger type that it serves while no worker provides that type. A
binding to the type becomes an observer of the function and receives the bare event, as bound functions always did.

With several replicas, each has the observers of all: the replica of a function sends its events over the bus to the
replica of the observer, which alone delivers and counts them.
"""

from __future__ import annotations

import itertools
from collections import Counter
from collections.abc import Iterable, Iterator
from typing import TYPE_CHECKING, Any, Final

import msgspec
from msgspec import Raw

from waypost.errors import InvocationFailed, WaypostError
from waypost.loops import running_loop
from waypost.workers import frames, observers
from waypost.workers.calls import CallRunner, caller_of, to_call
from waypost.workers.filters import Filter
from waypost.workers.frames import NULL, Failure, Observe, encode, to_failure
from waypost.workers.functions import Call, Function, Functions
from waypost.workers.observers import Approval, Event, Observer, ObserverDelivery, ObserverSpec, State, Watch
from waypost.workers.remote import RemoteWorker
from waypost.workers.triggers import Binding, Key, Listener, Triggers, TriggerType
from waypost.workers.worker import Worker

if TYPE_CHECKING:
    from waypost.workers.sharing import SharedWorkers

MAX_OBSERVERS: Final = 10_000
"""Observers of one worker, and observers of disconnected workers whose counts are remembered."""
MAX_OBSERVERS_OF_FUNCTION: Final = 1_000
MAX_SHARED_BYTES: Final = 4 * 1024 * 1024
"""The observers of one worker that other replicas know, as messages; further ones see only calls at their own."""
ACKNOWLEDGE_TIMEOUT_S: Final = 35.0
"""How long an owner has to accept an observer; workers give their own hooks 30 s."""


class ObserverRegistry:
    """All observers of a hub.

    An observer is active when its function is offered, the owner accepts it, and its target is offered. Each change of
    one of these leads to `_update_state`, which reports a new state to the maker of the observer.
    """

    def __init__(self, functions: Functions, calls: CallRunner, shared: SharedWorkers | None) -> None:
        self._functions = functions
        self._calls = calls
        self._shared = shared
        self._shared_bytes: Counter[Listener] = Counter()
        self.acknowledge_timeout = ACKNOWLEDGE_TIMEOUT_S
        self._delivery = ObserverDelivery(calls, self._end_used_up)
        self._revisions = itertools.count(1)
        self._observers: dict[str, Observer] = {}
        self._by_function: dict[Function, set[Observer]] = {}
        self._by_maker: dict[Listener, dict[str, Observer]] = {}
        self._by_name: dict[str, dict[Observer, None]] = {}
        """By the ids of their sources and targets, whether these are offered or not."""
        self._remembered: dict[Key, tuple[bytes, int, float | None]] = {}
        self._is_open = False

    def __len__(self) -> int:
        return len(self._observers)

    def __iter__(self) -> Iterator[Observer]:
        return iter(self._observers.values())

    @property
    def running(self) -> int:
        """How many activations run or wait."""
        return self._delivery.running

    def open(self) -> None:
        """Deliver events from now on."""
        self._is_open = True

    async def close(self) -> None:
        """Remove all observers and stop their activations."""
        self._is_open = False
        for observer in list(self._observers.values()):
            self._remove(observer)
        await self._delivery.close()

    def observe(self, worker: Worker, frame: frames.Observe) -> None:
        """Register an observer of a worker, and answer it; an unchanged one is only answered again."""
        before = self._observers.get(frame.id)
        if before is not None and before.maker is worker and before.spec.message == encode(frame):
            self._answer(before)
            return
        try:
            self._check_limits(worker, frame.id)
            observer = observers.read_observer(frame, worker)
        except InvocationFailed as error:
            worker.send(frames.ObserveResult(frame.id, "error", to_failure(error)))
            return
        self._add(observer)

    def add_binding(self, binding: Binding, source: Key) -> None:
        """Make an observer from a binding."""
        spec = ObserverSpec(
            source=source,
            target=(binding.namespace, binding.function_id),
            filter=Filter(),
            capture=("input", "caller"),
            deliver="input",
            metadata=binding.metadata,
            binding=binding,
        )
        observer = Observer(binding.id, binding.maker, spec)
        try:
            self._check_limits(observer.maker, observer.id)
        except InvocationFailed as error:
            observer.state, observer.reason = "error", to_failure(error)
            self._report(observer)
            return
        self._add(observer)

    def list_shared(self, worker: Worker) -> dict[str, Observe]:
        """The observers of a worker, for other replicas."""
        made = self._by_maker.get(worker, {}).values()
        return {one.shared_id: one.spec.frame for one in made if one.shared_id and one.spec.frame is not None}

    def list_answers(self, worker: Worker) -> dict[str, Failure | None]:
        """What was decided here about observers of other replicas that observe functions of a worker."""
        return {
            one.id: one.approval.refusal
            for function in worker.functions.values()
            for one in self._by_name.get(function.id, ())
            if one.function is function and one.is_remote and (one.approval.is_given or one.approval.refusal)
        }

    def update_remote(self, workers: Iterable[RemoteWorker], names: Iterable[str]) -> None:
        """Apply what workers of other replicas observe now, and that functions with these ids changed there."""
        wanted = {key: (worker, frame) for worker in workers for key, frame in worker.offered.observers.items()}
        for observer in [one for one in self._observers.values() if one.is_remote]:
            if wanted.pop(observer.id, (None,))[0] is not observer.maker:
                observer.backlog.is_dropped = True
                self._end(observer)
        for key, (worker, frame) in wanted.items():
            try:
                self._check_limits(worker, key)
                self._add(observers.read_remote_observer(frame, worker, key))
            except InvocationFailed:  # of another version: its own replica has accepted it
                continue
        for name in names:
            for observer in list(self._by_name.get(name, ())):
                self._attach(observer)
                self._update_state(observer)

    async def deliver(self, shared_id: str, call: Call) -> Raw:
        """Deliver to an observer here what another replica sends: an event, or the call of a function's owner."""
        # The shared id is `replica/number/id`, and the id may contain slashes. Another number means that the observer
        # was registered again since: the event is for the earlier registration.
        observer = self._observers.get(shared_id.split("/", 2)[-1])
        if observer is None or observer.shared_id != shared_id or not self._is_there(observer):
            raise InvocationFailed(f"The observer {shared_id} is not active.", "OBSERVER_NOT_ACTIVE")
        if not call.is_void:
            return await self._delivery.call(observer, call)
        # Void only on the way: here the slot of the observer is held until its function has answered.
        call.is_void = False
        self._delivery.fire_from_elsewhere(observer, call)
        return NULL

    def is_accepted(self, binding: Binding) -> bool:
        """Whether a binding has an observer that was not refused."""
        observer = self._observers.get(binding.id)
        return observer is not None and observer.maker is binding.maker and observer.state != "error"

    def unobserve(self, maker: Listener, observer_id: str) -> None:
        """Remove an observer of a listener."""
        observer = self._observers.get(observer_id)
        if observer is not None and observer.maker is maker:
            observer.backlog.is_dropped = True
            self._end(observer)

    def acknowledge(self, worker: Worker, ack: frames.ObserverAck) -> None:
        """The owner of a function accepts or refuses an observer."""
        observer = self._observers.get(ack.id)
        # An answer to an older message is about an observer that was removed or replaced since.
        if observer is None or observer.approval.revision != ack.revision or not _is_owner(observer, worker):
            return
        observer.approval.stop_waiting()
        if ack.error is not None:
            self._remove_at_owner(observer)
        observer.approval.is_given, observer.approval.refusal = ack.error is None, ack.error
        self._update_state(observer)

    def report(self, worker: Worker, reports: frames.InvocationsObserved) -> None:
        """The owner of functions reports events, and names the observers they are for."""
        for report in reports.items:
            function = self._functions.get(report.namespace or worker.namespace, report.function_id)
            if function is None or function.owner is not worker or not observers.is_owner_delivered(function):
                continue
            event = observers.read_event(report, function)
            for observer_id in dict.fromkeys(report.matched):
                observer = self._observers.get(observer_id)
                if observer is not None and observer.function is function and observer.is_accepted:
                    self._delivery.fire(observer, event)

    async def call(self, worker: Worker, frame: frames.InvokeFunction) -> Raw:
        """The owner of a function calls the target of an observer."""
        assert frame.activation is not None
        observer = self._observers.get(frame.activation.observer_id)
        if observer is None or not observer.is_accepted or not _is_owner(observer, worker):
            why = f"The observer {frame.activation.observer_id} is not active, or observes no function of this worker."
            raise InvocationFailed(why, "OBSERVER_NOT_ACTIVE")
        assert observer.function is not None
        if not observers.is_owner_delivered(observer.function):
            raise InvocationFailed(f"{observer.function.id} is not delivered by its owner.", "NOT_OWNER_DELIVERED")
        return await self._delivery.call(observer, to_call(worker, frame))

    def add_functions(self, worker: Worker, functions: Iterable[Function]) -> None:
        """A worker offers functions; it is sent the list of their observers."""
        for function in functions:
            concerned = list(self._by_name.get(function.id, ()))
            for observer in concerned:
                self._attach(observer, is_announced=worker.observes)
            if worker.observes:
                revision = next(self._revisions)
                accepted = [one for one in concerned if one.function is function and one.approval.refusal is None]
                # One revision for the whole list: answers to messages that crossed it are about an older state.
                for observer in accepted:
                    observer.approval.revision = revision
                infos = [observer.info() for observer in accepted]
                worker.send(frames.FunctionRegistered(function.id, revision, function.namespace, infos))
            for observer in concerned:
                self._update_state(observer)

    def update_functions(self, functions: Iterable[Function]) -> None:
        """Functions were withdrawn, or the hub offers others."""
        for function in functions:
            for observer in list(self._by_name.get(function.id, ())):
                self._attach(observer)
                self._update_state(observer)

    def disconnect(self, worker: Worker) -> None:
        """Remove the observers of a worker; how often they fired is remembered, in case it connects again."""
        for observer in list(self._by_maker.get(worker, {}).values()):
            observer.backlog.is_dropped = True
            self._end(observer)
            spec = observer.spec
            if spec.max_fires is not None or spec.expires_in is not None:
                self._remembered[worker.owner, observer.id] = spec.message, observer.backlog.fires, observer.expires_at
        while len(self._remembered) > MAX_OBSERVERS:
            del self._remembered[next(iter(self._remembered))]

    def _check_limits(self, maker: Listener, observer_id: str) -> None:
        before = self._observers.get(observer_id)
        if before is not None and before.maker is not maker:
            raise InvocationFailed(f"The observer {observer_id} is another worker's.", "OBSERVER_ID_IN_USE")
        if before is None and len(self._by_maker.get(maker, ())) >= MAX_OBSERVERS:
            raise InvocationFailed(f"A worker has at most {MAX_OBSERVERS} observers.", "TOO_MANY_OBSERVERS")

    def _add(self, observer: Observer) -> None:
        before = self._observers.get(observer.id)
        if before is not None:
            self._end(before)
        spec = observer.spec
        # A worker that connects again does not get its limits anew.
        message, fires, expires_at = self._remembered.pop((observer.maker.owner, observer.id), (b"", 0, None))
        if message == spec.message:
            observer.backlog.fires, observer.expires_at = fires, expires_at
        self._observers[observer.id] = observer
        self._by_maker.setdefault(observer.maker, {})[observer.id] = observer
        for function_id in (spec.source[1], spec.target[1]):
            self._by_name.setdefault(function_id, {})[observer] = None
        if spec.expires_in is not None:
            loop = running_loop()
            if observer.expires_at is None:
                observer.expires_at = loop.time() + spec.expires_in
            expired = Failure("EXPIRED", "Its time is over.")
            observer.expiry = loop.call_at(observer.expires_at, self._end, observer, expired)
        self._share(observer)
        self._attach(observer)
        self._update_state(observer)
        self._answer(observer)

    def _remove(self, observer: Observer) -> None:
        observer.approval.stop_waiting()
        if observer.expiry is not None:
            observer.expiry.cancel()
        self._observers.pop(observer.id, None)
        if observer.shared_id and self._shared is not None and isinstance(observer.maker, Worker):
            self._shared_bytes[observer.maker] -= len(observer.spec.message)
            self._shared.write([observer.maker])
        made = self._by_maker.get(observer.maker, {})
        made.pop(observer.id, None)
        if not made:
            self._by_maker.pop(observer.maker, None)
            del self._shared_bytes[observer.maker]
        for function_id in (observer.spec.source[1], observer.spec.target[1]):
            named = self._by_name.get(function_id, {})
            named.pop(observer, None)
            if not named:
                self._by_name.pop(function_id, None)

    def _share(self, observer: Observer) -> None:
        """Let the other replicas know of an observer, unless its worker has too many."""
        maker, size = observer.maker, len(observer.spec.message)
        if self._shared is None or not isinstance(maker, Worker) or observer.spec.binding is not None:
            return
        if self._shared_bytes[maker] + size > MAX_SHARED_BYTES:
            return
        self._shared_bytes[maker] += size
        observer.shared_id = f"{self._shared.replica}/{next(self._revisions)}/{observer.id}"
        self._shared.write([maker])

    def _end(self, observer: Observer, reason: Failure | None = None) -> None:
        self._remove(observer)
        self._detach(observer)
        observer.state, observer.reason = "disposed", reason
        if reason is not None:
            self._report(observer)

    def _end_used_up(self, observer: Observer) -> None:
        if observer.id in self._observers:
            fired = f"It fired {observer.backlog.fires} times, as often as it was to."
            self._end(observer, Failure("MAX_FIRES", fired))

    def _attach(self, observer: Observer, *, is_announced: bool = False) -> None:
        """Attach an observer to the function that its source means now, and ask the owner of that.

        The owner is not asked one by one where the list of all observers is about to be sent (`is_announced`).
        """
        namespace, function_id = observer.spec.source
        function = self._functions.find(function_id, namespace)
        if function is not None and function.is_remote:
            function = None  # its calls are seen where its worker is
        if function is observer.function:
            return
        self._detach(observer)
        observer.function = function
        if function is None:
            return
        if observer.spec.binding is not None:
            observer.args = _to_args(observer.spec.binding, function)
        approval = observer.approval
        try:
            observers.check_observable(observer, function)
            self._calls.check(function, caller_of(observer.maker), "observe")
            others = self._by_function.setdefault(function, set())
            if len(others) >= MAX_OBSERVERS_OF_FUNCTION:
                why = f"{function.id} has {MAX_OBSERVERS_OF_FUNCTION} observers already."
                raise InvocationFailed(why, "TOO_MANY_OBSERVERS")
            others.add(observer)
        except WaypostError as error:
            approval.refusal = to_failure(error)
            return
        owner = function.owner
        # The hub's own functions, and workers that do not know observers, cannot be asked.
        if owner is None or not owner.observes:
            approval.is_given = True
            return
        # The owner may be slow or old. The observer waits for its word, but not forever.
        approval.timer = running_loop().call_later(self.acknowledge_timeout, self._refuse_late, observer)
        if not is_announced:
            approval.revision = next(self._revisions)
            owner.send(frames.ObserverAdded(function.id, approval.revision, observer.info(), function.namespace))

    def _detach(self, observer: Observer) -> None:
        function = observer.function
        if function is None:
            return
        self._remove_at_owner(observer)
        others = self._by_function.get(function, set())
        others.discard(observer)
        if not others:
            self._by_function.pop(function, None)
        observer.approval.stop_waiting()
        observer.function, observer.approval = None, Approval()
        _unwatch(observer, function)

    def _remove_at_owner(self, observer: Observer) -> None:
        function = observer.function
        if function is None or observer.approval.revision is None:
            return
        observer.approval.revision = None
        if function.owner is not None and not function.owner.is_gone:
            revision = next(self._revisions)
            function.owner.send(frames.ObserverRemoved(function.id, revision, observer.id, function.namespace))

    def _refuse_late(self, observer: Observer) -> None:
        late = f"The owner did not answer within {self.acknowledge_timeout:g} s."
        observer.approval.refusal = Failure("OWNER_TIMEOUT", late)
        self._update_state(observer)

    def _update_state(self, observer: Observer) -> None:
        """Compute the state of an observer, and report it to the maker if it changed."""
        before = observer.state, observer.reason
        observer.state, observer.reason = self._compute_state(observer)
        observer.was_active = observer.was_active or observer.state == "active"
        self._watch(observer)
        if before == (observer.state, observer.reason):
            return
        if observer.is_answered:
            self._report(observer)
        owner = None if observer.function is None else observer.function.owner
        if observer.is_remote and self._shared is not None and isinstance(owner, Worker):
            self._shared.write([owner])

    def _compute_state(self, observer: Observer) -> tuple[State, Failure | None]:
        waiting: State = "suspended" if observer.was_active else "pending"
        source, target = observer.spec.source[1], observer.spec.target[1]
        approvals = list(self._list_approvals(observer))
        if not approvals:
            return waiting, Failure("OWNER_MISSING", f"No worker offers {source}.")
        if not any(one.is_given for one in approvals):
            if approvals[0].refusal is not None and all(one.refusal is not None for one in approvals):
                return "error", approvals[0].refusal
            return waiting, Failure("OWNER_PENDING", f"The owner of {source} has not agreed yet.")
        if not self._has_target(observer):
            return waiting, Failure("TARGET_MISSING", f"No worker offers {target}.")
        return "active", None

    def _list_approvals(self, observer: Observer) -> Iterator[Approval]:
        """What is decided about an observer, for each replica that has its function."""
        if observer.function is not None:
            yield observer.approval
        if self._shared is None or not observer.shared_id:
            return
        for worker in self._shared.list_offers(observer.spec.source):
            answers = worker.offered.answers
            refusal = answers.get(observer.shared_id)
            yield Approval(observer.shared_id in answers and refusal is None, refusal)

    def _watch(self, observer: Observer) -> None:
        """Watch the calls of its function while an observer is active."""
        function = observer.function
        if function is None or observers.is_owner_delivered(function):
            return
        if not observer.is_accepted:
            _unwatch(observer, function)
            return
        if function.watch is None:
            function.watch = Watch(function, self._fire)
        function.watch.observers[observer] = None

    def _has_target(self, observer: Observer) -> bool:
        if observer.is_remote:  # its own replica finds out
            return True
        namespace, function_id = observer.spec.target
        return self._functions.find(function_id, namespace) is not None

    def _fire(self, observer: Observer, event: Event) -> None:
        if self._is_there(observer):
            self._delivery.fire(observer, event)

    def _is_there(self, observer: Observer) -> bool:
        # A call that ends because its worker disconnects is still delivered, to an observer that is suspended by then.
        is_there = observer.state == "active" or (observer.state == "suspended" and self._has_target(observer))
        return is_there and self._is_open

    def _answer(self, observer: Observer) -> None:
        """Answer the registration of an observer; from now on changes are reported."""
        observer.is_answered = True
        if observer.spec.binding is not None:
            self._report(observer)
            return
        error = observer.reason if observer.state == "error" else None
        warnings = _find_warnings(observer, self._shared is not None)
        observer.maker.send(frames.ObserveResult(observer.id, observer.state, error, warnings))

    def _report(self, observer: Observer) -> None:
        binding = observer.spec.binding
        if observer.maker.is_gone:
            return
        if binding is None:
            fires = observer.backlog.fires
            observer.maker.send(frames.ObserverStateChanged(observer.id, observer.state, fires, observer.reason))
        elif observer.state == "error":  # for bindings the protocol has only a refusal
            error = Raw(encode(observer.reason))
            refusal = frames.TriggerRegistrationResult(observer.id, binding.type, observer.spec.target[1], error)
            observer.maker.send(refusal)


def _to_args(binding: Binding, function: Function) -> dict[str, Any]:
    """The configuration of a binding as arguments of an observer, if they fit; the owner sees the binding as well."""
    try:
        config = msgspec.json.decode(binding.config)
    except (msgspec.MsgspecError, RecursionError):
        return {}
    if not isinstance(config, dict) or not observers.is_owner_delivered(function):
        return {}
    return {} if observers.find_args_problems(config, function) else config


def _unwatch(observer: Observer, function: Function) -> None:
    if function.watch is not None:
        function.watch.observers.pop(observer, None)
        if not function.watch.observers:
            function.watch = None


def _is_owner(observer: Observer, worker: Worker) -> bool:
    return observer.function is not None and observer.function.owner is worker


def _find_warnings(observer: Observer, has_replicas: bool) -> list[str] | None:
    function, warnings = observer.function, []
    if function is not None and observers.is_owner_delivered(function) and observer.spec.on != "success":
        warnings.append(f"`on` has no effect: the owner of {function.id} decides which events its observers receive.")
    if has_replicas and not observer.shared_id:
        warnings.append(
            f"Only calls at this replica are seen: the worker has observers of {MAX_SHARED_BYTES} bytes already."
        )
    return warnings or None


class TriggerSubstitutes:
    """All functions with a `legacy_trigger_type`; of several for one type, the first serves it."""

    def __init__(self, triggers: Triggers) -> None:
        self._triggers = triggers
        self._rows: dict[Key, dict[str, TriggerType]] = {}

    def replace(self, old: Iterable[Function], new: Iterable[Function]) -> None:
        """Functions were withdrawn, and others are offered."""
        leaving = {(key, one.id): one for one in old if (key := _type_key(one)) is not None}
        arriving = {(key, one.id): one for one in new if (key := _type_key(one)) is not None}
        for place, function in leaving.items():
            other = arriving.get(place)
            if other is not None and other.owner is function.owner:
                del arriving[place]  # registered again by the same worker: its bindings stay where they are
            else:
                self._rows[place[0]].pop(place[1], None)
        for (key, function_id), function in arriving.items():
            self._rows.setdefault(key, {})[function_id] = TriggerType(
                key[1],
                function.frame.description or "",
                None if function.frame.observe is None else function.frame.observe.args_format,
                namespace=key[0],
                worker=function.owner,
                source=function.key,
            )
        for key in {key for key, _ in (*leaving, *arriving)}:
            self._triggers.set_substitute(key, next(iter(self._rows[key].values()), None))
            if not self._rows[key]:
                del self._rows[key]


def _type_key(function: Function) -> Key | None:
    """The namespace and id of the trigger type that a function serves, if any."""
    terms = function.frame.observe
    return None if terms is None or not terms.legacy_trigger_type else (function.namespace, terms.legacy_trigger_type)
