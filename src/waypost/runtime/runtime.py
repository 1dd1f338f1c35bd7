"""The runtime of a hub: builds the core and the components, and starts, refreshes, reloads and stops them."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import AbstractAsyncContextManager, AsyncExitStack
from functools import cached_property
from importlib import import_module
from os import PathLike
from typing import TYPE_CHECKING, Any, Final, Protocol, TypeVar, cast

from waypost.buses import LocalBus
from waypost.capabilities.capability import Capability
from waypost.capabilities.context import Caller
from waypost.capabilities.principals import ANONYMOUS, Principal
from waypost.capabilities.registry import Registry
from waypost.capabilities.results import Result
from waypost.errors import DefinitionError, PolicyDenied, StoreError, ToolError, UnknownTool, WaypostError
from waypost.hooks import Hook, Hooks
from waypost.loops import Stall, Watchdog, cancel_tasks, log_stall, maybe_await
from waypost.policy.capability_tokens import CapabilityTokens
from waypost.protocol.engine import SkillSource
from waypost.protocol.rounds import Seal
from waypost.runtime.component import Component, Toolkits
from waypost.runtime.core import CoreOptions, Launch, build_core
from waypost.runtime.feed import ChangeFeed
from waypost.settings import Settings, is_loopback
from waypost.stores.store import detect_persisted
from waypost.version import __version__
from waypost.wire.definitions import Implementation

if TYPE_CHECKING:
    from waypost.api import Api
    from waypost.api.events import Changes
    from waypost.console import Console
    from waypost.documents.delegation import Delegation
    from waypost.documents.documents import Documents
    from waypost.documents.folders import SkillFolders
    from waypost.gateway.gateway import Gateway
    from waypost.identity import Authentication
    from waypost.identity.key_ring import KeyRing
    from waypost.identity.vault import Vault
    from waypost.imports.imports import Imports
    from waypost.protocol.engine import Engine
    from waypost.runtime.configuration import Configuration
    from waypost.runtime.replicas import Peers, Replicas
    from waypost.skills.skill_set import SkillSet
    from waypost.skills.skills import Skills
    from waypost.transports.http.app import OperatorAnswer, OperatorRequest
    from waypost.upstreams.pool import Upstreams
    from waypost.workers.workers import Workers
    from waypost.workflows.workflows import Workflows

_log: Final = logging.getLogger(__name__)
REFRESH_INTERVAL_S: Final = 2.0
STOP_TIMEOUT_S: Final = 60.0
"""How long all components together may take to stop; what takes longer is left behind and logged."""
MIN_STOP_S: Final = 1.0
"""How long each part may take in any case, so that one that is stuck does not keep the others from stopping."""
_ORDER: Final = (
    *("replicas", "peers", "keys", "toolkits", "configuration", "folders", "documents", "delegation", "skills"),
    *("upstreams", "imports", "gateway", "api", "changes", "console"),
)
"""Components of the hub's own in the order of their start; then come those of programs."""
_LAST: Final = ("workers", "workflows")
"""Workers connect when everything that they may call is there; then workflow instances go on, which may call them."""

C = TypeVar("C", bound=Component)


class Declared(Protocol):
    """What a runtime needs of the hub that it runs."""

    def server_info(self) -> Implementation | Mapping[str, Any]: ...
    def server_capabilities(self) -> dict[str, Any] | None: ...
    def supported_protocol_versions(self) -> Sequence[str]: ...
    def instructions(self) -> str | None: ...

    @property
    def settings(self) -> Settings: ...
    @property
    def registry(self) -> Registry: ...
    @property
    def hooks(self) -> Hooks: ...
    @property
    def auth(self) -> Authentication | None: ...
    @property
    def lifespan(self) -> Callable[[Any], AbstractAsyncContextManager[Any]] | None: ...


