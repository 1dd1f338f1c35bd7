"""The hub: puts the parts together, starts and stops them."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal, Self, TypeVar, overload

from msgspec import UNSET

from waypost.capabilities.capability import Capability, Kind
from waypost.capabilities.context import Caller
from waypost.capabilities.expansion import expand
from waypost.capabilities.functions import tool_from_function
from waypost.capabilities.options import Options, ResourceOptions, ToolOptions, parse
from waypost.capabilities.prompts import prompt_from_function
from waypost.capabilities.registry import Registry
from waypost.capabilities.resources import resource_from_function
from waypost.capabilities.results import Result
from waypost.capabilities.session import ListKind
from waypost.capabilities.toolkits import tool_options
from waypost.errors import DefinitionError, ToolError, UnknownCapability, UnknownTool, WaypostError
from waypost.execution.pipeline import Pipeline
from waypost.lifecycle import Lifecycle, ListName
from waypost.protocol.engine import Engine, EngineSettings, Hook
from waypost.protocol.session import LegacySession
from waypost.stores import places
from waypost.stores.store import Store
from waypost.version import __version__
from waypost.wire import versions
from waypost.wire.definitions import Implementation

if TYPE_CHECKING:
    from waypost.policy import Authentication
    from waypost.transports.http.app import HttpApp

F = TypeVar("F", bound=Callable[..., Any])
Names = Literal["canonical", "portable"]


class Hub(Lifecycle):
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
        secret: bytes | None = None,
        allow_anonymous_remote: bool = False,
        auth: Authentication | None = None,
        task_after: float = 1.0,
        store: Store | str | None = None,
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
        self.auth = auth
        self._allow_anonymous_remote = allow_anonymous_remote
        self._given_store = store
        self.registry = Registry()
        self._hooks: dict[str, Hook | None] = {}
        self._capabilities = capabilities
        self._instructions = instructions
        self._allowed_hosts = tuple(allowed_hosts)
        self._allowed_origins = tuple(allowed_origins)
        self._pipeline = Pipeline(self.registry, self, timeout=tool_timeout)
        self.engine = Engine(
            self,
            self.registry,
            self._pipeline,
            EngineSettings(
                page_size=page_size,
                portable_names=names == "portable",
                session_idle=session_idle,
                max_sessions=max_sessions,
                secret=secret,
                task_after=task_after,
            ),
            self._kept_in(places.data_directory(), places.MEMORY),
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
            nearer = tool_options(target) or {}
            parsed = parse({**options, **nearer}, f"Tool {getattr(target, '__name__', '?')!r}", ToolOptions)
            self.registry.add([tool_from_function(target, parsed).capability])
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

    def server_info(self) -> Implementation | Mapping[str, Any]:
        """What the hub says it is; override it to say something else."""
        return self._told("server_info") or self.info

    def server_capabilities(self) -> dict[str, Any] | None:
        """What the hub declares to clients; `None` declares what is registered."""
        return self._told("server_capabilities") or self._capabilities

    def supported_protocol_versions(self) -> Sequence[str]:
        """The protocol versions the hub serves."""
        return self._told("supported_protocol_versions") or versions.ALL

    def instructions(self) -> str | None:
        """How to use the hub."""
        return self._told("instructions") or self._instructions

    def _told(self, name: str) -> Any:
        hook = self._hooks.get(name)
        return None if hook is None else hook()

    def expand(self, kind: ListName = "tools") -> list[Capability]:
        """Everything registered of one kind, registration overrides applied, hidden items included."""
        return list(self.registry[Kind(kind)])

    async def invoke(self, name: str, arguments: dict[str, Any], caller: Caller) -> Result:
        """Call a tool on behalf of `caller`, out of another one; a name nobody has is that one's mistake."""
        try:
            return await self._pipeline.call(name, arguments, caller)
        except UnknownTool as error:
            raise ToolError(error.message) from None

    async def notify_changed(self, kind: ListKind) -> None:
        """Tell every client that one of its lists changed."""
        self.engine.broadcast.list_changed(kind)

    async def notify_resource_updated(self, uri: str) -> None:
        """Tell the clients that subscribed to `uri` that it changed."""
        self.engine.broadcast.resource_updated(uri)

    async def send(self, session_id: str, event: Any) -> None:
        """Hand an event to a session's `on_event`, after what was sent there before."""
        await self.engine.on_own_loop(self._tell(session_id, "event", event))

    async def call(self, session_id: str, request: Any) -> Any:
        """Ask a session's `on_call` and wait for its reply."""
        return await self.engine.on_own_loop(self._tell(session_id, "call", request))

    async def cast(self, session_id: str, request: Any) -> None:
        """Hand a request to a session's `on_cast` and do not wait."""
        await self.engine.on_own_loop(self._cast(session_id, request))

    async def _tell(self, session_id: str, hook: str, what: Any) -> Any:
        return await self.engine.tell(self._session(session_id), hook, what)

    async def _cast(self, session_id: str, request: Any) -> None:
        self.engine.background(self.engine.tell(self._session(session_id), "cast", request))

    def _session(self, session_id: str) -> LegacySession:
        session = self.engine.sessions.get(session_id)
        if session is None:
            raise UnknownCapability(f"There is no session {session_id}.")
        return session

    @property
    def store(self) -> Store:
        """Everything that outlives a request."""
        return self.engine.store

    def settle_in(self, data: Path) -> None:
        """Keep what has to last in a directory, unless the hub was given a store that is somewhere else."""
        self.engine.store = self._kept_in(data, places.DEFAULT)

    def _kept_in(self, data: Path, otherwise: str) -> Store:
        if isinstance(self._given_store, Store):
            return self._given_store
        return Store(places.database(self._given_store or otherwise, data))

    async def start(self) -> None:
        """Begin to serve; transports call it."""
        self.engine.start()

    async def stop(self) -> None:
        """End all sessions and streams; transports call it."""
        await self.engine.stop()
        await self.store.close()
        self._pipeline.pool.close()
        if self.auth is not None:
            await self.auth.close()

    async def health(self) -> dict[str, str]:
        """What `/health` answers."""
        db = await self.store.health()
        return {"status": "ok" if db == "ok" else "degraded", "version": __version__, "db": db, "mcp": "running"}

    def asgi(self, *, allowed_hosts: Iterable[str] = ()) -> HttpApp:
        """The hub as an ASGI app, for any ASGI server."""
        from waypost.transports.http.app import HttpApp
        from waypost.transports.http.endpoint import Endpoint
        from waypost.transports.http.gate import Gate

        gate = Gate(hosts=(*self._allowed_hosts, *allowed_hosts), origins=self._allowed_origins, max_body=self.max_body)
        return HttpApp(self, Endpoint(self.engine, gate, self.auth), gate, self.auth)

    def run(
        self,
        transport: Literal["stdio", "http"] = "stdio",
        *,
        host: str = "127.0.0.1",
        port: int = 8420,
        ready: Callable[[str], None] | None = None,
    ) -> None:
        """Serve until the client leaves (stdio) or the process is asked to stop (http); `ready` hears the address."""
        if self._given_store is None and not self.store.database.lasts:
            self.settle_in(places.data_directory())
        if transport == "stdio":
            from waypost.transports import stdio

            stdio.run(self)
        elif transport == "http":
            from waypost.transports.http.gate import bound_hosts
            from waypost.transports.http.server import serve

            hosts = bound_hosts(host)
            if hosts:
                self._check_open_to_all(host)
            app = self.asgi(allowed_hosts=hosts)
            serve(
                app,
                host,
                port,
                opening=self.store.open,
                ready=ready or self._say_where,
                closing=self.engine.release,
            )
        else:
            raise DefinitionError(f"There is no transport {transport!r}; use 'stdio' or 'http'.")

    def _check_open_to_all(self, host: str) -> None:
        """Refuse to let just anybody in."""
        open_to_all = self.auth is None or self.auth.allows_anonymous
        if open_to_all and not self._allow_anonymous_remote:
            raise WaypostError(
                f"{host} can be reached from outside and nobody has to show a key; listen on 127.0.0.1, "
                "or allow it with server.allowAnonymousRemote: true (allow_anonymous_remote=True in Python)."
            )

    def _say_where(self, address: str) -> None:
        sys.stderr.write(f"{self.info.name} is ready at {address}/mcp\n")
