"""A worker: a program that offers functions to an engine, and calls functions of others, over one WebSocket.

`Worker` may be used from any thread; its `Session` runs in one event loop and lasts over many connections.
"""

from __future__ import annotations

import asyncio
import concurrent.futures
import logging
import os
import platform
import uuid
from collections.abc import Awaitable, Callable, Coroutine, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import Any, Final, Self, TypeAlias, TypedDict, TypeVar, Unpack, overload

import msgspec
from msgspec import UNSET, Raw, Struct

from waypost.capabilities.results import encode_json
from waypost.errors import InvocationFailed
from waypost.loops import cancel_tasks, running_loop, start_task
from waypost.settings import DEFAULT_HOST, DEFAULT_WORKER_PORT
from waypost.version import __version__
from waypost.worker.channels import CREATE_CHANNEL, Channel, Channels
from waypost.worker.connection import (
    VOID,
    Answer,
    Calls,
    Connection,
    FromEngine,
    Reconnecting,
    WorkerLoop,
    add_origin,
    build_headers,
    check_url,
    to_raw,
)
from waypost.worker.functions import (
    BindingHook,
    Bound,
    Function,
    FunctionRef,
    Functions,
    Handler,
    Triggers,
    TriggerType,
    build_handler,
    to_observable,
)
from waypost.worker.observers import (
    EventQueue,
    ObservedFunction,
    ObserveHooks,
    ObserverHandle,
    Observers,
    build_observe,
    read_hooks,
)
from waypost.workers import frames
from waypost.workers.frames import Action, InvokeFunction, RegisterFunction, RegisterTrigger

_log: Final = logging.getLogger(__name__)
_FINAL: Final = ("invocation_failed", "FORBIDDEN", "SHUTDOWN")
"""Failures after which another attempt would not help; any other means that the registry is not there."""


@dataclass(frozen=True, slots=True)
class Handshake:
    """How long a skill or prompt is offered to a registry that is not there yet, in seconds."""

    first: float = 5.0
    longest: float = 60.0
    """Pauses grow from the first to the longest, each twice as long as the one before."""
    most: float = 180.0
    """After which it is given up until the worker connects again."""
    within: float = 5.0
    """How long each attempt may take."""


Call: TypeAlias = Callable[[str, Any, float], Awaitable[Any]]


@dataclass(eq=False, slots=True)
class Publication:
    """One skill or prompt."""

    name: str
    function_id: str
    payload: dict[str, Any]
    retry_now: asyncio.Event = field(default_factory=asyncio.Event)
    running: asyncio.Task[bool] | None = None


class Publications:
    """Everything that one worker publishes, and does so again each time it connects."""

    def __init__(self, call: Call, handshake: Handshake) -> None:
        self._call = call
        self._handshake = handshake
        self._all: dict[str, Publication] = {}

    async def publish(self, name: str, function_id: str, payload: dict[str, Any]) -> bool:
        """Publish it now and after every reconnection; whether the registry has it, or an error if it refuses it."""
        one = self._all.setdefault(name, Publication(name, function_id, payload))
        one.payload = payload
        # Wakes an attempt that waits, so that a newer payload is sent at once.
        one.retry_now.set()
        if one.running is None or one.running.done():
            one.running = running_loop().create_task(self._publish(one))
        try:
            # The publication goes on for others that wait for it, and for the next connection, if this caller stops
            # waiting.
            return await asyncio.shield(one.running)
        except InvocationFailed:
            self._all.pop(name, None)
            raise

    def publish_all(self) -> None:
        """The worker connected: publish everything again, without waiting for the next attempt."""
        for one in self._all.values():
            if one.running is None or one.running.done():
                one.running = running_loop().create_task(self._publish_again(one))
            else:
                one.retry_now.set()

    def stop(self) -> None:
        """Stop waiting: there is no connection left to publish on."""
        for one in self._all.values():
            one.retry_now.set()

    async def _publish_again(self, one: Publication) -> bool:
        try:
            return await self._publish(one)
        except InvocationFailed as error:
            _log.warning("%s was refused: %s", one.name, error.message)
            return False

    async def _publish(self, one: Publication) -> bool:
        handshake, clock = self._handshake, running_loop().time
        started, pause = clock(), handshake.first
        while True:
            one.retry_now.clear()
            payload = one.payload
            try:
                await self._call(one.function_id, payload, handshake.within)
            except InvocationFailed as error:
                if error.code in _FINAL:
                    raise
                why = error.message
            else:
                if one.payload is not payload:  # there is a newer one by now
                    continue
                _log.info("%s is published", one.name)
                return True
            if clock() - started + pause > handshake.most:
                _log.warning("%s is not published, and it is given up: %s", one.name, why)
                return False
            _log.info("%s is not published yet: %s", one.name, why)
            try:
                await asyncio.wait_for(one.retry_now.wait(), pause)
                pause = handshake.first
            except TimeoutError:
                pause = min(pause * 2, handshake.longest)


