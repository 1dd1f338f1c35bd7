"""All observers of a hub: registration, state, delivery, and functions that replace trigger types.

A function names with `legacy_trigger_type` the trigger type that it replaces while no worker provides that type. A
binding to the type becomes an observer of the function and receives the bare event, as bound functions always did.
"""

from __future__ import annotations

import asyncio
import itertools
from collections.abc import Iterable, Iterator
from typing import Any, Final, TypeAlias

import msgspec
from msgspec import Raw

from waypost.capabilities.schemas.validators import Validator
from waypost.errors import DefinitionError, InvocationFailed, WaypostError
from waypost.loops import running_loop
from waypost.workers.calls import CallRunner, call_of, caller_of
from waypost.workers.filters import Filter
from waypost.workers.frames import (
    Failure,
    FunctionRegistered,
    InvocationsObserved,
    InvokeFunction,
    LegacyTrigger,
    Observe,
    ObserverAck,
    ObserverAdded,
    ObserveResult,
    ObserverRemoved,
    ObserverStateChanged,
    TriggerRegistrationResult,
    encode,
    to_failure,
)
from waypost.workers.functions import Function, Functions
from waypost.workers.observers import (
    DEFAULT_CONCURRENCY,
    Event,
    Observer,
    ObserverDelivery,
    State,
    Watch,
    admit,
    event_of,
    is_owner_delivered,
    observer_of,
)
from waypost.workers.triggers import Binding, Kind, Listener, Triggers
from waypost.workers.worker import Worker


class ObservedFunction:
    """A function that stands in for the provider of a kind of trigger."""

    def __init__(self, observing: ObserverRegistry, function: Function) -> None:
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
        max_in_flight=DEFAULT_CONCURRENCY,
        places=asyncio.Semaphore(DEFAULT_CONCURRENCY),
        legacy=LegacyTrigger(binding.type, binding.config),
    )


FEATURE: Final = "observe.v1"
"""What the hub and workers call all this."""
MAX_OBSERVERS: Final = 10_000
"""Observers of one worker, and observers that are remembered when it leaves."""
MAX_OBSERVERS_OF_FUNCTION: Final = 1_000
"""Observers of one function."""
ACKNOWLEDGE_TIMEOUT_S: Final = 35.0
"""Seconds that an owner has to agree; workers themselves give their hooks 30."""


