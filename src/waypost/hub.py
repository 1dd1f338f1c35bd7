"""The hub: declares what a server offers. What runs it is `runtime/`."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import AbstractAsyncContextManager
from os import PathLike
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal, Self, TypeVar, cast, overload

from msgspec import UNSET
from msgspec.structs import replace

from waypost.capabilities.capability import Capability, Kind
from waypost.capabilities.context import Caller, Context, pause_deadline
from waypost.capabilities.options import Options, ResourceOptions, ToolOptions, parse_options
from waypost.capabilities.principals import Principal
from waypost.capabilities.prompts import prompt_from_function
from waypost.capabilities.registry import Registry
from waypost.capabilities.resources import resource_from_function
from waypost.capabilities.results import Result
from waypost.capabilities.session import ListKind, Session
from waypost.capabilities.tools import Toolkit, expand, instantiate, tool_from_function, tool_options
from waypost.errors import CallError, DefinitionError, PolicyDenied, ToolError, UnknownTool, WaypostError
from waypost.hooks import Hook, Hooks, check_hook
from waypost.policy.rules import Rule
from waypost.protocol import dispatch, methods
from waypost.protocol.exchange import Exchange
from waypost.protocol.lists import Page
from waypost.protocol.session import LegacySession
from waypost.runtime.component import Component, is_component
from waypost.runtime.core import Core, CoreOptions, Launch
from waypost.runtime.runtime import Runtime
from waypost.settings import Settings, settings_from_options
from waypost.stores.directory import data_directory
from waypost.stores.store import Store
from waypost.wire import versions
from waypost.wire.definitions import Implementation

if TYPE_CHECKING:
    from waypost.config.models import Workflow
    from waypost.documents.documents import Documents
    from waypost.documents.folders.folders import SkillFolders
    from waypost.execution.counters import Counters
    from waypost.gateway.gateway import Gateway
    from waypost.identity import Authentication
    from waypost.identity.key_ring import KeyRing
    from waypost.imports.imports import Imports
    from waypost.policy.guard import PolicyGuard
    from waypost.protocol.engine import Engine
    from waypost.skills.skill_set import SkillSet
    from waypost.transports.http.app import HttpApp
    from waypost.workers.workers import Workers
    from waypost.workflows.workflows import Workflows

F = TypeVar("F", bound=Callable[..., Any])
ListName = Literal["tools", "prompts", "resources", "resource_templates"]
Lifespan = Callable[["Hub"], AbstractAsyncContextManager[Any]]


class Hub:
    """One server for everything an agent can reach: add capabilities, then run it.

    `options` are the settings of the section `server` by their Python names, and the times in seconds that older
    programs use (`tool_timeout`, `session_idle`, `task_after`).
    """

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
        capabilities: dict[str, dict[str, Any]] | None = None,
        settings: Settings | None = None,
        lifespan: Lifespan | None = None,
        data_dir: str | PathLike[str] | None = None,
        store: Store | str | None = None,
        secret: bytes | None = None,
        auth: Authentication | None = None,
        policies: Iterable[Rule] = (),
        breakers: bool = False,
        workers: bool | Mapping[str, Any] = False,
        **options: Any,
    ) -> None:
        if not name or not version:
            raise DefinitionError(f"A hub needs a {'version' if name else 'name'}: Hub('my-server', version='1.0.0').")
        for key, value in (("name", name), ("version", version)):
            if not isinstance(value, str):
                raise DefinitionError(f"Hub: {key} must be text, not {value!r}.")
        if capabilities is not None and not (
            isinstance(capabilities, dict) and all(isinstance(one, dict) for one in capabilities.values())
        ):
            raise DefinitionError(
                f"Hub: capabilities must be a dict of what each capability declares, not {capabilities!r}."
            )
        self.info = Implementation(
            name,
            version,
            title=title or UNSET,
            description=description or UNSET,
            website_url=website_url or UNSET,
            icons=UNSET if icons is None else icons,
        )
        self.settings = settings_from_options(options, workers, settings)
        self.registry = Registry()
        self.components: list[Component] = []
        self.hooks = Hooks(self._overridden)
        self.hook = self.hooks.get  # without a method of its own, since each request looks up two hooks
        self.lifespan = lifespan
        self.auth = auth
        self._instructions = instructions
        self._capabilities = capabilities
        self._options = CoreOptions(store=store, secret=secret, rules=tuple(policies), breakers=breakers)
        self._data_dir = None if data_dir is None else Path(data_dir)
        self._declared: list[Callable[[Runtime], None]] = []
        self._runtime: Runtime | None = None

    @classmethod
    def from_config(cls, path: str | PathLike[str], *, data_dir: str | PathLike[str] | None = None) -> Self:
        """A hub as a configuration file describes it; it follows the file while it runs.

        Raises `ConfigError` with all findings if the file has errors.
        """
        from waypost.runtime.configuration import ConfigurationFile

        file = Path(path)
        configuration = ConfigurationFile(file)
        settings = configuration.loaded.config
        hub = cls(
            settings.server.name,
            settings.server.version,
            instructions=settings.server.instructions,
            settings=settings,
            data_dir=data_dir or data_directory(file.absolute()),
            store=settings.store.url,
            auth=configuration.authentication,
            policies=configuration.rules,
            breakers=True,
        )
        hub._declared.append(configuration.add_to)
        return hub

    # Declaring: nothing below opens, reads or starts anything.

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
        """Register a toolkit, tool, resource, prompt or function, or a component with a lifecycle of its own.

        What is said here wins over what the source says itself.
        """
        if is_component(source):
            if self._runtime is None:
                self.components.append(source)
            else:
                self._runtime.add(source)
            return self
        made = instantiate(source)
        whole = made if isinstance(source, (list, tuple)) else made[0]
        self.registry.add(
            expand(whole, name=name, description=description, category=category, hidden=hidden, visible=visible)
        )
        if toolkits := [one for one in made if isinstance(one, Toolkit)]:
            self._declare(lambda runtime: runtime.toolkits.add(toolkits))
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
        """Register a function as a tool; the function stays what it was."""

        def register(target: F) -> F:
            nearer = tool_options(target) or {}
            parsed = parse_options({**options, **nearer}, f"Tool {getattr(target, '__name__', '?')!r}", ToolOptions)
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
            parsed = parse_options(options, f"Prompt {target.__name__!r}", Options)
            self.registry.add([prompt_from_function(target, parsed)])
            return target

        return register if function is None else register(function)

    def resource(self, uri: str, /, **options: Any) -> Callable[[F], F]:
        """Register a function as the resource at `uri`; variables in it make a template."""

        def register(target: F) -> F:
            parsed = parse_options(options, f"Resource {target.__name__!r}", ResourceOptions)
            self.registry.add([resource_from_function(target, uri, parsed)])
            return target

        return register

    def workflow(self, name: str, model: Workflow) -> Self:
        """Add a workflow: states with transitions, or steps."""
        return self._declare(lambda runtime: runtime.workflows.add(name, model))

    def add_skills(self, *folders: str | PathLike[str]) -> Self:
        """Serve the skills in folders, in the Agent Skills format, and follow changes while the hub runs."""
        return self._declare(lambda runtime: runtime.add_skill_folders(folders))

    def add_prompts(self, *folders: str | PathLike[str]) -> Self:
        """Serve the prompts in folders, Markdown files with front matter, and follow changes."""
        return self._declare(lambda runtime: runtime.folders.add_prompts(*folders))

    def _declare(self, apply: Callable[[Runtime], None]) -> Self:
        """Have something applied when the runtime is built, or at once if it is."""
        if self._runtime is None:
            self._declared.append(apply)
        else:
            apply(self._runtime)
        return self

    def on(self, hook: str) -> Callable[[F], F]:
        """Register a function for a hook; several run in the order of their registration."""
        check_hook(hook)

        def register(function: F) -> F:
            self.hooks.add(hook, function)
            return function

        return register

    def _overridden(self, name: str) -> Hook | None:
        method = f"on_{name}"
        is_own = getattr(type(self), method, None) is not getattr(Hub, method, None)
        return getattr(self, method) if is_own else None

    # Running.

    @property
    def runtime(self) -> Runtime:
        """What runs this hub; built when it is first used, in memory unless a store or a data directory was given."""
        return self._runtime or self._build(Launch())

    def launch(self, launch: Launch) -> Runtime:
        """The runtime for a way of running; where the hub keeps its data is decided by the first one."""
        if self._runtime is None:
            return self._build(launch)
        self._runtime.launch_as(launch)
        return self._runtime

    def _build(self, launch: Launch) -> Runtime:
        if self._data_dir is not None:
            launch = replace(launch, data_dir=launch.data_dir or self._data_dir, durable=True)
        self._runtime = runtime = Runtime(self, self._options, launch)
        for apply in self._declared:
            apply(runtime)
        for component in self.components:
            runtime.add(component)
        return runtime

    async def start(self) -> None:
        """Start everything; transports call it."""
        await self.runtime.start()

    async def stop(self) -> None:
        """End all sessions and streams and stop everything; transports call it."""
        await self.runtime.stop()

    async def health(self) -> dict[str, str]:
        """What `/health` answers."""
        return await self.runtime.health()

    async def reload(self) -> bool:
        """Read the configuration file again; on any error everything stays as it is, and the log says why."""
        return await self.runtime.reload()

    def asgi(self, *, allowed_hosts: Iterable[str] = ()) -> HttpApp:
        """The hub as an ASGI app, for any ASGI server."""
        from waypost.transports.http.app import HttpApp
        from waypost.transports.http.endpoint import Endpoint
        from waypost.transports.http.gate import Gate

        runtime, server = self.runtime, self.settings.server
        gate = Gate(
            hosts=(*server.allowed_hosts, *allowed_hosts),
            origins=tuple(server.allowed_origins),
            max_body=server.max_body_bytes,
        )
        auth = runtime.authenticate()
        return HttpApp(runtime, Endpoint(self.engine, gate, auth), gate, auth)

    def run(
        self,
        transport: Literal["stdio", "http"] = "stdio",
        *,
        host: str = "127.0.0.1",
        port: int = 8420,
        ready: Callable[[str], None] | None = None,
    ) -> None:
        """Serve until the client leaves (stdio) or the process is asked to stop (http); `ready` gets the address.

        If the server cannot start, the program exits with a sentence on stderr and status 1.
        """
        try:
            self.serve(transport, host=host, port=port, ready=ready)
        except DefinitionError:
            raise
        except WaypostError as error:
            raise SystemExit(f"{self.info.name}: {error}") from None

    def serve(
        self,
        transport: Literal["stdio", "http"] = "stdio",
        *,
        host: str = "127.0.0.1",
        port: int = 8420,
        data_dir: str | PathLike[str] | None = None,
        ready: Callable[[str], None] | None = None,
    ) -> None:
        """Do what `run` does, in a program that goes on: what keeps it from serving is raised."""
        where = None if data_dir is None else Path(data_dir)
        if transport == "stdio":
            from waypost.transports import stdio

            self.launch(Launch(data_dir=where, durable=True, opens_worker_port=False))
            stdio.run(self)
        elif transport == "http":
            from waypost.transports.http import server
            from waypost.transports.http.gate import find_bound_hosts

            runtime = self.launch(Launch(data_dir=where, durable=True, address=host))
            server.serve(
                self.asgi(allowed_hosts=find_bound_hosts(host)),
                host,
                port,
                opening=runtime.start,
                ready=ready or (lambda address: _print(self.ready_message(address))),
                closing=self.engine.release,
            )
        else:
            raise DefinitionError(f"There is no transport {transport!r}; use 'stdio' or 'http'.")

    def ready_message(self, address: str) -> str:
        """The line that says where the hub serves."""
        workers = f", for workers at {self.worker_address}" if self.worker_address else ""
        return f"{self.info.name} is ready at {address}/mcp{workers}\n"

    # What the hub says about itself; override these, or register functions with `on`.

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

    # Hooks: each default is what the hub does by itself.

    async def on_init(self, client_info: Any, session: Session) -> None:
        """A client sent `initialize`; its session is new."""

    async def on_request(self, method: str, params: dict[str, Any], ctx: Context) -> dict[str, Any]:
        """Any request; an override answers all of them itself, or goes on to this."""

        async def route(method: str, params: dict[str, Any], ctx: Context) -> dict[str, Any]:
            return await dispatch.route(self.engine, method, params, cast("Exchange", ctx.caller))

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
            f"list_{kind}", (cursor, ctx), lambda cursor, ctx: self.list_registered(kind, cursor)
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
            values: list[str] = (await methods.complete_argument(self.engine, ref, argument, ctx.caller))["values"]
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

    # What handlers and programs ask a running hub for.

    def list_registered(self, kind: ListName, cursor: str | None = None, *, include_hidden: bool = False) -> Page:
        """One page of what is registered, for use in list hooks."""
        return self.engine.lists.select(Kind(kind), cursor, include_hidden=include_hidden)

    def expand(self, kind: ListName = "tools") -> list[Capability]:
        """Everything registered of one kind, registration overrides applied, hidden items included."""
        return list(self.runtime.core.registry[Kind(kind)])

    async def invoke(
        self, name: str, arguments: dict[str, Any], caller: Caller, by: Capability | None = None
    ) -> Result:
        """Call a tool for `caller`, from the handler of `by`; an unknown name is an error of that handler."""
        if by is not None:
            caller = caller.with_chain(self.guard.behind(by, caller))
        try:
            return await self.core.pipeline.call(name, arguments, caller)
        except (UnknownTool, PolicyDenied) as error:
            raise ToolError(error.message) from error

    @property
    def hides(self) -> bool:
        """Whether a rule hides what it denies."""
        return self.guard.policy.hides

    def is_hidden(self, principal: Principal, name: str) -> bool:
        """Whether a rule hides a name from a principal."""
        return self.guard.policy.is_hidden(principal, name)

    def expects(self, capability: str) -> bool:
        """Whether a list is declared although it may be empty: workers publish prompts and resources at any time."""
        return capability in ("prompts", "resources") and self.runtime.has_worker_port

    def require(self, permission: str, caller: Caller, by: Capability | None) -> None:
        """Raise `PolicyDenied` unless the running capability has a permission."""
        if by is not None:
            self.guard.require(by, caller, permission)

    async def notify_changed(self, kind: ListKind) -> None:
        """Send `list_changed` to every client."""
        self.engine.broadcast.list_changed(kind)

    async def notify_resource_updated(self, uri: str) -> None:
        """Notify the clients that subscribed to `uri`."""
        self.engine.broadcast.resource_updated(uri)

    async def send(self, session_id: str, event: Any) -> None:
        """Give an event to a session's `on_event`, after the events before it."""
        await self.engine.run_on_loop(self._run_hook(session_id, "event", event))

    async def call(self, session_id: str, request: Any) -> Any:
        """Ask a session's `on_call` and wait for its reply."""
        return await self.engine.run_on_loop(self._run_hook(session_id, "call", request))

    async def cast(self, session_id: str, request: Any) -> None:
        """Give a request to a session's `on_cast` without waiting."""

        async def start() -> None:
            self.engine.background(self._run_hook(session_id, "cast", request))

        self._session(session_id)
        await self.engine.run_on_loop(start())

    async def _run_hook(self, session_id: str, hook: str, argument: Any) -> Any:
        return await self.engine.call_hook(self._session(session_id), hook, argument)

    def _session(self, session_id: str) -> LegacySession:
        session = self.engine.sessions.get(session_id)
        if session is None:
            raise CallError(f"There is no session {session_id}.")
        return session

    # The parts of the runtime, under the names that programs use.

    @property
    def core(self) -> Core:
        """What every component may use."""
        return self.runtime.core

    @property
    def authentication(self) -> Authentication:
        """Who may use the hub over HTTP."""
        return self.runtime.authentication

    @property
    def has_workflows(self) -> bool:
        """Whether the workflow engine was built."""
        return self.runtime.has_workflows

    @property
    def max_body(self) -> int:
        """The largest message that is accepted, in bytes."""
        return self.settings.server.max_body_bytes

    @property
    def engine(self) -> Engine:
        """The protocol engine."""
        return self.runtime.core.engine

    @property
    def store(self) -> Store:
        """Everything that outlives a request."""
        return self.runtime.core.store

    @property
    def guard(self) -> PolicyGuard:
        """Permissions, rules, breakers and the audit."""
        return self.runtime.core.guard

    @property
    def counters(self) -> Counters:
        """What was called how often, and how long it took."""
        return self.runtime.core.pipeline.counters

    @property
    def keys(self) -> KeyRing:
        """Keys that are created and revoked while the hub runs."""
        return self.runtime.keys

    @property
    def workflows(self) -> Workflows:
        """The workflow engine and its definitions."""
        return self.runtime.workflows

    @property
    def gateway(self) -> Gateway:
        """The seven tools over everything."""
        return self.runtime.gateway

    @property
    def workers(self) -> Workers:
        """The worker socket and what workers offer."""
        return self.runtime.workers

    @property
    def documents(self) -> Documents:
        """Markdown skills and prompts that workers and people publish."""
        return self.runtime.documents

    @property
    def folders(self) -> SkillFolders:
        """The folders that skills and prompts are read from."""
        return self.runtime.folders

    @property
    def skills(self) -> SkillSet | None:
        """The executable skills of a directory, where the configuration names one."""
        return self.runtime.skill_set

    @property
    def imports(self) -> Imports | None:
        """The imports of upstream servers, where the configuration has connections to any."""
        return self.runtime.imports

    @property
    def worker_address(self) -> str | None:
        """Where workers connect, once the socket is open."""
        return self.runtime.worker_address


def _print(line: str) -> None:
    sys.stderr.write(line)
