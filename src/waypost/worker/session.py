"""The session of a worker with its engine: what it offers, what it calls, and the messages both ways."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Coroutine, Mapping
from typing import Any, Final

from msgspec import Raw, Struct

from waypost.capabilities.results import encode_json
from waypost.errors import InvocationFailed
from waypost.loops import running_loop
from waypost.worker.channels import CREATE_CHANNEL, Channels
from waypost.worker.connection import (
    Connection,
    FromEngine,
    FunctionRegistered,
    ObserverAdded,
    ObserverRemoved,
    Reconnecting,
)
from waypost.worker.functions import Functions, Handler
from waypost.worker.invocations import VOID, Calls, add_origin, to_raw
from waypost.worker.loop import Answer, WorkerLoop
from waypost.worker.observed_functions import EventQueue, ObservedFunction, ObservedFunctions, WorkerAccess
from waypost.worker.observers import Observers
from waypost.worker.publications import Handshake, Publications
from waypost.worker.triggers import Bound, Triggers, TriggerType
from waypost.workers import frames
from waypost.workers.frames import InvokeFunction, ObserveResult, ObserverStateChanged, Origin, RegisterTrigger

_log: Final = logging.getLogger(__name__)
_INTRODUCTION: Final = "engine::workers::register"
_FUNCTION_CONFLICT: Final = "FUNCTION_NAMESPACE_CONFLICT"
SHUT_DOWN: Final = "SHUTDOWN"


class Refusals:
    """The functions that the engine does not accept, because another worker offers them already.

    The engine does not say when it accepts one after all; a call or a list of observers shows that it has.
    """

    def __init__(self) -> None:
        self.ids: frozenset[str] = frozenset()
        self._none_left = asyncio.Event()
        self._none_left.set()

    def add(self, function_id: str) -> None:
        """The engine refuses a function; of several, only the first is worth a warning."""
        level = logging.DEBUG if self.ids else logging.WARNING
        _log.log(level, "the function %s was not accepted: another worker offers it already", function_id)
        self.ids |= {function_id}
        self._none_left.clear()

    def remove(self, function_id: str) -> None:
        """The engine has accepted a function, or it is no longer offered."""
        if function_id in self.ids:
            self.ids -= {function_id}
            if not self.ids:
                self._none_left.set()

    def clear(self) -> None:
        """There is no engine that refuses anything."""
        self.ids = frozenset()
        self._none_left.set()

    async def wait_until_none(self) -> None:
        """Wait until all functions are accepted."""
        await self._none_left.wait()


class Lifetime:
    """Whether a session is connected, and whether and why it has ended."""

    def __init__(self) -> None:
        self.ready = asyncio.Event()
        self.closed = asyncio.Event()
        self.ended: InvocationFailed | None = None

    async def wait_until_ready(self) -> None:
        """Wait for a connection; the reason why there will be none is raised."""
        await self.ready.wait()
        self.check()

    async def wait_until_closed(self) -> None:
        """Wait for the end."""
        await self.closed.wait()

    async def wait_until_shut_down(self) -> None:
        """Wait for the end, whose reason is raised unless it was asked for."""
        await self.closed.wait()
        if self.ended is not None and self.ended.code != SHUT_DOWN:
            raise self.ended

    def check(self) -> None:
        """Raise the reason for the end, if there is one."""
        if self.ended is not None:
            raise self.ended


class Session:
    """What a worker keeps across connections. Everything but `invoke` and `loop` is used in the loop only."""

    def __init__(
        self,
        url: str,
        about: dict[str, Any],
        headers: Mapping[str, str],
        *,
        timeout_ms: int,
        max_running: int,
        reconnecting: Reconnecting,
        handshake: Handshake,
    ) -> None:
        self.about = about
        """How the worker introduces itself: its `name`, `namespace` and more."""
        self.loop = WorkerLoop()
        self.lifetime = Lifetime()
        self.refusals = Refusals()
        self.triggers = Triggers()
        self._timeout_ms = timeout_ms
        self._connection = Connection(
            url, headers, reconnecting, on_connect=self._on_connect, on_message=self._on_message, on_lost=self._on_lost
        )
        self._calls = Calls(self._connection.send)
        self.channels = Channels(
            url, headers, self.loop, lambda payload: self.invoke(InvokeFunction(CREATE_CHANNEL), payload)
        )
        self._functions = Functions(self._connection.send, max_running, self.channels.resolve)
        self.observers = Observers(self.loop, self.send_soon)
        events = EventQueue(self.loop, self.send_soon)
        access = WorkerAccess(self.loop, events, self._origin, self.send_soon, self.invoke, self._start)
        self.observed = ObservedFunctions(access)
        self.publications = Publications(self._call, handshake)
        self._sends: set[asyncio.Task[Any]] = set()
        self._tasks: set[asyncio.Task[Any]] = set()
        """The connection, and the hooks of observers and bindings; cancelled at the end."""
        self.loop.call(lambda: self._start(self._connection.stay_connected()))

    def add_function(self, handler: Handler, observed: ObservedFunction) -> None:
        """Offer a function."""
        self._functions.handlers[handler.frame.id] = handler
        self.observed.add(observed)
        self.send_soon(handler.frame)

    def remove_function(self, function_id: str) -> None:
        """Offer a function no longer."""
        if self._functions.handlers.pop(function_id, None) is not None:
            self.refusals.remove(function_id)
            self.observed.remove(function_id)
            self.send_soon(frames.UnregisterFunction(function_id))

    def add_trigger_type(self, kind: TriggerType) -> None:
        """Provide a trigger type."""
        self.triggers.types[kind.frame.id] = kind
        self.send_soon(kind.frame)

    def remove_trigger_type(self, type_id: str) -> None:
        """Provide a trigger type no longer."""
        self.triggers.types.pop(type_id, None)
        self.send_soon(frames.UnregisterTriggerType(type_id))

    def add_binding(self, binding: RegisterTrigger) -> None:
        """Bind a function to a trigger."""
        self.triggers.bindings[binding.id] = binding
        self.send_soon(binding)

    def remove_binding(self, binding_id: str) -> None:
        """Bind a function no longer."""
        binding = self.triggers.bindings.pop(binding_id, None)
        if binding is not None:
            self.send_soon(frames.UnregisterTrigger(binding_id, binding.trigger_type))

    def fire(self, bound: Bound, payload: Any) -> None:
        """Call a function that is bound to a trigger, without waiting; from any thread."""
        self.loop.call(self._fire, bound, payload)

    def invoke(self, frame: InvokeFunction, payload: Any, timeout_ms: int | None = None) -> Answer[Any]:
        """Call a function; from any thread."""
        frame.data = Raw(encode_json(payload))
        within = (self._timeout_ms if timeout_ms is None else timeout_ms) / 1000
        return self.loop.start(self._calls.make(add_origin(frame, self.observers.is_supported), within))

    def find_namespace(self, function_id: str, namespace: str | None = None) -> str | None:
        """The namespace of a function to call."""
        return namespace or (None if function_id.startswith("engine::") else self.about.get("namespace"))

    def send_soon(self, frame: Struct) -> None:
        """Send a message if there is a connection; what the engine has to know is sent again with the next one."""
        _start(self._connection.send(frame), self._sends)

    async def wait_until_accepted(self) -> None:
        """Wait until the engine has accepted all functions."""
        await self.refusals.wait_until_none()
        self.lifetime.check()

    def end(self, why: InvocationFailed) -> None:
        """Leave the engine for good."""
        if self.lifetime.ended is None:
            self.lifetime.ended = why
            _start(self._end(why), self._sends)

    def _fire(self, bound: Bound, payload: Any) -> None:
        namespace = self.find_namespace(bound.function_id, bound.namespace)
        frame = InvokeFunction(bound.function_id, metadata=to_raw(bound.metadata), action=VOID, namespace=namespace)
        answer = self.invoke(frame, payload)

        async def log_failure() -> None:
            try:
                await answer
            except InvocationFailed as error:
                _log.debug("a trigger did not reach its function: %s", error.message)

        _start(log_failure(), self._sends)

    async def _call(self, function_id: str, payload: Any, within: float) -> Any:
        frame = InvokeFunction(function_id, namespace=self.find_namespace(function_id))
        return await self.invoke(frame, payload, int(within * 1000))

    def _origin(self) -> Origin:
        return Origin(self._connection.worker_id, self.about["name"])

    def _start(self, work: Coroutine[Any, Any, None]) -> None:
        _start(work, self._tasks)

    async def _on_connect(self) -> None:
        # An engine forgets a worker with its connection, so everything is registered anew.
        for kind in self.triggers.types.values():
            kind.bound = {}
        self.refusals.clear()
        types = [kind.frame for kind in self.triggers.types.values()]
        functions = [handler.frame for handler in self._functions.handlers.values()]
        for frame in [*types, *functions, *self.triggers.bindings.values()]:
            await self._connection.send(frame)
        await self._connection.send(InvokeFunction(_INTRODUCTION, Raw(encode_json(self.about)), action=VOID))
        self._calls.connected()
        self.lifetime.ready.set()
        self.publications.publish_all()

    def _on_lost(self) -> None:
        if self.lifetime.ended is None:
            self.lifetime.ready.clear()
            self._calls.disconnected()
            self.observers.disconnected()
            self.observed.disconnected()

    def _on_message(self, frame: FromEngine) -> None:
        match frame:
            case InvokeFunction():
                self.refusals.remove(frame.function_id)
                self._functions.answer(frame)
            case frames.WorkerRegistered():
                self.observers.connected(frame.features or [])
                self.observed.connected(self.observers.is_supported)
            case frames.InvocationResult():
                self._calls.resolve(frame)
            case RegisterTrigger():
                self._start(self._bind(frame))
            case frames.UnregisterTrigger():
                self._start(self.triggers.unbind(frame))
            case frames.TriggerRegistrationResult(error=error) if (failure := frames.read_failure(error)) is not None:
                what = f"{frame.function_id} was not bound to" if frame.function_id else "this worker does not provide"
                _log.warning("%s %s: %s", what, frame.trigger_type, failure.message)
            case frames.RegistrationRejected():
                self._reject(frame.code, frame.function_id or "")
            case frames.Ping():
                self.send_soon(frames.Pong())
            case FunctionRegistered():
                self.refusals.remove(frame.id)
                self.observed.on_message(frame)
            case ObserverAdded() | ObserverRemoved():
                self.observed.on_message(frame)
            case ObserveResult() | ObserverStateChanged():
                self.observers.on_message(frame)

    def _reject(self, code: str, function_id: str) -> None:
        """The engine rejects a function, which it may accept later, or the worker for good."""
        if code == _FUNCTION_CONFLICT:
            self.refusals.add(function_id)
            self.observed.release(function_id)
            return
        _log.error("the engine rejected the worker %s: %s", self.about["name"], code)
        self.end(InvocationFailed(f"The engine rejected the worker: {code}.", code))

    async def _bind(self, frame: RegisterTrigger) -> None:
        reply = await self.triggers.bind(frame)
        if reply is not None:
            await self._connection.send(reply)

    async def _end(self, why: InvocationFailed) -> None:
        self.lifetime.ready.set()
        self.refusals.clear()
        self._calls.close(why)
        self.observers.close(why)
        self.publications.stop()
        # The connection goes first, so that no call arrives any more. Handlers may start hooks until they are stopped.
        await self._cancel_tasks()
        await self._functions.stop()
        await self._cancel_tasks()
        await self.channels.close()
        self.lifetime.closed.set()
        await asyncio.sleep(0)  # callers that wait for the end run before the loop stops
        self.loop.stop()

    async def _cancel_tasks(self) -> None:
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)


def _start(work: Coroutine[Any, Any, Any], tasks: set[asyncio.Task[Any]]) -> None:
    task = running_loop().create_task(work)
    tasks.add(task)
    task.add_done_callback(tasks.discard)
