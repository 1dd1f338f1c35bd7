"""A worker: a program that offers functions to an engine, and calls those of others, over one WebSocket."""

from __future__ import annotations

import asyncio
import logging
import uuid
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Final, Self, TypeVar, overload

from msgspec import UNSET, Raw, Struct

from waypost.capabilities.results import encode_json
from waypost.errors import InvocationFailed
from waypost.loops import running_loop
from waypost.worker import calls, observing
from waypost.worker.answers import Answer, Home, nothing
from waypost.worker.calls import VOID, Calls
from waypost.worker.channels import CREATE, Channel, Channels
from waypost.worker.connection import Connection, FromEngine
from waypost.worker.handlers import Handler, handler_of
from waypost.worker.observing import ObserverHandle, Observers
from waypost.worker.pauses import Handshake, Reconnecting
from waypost.worker.publishing import Publishing
from waypost.worker.refusals import Refusals
from waypost.worker.serving import Serving, current
from waypost.worker.triggers import Bound, Hears, Provided, TriggerType
from waypost.workers import frames
from waypost.workers.frames import Action, InvokeFunction, RegisterFunction, RegisterTrigger
from waypost.workers.observing.messages import ObserveResult, ObserverStateChanged

_log: Final = logging.getLogger(__name__)
_INTRODUCTION: Final = "engine::workers::register"
_HARMLESS: Final = "FUNCTION_NAMESPACE_CONFLICT"
_SHUT_DOWN: Final = "SHUTDOWN"

F = TypeVar("F", bound=Callable[..., Any])


