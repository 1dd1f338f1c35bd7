"""A worker: a program that offers functions to an engine, and calls those of others, over one WebSocket."""

from __future__ import annotations

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
from waypost.worker import invocations, observers
from waypost.worker.channels import Channel
from waypost.worker.connection import Handshake, Reconnecting, check_url, headers_of
from waypost.worker.functions import Function, FunctionRef, handler_of
from waypost.worker.loop import Answer, nothing
from waypost.worker.observed_functions import ObserveHooks, hooks_of, terms_of
from waypost.worker.observers import FEATURE, ObserverHandle
from waypost.worker.session import SHUT_DOWN, Attached, until_set
from waypost.worker.triggers import Hears, TriggerType
from waypost.workers import frames
from waypost.workers.frames import Action, RegisterFunction, RegisterTrigger

F = TypeVar("F", bound=Callable[..., Any])


class Worker(Attached):
    """One worker; every method may be called from any thread."""

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
        with a type (a dataclass, a msgspec or pydantic model, a TypedDict) is checked and arrives as that. `observe`
        says how it may be observed, and what is called when somebody begins or ceases to.
        """
        hooks = hooks_of(observe)

        def register(function: Function) -> FunctionRef:
            told = RegisterFunction(function_id, description, request_format, response_format, metadata)
            told.observe = terms_of(hooks)
            encode_json(told)  # what cannot be sent is the caller's mistake
            owned = self._owning.made(function_id, hooks)
            self._home.soon(self._offer, handler_of(function_id, function, told), owned)
            return FunctionRef(function, owned, partial(self.unregister_function, function_id))

        def decorate(function: F) -> F:
            register(function)
            return function

        return decorate if handler is None else register(handler)

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
        frame = invocations.invocation(function_id, metadata, action, self._place(function_id, namespace))
        return self._invoke(frame, {} if payload is UNSET else payload, timeout_ms)

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
        return self._observers.put(observers.wish_of(source, target, options or {}, self._namespace))

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

        `on_bind` and `on_unbind` are plain or asynchronous. An error that `on_bind` raises refuses the binding.
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
            invocations.given(metadata),
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
        answer = self._home.start(until_set(self._closed))  # before anything that may end the loop
        self._home.soon(self._finish, InvocationFailed("The worker was shut down.", SHUT_DOWN))
        return answer

    async def __aenter__(self) -> Self:
        await self.ready()
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.shutdown()


URL: Final = "ws://127.0.0.1:49134"
"""Where an engine is when nobody says."""


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
    """A worker of the engine at `url`, which begins to connect at once and stays connected until `shutdown`.

    It lives in the event loop that runs, or in a thread of its own where none does. What is left out is taken from
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
    shown = environment.get("III_TOKEN", "").strip() if token is None else token
    return Worker(
        check_url(url or environment.get("III_URL") or URL),
        {key: value for key, value in about.items() if value is not None},
        headers_of(shown, headers or {}),
        timeout_ms=timeout_ms,
        max_running=max_running,
        reconnecting=reconnecting or Reconnecting(),
        handshake=handshake or Handshake(),
    )