class ObserverRegistry:
    """All observers of a hub."""

    def __init__(self, functions: Functions, calling: CallRunner) -> None:
        self._functions = functions
        self._calling = calling
        self.patience = ACKNOWLEDGE_TIMEOUT_S
        self._delivering = ObserverDelivery(calling, self._used_up)
        self._revisions = itertools.count(1)
        self._observers: dict[str, Observer] = {}
        self._at: dict[Function, set[Observer]] = {}
        self._made: dict[Listener, dict[str, Observer]] = {}
        self._named: dict[str, dict[Observer, None]] = {}
        self._left: dict[tuple[str, str], tuple[bytes, int, float | None]] = {}
        self._is_open = False

    def __len__(self) -> int:
        return len(self._observers)

    def __iter__(self) -> Iterator[Observer]:
        return iter(self._observers.values())

    @property
    def running(self) -> int:
        """How many activations run or wait."""
        return self._delivering.running

    def get(self, observer_id: str) -> Observer | None:
        """The observer with an id."""
        return self._observers.get(observer_id)

    def open(self) -> None:
        """Tell observers of what happens from now on."""
        self._is_open = True

    async def close(self) -> None:
        """Tell nobody anything any more."""
        self._is_open = False
        for observer in list(self._observers.values()):
            self._take_out(observer)
        await self._delivering.close()

    def observe(self, worker: Worker, wish: Observe) -> None:
        """A worker wants a function to hear of the calls of another, now or still."""
        before = self._observers.get(wish.id)
        if before is not None and before.maker is worker and before.asked == encode(wish):
            self._answer(before)
            return
        try:
            self._check_room(worker, wish.id)
            observer = observer_of(wish, worker)
        except InvocationFailed as error:
            worker.send(ObserveResult(wish.id, "error", to_failure(error)))
            return
        self._begin(observer)

    def adopt(self, observer: Observer) -> None:
        """Have an observer that stands for a binding."""
        try:
            self._check_room(observer.maker, observer.id)
        except InvocationFailed as error:
            observer.state, observer.reason = "error", to_failure(error)
            self._tell(observer)
            return
        self._begin(observer)

    def unobserve(self, maker: Listener, observer_id: str) -> None:
        """A listener has seen enough."""
        observer = self._observers.get(observer_id)
        if observer is not None and observer.maker is maker:
            observer.is_dropped = True
            self._end(observer)

    def acknowledge(self, worker: Worker, ack: ObserverAck) -> None:
        """The owner of a function says what it thinks of an observer; only what it says to the latest news counts."""
        observer = self._observers.get(ack.id)
        if observer is None or observer.revision != ack.revision or not _belongs(observer, worker):
            return
        observer.forget("owner")
        if ack.error is None:
            observer.is_accepted, observer.refusal = True, None
        else:
            self._remove_at_owner(observer)
            observer.is_accepted, observer.refusal = False, ack.error
        self._judge(observer)

    def report(self, worker: Worker, reports: InvocationsObserved) -> None:
        """The owner of functions tells of events, and for whom they are."""
        for told in reports.items:
            function = self._functions.get(told.namespace or worker.namespace, told.function_id)
            if function is None or function.owner is not worker or not is_owner_delivered(function):
                continue
            event = event_of(told, function)
            for observer_id in dict.fromkeys(told.matched):
                observer = self._observers.get(observer_id)
                if observer is not None and observer.function is function and observer.state == "active":
                    self._delivering.fire(observer, event)

    async def route(self, worker: Worker, frame: InvokeFunction) -> Raw:
        """The owner of a function calls the function of an observer, whatever that is."""
        assert frame.activation is not None
        observer = self._observers.get(frame.activation.observer_id)
        if observer is None or observer.state != "active" or not _belongs(observer, worker):
            why = f"The observer {frame.activation.observer_id} is not active, or observes no function of this worker."
            raise InvocationFailed(why, "OBSERVER_NOT_ACTIVE")
        assert observer.function is not None
        if not is_owner_delivered(observer.function):
            raise InvocationFailed(f"{observer.function.id} is not delivered by its owner.", "NOT_OWNER_DELIVERED")
        return await self._delivering.call(observer, call_of(worker, frame))

    def registered(self, worker: Worker, functions: Iterable[Function]) -> None:
        """A worker offers functions, and hears who observes them."""
        for function in functions:
            concerned = list(self._named.get(function.id, ()))
            for observer in concerned:
                self._place(observer, is_asked=not worker.observes)
            if worker.observes:
                self._announce(worker, function, [one for one in concerned if one.function is function])
            for observer in concerned:
                self._judge(observer)

    def changed(self, functions: Iterable[Function]) -> None:
        """Functions are offered no longer, or the hub offers others."""
        for function in functions:
            for observer in list(self._named.get(function.id, ())):
                self._place(observer)
                self._judge(observer)

    def leave(self, worker: Worker) -> None:
        """A worker is gone, and with it its observers; how often they fired is not forgotten at once."""
        for observer in list(self._made.get(worker, {}).values()):
            observer.is_dropped = True
            self._end(observer)
            if observer.max_fires is not None or observer.expires_in is not None:
                self._left[worker.owner, observer.id] = observer.asked, observer.fires, observer.expires_at
        while len(self._left) > MAX_OBSERVERS:
            del self._left[next(iter(self._left))]

    def _check_room(self, maker: Listener, observer_id: str) -> None:
        before = self._observers.get(observer_id)
        if before is not None and before.maker is not maker:
            raise InvocationFailed(f"The observer {observer_id} is another worker's.", "OBSERVER_ID_IN_USE")
        if before is None and len(self._made.get(maker, ())) >= MAX_OBSERVERS:
            raise InvocationFailed(f"A worker has at most {MAX_OBSERVERS} observers.", "TOO_MANY_OBSERVERS")

    def _begin(self, observer: Observer) -> None:
        before = self._observers.get(observer.id)
        if before is not None:
            self._end(before)
        self._recall(observer)
        self._take_in(observer)
        self._place(observer)
        self._judge(observer)
        self._answer(observer)

    def _recall(self, observer: Observer) -> None:
        """A worker that was here before does not begin to count anew."""
        asked, fires, expires_at = self._left.pop((observer.maker.owner, observer.id), (b"", 0, None))
        if asked == observer.asked:
            observer.fires, observer.expires_at = fires, expires_at

    def _take_in(self, observer: Observer) -> None:
        self._observers[observer.id] = observer
        self._made.setdefault(observer.maker, {})[observer.id] = observer
        for function_id in (observer.source[1], observer.target[1]):
            self._named.setdefault(function_id, {})[observer] = None
        if observer.expires_in is not None:
            loop = running_loop()
            if observer.expires_at is None:
                observer.expires_at = loop.time() + observer.expires_in
            observer.timers["expiry"] = loop.call_at(observer.expires_at, self._expire, observer)

    def _take_out(self, observer: Observer) -> None:
        for timer in ("expiry", "owner"):
            observer.forget(timer)
        self._observers.pop(observer.id, None)
        made = self._made.get(observer.maker, {})
        made.pop(observer.id, None)
        if not made:
            self._made.pop(observer.maker, None)
        for function_id in (observer.source[1], observer.target[1]):
            named = self._named.get(function_id, {})
            named.pop(observer, None)
            if not named:
                self._named.pop(function_id, None)

    def _end(self, observer: Observer, reason: Failure | None = None) -> None:
        self._take_out(observer)
        self._detach(observer)
        observer.state, observer.reason = "disposed", reason
        if reason is not None:
            self._tell(observer)

    def _used_up(self, observer: Observer) -> None:
        if observer.id in self._observers:
            self._end(observer, Failure("MAX_FIRES", f"It fired {observer.fires} times, as often as it was to."))

    def _expire(self, observer: Observer) -> None:
        self._end(observer, Failure("EXPIRED", "Its time is over."))

    def _place(self, observer: Observer, *, is_asked: bool = True) -> None:
        """Have an observer observe whatever stands for its function now."""
        namespace, function_id = observer.source
        function = self._functions.find(function_id, namespace)
        if function is observer.function:
            return
        self._detach(observer)
        if function is not None:
            self._attach(observer, function, is_asked)

    def _attach(self, observer: Observer, function: Function, is_asked: bool) -> None:
        observer.function = function
        if observer.legacy is not None:
            observer.args = fitting_args(observer.legacy, function)
        try:
            admit(observer, function)
            self._calling.check(function, caller_of(observer.maker), "observe")
            self._crowd(observer, function)
        except WaypostError as error:
            observer.refusal = to_failure(error)
            return
        owner = function.owner
        if owner is None or not owner.observes:
            observer.is_accepted = True
            return
        observer.timers["owner"] = running_loop().call_later(self.patience, self._give_up, observer)
        if is_asked:
            observer.revision = next(self._revisions)
            owner.send(ObserverAdded(function.id, function.namespace, observer.revision, observer.told()))

    def _crowd(self, observer: Observer, function: Function) -> None:
        there = self._at.setdefault(function, set())
        if len(there) >= MAX_OBSERVERS_OF_FUNCTION:
            raise InvocationFailed(
                f"{function.id} has {MAX_OBSERVERS_OF_FUNCTION} observers already.", "TOO_MANY_OBSERVERS"
            )
        there.add(observer)

    def _announce(self, worker: Worker, function: Function, observers: list[Observer]) -> None:
        revision = next(self._revisions)
        taken = [observer for observer in observers if observer.refusal is None]
        for observer in taken:
            observer.revision = revision
        told = [observer.told() for observer in taken]
        worker.send(FunctionRegistered(function.id, function.namespace, revision, told))

    def _detach(self, observer: Observer) -> None:
        function = observer.function
        if function is None:
            return
        self._remove_at_owner(observer)
        there = self._at.get(function, set())
        there.discard(observer)
        if not there:
            self._at.pop(function, None)
        observer.forget("owner")
        observer.function = observer.refusal = None
        observer.is_accepted = False
        _unwatch(observer, function)

    def _remove_at_owner(self, observer: Observer) -> None:
        function = observer.function
        if function is None or observer.revision is None:
            return
        observer.revision = None
        if function.owner is not None and not function.owner.is_gone:
            revision = next(self._revisions)
            function.owner.send(ObserverRemoved(function.id, function.namespace, revision, observer.id))

    def _give_up(self, observer: Observer) -> None:
        observer.refusal = Failure("OWNER_TIMEOUT", f"The owner did not answer within {self.patience:g} s.")
        self._judge(observer)

    def _judge(self, observer: Observer) -> None:
        """See how an observer stands, and tell its maker when that is otherwise than before."""
        before = observer.state, observer.reason
        observer.state, observer.reason = self._standing(observer)
        observer.was_active = observer.was_active or observer.state == "active"
        self._watch(observer)
        if observer.is_answered and before != (observer.state, observer.reason):
            self._tell(observer)

    def _standing(self, observer: Observer) -> tuple[State, Failure | None]:
        away: State = "suspended" if observer.was_active else "pending"
        if observer.function is None:
            return away, Failure("OWNER_MISSING", f"Nobody offers {observer.source[1]}.")
        if observer.refusal is not None:
            return "error", observer.refusal
        if not observer.is_accepted:
            return away, Failure("OWNER_PENDING", f"The owner of {observer.source[1]} has not agreed yet.")
        if not self._has_target(observer):
            return away, Failure("TARGET_MISSING", f"Nobody offers {observer.target[1]}.")
        return "active", None

    def _watch(self, observer: Observer) -> None:
        """Have the calls of its function watched for an observer while it is active."""
        function = observer.function
        if function is None or is_owner_delivered(function):
            return
        if observer.state != "active":
            _unwatch(observer, function)
            return
        if function.watch is None:
            function.watch = Watch(function, self._saw)
        function.watch.observers[observer] = None

    def _has_target(self, observer: Observer) -> bool:
        namespace, function_id = observer.target
        return self._functions.find(function_id, namespace) is not None

    def _saw(self, observer: Observer, event: Event) -> None:
        """An observer saw a call to its end, which may be that the worker left."""
        is_there = observer.state == "active" or (observer.state == "suspended" and self._has_target(observer))
        if is_there and self._is_open:
            self._delivering.fire(observer, event)

    def _answer(self, observer: Observer) -> None:
        observer.is_answered = True
        if observer.legacy is not None:
            self._tell(observer)
            return
        error = observer.reason if observer.state == "error" else None
        observer.maker.send(ObserveResult(observer.id, observer.state, error, _warnings(observer)))

    def _tell(self, observer: Observer) -> None:
        if observer.maker.is_gone:
            return
        if observer.legacy is None:
            observer.maker.send(ObserverStateChanged(observer.id, observer.state, observer.fires, observer.reason))
        elif observer.state == "error":  # whoever made a binding hears only of that
            observer.maker.send(refusal_of(observer, observer.legacy))


