"""The hub: puts the parts together, starts and stops them."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterable, Mapping
from typing import TYPE_CHECKING, Any, Literal, Self, TypeVar, overload

from msgspec import UNSET

from waypost.capabilities.capability import Capability, Kind
from waypost.capabilities.context import Caller, Context
from waypost.capabilities.expansion import expand
from waypost.capabilities.options import Options, ResourceOptions, parse
from waypost.capabilities.prompts import prompt_from_function
from waypost.capabilities.registry import Registry
from waypost.capabilities.resources import resource_from_function
from waypost.capabilities.results import Result
from waypost.capabilities.session import ListKind
from waypost.capabilities.toolkits import tool as mark_tool
from waypost.errors import DefinitionError
from waypost.execution.pipeline import Pipeline
from waypost.protocol.engine import Engine, EngineSettings, Hook
from waypost.protocol.listing import Page
from waypost.version import __version__
from waypost.wire.definitions import Implementation

if TYPE_CHECKING:
    from waypost.transports.http.app import HttpApp

F = TypeVar("F", bound=Callable[..., Any])
Names = Literal["canonical", "portable"]

HOOKS = ("list_tools", "list_prompts", "list_resources", "list_resource_templates", "completion")


class Hub:
    """One server for everything an agent can reach: add capabilities, then run it."""

    def __init__(
        self,
        name: str = "",
        version: str = "",
        *,
        instructions: str | None = None,
        title: str | None = None,
        description: str | None = None,
        website_url: str | None = None,
        icons: list[Any] | None = None,
        capabilities: dict[str, Any] | None = None,
        tool_timeout: float = 30.0,
        session_idle: float = 1800.0,
        max_sessions: int = 10_000,
        page_size: int = 1000,
        names: Names = "canonical",
        max_body: int = 4 * 1024 * 1024,
        allowed_hosts: Iterable[str] = (),
        allowed_origins: Iterable[str] = (),
    ) -> None:
        if not name or not version:
            raise DefinitionError(f"A hub needs a {'version' if name else 'name'}: Hub('my-server', version='1.0.0').")
        self.info = Implementation(
            name,
            version,
            title=title or UNSET,
            description=description or UNSET,
            website_url=website_url or UNSET,
            icons=UNSET if icons is None else icons,
        )
        self.max_body = max_body
        self.registry = Registry()
        self._hooks: dict[str, Hook] = {}
        self._allowed_hosts = tuple(allowed_hosts)
        self._allowed_origins = tuple(allowed_origins)
        self._pipeline = Pipeline(self.registry, self, timeout=tool_timeout)
        self.engine = Engine(
            self.info,
            self.registry,
            self._pipeline,
            self,
            self._hook,
            EngineSettings(
                page_size=page_size,
                portable_names=names == "portable",
                session_idle=session_idle,
                max_sessions=max_sessions,
                capabilities=capabilities,
            ),
            instructions,
        )

    def add(
        self,
        source: Any,
        *,
        name: str | None = None,
        description: str | None = None,
        category: str | None = None,
        hidden: bool | None = None,
        visible: bool | None = None,
    ) -> Self:
        """Register a toolkit, component or function; what is said here wins over what it says itself."""
        self.registry.add(
            expand(source, name=name, description=description, category=category, hidden=hidden, visible=visible)
        )
        return self

    def remove(self, *names: str, kind: Kind = Kind.TOOL) -> None:
        """Take capabilities out again, by name or URI."""
        found = [self.registry[kind].get(name) for name in names]
        self.registry.remove(capability for capability in found if capability is not None)

    @overload
    def tool(self, function: F, /, **options: Any) -> F: ...
    @overload
    def tool(self, function: None = None, /, **options: Any) -> Callable[[F], F]: ...
    def tool(self, function: F | None = None, /, **options: Any) -> F | Callable[[F], F]:
        """Register a function as a tool; it stays the function it was."""

        def register(target: F) -> F:
            mark_tool(**options)(target)
            self.add(target)
            return target

        return register if function is None else register(function)

    @overload
    def prompt(self, function: F, /, **options: Any) -> F: ...
    @overload
    def prompt(self, function: None = None, /, **options: Any) -> Callable[[F], F]: ...
    def prompt(self, function: F | None = None, /, **options: Any) -> F | Callable[[F], F]:
        """Register a function as a prompt; its parameters are the arguments."""

        def register(target: F) -> F:
            parsed = parse(options, f"Prompt {target.__name__!r}", Options)
            self.registry.add([prompt_from_function(target, parsed)])
            return target

        return register if function is None else register(function)

    def resource(self, uri: str, /, **options: Any) -> Callable[[F], F]:
        """Register a function as the resource at `uri`; variables in it make a template."""

        def register(target: F) -> F:
            parsed = parse(options, f"Resource {target.__name__!r}", ResourceOptions)
            self.registry.add([resource_from_function(target, uri, parsed)])
            return target

        return register

    def on(self, hook: str) -> Callable[[F], F]:
        """Register a function for a lifecycle hook, in place of overriding the method `on_<hook>`."""
        if hook not in HOOKS:
            raise DefinitionError(f"There is no hook {hook!r}; there are {', '.join(HOOKS)}.")

        def register(function: F) -> F:
            self._hooks[hook] = function
            return function

        return register

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

    async def on_completion(self, ref: str, argument: Mapping[str, Any], ctx: Context) -> list[str]:
        """Values for an argument being typed; `ref` is a prompt's name or a template's URI."""
        return []

    def _hook(self, name: str) -> Hook | None:
        registered = self._hooks.get(name)
        if registered is not None:
            return registered
        method = f"on_{name}"
        return getattr(self, method) if getattr(type(self), method) is not getattr(Hub, method) else None

    def list_registered(
        self,
        kind: Literal["tools", "prompts", "resources", "resource_templates"],
        cursor: str | None = None,
        *,
        include_hidden: bool = False,
    ) -> Page:
        """One page of what is registered, for use in list hooks."""
        return self.engine.listing.registered(Kind(kind), cursor, include_hidden=include_hidden)

    def expand(
        self, kind: Literal["tools", "prompts", "resources", "resource_templates"] = "tools"
    ) -> list[Capability]:
        """Everything registered of one kind, registration overrides applied, hidden items included."""
        return list(self.registry[Kind(kind)])

    async def invoke(self, name: str, arguments: dict[str, Any], caller: Caller) -> Result:
        """Call a tool on behalf of `caller`."""
        return await self._pipeline.call(name, arguments, caller)

    async def notify_changed(self, kind: ListKind) -> None:
        """Tell every client that one of its lists changed."""
        self.engine.broadcast.list_changed(kind)

    async def notify_resource_updated(self, uri: str) -> None:
        """Tell the clients that subscribed to `uri` that it changed."""
        self.engine.broadcast.resource_updated(uri)

    async def start(self) -> None:
        """Begin to serve; transports call it."""
        self.engine.start()

    async def stop(self) -> None:
        """End all sessions and streams; transports call it."""
        self.engine.stop()
        self._pipeline.pool.close()

    def health(self) -> dict[str, str]:
        """What `/health` answers."""
        return {"status": "ok", "version": __version__, "db": "none", "mcp": "running"}

    def asgi(self, *, allowed_hosts: Iterable[str] = ()) -> HttpApp:
        """The hub as an ASGI app, for any ASGI server."""
        from waypost.transports.http.app import HttpApp
        from waypost.transports.http.endpoint import Endpoint
        from waypost.transports.http.gate import Gate

        gate = Gate(hosts=(*self._allowed_hosts, *allowed_hosts), origins=self._allowed_origins, max_body=self.max_body)
        return HttpApp(self, Endpoint(self.engine, gate), gate)

    def run(
        self,
        transport: Literal["stdio", "http"] = "stdio",
        *,
        host: str = "127.0.0.1",
        port: int = 8420,
        ready: Callable[[str], None] | None = None,
    ) -> None:
        """Serve until the client leaves (stdio) or the process is asked to stop (http); `ready` hears the address."""
        if transport == "stdio":
            from waypost.transports import stdio

            stdio.run(self)
        elif transport == "http":
            from waypost.transports.http.gate import bound_hosts
            from waypost.transports.http.server import serve

            app = self.asgi(allowed_hosts=bound_hosts(host))
            serve(app, host, port, ready=ready or self._say_where, closing=self.engine.stop)
        else:
            raise DefinitionError(f"There is no transport {transport!r}; use 'stdio' or 'http'.")

    def _say_where(self, address: str) -> None:
        sys.stderr.write(f"{self.info.name} is ready at {address}/mcp\n")
