"""Lifecycle hooks: what a hub does by itself at each step, for a subclass to override or `@hub.on` to replace."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, Final, Literal, TypeVar, cast

from waypost.capabilities.capability import Kind
from waypost.capabilities.context import Context, paused
from waypost.capabilities.session import Session
from waypost.errors import CallError, DefinitionError
from waypost.protocol import dispatch, methods
from waypost.protocol.engine import Engine
from waypost.protocol.exchange import Exchange
from waypost.protocol.lists import Page
from waypost.protocol.profile import Hook
from waypost.protocol.session import LegacySession

F = TypeVar("F", bound=Callable[..., Any])
ListName = Literal["tools", "prompts", "resources", "resource_templates"]

HOOKS: Final = (
    "init",
    "request",
    "notification",
    "list_tools",
    "list_prompts",
    "list_resources",
    "list_resource_templates",
    "tool_call",
    "resource_read",
    "prompt_get",
    "completion",
    "elicitation",
    "sampling",
    "roots",
    "event",
    "call",
    "cast",
    "terminate",
    "session_expired",
    "server_info",
    "server_capabilities",
    "supported_protocol_versions",
    "instructions",
)


class Lifecycle:
    """The hooks of a hub; each default does what happens without it."""

    engine: Engine
    _hooks: dict[str, Hook | None]

    def on(self, hook: str) -> Callable[[F], F]:
        """Register a function for a hook, in place of overriding the method `on_<hook>`."""
        if hook not in HOOKS:
            raise DefinitionError(f"There is no hook {hook!r}; there are {', '.join(HOOKS)}.")

        def register(function: F) -> F:
            self._hooks[hook] = function
            return function

        return register

    def hook(self, name: str) -> Hook | None:
        """What the user wrote for a hook, if anything."""
        if name not in self._hooks:
            method = f"on_{name}"
            own = getattr(type(self), method) is not getattr(Lifecycle, method)
            self._hooks[name] = getattr(self, method) if own else None
        return self._hooks[name]

    async def on_init(self, client_info: Any, session: Session) -> None:
        """A client said `initialize`; its session is new."""

    async def on_request(self, method: str, params: dict[str, Any], ctx: Context) -> dict[str, Any]:
        """Any request; an override answers all of them itself, or hands on to this."""
        return await dispatch.route(self.engine, method, params, cast("Exchange", ctx.caller))

    async def on_notification(self, method: str, params: dict[str, Any], ctx: Context) -> None:
        """A one-way message of a client with a session."""

    async def on_list_tools(self, cursor: str | None, ctx: Context) -> Page:
        """What `tools/list` answers; override it to decide per request."""
        return self.list_registered("tools", cursor)

    async def on_list_prompts(self, cursor: str | None, ctx: Context) -> Page:
        """What `prompts/list` answers; override it to decide per request."""
        return self.list_registered("prompts", cursor)

    async def on_list_resources(self, cursor: str | None, ctx: Context) -> Page:
        """What `resources/list` answers; override it to decide per request."""
        return self.list_registered("resources", cursor)

    async def on_list_resource_templates(self, cursor: str | None, ctx: Context) -> Page:
        """What `resources/templates/list` answers; override it to decide per request."""
        return self.list_registered("resource_templates", cursor)

    async def on_tool_call(self, name: str, arguments: dict[str, Any], ctx: Context) -> Any:
        """A call of a tool; an override answers it, or hands on to this."""
        with paused(ctx):
            return await self.engine.pipeline.call(name, arguments, ctx.caller)

    async def on_resource_read(self, uri: str, ctx: Context) -> Any:
        """A read of a resource; an override answers it, or hands on to this."""
        return await self.engine.pipeline.read(uri, ctx.caller)

    async def on_prompt_get(self, name: str, arguments: dict[str, Any], ctx: Context) -> Any:
        """A prompt someone wants; an override answers it, or hands on to this."""
        return await self.engine.pipeline.prompt(name, arguments, ctx.caller)

    async def on_completion(self, ref: str, argument: Mapping[str, Any], ctx: Context) -> list[str]:
        """Values for an argument being typed; `ref` is a prompt's name or a template's URI."""
        found: list[str] = (await methods.complete_argument(self.engine, ref, argument, ctx.caller))["values"]
        return found

    async def on_elicitation(self, response: dict[str, Any], request_id: str, session: Session) -> None:
        """The answer to `session.send_elicitation`."""

    async def on_sampling(self, response: dict[str, Any], request_id: str, session: Session) -> None:
        """The answer to `session.send_sampling`."""

    async def on_roots(self, roots: list[dict[str, Any]], request_id: str, session: Session) -> None:
        """The answer to `session.send_roots`."""

    async def on_event(self, event: Any, session: Session) -> None:
        """Something sent to a session with `hub.send`."""

    async def on_call(self, request: Any, session: Session) -> Any:
        """A request to a session with `hub.call`; what is returned is its reply."""

    async def on_cast(self, request: Any, session: Session) -> None:
        """A request to a session with `hub.cast`, which waits for no reply."""

    async def on_terminate(self, reason: str, session: Session) -> None:
        """A session ends: `closed`, `disconnected`, `expired`, `revoked` or `shutdown`."""

    async def on_session_expired(self, session_id: str, session: Session) -> Mapping[str, Any] | None:
        """A client comes back with a session that ended; return other client info, or raise to refuse."""
        return None

    def list_registered(self, kind: ListName, cursor: str | None = None, *, include_hidden: bool = False) -> Page:
        """One page of what is registered, for use in list hooks."""
        return self.engine.lists.registered(Kind(kind), cursor, include_hidden=include_hidden)

    async def send(self, session_id: str, event: Any) -> None:
        """Hand an event to a session's `on_event`, after what was sent there before."""
        await self.engine.run_on_loop(self._tell(session_id, "event", event))

    async def call(self, session_id: str, request: Any) -> Any:
        """Ask a session's `on_call` and wait for its reply."""
        return await self.engine.run_on_loop(self._tell(session_id, "call", request))

    async def cast(self, session_id: str, request: Any) -> None:
        """Hand a request to a session's `on_cast` and do not wait."""
        await self.engine.run_on_loop(self._cast(session_id, request))

    async def _tell(self, session_id: str, hook: str, what: Any) -> Any:
        return await self.engine.call_hook(self._session(session_id), hook, what)

    async def _cast(self, session_id: str, request: Any) -> None:
        self.engine.background(self.engine.call_hook(self._session(session_id), "cast", request))

    def _session(self, session_id: str) -> LegacySession:
        session = self.engine.sessions.get(session_id)
        if session is None:
            raise CallError(f"There is no session {session_id}.")
        return session