SHUT_DOWN: Final = "SHUTDOWN"


class Refusals:
    """The functions that the engine does not accept, because another worker offers them already.

    The engine does not say when it accepts one after all; a call or a list of observers shows that it has.
    """

    def __init__(self) -> None:
        self.ids: frozenset[str] = frozenset()
        self.none_left = asyncio.Event()
        self.none_left.set()

    def add(self, function_id: str) -> None:
        """The engine refuses a function; of several, only the first is worth a warning."""
        level = logging.DEBUG if self.ids else logging.WARNING
        _log.log(level, "the function %s was not accepted: another worker offers it already", function_id)
        self.ids |= {function_id}
        self.none_left.clear()

    def remove(self, function_id: str) -> None:
        """The engine has accepted a function, or it is no longer offered."""
        if function_id in self.ids:
            self.ids -= {function_id}
            if not self.ids:
                self.none_left.set()

    def clear(self) -> None:
        """There is no engine that refuses anything."""
        self.ids = frozenset()
        self.none_left.set()


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
        headers: Callable[[], Mapping[str, str]],
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
        self.events = EventQueue(self.loop, self.send_soon)
        self.publications = Publications(self._call, handshake)
        self._sends: set[asyncio.Task[Any]] = set()
        self._tasks: set[asyncio.Task[Any]] = set()
        """The connection, and the hooks of observers and bindings; cancelled at the end."""
        self.loop.call(lambda: self.start(self._connection.stay_connected()))

    def add_function(self, handler: Handler) -> None:
        """Offer a function."""
        self._functions.add(handler)
        self.send_soon(handler.frame)

    def remove_function(self, function_id: str) -> None:
        """Offer a function no longer."""
        if self._functions.remove(function_id):
            self.refusals.remove(function_id)
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
        start_task(self._connection.send(frame), self._sends)

    async def wait_until_accepted(self) -> None:
        """Wait until the engine has accepted all functions."""
        await self.refusals.none_left.wait()
        self.lifetime.check()

    def origin(self) -> frames.Origin:
        """The worker itself, as the origin of a call."""
        return frames.Origin(self._connection.worker_id, self.about["name"])

    def start(self, work: Coroutine[Any, Any, None]) -> None:
        """Run something in the background, until it is done or the worker is shut down."""
        start_task(work, self._tasks)

    def end(self, why: InvocationFailed) -> None:
        """Leave the engine for good."""
        if self.lifetime.ended is None:
            self.lifetime.ended = why
            start_task(self._end(why), self._sends)

    def _fire(self, bound: Bound, payload: Any) -> None:
        namespace = self.find_namespace(bound.function_id, bound.namespace)
        frame = InvokeFunction(bound.function_id, metadata=to_raw(bound.metadata), action=VOID, namespace=namespace)
        answer = self.invoke(frame, payload)

        async def log_failure() -> None:
            try:
                await answer
            except InvocationFailed as error:
                _log.debug("a trigger did not reach its function: %s", error.message)

        start_task(log_failure(), self._sends)

    async def _call(self, function_id: str, payload: Any, within: float) -> Any:
        frame = InvokeFunction(function_id, namespace=self.find_namespace(function_id))
        return await self.invoke(frame, payload, int(within * 1000))

    async def _on_connect(self) -> None:
        # An engine forgets a worker with its connection, so everything is registered anew.
        for kind in self.triggers.types.values():
            kind.bound = {}
        self.refusals.clear()
        types = [kind.frame for kind in self.triggers.types.values()]
        functions = [handler.frame for handler in self._functions.handlers.values()]
        for frame in [*types, *functions, *self.triggers.bindings.values()]:
            await self._connection.send(frame)
        await self._connection.send(InvokeFunction(frames.INTRODUCTION, Raw(encode_json(self.about)), action=VOID))
        self._calls.connected()
        self.lifetime.ready.set()
        self.publications.publish_all()

    def _on_lost(self) -> None:
        if self.lifetime.ended is None:
            self.lifetime.ready.clear()
            self._calls.disconnected()
            self.observers.disconnected()
            self._functions.disconnected()

    def _on_message(self, frame: FromEngine) -> None:
        match frame:
            case InvokeFunction():
                self.refusals.remove(frame.function_id)
                self._functions.answer(frame)
            case frames.WorkerRegistered():
                self.observers.connected(frame.features or [])
                self._functions.connected(self.observers.is_supported)
            case frames.InvocationResult():
                self._calls.resolve(frame)
            case RegisterTrigger():
                self.start(self._bind(frame))
            case frames.UnregisterTrigger():
                self.start(self.triggers.unbind(frame))
            case frames.TriggerRegistrationResult(error=error) if (failure := frames.read_failure(error)) is not None:
                what = f"{frame.function_id} was not bound to" if frame.function_id else "this worker does not provide"
                _log.warning("%s %s: %s", what, frame.trigger_type, failure.message)
            case frames.RegistrationRejected():
                self._reject(frame.code, frame.function_id or "")
            case frames.Ping():
                self.send_soon(frames.Pong())
            case frames.FunctionRegistered():
                self.refusals.remove(frame.id)
                self._functions.report_observers(frame.id, frame)
            case frames.ObserverAdded() | frames.ObserverRemoved():
                self._functions.report_observers(frame.function_id, frame)
            case frames.ObserveResult() | frames.ObserverStateChanged():
                self.observers.on_message(frame)

    def _reject(self, code: str, function_id: str) -> None:
        """The engine rejects a function, which it may accept later, or the worker for good."""
        if code == frames.FUNCTION_CONFLICT:
            self.refusals.add(function_id)
            self._functions.release(function_id)
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
        await cancel_tasks(self._tasks)
        await self._functions.stop()
        await cancel_tasks(self._tasks)
        await self.channels.close()
        self.lifetime.closed.set()
        await asyncio.sleep(0)  # callers that wait for the end run before the loop stops
        self.loop.stop()


