"""The hub: declares what a server offers. What runs it is `runtime/`."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from contextlib import AbstractAsyncContextManager
from os import PathLike
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal, Self, TypeVar, overload

from msgspec import UNSET
from msgspec.structs import replace

from waypost.capabilities.capability import (
    Capability,
    Kind,
    Options,
    ResourceOptions,
    ToolOptions,
    parse_options,
    wire_icons,
)
from waypost.capabilities.context import ListKind
from waypost.capabilities.prompts import prompt_from_function
from waypost.capabilities.registry import Registry
from waypost.capabilities.resources import resource_from_function
from waypost.capabilities.tools import Toolkit, expand, instantiate, tool_from_function, tool_options
from waypost.errors import DefinitionError, WaypostError
from waypost.hooks import HookMethods, ListName, check_hook, check_signature
from waypost.hub_options import check_arguments, settings_from_options
from waypost.policy.rules import Rule
from waypost.protocol.lists import Page
from waypost.runtime.component import Component, to_component
from waypost.runtime.core import Core, CoreOptions, Launch
from waypost.runtime.runtime import Runtime
from waypost.settings import Settings
from waypost.stores.directory import data_directory
from waypost.stores.store import Store
from waypost.wire.definitions import Implementation

if TYPE_CHECKING:
    from waypost.config.models import Workflow
    from waypost.documents.documents import Documents
    from waypost.documents.folders import SkillFolders
    from waypost.identity import Authentication
    from waypost.identity.key_ring import KeyRing
    from waypost.policy.guard import PolicyGuard
    from waypost.protocol.engine import Engine
    from waypost.skills.skill_set import SkillSet
    from waypost.transports.http.app import DeferredApp
    from waypost.workers.workers import Workers
    from waypost.workflows.workflows import Workflows

F = TypeVar("F", bound=Callable[..., Any])
Lifespan = Callable[["Hub"], AbstractAsyncContextManager[Any]]


class Hub(HookMethods):
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
        check_arguments(instructions=instructions, title=title, description=description, website_url=website_url)
        check_arguments(lifespan=lifespan, data_dir=data_dir, store=store, secret=secret, workers=workers)
        info = Implementation(
            name,
            version,
            title=title or UNSET,
            description=description or UNSET,
            website_url=website_url or UNSET,
            icons=UNSET if icons is None else wire_icons(icons, "Hub"),
        )
        super().__init__(info, instructions, capabilities)
        self.settings = settings_from_options(options, workers, settings)
        self.registry = Registry()
        self.components: list[Component] = []
        self.lifespan = lifespan
        self.auth = auth
        self._options = CoreOptions(store=store, secret=secret, rules=tuple(policies), breakers=breakers)
        self._data_dir = None if data_dir is None else Path(data_dir)
        self._declared: list[Callable[[Runtime], None]] = []
        self._runtime: Runtime | None = None
        self._launch = Launch()
        """How the hub is run by a program that only starts it."""

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
        component = to_component(source)
        if component is not None:
            if self._runtime is None:
                self.components.append(component)
            else:
                self._runtime.add(component)
            return self
        made = instantiate(source)
        whole = made if isinstance(source, (list, tuple)) else made[0]
        rows = expand(whole, name=name, description=description, category=category, hidden=hidden, visible=visible)
        toolkits = [one for one in made if isinstance(one, Toolkit)]
        if toolkits and self._runtime is not None:
            self.registry.check_names(rows)  # here, because a toolkit may be opened after this method has returned
            self._runtime.toolkits.add_running(toolkits, lambda: self.registry.add(rows), self._runtime.core)
            return self
        self.registry.add(rows)
        if toolkits:
            self._declared.append(lambda runtime: runtime.toolkits.add(toolkits))
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
            check_signature(hook, function)
            self.add_hook(hook, function)
            return function

        return register

    # Running.

    @property
    def runtime(self) -> Runtime:
        """What runs this hub; built when it is first used, in memory unless a store or a data directory was given."""
        if self._runtime is None:
            return self._build(self._launch)
        return self._runtime

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

    async def health(self) -> dict[str, str | int]:
        """What `/health` answers."""
        return await self.runtime.health()

    async def reload(self) -> bool:
        """Read the configuration file again; on any error everything stays as it is, and the log says why."""
        return await self.runtime.reload()

    def asgi(self, *, allowed_hosts: Iterable[str] = ()) -> DeferredApp:
        """The hub as an ASGI app, for any ASGI server.

        Nothing is built before a server calls it, so a program that defines an app can still be run in another way.
        """
        from waypost.runtime.server import build_app
        from waypost.transports.http.app import DeferredApp

        self._launch = Launch(serves_http=True)
        if self._runtime is not None:
            self._runtime.launch = replace(self._runtime.launch, serves_http=True)
        return DeferredApp(lambda: build_app(self.runtime, allowed_hosts))

    def run(
        self,
        transport: Literal["stdio", "http"] = "stdio",
        *,
        host: str | None = None,
        port: int | None = None,
        ready: Callable[[str], None] | None = None,
    ) -> None:
        """Serve until the client leaves (stdio) or the process is asked to stop (http); `ready` gets the address.

        If the server cannot start, the program exits with a sentence on stderr and status 1.
        """
        try:
            self.serve(transport, host=host, port=port, ready=ready)
        # A mistake in the program, which its traceback shows.
        except DefinitionError:
            raise
        except WaypostError as error:
            raise SystemExit(f"{self.info.name}: {error}") from None

    def serve(
        self,
        transport: Literal["stdio", "http"] = "stdio",
        *,
        host: str | None = None,
        port: int | None = None,
        data_dir: str | PathLike[str] | None = None,
        ready: Callable[[str], None] | None = None,
    ) -> None:
        """Serve like `run`, but raise the error if the server cannot start; host and port are those of the settings."""
        folder = None if data_dir is None else Path(data_dir)
        if transport == "stdio":
            from waypost.transports import stdio

            stdio.run(self.launch(Launch(data_dir=folder, durable=True, opens_worker_port=False)))
        elif transport == "http":
            from waypost.runtime.server import serve_http

            runtime = self.launch(
                Launch(data_dir=folder, durable=True, address=host or self.settings.server.host, serves_http=True)
            )
            serve_http(runtime, self.info.name, port, ready)
        else:
            raise DefinitionError(f"There is no transport {transport!r}; use 'stdio' or 'http'.")

    # What handlers and programs ask a running hub for.

    def list_registered(self, kind: ListName, cursor: str | None = None, *, include_hidden: bool = False) -> Page:
        """One page of what is registered, for use in list hooks."""
        return self.engine.lists.select(Kind(kind), cursor, include_hidden=include_hidden)

    def expand(self, kind: ListName = "tools") -> list[Capability]:
        """Everything registered of one kind, registration overrides applied, hidden items included."""
        return list(self.runtime.core.registry[Kind(kind)])

    async def notify_changed(self, kind: ListKind) -> None:
        """Send `list_changed` to every client."""
        self.runtime.feed.list_changed(kind)

    async def notify_resource_updated(self, uri: str) -> None:
        """Notify the clients that subscribed to `uri`."""
        self.runtime.feed.resource_updated(uri)

    async def send(self, session_id: str, event: Any) -> None:
        """Give an event to a session's `on_event`, after the events before it."""
        await self.engine.run_session_hook(session_id, "event", event)

    async def call(self, session_id: str, request: Any) -> Any:
        """Ask a session's `on_call` and wait for its reply."""
        return await self.engine.run_session_hook(session_id, "call", request)

    async def cast(self, session_id: str, request: Any) -> None:
        """Give a request to a session's `on_cast` without waiting."""
        await self.engine.run_session_hook(session_id, "cast", request, wait=False)

    # The parts of the runtime that programs use.

    @property
    def core(self) -> Core:
        """What every component may use."""
        return self.runtime.core

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
    def keys(self) -> KeyRing:
        """Keys that are created and revoked while the hub runs."""
        return self.runtime.keys

    @property
    def workflows(self) -> Workflows:
        """The workflow engine and its definitions."""
        return self.runtime.workflows

    @property
    def workers(self) -> Workers:
        """The worker socket and what workers offer."""
        return self.runtime.workers

    @property
    def documents(self) -> Documents:
        """Markdown skills and prompts that workers and operators publish."""
        return self.runtime.documents

    @property
    def folders(self) -> SkillFolders:
        """The folders that skills and prompts are read from."""
        return self.runtime.folders

    @property
    def skills(self) -> SkillSet | None:
        """The executable skills of a directory, where the configuration names one."""
        return self.runtime.skill_set