class Runtime:
    """Runs one hub; a component that nothing asks for is neither built nor imported."""

    def __init__(self, hub: Declared, options: CoreOptions, launch: Launch) -> None:
        self.launch = launch
        self._hub = hub
        self.registry = hub.registry
        self.hooks = hub.hooks
        self.core = build_core(self, hub.registry, hub.settings, options, launch)
        self.feed = ChangeFeed(self.core)
        self._keeps_in_memory = options.store is None and not launch.durable
        self._auth = hub.auth
        self._components: dict[str, Component] = {}
        self._loop: asyncio.AbstractEventLoop | None = None
        self._running: AsyncExitStack | None = None
        self._stop_by = 0.0
        """When everything has to be stopped, by the clock of the loop."""
        self._started: set[str] = set()
        self._active: set[str] = set()
        """The components that `stop` has to stop: started, or used without that."""
        if hub.settings.server.surface != "full":
            self.gateway.offer()

    def launch_as(self, launch: Launch) -> None:
        """Run in another way from the next start on; where data is kept cannot change any more."""
        moves = launch.data_dir is not None and launch.data_dir != self.core.data_dir
        if moves or (launch.durable and self._keeps_in_memory):
            raise WaypostError(
                "The hub was used before it was served and keeps its data elsewhere; pass data_dir= or store= to Hub."
            )
        self.launch = launch

    @property
    def is_running(self) -> bool:
        """Whether the hub runs on this event loop."""
        return self._running is not None and self._loop is asyncio.get_running_loop()

    async def start(self) -> None:
        """Start all components in order; on an error those that started are stopped, and it is raised.

        Does nothing where the hub runs on this event loop. On another loop than before everything is started again:
        what ran on a loop that is closed ended with it.
        """
        if self._running is not None and self._loop is asyncio.get_running_loop():
            return
        self._loop, self._running = asyncio.get_running_loop(), AsyncExitStack()
        self._started.clear()
        try:
            await self._start(self._running)
        except BaseException:
            await self.stop()
            raise

    async def _start(self, stack: AsyncExitStack) -> None:
        core, hub = self.core, self._hub
        if self.launch.serves_http:
            self.authenticate()  # a program may start the hub before it calls the app that would do this
        if core.guard.audit is not None:
            core.guard.audit.start()
        core.engine.start(*([core.chains.sweep] if core.settings.audit.sink == "store" else []))
        await self._join_replicas(stack)
        if self.launch.serves_http and core.store.database.is_durable:
            await core.store.open()
            secret = await asyncio.to_thread(core.secret.read)
            # Under this secret, what clients and handlers hold stays valid after a restart and at other replicas.
            core.engine.seal, core.guard.tokens = Seal(secret), CapabilityTokens(secret)
        if self._auth is not None:
            from waypost.identity.authentication import RevocationWatcher

            watcher = RevocationWatcher(self._auth, core.engine.apply_key_changes, core.engine.find_principals_in_use)
            stack.push_async_callback(watcher.stop)
        if hub.lifespan is not None:
            lifespan = hub.lifespan(hub)
            # Entered before, and left after, all components: they may use what it provides.
            await lifespan.__aenter__()
            stack.push_async_callback(self._stop_part, "lifespan", lambda: lifespan.__aexit__(None, None, None))
        # Pushed before any component starts, so that a failed start stops those that it reached.
        stack.push_async_callback(self._stop_components)
        if core.store.database.is_shared and self.launch.resume_runs:
            _ = self.replicas, self.peers
        if core.settings.workers is not None and self.launch.has_workers:
            _ = self.workers
            _ = self.documents if self.keeps_documents else self.delegation
        _ = self.toolkits  # also without any: those that are added while the hub runs are opened at once
        await self._add_persisted()
        await self.start_added()
        for hook in hub.hooks.stack("start"):
            await maybe_await(hook())
        stack.push_async_callback(self._stop_engine)  # sessions and tasks use components
        stack.push_async_callback(self._run_stop_hooks)
        if "replicas" in self._components:
            await self.replicas.set_status("ready")
        if core.store.database.is_shared:
            stack.push_async_callback(cancel_tasks, [asyncio.get_running_loop().create_task(self._refresh())])
        # Over stdio there is no other client to keep waiting, nor is there before the start ends.
        if self.launch.serves_http:
            watchdog = Watchdog(core.settings.limits.stall_ms / 1000, self._report_stall)
            watchdog.start()
            stack.callback(watchdog.stop)
            core.history.start()
            stack.callback(core.history.stop)

    async def _join_replicas(self, stack: AsyncExitStack) -> None:
        """Exchange changes and the parts of limits with other replicas."""
        core = self.core
        if not isinstance(core.bus, LocalBus):
            await core.bus.open()
            await self.feed.start()
        if core.budgets is not None:
            await core.budgets.start()
            stack.push_async_callback(self._stop_part, "leases of limits", core.budgets.stop)

    def _report_stall(self, stall: Stall) -> None:
        """Log and count a turn of the event loop that took too long."""
        log_stall(stall)
        counters = self.core.pipeline.counters
        counters.stalls += 1
        counters.stall_seconds += stall.seconds

    async def start_added(self) -> None:
        """Start the components that were added since the last call, in order; a hub that does not run starts none."""
        if self._running is None:
            return
        for component in self.components:
            if component.name not in self._started:
                self._started.add(component.name)
                self._active.add(component.name)  # before it starts: what a failed start acquired is released too
                await component.start(self.core)

    async def stop(self) -> None:
        """Stop all components in reverse order within one deadline, then the engine and the store."""
        loop = self._loop
        if loop is not None and loop is not asyncio.get_running_loop() and loop.is_running():
            # The components' tasks and connections belong to the loop that started them.
            return await asyncio.wrap_future(asyncio.run_coroutine_threadsafe(self.stop(), loop))
        stack, self._running, self._loop = self._running, None, None
        self._started.clear()
        if stack is not None:
            self._stop_by = asyncio.get_running_loop().time() + STOP_TIMEOUT_S
            await stack.aclose()
        core = self.core
        # Again, as after a failed start: what the engine waits for still writes to the bus, the store and the audit.
        await self._stop_engine()
        await core.bus.close()
        await core.store.close()
        core.pipeline.pool.close()
        if self._auth is not None:
            await self._auth.close()

    async def _stop_engine(self) -> None:
        if self.core.guard.audit is not None:
            self.core.guard.audit.stop()  # the engine waits for what the audit still writes
        await self._stop_part("sessions and tasks", self.core.engine.stop)

    async def _stop_components(self) -> None:
        for component in reversed(self.components):
            if component.name in self._active:
                await self._stop_part(f"component {component.name}", component.stop)
        self._active.clear()

    async def _run_stop_hooks(self) -> None:
        for hook in reversed(self._hub.hooks.stack("stop")):
            await self._stop_part("stop hook", hook)

    async def _stop_part(self, part: str, stop: Hook) -> None:
        """Stop one part before the deadline of all; a failure is logged, because the others have to stop too."""
        end = max(self._stop_by, asyncio.get_running_loop().time() + MIN_STOP_S)
        try:
            async with asyncio.timeout_at(end) as deadline:
                await maybe_await(stop())
        except Exception:
            if deadline.expired():
                _log.error("stop timed out, left behind: %s", part)
            else:
                _log.exception("stop failed: %s", part)

    async def _add_persisted(self) -> None:
        """Add the components whose data an earlier process, or another replica, left in the store."""
        persisted = await detect_persisted(self.core.store)
        if persisted.workflows:
            _ = self.workflows
        if persisted.content and self.keeps_documents:
            _ = self.documents
        if persisted.hidden:
            await self.gateway.hidden.refresh()

    async def _refresh(self) -> None:
        """Read what other replicas on the same store changed."""
        loop = asyncio.get_running_loop()
        next_sweep = loop.time() + REFRESH_INTERVAL_S
        while True:
            changed = await self.feed.wait(next_sweep)
            if changed is None:
                next_sweep = loop.time() + REFRESH_INTERVAL_S
            for refresh in (
                self._add_persisted,
                self.start_added,
                *(one.refresh for one in self.components if changed is None or not changed.isdisjoint(one.reads)),
            ):
                try:
                    await refresh()
                except StoreError:
                    continue  # the store logs that it is unavailable
                except Exception:
                    _log.exception("changes of other replicas were not read")

    async def reload(self) -> bool:
        """Read the configuration file again; false where it was refused."""
        if self.configuration is None:
            raise WaypostError("Only a hub from a configuration file can be reloaded.")
        return await self.configuration.reload()

    def add(self, component: Component) -> None:
        """Add a component; in a running hub it is started in the background."""
        if component.name in self._components:
            raise DefinitionError(f"There is a component {component.name!r} already; give one of them another name.")
        self._components[component.name] = component
        if self._running is not None:
            self.core.spawn(self._start_in_background())

    async def _start_in_background(self) -> None:
        try:
            await self.start_added()
        except Exception:
            _log.exception("a component that was added to the running hub failed to start")

    @property
    def components(self) -> list[Component]:
        """All components in the order of their start."""
        others = [name for name in self._components if name not in _ORDER and name not in _LAST]
        return [self._components[name] for name in (*_ORDER, *others, *_LAST) if name in self._components]

    def _get(self, name: str, build: Callable[[], C]) -> C:
        found = self._components.get(name)
        if found is None:
            found = self._components[name] = build()
            if self._running is not None:
                self._active.add(name)  # what is first used in a running hub opens by that use, and has to be stopped
        return cast(C, found)  # each name is built in one place

    @property
    def authentication(self) -> Authentication:
        """Who may use the hub: as given, else every caller, with or without a key."""
        if self._auth is None:
            from waypost.identity import Authentication

            self._auth = Authentication(anonymous=ANONYMOUS, lenient=True)
        return self._auth

    @property
    def has_authentication(self) -> bool:
        """Whether callers are authenticated."""
        return self._auth is not None

    def authenticate(self) -> Authentication:
        """Who may use the hub over HTTP; keys of the store count from the next start on."""
        self.check_exposure(self.authentication)
        _ = self.keys
        return self.authentication

    def check_exposure(self, auth: Authentication) -> None:
        """Refuse anonymous callers at an address that other machines can reach."""
        address = self.launch.address
        if address is None or is_loopback(address) or not auth.allows_anonymous:
            return
        if not self.core.settings.server.allow_anonymous_remote:
            raise WaypostError(
                f"{address} can be reached from outside and callers need no key; listen on 127.0.0.1, "
                "or allow it with server.allowAnonymousRemote: true (allow_anonymous_remote=True in Python)."
            )

    @property
    def api(self) -> Api:
        """The HTTP API."""
        from waypost.api import Api

        return self._get("api", lambda: Api(self))

    @property
    def console(self) -> Console:
        """The pages for people; imported when the first one is requested."""
        from waypost.console import Console

        return self._get("console", lambda: Console(self, self.api, [*self._components.values()]))

    @property
    def changes(self) -> Changes:
        """Reports what changes in the hub."""
        from waypost.api.events import Changes

        return self._get("changes", lambda: Changes(self.core.registry, self.feed))

    @property
    def replicas(self) -> Replicas:
        """This process among the replicas that share the store."""
        from waypost.runtime.replicas import Replicas

        def settings() -> Settings:
            return self.core.settings if self.configuration is None else self.configuration.loaded.config

        return self._get("replicas", lambda: Replicas(self.core, settings, self.feed.announce))

    @property
    def peers(self) -> Peers:
        """The other replicas, to be asked."""
        from waypost.runtime.replicas import Peers

        return self._get("peers", lambda: Peers(self.core, self.replicas, lambda *asked: self.api.answer_peer(*asked)))

    @property
    def toolkits(self) -> Toolkits:
        """The toolkits that are opened and closed with the hub."""
        return self._get("toolkits", Toolkits)

    @property
    def keys(self) -> KeyRing:
        """Keys that are created and revoked while the hub runs."""
        from waypost.identity.key_ring import KeyRing

        return self._get("keys", lambda: KeyRing(self.authentication.keys, self.core.store))

    @property
    def upstreams(self) -> Upstreams:
        """Connections to other servers."""
        from waypost.upstreams.pool import Upstreams

        return self._get("upstreams", lambda: Upstreams(credentials=self.vault.get))

    @cached_property
    def vault(self) -> Vault:
        """The credentials that users gave the hub for upstream servers."""
        from waypost.identity.vault import Vault

        return Vault(self.core.secret, self.core.store)

    @property
    def workflows(self) -> Workflows:
        """The workflow engine and its definitions."""
        known = self.has_workflows
        workflows = self._get("workflows", self._build_workflows)
        if not known and self.configuration is not None:
            self.configuration.configure_workflows(workflows)
        return workflows

    def _build_workflows(self) -> Workflows:
        from waypost.workflows.workflows import Workflows

        core = self.core
        workflows = Workflows(
            core.registry, core.pipeline, core.guard, core.store, self.upstreams, resume_runs=self.launch.resume_runs
        )
        if core.store.database.is_shared and self.launch.resume_runs:
            recovery, replicas = workflows.engine.recovery, self.replicas
            replicas.on_gone(lambda replica: recovery.release_leases(replica, replicas.read_at))
        return workflows

    @property
    def has_workflows(self) -> bool:
        """Whether the workflow engine was built."""
        return "workflows" in self._components

    @property
    def gateway(self) -> Gateway:
        """The catalog that agents search, and the seven tools over everything once they are offered."""
        from waypost.gateway.gateway import Gateway

        core = self.core
        return self._get(
            "gateway",
            lambda: Gateway(
                core.registry,
                core.store,
                self.workflows,
                core.guard,
                core.settings.search.ranking,
                self._read_at,
                lambda: () if self.imports is None else self.imports.list_pending(),
            ),
        )

    def _read_at(self, uri: str) -> str | None:
        """The URI under which a file of a skill folder is a document too."""
        folders = self._components.get("folders")
        return None if folders is None else self.folders.document_uri(uri)

    @property
    def workers(self) -> Workers:
        """The worker socket and what workers offer."""
        from waypost.settings import Workers as WorkerSettings
        from waypost.workers.sharing import share_workers
        from waypost.workers.workers import Workers

        core = self.core
        settings = core.settings.workers or WorkerSettings()
        return self._get(
            "workers",
            lambda: Workers(
                core.registry,
                core.pipeline,
                core.store,
                settings,
                core.settings.limits,
                accepts=self.has_worker_port,
                is_token_needed=lambda: self._auth is not None and self._auth.is_required,
                shared=share_workers(core, self.replicas, self.feed.announce) if self.launch.resume_runs else None,
            ),
        )

    @property
    def has_worker_port(self) -> bool:
        """Whether workers may connect."""
        return self.core.settings.workers is not None and self.launch.opens_worker_port

    @property
    def worker_address(self) -> str | None:
        """Where workers connect, once the socket is open."""
        return self.workers.address if "workers" in self._components else None

    @property
    def worker_token(self) -> str | None:
        """The token that was made for workers at the start, if the settings name none."""
        return self.workers.made_token if "workers" in self._components else None

    @property
    def keeps_documents(self) -> bool:
        """Whether the hub keeps markdown skills and prompts itself, and no worker does."""
        settings = self.core.settings.workers
        return settings is None or settings.registry or not self.launch.has_workers

    @property
    def documents(self) -> Documents:
        """Markdown skills and prompts that workers and people publish."""
        from waypost.documents.content import FetchLimits
        from waypost.documents.documents import build_documents

        core = self.core
        return self._get(
            "documents",
            lambda: build_documents(
                core.registry,
                self.workers,
                core.pipeline,
                core.guard,
                core.store,
                core.engine.broadcast.resource_updated,
                (self.folders,),
                FetchLimits(core.settings.limits.max_fetch_uris, core.settings.server.max_result_bytes),
            ),
        )

    @property
    def delegation(self) -> Delegation:
        """Markdown skills and prompts of a registry that is a worker."""
        from waypost.documents.delegation import Delegation

        core = self.core
        return self._get(
            "delegation", lambda: Delegation(core.registry, self.workers, core.engine.broadcast.resource_updated)
        )

    @property
    def folders(self) -> SkillFolders:
        """The folders that skills and prompts are read from."""
        from waypost.documents.folders import SkillFolders

        updated = self.core.engine.broadcast.resource_updated
        return self._get("folders", lambda: SkillFolders(self.core.registry, updated, self._reload_documents))

    def add_skill_folders(self, folders: Iterable[str | PathLike[str]]) -> None:
        """Serve the skills in folders."""
        self.folders.add(*folders)
        self._serve_skills(self.folders)

    async def _reload_documents(self) -> None:
        if "documents" in self._components:
            await self.documents.refresh()

    @property
    def executable_skills(self) -> Skills:
        """Core skills and the skills of a directory."""
        from waypost.skills.skills import Skills

        core = self.core
        return self._get(
            "skills",
            lambda: Skills(
                core.registry, core.pipeline, core.store, core.data_dir, core.guard, self.folders, self._serve_skills
            ),
        )

    def _serve_skills(self, source: SkillSource | None) -> None:
        self.core.engine.profile.skills = source

    @property
    def core_skills(self) -> list[str] | None:
        """The names of the core skills, where the configuration has a section `skills`."""
        section = self.executable_skills.section if "skills" in self._components else None
        return None if section is None else [tool.id.removeprefix("skill:") for tool in section.core]

    @property
    def skill_set(self) -> SkillSet | None:
        """The skills of a directory, where the configuration names one."""
        section = self.executable_skills.section if "skills" in self._components else None
        return None if section is None else section.dynamic

    @property
    def imports(self) -> Imports | None:
        """Upstream servers whose capabilities are imported, where there are any."""
        return self.make_imports() if "imports" in self._components else None

    def make_imports(self) -> Imports:
        """The imports, made when there is a first one."""
        from waypost.imports.imports import Imports

        core, engine = self.core, self.core.engine
        return self._get(
            "imports", lambda: Imports(core.registry, self.upstreams, core.store, core.guard.audit, engine.broadcast)
        )

    @property
    def configuration(self) -> Configuration | None:
        """The configuration file behind the hub, if there is one."""
        return cast("Configuration | None", self._components.get("configuration"))

    # What the protocol engine and running handlers ask for.

    def server_info(self) -> Implementation | Mapping[str, Any]:
        """What `initialize` answers as the server's info."""
        return self._hub.server_info()

    def server_capabilities(self) -> dict[str, Any] | None:
        """What the hub declares to clients; `None` declares what is registered."""
        return self._hub.server_capabilities()

    def supported_protocol_versions(self) -> Sequence[str]:
        """The protocol versions the hub serves."""
        return self._hub.supported_protocol_versions()

    def instructions(self) -> str | None:
        """How to use the hub."""
        return self._hub.instructions()

    async def invoke(
        self, name: str, arguments: dict[str, Any], caller: Caller, by: Capability | None = None
    ) -> Result:
        """Call a tool for `caller`, from the handler of `by`; an unknown name is an error of that handler."""
        if by is not None:
            caller = caller.with_chain(self.core.guard.behind(by, caller))
        try:
            return await self.core.pipeline.call(name, arguments, caller)
        except (UnknownTool, PolicyDenied) as error:
            raise ToolError(error.message) from error

    @property
    def hides(self) -> bool:
        """Whether a rule hides what it denies."""
        return self.core.guard.policy.hides

    def is_hidden(self, principal: Principal, name: str) -> bool:
        """Whether a rule hides a name from a principal."""
        return self.core.guard.policy.is_hidden(principal, name)

    def expects(self, capability: str) -> bool:
        """Whether a list is declared although it may be empty: workers publish prompts and resources at any time."""
        has_workers = self.core.settings.workers is not None and self.launch.has_workers
        return has_workers and capability in ("prompts", "resources")

    def require(self, permission: str, caller: Caller, by: Capability | None) -> None:
        """Raise `PolicyDenied` unless the running capability has a permission."""
        if by is not None:
            self.core.guard.require(by, caller, permission)

    async def notify_resource_updated(self, uri: str) -> None:
        """Notify the clients that subscribed to `uri`."""
        self.feed.resource_updated(uri)

    # What transports ask for.

    @property
    def engine(self) -> Engine:
        """The protocol engine."""
        return self.core.engine

    @property
    def max_body_bytes(self) -> int:
        """The largest message that is accepted."""
        return self.core.settings.server.max_body_bytes

    async def health(self) -> dict[str, str | int]:
        """What `/health` answers."""
        db = await self.core.store.health()
        status = "ok" if db == "ok" else "degraded"
        return {"status": status, "version": __version__, "db": db, "mcp": "running", **self.replicas.health()}

    async def show(self, request: OperatorRequest) -> OperatorAnswer:
        """Answer a request for a page of the console."""
        if "console" not in self._components:
            # It takes a while, and other clients must not wait for it.
            await asyncio.to_thread(import_module, "waypost.console")
        return await self.console.answer(request)

    async def operate(self, request: OperatorRequest) -> OperatorAnswer:
        """Answer a request to the HTTP API."""
        return await self.api.answer(request)

    def record_refusal(self, request: OperatorRequest) -> None:
        """Record a request to the HTTP API that was refused for its key."""
        self.api.record_refusal(request)
