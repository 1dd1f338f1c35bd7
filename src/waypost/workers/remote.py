"""Workers that are connected to other replicas, and the calls of functions between replicas.

A call goes to the replica that holds the socket of the worker. Where it did not start, another worker that offers the
same function is asked; where it may have started, the outcome is unknown, and the caller learns that.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Awaitable, Callable, Coroutine
from dataclasses import dataclass, field
from typing import Any, Final

import msgspec
from msgspec import UNSET, Raw, Struct

from waypost.buses import Bus
from waypost.buses.bus import Subscription
from waypost.capabilities.context import Caller, DetachedCaller
from waypost.capabilities.principals import Chain, Principal
from waypost.errors import Busy, DeadlineExceeded, InvocationFailed, NoHolder, RemoteError
from waypost.protocol.relay import unwrap_message, wrap_message
from waypost.stores.store import Store
from waypost.workers import frames
from waypost.workers.frames import (
    Failure,
    Given,
    NotStarted,
    Observe,
    RegisterFunction,
    RegisterTrigger,
    RegisterTriggerType,
    TriggerRegistrationResult,
    WorkerUnreachable,
    encode,
    to_failure,
)
from waypost.workers.functions import Call, Function, Functions
from waypost.workers.worker import Latency, Worker, invocation_id

_CANCELLED: Final = "workers.cancelled"
_MESSAGES: Final = "workers.messages"
_MAX_CALL_S: Final = 3600.0
"""The limit of the hub for calls between workers; a caller that gives up sooner says so."""
FindWorker = Callable[[str], Worker | None]
"""The worker with an id that is connected here."""
DeliverObserved = Callable[[str, Call], Awaitable[Raw]]
"""Delivers an event to the observer with an id."""
Spawn = Callable[[Coroutine[Any, Any, Any]], asyncio.Task[Any]]


class Offered(Struct, omit_defaults=True):
    """What replicas know of a worker of another one."""

    name: str
    identity: str
    namespace: str
    connected_at: float
    about: dict[str, Any] = {}
    functions: list[RegisterFunction] = []
    types: list[RegisterTriggerType] = []
    """The trigger types that it provides."""
    bindings: list[RegisterTrigger] = []
    observers: dict[str, Observe] = {}
    """Its observers, by an id that no other registration at any replica has."""
    answers: dict[str, Failure | None] = {}
    """Why its functions may not be observed by observers of other replicas, by that id; nothing where they may be."""


@dataclass(eq=False, slots=True)
class RemoteWorker:
    """A worker that is connected to another replica."""

    replica: str
    id: str
    offered: Offered
    calls: RemoteCalls
    """The way to its replica."""
    functions: dict[str, Function] = field(default_factory=dict)
    caller: Caller | None = None
    """Its principal for policies, once it was needed."""
    is_gone: bool = False
    observes: bool = False
    """Observers of its functions are at its own replica."""
    unanswered: int = 0
    """How many calls from here it has not answered."""
    latency: Latency = field(default_factory=Latency)
    """How long calls from here take, with the way to its replica."""

    @property
    def name(self) -> str:
        """The name that it introduced itself with."""
        return self.offered.name

    @property
    def identity(self) -> str:
        """Its name, without a process id."""
        return self.offered.identity

    @property
    def namespace(self) -> str:
        """The namespace of its functions."""
        return self.offered.namespace

    @property
    def about(self) -> dict[str, Any]:
        """The rest of its introduction."""
        return self.offered.about

    @property
    def connected_at(self) -> float:
        """When it connected to its replica."""
        return self.offered.connected_at

    @property
    def owner(self) -> str:
        """The name under which the hub stores what belongs to it."""
        return f"worker:{self.name}"

    def send(self, message: Struct) -> None:
        """Have its replica send it the refusal of a binding; it sends all else by itself."""
        if isinstance(message, TriggerRegistrationResult):
            refused = msgspec.structs.replace(message, id=message.id.removeprefix(f"{self.replica}/"))
            self.calls.send(self, encode(refused))

    def warn(self, message: str, *values: object) -> None:
        """Log nothing: its own replica does."""


class _Request(Struct):
    """A call on its way to the replica that holds the socket."""

    id: str
    origin: str
    namespace: str
    call: Call
    principal: Principal
    chain: Chain
    observer: str = ""
    """The observer that the call is made for, by its id at other replicas; it is delivered as its own replica does."""


class _Reply(Struct, omit_defaults=True):
    """The outcome of a call: a result, or a failure and its kind."""

    result: Given = UNSET
    kind: str = ""
    failure: Failure | None = None
    error_class: str = ""


_read_request: Final = msgspec.json.Decoder(_Request).decode
_read_reply: Final = msgspec.json.Decoder(_Reply).decode
_read_cancelled: Final = msgspec.json.Decoder(tuple[str, str]).decode
_read_message: Final = msgspec.json.Decoder(tuple[str, str, Raw]).decode
_BUSY: Final = "busy"
_KINDS: Final = (("not started", NotStarted), ("unreachable", WorkerUnreachable), ("failed", InvocationFailed))
"""The kinds of failures, the most specific first."""


class RemoteCalls:
    """Calls functions at other replicas, and runs those of this one for them."""

    def __init__(
        self, functions: Functions, find: FindWorker, store: Store, bus: Bus, replica: str, spawn: Spawn
    ) -> None:
        self._functions = functions
        self._find_worker = find
        self._store = store
        self._bus = bus
        self._replica = replica
        self._spawn = spawn
        self.deliver: DeliverObserved | None = None
        """Delivers the events that other replicas send to observers of this one."""
        self._waiting: dict[str, set[asyncio.Timeout]] = {}
        """The calls that other replicas run, by replica; `forget` ends them."""
        self.gone: set[str] = set()
        """Replicas that are gone, until their workers are removed: nothing would end a call to them."""
        self._running: dict[str, tuple[str, asyncio.Task[Any]]] = {}
        """The calls that run here for other replicas: the replica, and the task."""
        self._subscriptions: list[Subscription] = []

    async def start(self) -> None:
        """Run the calls of other replicas from now on."""
        self._subscriptions = [
            await self._bus.serve(f"workers.{self._replica}", self._respond),
            await self._bus.subscribe(_CANCELLED, self._take_cancellation),
            await self._bus.subscribe(_MESSAGES, self._pass_message),
        ]

    async def stop(self) -> None:
        """Run no further calls; other replicas know that at once."""
        for _, task in list(self._running.values()):
            task.cancel()
        while self._subscriptions:
            await self._subscriptions.pop().end()

    def forget(self, replica: str) -> None:
        """A replica is gone: nothing is heard from it any more, and nothing waits there for an answer."""
        self.gone.add(replica)
        for scope in self._waiting.pop(replica, ()):
            # A time in the past: the wait ends in the next turn of the loop.
            scope.reschedule(0)
        for origin, task in list(self._running.values()):
            if origin == replica:
                task.cancel()

    async def call(self, worker: RemoteWorker, namespace: str, call: Call, observer: str = "") -> Raw:
        """Have the replica of a worker call a function, or deliver an event to an observer of that worker.

        Raises `NotStarted` or `Busy` where the function was not called, `WorkerUnreachable` where it may have been.
        """
        if worker.replica in self.gone:
            raise _not_started(worker)
        caller: Caller = call.caller
        request = _Request(
            f"{self._replica}-{invocation_id()}",
            self._replica,
            namespace,
            msgspec.structs.replace(call, caller=None),
            caller.principal,
            caller.chain,
            observer,
        )
        # What is too large for the bus goes through the store.
        message = await wrap_message(self._store, encode(request))
        worker.unanswered += 1
        began = time.perf_counter()
        try:
            carried = await self._request(worker, request.id, message)
        except NoHolder:
            raise _not_started(worker) from None
        except (DeadlineExceeded, RemoteError, TimeoutError):
            raise WorkerUnreachable(
                f"Invocation stopped: the replica of the worker {worker.name} was lost before {call.function_id} "
                "answered; it may have run.",
                "invocation_stopped",
            ) from None
        finally:
            worker.unanswered -= 1
        try:
            reply = _read_reply(await unwrap_message(self._store, carried))
        except (NoHolder, msgspec.MsgspecError, RecursionError):
            raise WorkerUnreachable(
                f"Invocation stopped: the answer of {call.function_id} was lost; it has run.", "invocation_stopped"
            ) from None
        if reply.failure is not None:
            raise _to_exception(reply, reply.failure)
        worker.latency.add(time.perf_counter() - began)
        return frames.NULL if reply.result is UNSET else reply.result

    def send(self, worker: RemoteWorker, message: bytes) -> None:
        """Have the replica of a worker send it a message."""
        self._spawn(self._bus.publish(_MESSAGES, encode((worker.replica, worker.id, Raw(message)))))

    def _pass_message(self, _subject: str, message: bytes) -> None:
        replica, worker_id, passed = _read_message(message)
        worker = self._find_worker(worker_id) if replica == self._replica else None
        if worker is not None:
            worker.socket.send(bytes(passed))

    async def _request(self, worker: RemoteWorker, call_id: str, message: bytes) -> bytes:
        waiting = self._waiting.setdefault(worker.replica, set())
        async with asyncio.timeout(None) as scope:  # without a time of its own: `forget` ends it
            waiting.add(scope)
            try:
                return await self._bus.request(f"workers.{worker.replica}", message, _MAX_CALL_S)
            except asyncio.CancelledError:  # the bus only stops waiting: the function would go on at its replica
                self._spawn(self._bus.publish(_CANCELLED, encode((worker.replica, call_id))))
                raise
            finally:
                waiting.discard(scope)

    async def _respond(self, carried: bytes) -> bytes:
        try:
            request = _read_request(await unwrap_message(self._store, carried))
        except (NoHolder, msgspec.MsgspecError, RecursionError) as error:  # of another version, perhaps
            return encode(_to_reply(NotStarted(f"The call cannot be read: {error}.", "invocation_stopped")))
        task = asyncio.current_task()
        assert task is not None
        self._running[request.id] = request.origin, task
        try:
            reply = _Reply(await self._run(request))
        except Exception as error:
            reply = _to_reply(error)
        finally:
            del self._running[request.id]
        return await wrap_message(self._store, encode(reply))

    async def _run(self, request: _Request) -> Raw:
        call = request.call
        if request.observer and self.deliver is not None:
            return await self.deliver(request.observer, call)
        function = self._functions.get(request.namespace, call.function_id)
        if function is None or function.is_remote or function.owner is None:
            # As where no worker offers it anywhere: clients need not know that there are replicas.
            missing = frames.function_not_found(call.function_id, request.namespace)
            raise NotStarted(missing.message, missing.code)
        call.caller = DetachedCaller(request.principal, request.chain)
        # The caller's replica has checked policies and arguments, and records the call: here it only runs.
        return await (function.run if function.watch is None else function.watch.run)(call)

    def _take_cancellation(self, _subject: str, message: bytes) -> None:
        replica, call_id = _read_cancelled(message)
        running = self._running.get(call_id) if replica == self._replica else None
        if running is not None:
            running[1].cancel()


def _not_started(worker: RemoteWorker) -> NotStarted:
    return NotStarted(
        f"Invocation stopped: the replica of the worker {worker.name} cannot be reached.", "invocation_stopped"
    )


def _to_reply(error: Exception) -> _Reply:
    failure = to_failure(error)
    if isinstance(error, Busy):
        return _Reply(kind=_BUSY, failure=failure)
    kind = next((kind for kind, one in _KINDS if isinstance(error, one)), "failed")
    error_class = error.error_class if isinstance(error, InvocationFailed) else ""
    return _Reply(kind=kind, failure=failure, error_class=error_class)


def _to_exception(reply: _Reply, failure: Failure) -> Exception:
    if reply.kind == _BUSY:
        return Busy(failure.message)
    make = dict(_KINDS).get(reply.kind, InvocationFailed)
    return make(failure.message, failure.code, failure.stacktrace, reply.error_class)