DEFAULT_URL: Final = f"ws://{DEFAULT_HOST}:{DEFAULT_WORKER_PORT}"

F = TypeVar("F", bound=Callable[..., Any])


class FunctionOptions(TypedDict, total=False):
    """The options of `Worker.register_function`."""

    description: str | None
    request_format: Any
    response_format: Any
    metadata: Any
    observe: ObserveHooks | Mapping[str, Any] | None


class Worker:
    """One worker; every method may be called from any thread."""

    def __init__(self, session: Session, url: str) -> None:
        self.url = url
        self.name: str = session.about["name"]
        self._session = session
        self._loop = session.loop

    @overload
    def register_function(
        self, function_id: str, handler: None = None, **options: Unpack[FunctionOptions]
    ) -> Callable[[F], F]: ...

    @overload
    def register_function(
        self, function_id: str, handler: Function, **options: Unpack[FunctionOptions]
    ) -> FunctionRef: ...

    def register_function(
        self, function_id: str, handler: Function | None = None, **options: Unpack[FunctionOptions]
    ) -> FunctionRef | Callable[[F], F]:
        """Offer a function: `(payload)` or `(payload, metadata)`, plain or asynchronous; also a decorator.

        Description and formats are taken from the docstring and the type hints where they are not given. A payload
        with a type (a dataclass, a msgspec or pydantic model, a TypedDict) is checked and converted to it. `observe`
        says how it may be observed, and what is called when an observer is added or removed.
        """
        hooks = read_hooks(options.pop("observe", None))
        frame = RegisterFunction(function_id, **options)  # type: ignore[arg-type]  # `observe` is taken out
        frame.observe = to_observable(hooks)

        def register(function: Function) -> FunctionRef:
            encode_json(frame)  # what cannot be sent is an error of the caller, raised here
            handler = build_handler(function, frame, ObservedFunction(function_id, hooks, self._session))
            self._loop.call(self._session.add_function, handler)
            return FunctionRef(handler, partial(self.unregister_function, function_id))

        def decorate(function: F) -> F:
            register(function)
            return function

        return decorate if handler is None else register(handler)

    def unregister_function(self, function_id: str) -> None:
        """Offer a function no longer."""
        self._loop.call(self._session.remove_function, function_id)

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
        frame = InvokeFunction(
            function_id,
            metadata=to_raw(metadata),
            action=action if isinstance(action, Action | None) else msgspec.convert(action, Action),
            namespace=self._session.find_namespace(function_id, namespace),
        )
        return self._session.invoke(frame, {} if payload is UNSET else payload, timeout_ms)

    def create_channel(self, buffer_size: int | None = None) -> Answer[Channel]:
        """A channel for bytes and texts; its writer waits when `buffer_size` messages are unread."""
        return self._loop.start(self._session.channels.create(buffer_size))

    def observe(
        self,
        source: Mapping[str, Any],
        target: str | Mapping[str, Any],
        options: Mapping[str, Any] | None = None,
    ) -> ObserverHandle:
        """Call the function `target` for calls of another; `source` says of which, and for which of its calls."""
        namespace = self._session.about.get("namespace")
        return self._session.observers.add(build_observe(source, target, options or {}, namespace))

    def register_trigger_type(
        self,
        trigger_type: str,
        description: str = "",
        *,
        on_bind: BindingHook | None = None,
        on_unbind: BindingHook | None = None,
        trigger_request_format: Any = None,
        call_request_format: Any = None,
    ) -> TriggerType:
        """Provide a trigger type, whose `fire` calls the functions that are bound to it.

        `on_bind` and `on_unbind` are plain or asynchronous. An error that `on_bind` raises refuses the binding.
        """
        frame = frames.RegisterTriggerType(trigger_type, description, trigger_request_format, call_request_format)
        kind = TriggerType(frame, self._session.fire, on_bind, on_unbind)
        self._loop.call(self._session.add_trigger_type, kind)
        return kind

    def unregister_trigger_type(self, trigger_type: str) -> None:
        """Provide a trigger type no longer."""
        self._loop.call(self._session.remove_trigger_type, trigger_type)

    def register_trigger(self, trigger_type: str, function_id: str, config: Any = None, *, metadata: Any = None) -> str:
        """Bind a function to a trigger, so that it is called when the trigger fires; the id of the binding."""
        binding = RegisterTrigger(
            str(uuid.uuid4()),
            trigger_type,
            function_id,
            Raw(encode_json({} if config is None else config)),
            to_raw(metadata),
            self._session.about.get("namespace"),
        )
        self._loop.call(self._session.add_binding, binding)
        return binding.id

    def unregister_trigger(self, binding_id: str) -> None:
        """End a binding."""
        self._loop.call(self._session.remove_binding, binding_id)

    def publish_skill(self, skill_id: str, skill: str) -> Answer[bool]:
        """Publish a markdown skill, now and each time the worker connects; whether the registry has it.

        A registry that is not there is asked again for a while. What it refuses is raised.
        """
        payload = {"id": skill_id, "skill": skill}
        return self._loop.start(
            self._session.publications.publish(f"the skill {skill_id}", "skills::register", payload)
        )

    def publish_prompt(
        self, name: str, description: str, arguments: Sequence[Mapping[str, Any]] = (), *, function_id: str
    ) -> Answer[bool]:
        """Publish a slash command whose text a function writes, in the same way as a skill."""
        payload = {
            "name": name,
            "description": description,
            "arguments": [dict(argument) for argument in arguments],
            "function_id": function_id,
        }
        return self._loop.start(self._session.publications.publish(f"the prompt {name}", "prompts::register", payload))

    def ready(self) -> Answer[None]:
        """When the worker is connected and has registered what it offers; an error if that cannot be."""
        return self._loop.start(self._session.lifetime.wait_until_ready())

    @property
    def refused(self) -> frozenset[str]:
        """The functions that another worker offers already, as far as the engine has said so."""
        return self._session.refusals.ids

    def accepted(self) -> Answer[None]:
        """When no function is refused any more, because the workers that offered them are gone."""
        return self._loop.start(self._session.wait_until_accepted())

    def closed(self) -> Answer[None]:
        """When the worker was shut down; an error if the engine rejected it for good."""
        return self._loop.start(self._session.lifetime.wait_until_shut_down())

    def shutdown(self) -> Answer[None]:
        """Leave the engine; calls that wait for an answer fail with `SHUTDOWN`."""
        if self._loop.is_stopped:
            done = concurrent.futures.Future[None]()
            done.set_result(None)
            return Answer(done)
        answer = self._loop.start(self._session.lifetime.wait_until_closed())  # before anything that may end the loop
        self._loop.call(self._session.end, InvocationFailed("The worker was shut down.", SHUT_DOWN))
        return answer

    async def __aenter__(self) -> Self:
        await self.ready()
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.shutdown()