def _unwatch(observer: Observer, function: Function) -> None:
    if function.watch is not None:
        function.watch.observers.pop(observer, None)
        if not function.watch.observers:
            function.watch = None


def _belongs(observer: Observer, worker: Worker) -> bool:
    return observer.function is not None and observer.function.owner is worker


def _warnings(observer: Observer) -> list[str] | None:
    function = observer.function
    if function is None or not is_owner_delivered(function) or observer.on == "success":
        return None
    return [f"`on` has no effect: the owner of {function.id} decides what its observers hear."]


Key: TypeAlias = tuple[str, str]
"""A namespace, and the id of a kind of trigger."""


class TriggerReplacements:
    """All functions that would stand in for providers; of several for one kind the first does."""

    def __init__(self, triggers: Triggers, observing: ObserverRegistry) -> None:
        self._triggers = triggers
        self._observing = observing
        self._rows: dict[Key, dict[str, Kind]] = {}

    def exchange(self, old: Iterable[Function], new: Iterable[Function]) -> None:
        """Functions are offered no longer, or others are offered."""
        leaving = {(key, one.id): one for one in old if (key := _key(one)) is not None}
        arriving = {(key, one.id): one for one in new if (key := _key(one)) is not None}
        for place, function in leaving.items():
            other = arriving.get(place)
            if other is not None and other.owner is function.owner:
                del arriving[place]  # it is the same to whoever is bound to it
            else:
                self._rows[place[0]].pop(place[1], None)
        for (key, function_id), function in arriving.items():
            self._rows.setdefault(key, {})[function_id] = self._kind(key, function)
        for key in {key for key, _ in (*leaving, *arriving)}:
            self._triggers.lend(key, next(iter(self._rows[key].values()), None))
            if not self._rows[key]:
                del self._rows[key]

    def _kind(self, key: Key, function: Function) -> Kind:
        terms = function.observable
        return Kind(
            key[1],
            function.description or "",
            None if terms is None else terms.args_format,
            namespace=key[0],
            worker=function.owner,
            stand_in=ObservedFunction(self._observing, function),
        )


def _key(function: Function) -> Key | None:
    """The kind that a function takes the place of, if any."""
    terms = function.observable
    return None if terms is None or not terms.legacy_trigger_type else (function.namespace, terms.legacy_trigger_type)