class Worker:
    """One worker; every method may be called from any thread."""

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
        self._channels = Channels(url, headers, self._home, lambda asked: self.trigger(CREATE, asked))
        self._serving = Serving(self._connection.send, max_running, self._channels.resolved)
        self._observers = Observers(self._home, self._send_soon)
        self._provided = Provided()
        self._refusals = Refusals()
        self._bindings: dict[str, RegisterTrigger] = {}
        self._publishing = Publishing(self._ask, handshake)
        self._ready = asyncio.Event()
        self._closed = asyncio.Event()
        self._aside: set[asyncio.Task[Any]] = set()
        self._staying: asyncio.Task[None] | None = None
        self._ended: InvocationFailed | None = None
        self._home.soon(self._begin)

    @overload
    def register_function(
        self,
        function_id: str,
        handler: None = None,
        *,
        description: str | None = None,
        request_format: Any = None,
        response_format: Any = None,
        metadata: Any = None,
    ) -> Callable[[F], F]: ...

    @overload
    def register_function(
        self,
        function_id: str,
        handler: F,
        *,
        description: str | None = None,
        request_format: Any = None,
        response_format: Any = None,
        metadata: Any = None,
    ) -> F: ...

    def register_function(
        self,
        function_id: str,
        handler: F | None = None,
        *,
        description: str | None = None,
        request_format: Any = None,
        response_format: Any = None,
        metadata: Any = None,
    ) -> F | Callable[[F], F]:
        """Offer a function: `(payload)` or `(payload, metadata)`, plain or asynchronous; also a decorator.

        Description and formats are taken from the docstring and the type hints where they are not given. A payload
        with a type (a dataclass, a msgspec or pydantic model, a TypedDict) is checked and arrives as that.
        """

        def register(function: F) -> F:
            told = RegisterFunction(function_id, description, request_format, response_format, metadata)
            encode_json(told)  # what cannot be sent is the caller's mistake
            self._home.soon(self._offer, handler_of(function_id, function, told))
            return function

        return register if handler is None else register(handler)

    def unregister_function(self, function_id: str) -> None:
        """Offer a function no more."""
        self._home.soon(self._withdraw, function_id)

    def trigger(
        self,
        function_id: str,
        payload: Any = UNSET,
        *,
        metadata: Any = None,
        timeout_ms: int | None = None,
        action: Action | Mapping[str, Any] | None = None,
        namespace: str | None = None,
    ) -> Answer[Any]:
        """Call a function; a failure is an `InvocationFailed` with its code, `TIMEOUT` after `timeout_ms`."""
        namespace = namespace or (None if function_id.startswith("engine::") else self._namespace)
        frame = calls.invocation(function_id, payload, metadata, action, namespace)
        outer = current.get()
        if outer is not None:
            calls.within(outer, frame, self._observers.is_known)
        within = (self._timeout_ms if timeout_ms is None else timeout_ms) / 1000
        return self._home.start(self._calls.make(frame, within))

    def create_channel(self, buffer_size: int | None = None) -> Answer[Channel]:
        """A channel for bytes and texts; its writer waits when so many messages are not read yet."""
        return self._home.start(self._channels.make(buffer_size))

    def observe(
        self,
        source: Mapping[str, Any],
        target: str | Mapping[str, Any],
        options: Mapping[str, Any] | None = None,
    ) -> ObserverHandle:
        """Have a function called for each call of another: `source` says of which, and of which of its calls."""
        return self._observers.put(observing.wish_of(source, target, options or {}, self._namespace))

    def register_trigger_type(
        self,
        trigger_type: str,
        description: str = "",
        *,
        on_bind: Hears | None = None,
        on_unbind: Hears | None = None,
        trigger_request_format: Any = None,
        call_request_format: Any = None,
    ) -> TriggerType:
        """Provide a kind of trigger; `fire` of what comes back calls the functions that are bound to it.

        An error that `on_bind` raises refuses the binding.
        """
        told = frames.RegisterTriggerType(trigger_type, description, trigger_request_format, call_request_format)
        kind = TriggerType(told, self._fire, on_bind, on_unbind)
        self._home.soon(self._provide, kind)
        return kind

    def unregister_trigger_type(self, trigger_type: str) -> None:
        """Provide a kind of trigger no more."""
        self._home.soon(self._provided.pop, trigger_type)
        self._home.soon(self._send_soon, frames.UnregisterTriggerType(trigger_type))

    def register_trigger(self, trigger_type: str, function_id: str, config: Any = None, *, metadata: Any = None) -> str:
        """Have a function called when a trigger fires; the id of the binding."""
        binding = RegisterTrigger(
            str(uuid.uuid4()),
            trigger_type,
            function_id,
            Raw(encode_json({} if config is None else config)),
            calls.given(metadata),
            self._namespace,
        )
        self._home.soon(self._bind, binding)
        return binding.id

    def unregister_trigger(self, binding_id: str) -> None:
        """Have the function of a binding called no more."""
        self._home.soon(self._unbind, binding_id)

    def publish_skill(self, skill_id: str, skill: str) -> Answer[bool]:
        """Publish a markdown skill, now and each time the worker connects; whether the registry has it.

        A registry that is not there is asked again for a while. What it refuses is raised.
        """
        payload = {"id": skill_id, "skill": skill}
        return self._home.start(self._publishing.publish(f"the skill {skill_id}", "skills::register", payload))

    def publish_prompt(
        self, name: str, description: str, arguments: Sequence[Mapping[str, Any]] = (), *, function_id: str
    ) -> Answer[bool]:
        """Publish a slash command that a function writes, in the same way as a skill."""
        payload = {
            "name": name,
            "description": description,
            "arguments": [dict(argument) for argument in arguments],
            "function_id": function_id,
        }
        return self._home.start(self._publishing.publish(f"the prompt {name}", "prompts::register", payload))

    def ready(self) -> Answer[None]:
        """When the worker is connected, and has told the engine what it offers; an error if that cannot be."""
        return self._home.start(self._until_ready())

    @property
    def refused(self) -> frozenset[str]:
        """The functions that another worker offers already, as far as the engine has said so."""
        return self._refusals.ids

    def accepted(self) -> Answer[None]:
        """When no function is refused any more: who offered it before is gone."""
        return self._home.start(self._until_accepted())

    def closed(self) -> Answer[None]:
        """When the worker was shut down; an error if the engine turned it away for good."""
        return self._home.start(self._until_closed())

    def shutdown(self) -> Answer[None]:
        """Leave the engine; whatever waits for an answer fails with `SHUTDOWN`."""
        if self._home.is_left:
            return nothing()
        answer = self._home.start(_until(self._closed))  # before anything that may end the loop
        self._home.soon(self._finish, InvocationFailed("The worker was shut down.", _SHUT_DOWN))
        return answer

    async def __aenter__(self) -> Self:
        await self.ready()
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.shutdown()

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
        if self._ended is not None and self._ended.code != _SHUT_DOWN:
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

    def _take(self, frame: FromEngine) -> None:
        match frame:
            case InvokeFunction():
                if self._refusals:
                    self._refusals.pop(frame.function_id)
                self._serving.take(frame)
            case frames.WorkerRegistered():
                self._observers.connected(frame.features or [])
            case frames.InvocationResult():
                self._calls.settle(frame)
            case RegisterTrigger():
                self._send_soon(self._provided.bind(frame))
            case frames.UnregisterTrigger():
                self._provided.unbind(frame)
            case frames.TriggerRegistrationResult(error=error) if (failure := frames.failure_in(error)) is not None:
                _log.warning("%s was not bound to %s: %s", frame.function_id, frame.trigger_type, failure.message)
            case frames.RegistrationRejected():
                self._rejected(frame)
            case frames.Ping():
                self._send_soon(frames.Pong())
            case observing.Announced():
                self._refusals.pop(frame.id)
                self._observers.take(frame)
            case observing.Added() | ObserveResult() | ObserverStateChanged():
                self._observers.take(frame)

    def _rejected(self, frame: frames.RegistrationRejected) -> None:
        if frame.code == _HARMLESS:
            self._refusals.put(frame.function_id or "")
            return
        _log.error("the worker %s was turned away: %s", self.name, frame.code)
        self._finish(InvocationFailed(f"The engine turned the worker away: {frame.code}.", frame.code))

    def _offer(self, handler: Handler) -> None:
        self._serving.handlers[handler.frame.id] = handler
        self._send_soon(handler.frame)

    def _withdraw(self, function_id: str) -> None:
        if self._serving.handlers.pop(function_id, None) is not None:
            self._refusals.pop(function_id)
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
        answer = self.trigger(
            bound.function_id, payload, metadata=bound.metadata, action=VOID, namespace=bound.namespace
        )
        self._aside_soon(_quietly(answer))

    async def _ask(self, function_id: str, payload: Any, within: float) -> Any:
        return await self.trigger(function_id, payload, timeout_ms=int(within * 1000))

    def _send_soon(self, frame: Struct) -> None:
        """Send what the engine is told again anyway when the worker connects the next time."""
        self._aside_soon(self._connection.send(frame))

    def _aside_soon(self, work: Any) -> None:
        task = running_loop().create_task(work)
        self._aside.add(task)
        task.add_done_callback(self._aside.discard)

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
        await self._channels.close()
        self._closed.set()
        await asyncio.sleep(0)  # whoever waited for it hears of it before the loop ends
        self._home.leave()


async def _until(event: asyncio.Event) -> None:
    await event.wait()


async def _quietly(answer: Answer[Any]) -> None:
    try:
        await answer
    except InvocationFailed as error:
        _log.debug("a trigger did not reach its function: %s", error.message)