def register_worker(
    url: str | None = None,
    *,
    name: str | None = None,
    token: str | None = None,
    namespace: str | None = None,
    description: str | None = None,
    headers: Mapping[str, str] | None = None,
    timeout_ms: int = 30_000,
    max_running: int = 64,
    reconnecting: Reconnecting | None = None,
    handshake: Handshake | None = None,
) -> Worker:
    """A worker of the engine at `url`, which connects at once and stays connected until `shutdown`.

    It uses the running event loop, or where there is none, a thread of its own. What is left out is taken from
    `III_URL`, `III_WORKER_NAME`, `III_TOKEN` and `III_NAMESPACE`, the token also from the `hub.json` of that hub.
    """
    environment = os.environ
    about = {
        "runtime": "python",
        "version": __version__,
        "name": environment.get("III_WORKER_NAME") or name or f"{platform.node()}:{os.getpid()}",
        "os": f"{platform.system()} {platform.release()} ({platform.machine()})",
        "pid": os.getpid(),
        "isolation": environment.get("III_ISOLATION") or None,
        "namespace": namespace or environment.get("III_NAMESPACE", "").strip() or None,
        "telemetry": {"framework": "waypost"},
        "description": description,
        "features": [frames.OBSERVE_FEATURE],
    }
    token = environment.get("III_TOKEN", "").strip() if token is None else token
    address = check_url(url or environment.get("III_URL") or DEFAULT_URL)
    session = Session(
        address,
        {key: value for key, value in about.items() if value is not None},
        partial(build_headers, address, token, headers or {}),
        timeout_ms=timeout_ms,
        max_running=max_running,
        reconnecting=reconnecting or Reconnecting(),
        handshake=handshake or Handshake(),
    )
    return Worker(session, address)
