"""Functions of a worker that the engine does not take from it, because another worker offers them already."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Coroutine, Mapping
from typing import Any, Final

from msgspec import Raw, Struct

from waypost.capabilities.results import encode_json
from waypost.errors import InvocationFailed
from waypost.loops import running_loop
from waypost.worker import connection
from waypost.worker.channels import CREATE, Channels
from waypost.worker.connection import Connection, FromEngine, Handshake, Reconnecting
from waypost.worker.functions import Handler, Serving
from waypost.worker.invocations import VOID, Calls, given, outgoing
from waypost.worker.loop import Answer, Home
from waypost.worker.observed_functions import Owned, Owning, Reporting, Ties
from waypost.worker.observers import Observers
from waypost.worker.publications import Publishing
from waypost.worker.triggers import Bound, Provided, TriggerType
from waypost.workers import frames
from waypost.workers.frames import InvokeFunction, Origin, RegisterTrigger
from waypost.workers.observing.messages import ObserveResult, ObserverStateChanged

_log: Final = logging.getLogger(__name__)


class Refusals:
    """What a worker stands by for; an engine that calls or announces a function has taken it after all."""

    def __init__(self) -> None:
        self._ids: set[str] = set()
        self._none = asyncio.Event()
        self._none.set()

    def __len__(self) -> int:
        return len(self._ids)

    @property
    def ids(self) -> frozenset[str]:
        """The functions that another offers."""
        return frozenset(self._ids)

    def put(self, function_id: str) -> None:
        """The engine refuses a function; of several only the first is worth a warning."""
        level = logging.DEBUG if self._ids else logging.WARNING
        _log.log(level, "the function %s was not taken: another worker offers it already", function_id)
        self._ids.add(function_id)
        self._none.clear()

    def pop(self, function_id: str) -> None:
        """The engine has taken a function, or it is not offered any more."""
        self._ids.discard(function_id)
        if not self._ids:
            self._none.set()

    def clear(self) -> None:
        """There is no engine that refuses anything."""
        self._ids.clear()
        self._none.set()

    async def until_none(self) -> None:
        """Wait until everything is taken."""
        await self._none.wait()


_INTRODUCTION: Final = "engine::workers::register"
_HARMLESS: Final = "FUNCTION_NAMESPACE_CONFLICT"
SHUT_DOWN: Final = "SHUTDOWN"


class Attached:
    """A worker that is, or will be, connected to an engine."""

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
        self.url = url
        self.name: str = about["name"]
        self._about = about
        self._namespace: str | None = about.get("namespace")
        self._timeout_ms = timeout_ms
        self._home = Home()
        self._connection = Connection(
            url, headers, reconnecting, arrived=self._arrived, take=self._take, lost=self._lost
        )
        self._calls = Calls(self._connection.send)
        self._channels = Channels(url, headers, self._home, lambda asked: self._invoke(InvokeFunction(CREATE), asked))
        self._serving = Serving(self._connection.send, max_running, self._channels.resolved)
        self._observers = Observers(self._home, self._send_soon)
        self._reporting = Reporting(self._home, self._send_soon)
        self._owning = Owning(
            Ties(self._home, self._reporting, self._identity, self._send_soon, self._invoke, self._tend)
        )
        self._provided = Provided()
        self._refusals = Refusals()
        self._bindings: dict[str, RegisterTrigger] = {}
        self._publishing = Publishing(self._ask, handshake)
        self._ready = asyncio.Event()
        self._closed = asyncio.Event()
        self._aside: set[asyncio.Task[Any]] = set()
        self._tending: set[asyncio.Task[Any]] = set()
        """Looks after the observers of its functions, and what is bound to its triggers."""
        self._staying: asyncio.Task[None] | None = None
        self._ended: InvocationFailed | None = None
        self._home.soon(self._begin)

    async def _until_ready(self) -> None:
        await self._ready.wait()
        if self._ended is not None:
            raise self._ended

    async def _until_accepted(self) -> None:
        await self._refusals.until_none()
        if self._ended is not None:
            raise self._ended

    async def _until_closed(self) -> None:
        await self._closed.wait()
        if self._ended is not None and self._ended.code != SHUT_DOWN:
            raise self._ended

    def _begin(self) -> None:
        self._staying = running_loop().create_task(self._connection.stay())

    async def _arrived(self) -> None:
        self._provided.clear()
        self._refusals.clear()
        functions = [handler.frame for handler in self._serving.handlers.values()]
        for frame in [*self._provided.frames(), *functions, *self._bindings.values()]:
            await self._connection.send(frame)
        about = Raw(encode_json(self._about))
        await self._connection.send(InvokeFunction(_INTRODUCTION, about, action=VOID))
        self._calls.open()
        self._ready.set()
        self._publishing.again()

    def _lost(self) -> None:
        if self._ended is None:
            self._ready.clear()
            self._calls.lose()
            self._observers.lost()
            self._owning.lost()

    def _take(self, frame: FromEngine) -> None:
        match frame:
            case InvokeFunction():
                if self._refusals:
                    self._refusals.pop(frame.function_id)
                self._serving.take(frame)
            case frames.WorkerRegistered():
                self._observers.connected(frame.features or [])
                self._owning.connected(self._observers.is_known)
            case frames.InvocationResult():
                self._calls.settle(frame)
            case RegisterTrigger():
                self._tend(self._bound(frame))
            case frames.UnregisterTrigger():
                self._tend(self._provided.unbind(frame))
            case frames.TriggerRegistrationResult(error=error) if (failure := frames.failure_in(error)) is not None:
                what = f"{frame.function_id} was not bound to" if frame.function_id else "this worker does not provide"
                _log.warning("%s %s: %s", what, frame.trigger_type, failure.message)
            case frames.RegistrationRejected():
                self._rejected(frame)
            case frames.Ping():
                self._send_soon(frames.Pong())
            case connection.Announced() | connection.Added() | connection.Removed():
                self._heard(frame)
            case ObserveResult() | ObserverStateChanged():
                self._observers.take(frame)

    async def _bound(self, frame: RegisterTrigger) -> None:
        told = await self._provided.bind(frame)
        if told is not None:
            await self._connection.send(told)

    def _heard(self, news: connection.News) -> None:
        if isinstance(news, connection.Announced):
            self._refusals.pop(news.id)
        self._owning.take(news)

    def _rejected(self, frame: frames.RegistrationRejected) -> None:
        if frame.code == _HARMLESS:
            self._refusals.put(frame.function_id or "")
            self._owning.refuse(frame.function_id or "")
            return
        _log.error("the worker %s was turned away: %s", self.name, frame.code)
        self._finish(InvocationFailed(f"The engine turned the worker away: {frame.code}.", frame.code))

    def _offer(self, handler: Handler, owned: Owned) -> None:
        self._serving.handlers[handler.frame.id] = handler
        self._owning.put(owned)
        self._send_soon(handler.frame)

    def _withdraw(self, function_id: str) -> None:
        if self._serving.handlers.pop(function_id, None) is not None:
            self._refusals.pop(function_id)
            self._owning.pop(function_id)
            self._send_soon(frames.UnregisterFunction(function_id))

    def _provide(self, kind: TriggerType) -> None:
        self._provided.put(kind)
        self._send_soon(kind.frame)

    def _bind(self, binding: RegisterTrigger) -> None:
        self._bindings[binding.id] = binding
        self._send_soon(binding)

    def _unbind(self, binding_id: str) -> None:
        binding = self._bindings.pop(binding_id, None)
        if binding is not None:
            self._send_soon(frames.UnregisterTrigger(binding_id, binding.trigger_type))

    def _fire(self, bound: Bound, payload: Any) -> None:
        self._home.soon(self._fire_here, bound, payload)

    def _fire_here(self, bound: Bound, payload: Any) -> None:
        metadata, namespace = given(bound.metadata), self._place(bound.function_id, bound.namespace)
        frame = InvokeFunction(bound.function_id, metadata=metadata, action=VOID, namespace=namespace)
        self._aside_soon(_quietly(self._invoke(frame, payload)))

    async def _ask(self, function_id: str, payload: Any, within: float) -> Any:
        frame = InvokeFunction(function_id, namespace=self._place(function_id))
        return await self._invoke(frame, payload, int(within * 1000))

    def _invoke(self, frame: InvokeFunction, payload: Any, timeout_ms: int | None = None) -> Answer[Any]:
        """Make a call, which says where it is made."""
        frame.data = Raw(encode_json(payload))
        within = (self._timeout_ms if timeout_ms is None else timeout_ms) / 1000
        return self._home.start(self._calls.make(outgoing(frame, self._observers.is_known), within))

    def _place(self, function_id: str, namespace: str | None = None) -> str | None:
        """The namespace that a function is looked for in."""
        return namespace or (None if function_id.startswith("engine::") else self._namespace)

    def _identity(self) -> Origin:
        return Origin(self._connection.worker_id, self.name)

    def _send_soon(self, frame: Struct) -> None:
        """Send what the engine is told again anyway when the worker connects the next time."""
        self._aside_soon(self._connection.send(frame))

    def _aside_soon(self, work: Coroutine[Any, Any, Any]) -> None:
        _begun(work, self._aside)

    def _tend(self, work: Coroutine[Any, Any, None]) -> None:
        _begun(work, self._tending)

    def _finish(self, why: InvocationFailed) -> None:
        if self._ended is None:
            self._ended = why
            self._aside_soon(self._end(why))

    async def _end(self, why: InvocationFailed) -> None:
        self._ready.set()
        self._refusals.clear()
        self._calls.end(why)
        self._observers.end(why)
        self._publishing.stop()
        if self._staying is not None:
            self._staying.cancel()
            await asyncio.gather(self._staying, return_exceptions=True)
        await self._serving.stop()
        for task in self._tending:
            task.cancel()
        await asyncio.gather(*self._tending, return_exceptions=True)
        await self._channels.close()
        self._closed.set()
        await asyncio.sleep(0)  # whoever waited for it hears of it before the loop ends
        self._home.leave()


async def until_set(event: asyncio.Event) -> None:
    """Wait for something to have happened."""
    await event.wait()


def _begun(work: Coroutine[Any, Any, Any], tasks: set[asyncio.Task[Any]]) -> None:
    task = running_loop().create_task(work)
    tasks.add(task)
    task.add_done_callback(tasks.discard)


async def _quietly(answer: Answer[Any]) -> None:
    try:
        await answer
    except InvocationFailed as error:
        _log.debug("a trigger did not reach its function: %s", error.message)
