"""A worker: a program that offers functions to an engine, and calls functions of others, over one WebSocket."""

from __future__ import annotations

import concurrent.futures
import os
import platform
import uuid
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import Any, Final, Self, TypeVar, overload

from msgspec import UNSET, Raw

from waypost.capabilities.results import encode_json
from waypost.errors import InvocationFailed
from waypost.version import __version__
from waypost.worker.channels import Channel
from waypost.worker.connection import Reconnecting, build_headers, check_url
from waypost.worker.functions import Function, FunctionRef, build_handler
from waypost.worker.invocations import build_invocation, to_raw
from waypost.worker.loop import Answer
from waypost.worker.observed_functions import ObserveHooks, read_hooks, to_observable
from waypost.worker.observers import FEATURE, ObserverHandle, build_observe
from waypost.worker.publications import Handshake
from waypost.worker.session import SHUT_DOWN, Session
from waypost.worker.triggers import BindingHook, TriggerType
from waypost.workers.frames import Action, RegisterFunction, RegisterTrigger, RegisterTriggerType

DEFAULT_URL: Final = "ws://127.0.0.1:49134"

F = TypeVar("F", bound=Callable[..., Any])


class Worker:
    """One worker; every method may be called from any thread."""

    def __init__(self, session: Session, url: str) -> None:
        self.url = url
        self.name: str = session.about["name"]
        self._session = session
        self._loop = session.loop

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
        observe: ObserveHooks | Mapping[str, Any] | None = None,
    ) -> Callable[[F], F]: ...

    @overload
    def register_function(
        self,
        function_id: str,
        handler: Function,
        *,
        description: str | None = None,
        request_format: Any = None,
        response_format: Any = None,
        metadata: Any = None,
        observe: ObserveHooks | Mapping[str, Any] | None = None,
    ) -> FunctionRef: ...

    def register_function(
        self,
        function_id: str,
        handler: Function | None = None,
        *,
        description: str | None = None,
        request_format: Any = None,
        response_format: Any = None,
        metadata: Any = None,
        observe: ObserveHooks | Mapping[str, Any] | None = None,
    ) -> FunctionRef | Callable[[F], F]:
        """Offer a function: `(payload)` or `(payload, metadata)`, plain or asynchronous; also a decorator.

        Description and formats are taken from the docstring and the type hints where they are not given. A payload
        with a type (a dataclass, a msgspec or pydantic model, a TypedDict) is checked and converted to it. `observe`
        says how it may be observed, and what is called when an observer is added or removed.
        """
        hooks = read_hooks(observe)

        def register(function: Function) -> FunctionRef:
            frame = RegisterFunction(function_id, description, request_format, response_format, metadata)
            frame.observe = to_observable(hooks)
            encode_json(frame)  # what cannot be sent is an error of the caller, raised here
            observed = self._session.observed.build(function_id, hooks)
            self._loop.call(self._session.add_function, build_handler(function_id, function, frame), observed)
            return FunctionRef(function, observed, partial(self.unregister_function, function_id))

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
        namespace = self._session.find_namespace(function_id, namespace)
        frame = build_invocation(function_id, metadata, action, namespace)
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
        frame = RegisterTriggerType(trigger_type, description, trigger_request_format, call_request_format)
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
    `III_URL`, `III_WORKER_NAME`, `III_TOKEN` and `III_NAMESPACE`.
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
        "features": [FEATURE],
    }
    token = environment.get("III_TOKEN", "").strip() if token is None else token
    address = check_url(url or environment.get("III_URL") or DEFAULT_URL)
    session = Session(
        address,
        {key: value for key, value in about.items() if value is not None},
        build_headers(token, headers or {}),
        timeout_ms=timeout_ms,
        max_running=max_running,
        reconnecting=reconnecting or Reconnecting(),
        handshake=handshake or Handshake(),
    )
    return Worker(session, address)
