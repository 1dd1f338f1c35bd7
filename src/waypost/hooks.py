"""Lifecycle hooks: which there are, how several functions for one hook are run, and the methods to override."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping, Sequence
from contextvars import ContextVar
from functools import partial
from inspect import signature
from typing import Any, Final, Literal, Protocol, cast

from waypost.capabilities.capability import Kind
from waypost.capabilities.context import Context, Session, pause_deadline
from waypost.errors import DefinitionError
from waypost.loops import maybe_await
from waypost.protocol import methods
from waypost.protocol.exchange import Exchange
from waypost.protocol.lists import Page
from waypost.runtime.core import Core
from waypost.wire import versions
from waypost.wire.definitions import Implementation

ListName = Literal["tools", "prompts", "resources", "resource_templates"]

Hook = Callable[..., Awaitable[Any] | Any]

WRAPPING: Final = frozenset(
    {
        "request",
        "list_tools",
        "list_prompts",
        "list_resources",
        "list_resource_templates",
        "tool_call",
        "resource_read",
        "prompt_get",
        "completion",
    }
)
"""Hooks that answer in place of the hub; each goes on to the next by calling the method `Hub.on_<hook>`."""
NOTIFYING: Final = frozenset(
    {
        "init",
        "notification",
        "elicitation",
        "sampling",
        "roots",
        "event",
        "call",
        "cast",
        "terminate",
        "session_expired",
    }
)
"""Hooks that all run, one after the other; the first result that is not `None` is the answer."""
DESCRIBING: Final = frozenset({"server_info", "server_capabilities", "supported_protocol_versions", "instructions"})
"""Hooks that say what the hub is, without arguments; the first result that is not empty counts."""
LIFECYCLE: Final = frozenset({"start", "stop"})
"""Hooks of the process: after everything started, and before anything stops."""
HOOKS: Final = (*sorted(WRAPPING | NOTIFYING | DESCRIBING | LIFECYCLE),)

# A context variable, because requests run the same hooks at the same time, each at a place of its own.
_position: ContextVar[tuple[str, int]] = ContextVar("waypost_hook", default=("", -1))
"""The hook that runs, and which of its functions."""


class Hooks(dict[str, Hook | None]):
    """What runs each hook, `None` where there is no function for it; chosen when it is first looked up.

    Functions that a hub's user registered run in the order of registration. `overridden` is what a subclass of `Hub`
    wrote as a method; it runs after them. It is a dict because every request looks up two hooks.
    """

    def __init__(self, overridden: Callable[[str], Hook | None]) -> None:
        self._overridden = overridden
        self._registered: dict[str, list[Hook]] = {}

    def add(self, name: str, function: Hook) -> None:
        """Register one more function for a hook."""
        self._registered.setdefault(name, []).append(function)
        # Chosen anew at the next lookup.
        self.pop(name, None)

    def stack(self, name: str) -> list[Hook]:
        """All functions of a hook, the first to run first."""
        own = self._overridden(name)
        return [*self._registered.get(name, ()), *(() if own is None else (own,))]

    def __missing__(self, name: str) -> Hook | None:
        self[name] = found = self._choose(name)
        return found

    def _choose(self, name: str) -> Hook | None:
        stack = self.stack(name)
        if not stack:
            return None
        if name in WRAPPING:
            return lambda *args: self._run(name, 0, args)
        if len(stack) == 1:
            return stack[0]

        async def run_all(*args: Any) -> Any:
            results = [await maybe_await(function(*args)) for function in stack]
            return next((result for result in results if result is not None), None)

        return run_all

    async def go_on(self, name: str, args: tuple[Any, ...], default: Hook) -> Any:
        """Run the function after the one that runs now, or what the hub does by itself."""
        running, index = _position.get()
        # Called from elsewhere than the hook itself, this is what the hub does without any hook.
        index = index + 1 if running == name else len(self.stack(name))
        if index < len(self.stack(name)):
            return await self._run(name, index, args)
        return await maybe_await(default(*args))

    async def _run(self, name: str, index: int, args: tuple[Any, ...]) -> Any:
        token = _position.set((name, index))
        try:
            return await maybe_await(self.stack(name)[index](*args))
        finally:
            _position.reset(token)

    def describe(self, name: str) -> Any:
        """What the functions of a describing hook say, if any says something."""
        return next((said for function in self._registered.get(name, ()) if (said := function())), None)


def check_hook(name: str) -> None:
    """Raise `DefinitionError` for a name that is no hook."""
    if name not in HOOKS:
        raise DefinitionError(f"There is no hook {name!r}; there are {', '.join(HOOKS)}.")


def check_signature(name: str, function: Hook) -> None:
    """Raise `DefinitionError` for a function that cannot take the arguments of a hook."""
    method = getattr(HookMethods, f"on_{name}", None)
    # Hooks that describe the hub have no method, and no arguments.
    given = [] if method is None else list(signature(method).parameters)[1:]
    try:
        taken = signature(function)
    except ValueError:  # a builtin that does not tell its parameters
        return
    try:
        taken.bind(*given)
    except TypeError:
        called = getattr(function, "__name__", "the function")
        raise DefinitionError(
            f"{called}{taken} cannot be called for the hook {name!r}; its arguments are ({', '.join(given)})."
        ) from None


class _Running(Protocol):
    """What the defaults of the hooks need of the class that inherits them."""

    @property
    def core(self) -> Core: ...


class HookMethods(_Running):
    """The methods that a subclass of `Hub` may override; each default is what the hub does without an override."""

    def __init__(
        self, info: Implementation, instructions: str | None, capabilities: dict[str, dict[str, Any]] | None
    ) -> None:
        self.info = info
        self.hooks = Hooks(self._get_override)
        self._instructions = instructions
        self._capabilities = capabilities

    def add_hook(self, hook: str, function: Hook) -> None:
        """Register one more function for a hook."""
        self.hooks.add(hook, function)
        if hook in WRAPPING and self._get_override(hook) is not None:
            # A registered function goes on with `hub.on_<hook>` too, which would call the override out of its turn.
            setattr(self, f"on_{hook}", partial(getattr(HookMethods, f"on_{hook}"), self))

    def _get_override(self, hook: str) -> Hook | None:
        method: Any = getattr(type(self), f"on_{hook}", None)
        is_own = method is not getattr(HookMethods, f"on_{hook}", None)
        return cast("Hook", method.__get__(self)) if is_own else None

    def server_info(self) -> Implementation | Mapping[str, Any]:
        """What `initialize` answers as the server's info."""
        return self.hooks.describe("server_info") or self.info

    def server_capabilities(self) -> dict[str, Any] | None:
        """What the hub declares to clients; `None` declares what is registered."""
        return self.hooks.describe("server_capabilities") or self._capabilities

    def supported_protocol_versions(self) -> Sequence[str]:
        """The protocol versions the hub serves."""
        return self.hooks.describe("supported_protocol_versions") or versions.ALL

    def instructions(self) -> str | None:
        """How to use the hub."""
        return self.hooks.describe("instructions") or self._instructions

    async def on_init(self, client_info: Any, session: Session) -> None:
        """A client sent `initialize`; its session is new."""

    async def on_request(self, method: str, params: dict[str, Any], ctx: Context) -> dict[str, Any]:
        """Any request; an override answers all of them itself, or goes on to this."""

        async def route(method: str, params: dict[str, Any], ctx: Context) -> dict[str, Any]:
            return await methods.route(self.core.engine, method, params, cast("Exchange", ctx.caller))

        answer: dict[str, Any] = await self.hooks.go_on("request", (method, params, ctx), route)
        return answer

    async def on_notification(self, method: str, params: dict[str, Any], ctx: Context) -> None:
        """A notification of a client with a session."""

    async def on_list_tools(self, cursor: str | None, ctx: Context) -> Page:
        """What `tools/list` answers; override it to decide per request."""
        return await self._list("tools", cursor, ctx)

    async def on_list_prompts(self, cursor: str | None, ctx: Context) -> Page:
        """What `prompts/list` answers; override it to decide per request."""
        return await self._list("prompts", cursor, ctx)

    async def on_list_resources(self, cursor: str | None, ctx: Context) -> Page:
        """What `resources/list` answers; override it to decide per request."""
        return await self._list("resources", cursor, ctx)

    async def on_list_resource_templates(self, cursor: str | None, ctx: Context) -> Page:
        """What `resources/templates/list` answers; override it to decide per request."""
        return await self._list("resource_templates", cursor, ctx)

    async def _list(self, kind: ListName, cursor: str | None, ctx: Context) -> Page:
        page: Page = await self.hooks.go_on(
            f"list_{kind}", (cursor, ctx), lambda cursor, ctx: self.core.engine.lists.select(Kind(kind), cursor)
        )
        return page

    async def on_tool_call(self, name: str, arguments: dict[str, Any], ctx: Context) -> Any:
        """A call of a tool; an override answers it, or goes on to this."""

        async def call(name: str, arguments: dict[str, Any], ctx: Context) -> Any:
            with pause_deadline(ctx):
                return await self.core.pipeline.call(name, arguments, ctx.caller)

        return await self.hooks.go_on("tool_call", (name, arguments, ctx), call)

    async def on_resource_read(self, uri: str, ctx: Context) -> Any:
        """A read of a resource; an override answers it, or goes on to this."""
        return await self.hooks.go_on(
            "resource_read", (uri, ctx), lambda uri, ctx: self.core.pipeline.read(uri, ctx.caller)
        )

    async def on_prompt_get(self, name: str, arguments: dict[str, Any], ctx: Context) -> Any:
        """A request for a prompt; an override answers it, or goes on to this."""
        return await self.hooks.go_on(
            "prompt_get",
            (name, arguments, ctx),
            lambda name, arguments, ctx: self.core.pipeline.prompt(name, arguments, ctx.caller),
        )

    async def on_completion(self, ref: str, argument: Mapping[str, Any], ctx: Context) -> list[str]:
        """Values for an argument being typed; `ref` is a prompt's name or a template's URI."""

        async def complete(ref: str, argument: Mapping[str, Any], ctx: Context) -> list[str]:
            values: list[str] = (await methods.complete_argument(self.core.engine, ref, argument, ctx.caller))["values"]
            return values

        found: list[str] = await self.hooks.go_on("completion", (ref, argument, ctx), complete)
        return found

    async def on_elicitation(self, response: dict[str, Any], request_id: str, session: Session) -> None:
        """The answer to `session.send_elicitation`."""

    async def on_sampling(self, response: dict[str, Any], request_id: str, session: Session) -> None:
        """The answer to `session.send_sampling`."""

    async def on_roots(self, roots: list[dict[str, Any]], request_id: str, session: Session) -> None:
        """The answer to `session.send_roots`."""

    async def on_event(self, event: Any, session: Session) -> None:
        """An event sent to a session with `hub.send`."""

    async def on_call(self, request: Any, session: Session) -> Any:
        """A request to a session with `hub.call`; what is returned is its reply."""

    async def on_cast(self, request: Any, session: Session) -> None:
        """A request to a session with `hub.cast`, which waits for no reply."""

    async def on_terminate(self, reason: str, session: Session) -> None:
        """A session ends: `closed`, `disconnected`, `expired`, `revoked` or `shutdown`."""

    async def on_session_expired(self, session_id: str, session: Session) -> Mapping[str, Any] | None:
        """A client comes back with a session that ended; return other client info, or raise to refuse."""
        return None

    async def on_start(self) -> None:
        """Every component has started; no client is served yet."""

    async def on_stop(self) -> None:
        """The hub stops; every component still works."""
