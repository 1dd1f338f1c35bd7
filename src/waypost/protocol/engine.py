"""The engine: the parts of one MCP server that every method needs, and their start and stop."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable, Coroutine, Mapping, Sequence
from functools import cached_property
from typing import TYPE_CHECKING, Any, Final, Protocol

import msgspec

from waypost.capabilities.capability import GATEWAY_TOOLS, Capability, Kind
from waypost.capabilities.context import Caller, Context, Pausable, Services
from waypost.capabilities.principals import Principal
from waypost.capabilities.registry import Change, Registry
from waypost.errors import CallError, StoreError, WaypostError
from waypost.execution.pipeline import Pipeline
from waypost.loops import maybe_await
from waypost.protocol.broadcast import Broadcast
from waypost.protocol.exchange import apply_key_changes, in_flight_requests
from waypost.protocol.lists import Lists
from waypost.protocol.relay import Liveness
from waypost.protocol.responses import LargeResults, ModernEncoder
from waypost.protocol.rounds import Seal
from waypost.protocol.session import LegacySession, MessageLog
from waypost.protocol.sessions import Sessions
from waypost.protocol.tasks import TASKS_EXTENSION, Tasks, status_notification
from waypost.settings import Settings
from waypost.stores.store import Store
from waypost.wire import versions
from waypost.wire.definitions import Implementation, ResourceDefinition, SkillEntry
from waypost.wire.versions import LATEST_LEGACY

if TYPE_CHECKING:
    from waypost.identity.keys import KeyChange


Hook = Callable[..., Awaitable[Any] | Any]

SKILLS_EXTENSION: Final = "io.modelcontextprotocol/skills"
_SKILLS_SETTINGS: Final = {"directoryRead": True}
_EXTENSIONS: Final = {"tasks": TASKS_EXTENSION, "skills": SKILLS_EXTENSION}
_ANSWERING_HOOKS: Final = {
    "prompts": ("list_prompts", "prompt_get"),
    "resources": ("list_resources", "list_resource_templates", "resource_read"),
}
"""Hooks that may offer prompts and resources which are not registered."""


class Host(Services, Protocol):
    """The hub behind an engine: what it says about itself, and the hooks of its user."""

    @property
    def hides(self) -> bool: ...
    def is_hidden(self, principal: Principal, name: str) -> bool: ...
    def expects(self, capability: str) -> bool: ...
    @property
    def hooks(self) -> Mapping[str, Hook | None]: ...
    def server_info(self) -> Implementation | Mapping[str, Any]: ...
    def server_capabilities(self) -> dict[str, Any] | None: ...
    def supported_protocol_versions(self) -> Sequence[str]: ...
    def instructions(self) -> str | None: ...


class SkillSource(Protocol):
    """Skills whose files are resources of the registry."""

    def entries(self) -> Sequence[SkillEntry]:
        """Every skill, in the order of the URIs."""

    def entry(self, uri: str) -> SkillEntry | None:
        """The skill whose SKILL.md has this URI."""

    def children(self, uri: str) -> Sequence[ResourceDefinition] | None:
        """The entries of a directory, in the order of the URIs; `None` if there is no such directory."""


class ServerProfile:
    """The declared capabilities of a server: as configured, else derived from the registry."""

    def __init__(self, host: Host, registry: Registry) -> None:
        self.host = host
        self.skills: SkillSource | None = None
        self._registry = registry

    @cached_property
    def info(self) -> Implementation:
        """The server's name and version."""
        return msgspec.convert(self.host.server_info(), Implementation)

    @cached_property
    def modern_encoder(self) -> ModernEncoder:
        """Encodes results for stateless clients, which get the server's name with each."""
        return ModernEncoder(self.info)

    @cached_property
    def versions(self) -> tuple[str, ...]:
        """The versions served, oldest first."""
        served = self.host.supported_protocol_versions()
        return tuple(version for version in versions.ALL if version in served)

    @cached_property
    def legacy_versions(self) -> tuple[str, ...]:
        """The versions with sessions."""
        return tuple(version for version in self.versions if not versions.is_modern(version))

    @cached_property
    def modern_versions(self) -> tuple[str, ...]:
        """The versions without sessions."""
        return tuple(version for version in self.versions if versions.is_modern(version))

    @property
    def instructions(self) -> str | None:
        """How to use the server."""
        return self.host.instructions()

    @property
    def has_task_tools(self) -> bool:
        """Whether any tool can run as a task."""
        return self._registry.tools.tasked > 0

    @property
    def offers_subscriptions(self) -> bool:
        """Whether clients may subscribe to resources."""
        return bool(self.capabilities().get("resources", {}).get("subscribe"))

    def offers_list_changed(self, capability: str) -> bool:
        """Whether clients are notified when this list changes."""
        return bool(self.capabilities().get(capability, {}).get("listChanged"))

    def announces(self, kind: str) -> bool:
        """Whether changes of a list are sent; derived capabilities would miss that a list just became empty."""
        return self.host.server_capabilities() is None or self.offers_list_changed(kind)

    def offers(self, capability: str) -> bool:
        """Whether this server has a capability, so that its methods exist."""
        if self._is_configured:
            declared = self.host.server_capabilities() or {}
            # Where skills are declared and nothing serves them, their methods do not exist.
            is_there = capability != "skills" or self.skills is not None
            return is_there and (
                capability in declared or _EXTENSIONS.get(capability) in declared.get("extensions", {})
            )
        match capability:
            case "tools":
                return True
            case "skills":
                return self.skills is not None
            case "tasks":
                return self.has_task_tools
            case "prompts":
                return len(self._registry[Kind.PROMPT]) > 0 or self._is_expected(capability)
            case "resources":
                listed = len(self._registry[Kind.RESOURCE]) + len(self._registry[Kind.TEMPLATE])
                return listed > 0 or self._is_expected(capability)
            case "completions":
                return self._can_complete()
            case _:
                return True

    @cached_property
    def _is_configured(self) -> bool:
        return self.host.server_capabilities() is not None

    def _is_expected(self, capability: str) -> bool:
        """Whether the hub or a hook may answer for a capability without registered items."""
        hooks = _ANSWERING_HOOKS[capability]
        return self.host.expects(capability) or any(self.host.hooks[hook] is not None for hook in hooks)

    def _can_complete(self) -> bool:
        has_targets = len(self._registry[Kind.PROMPT]) > 0 or len(self._registry[Kind.TEMPLATE]) > 0
        return has_targets or self.host.hooks["completion"] is not None

    def capabilities(self, version: str = LATEST_LEGACY) -> dict[str, Any]:
        """The capabilities declared to clients of a version."""
        declared = self.host.server_capabilities()
        if declared is not None:
            return declared
        derived: dict[str, Any] = {"logging": {}, "tools": {"listChanged": True}}
        if self.offers("resources"):
            derived["resources"] = {"listChanged": True}
            if any(row.mcp.subscribable for kind in (Kind.RESOURCE, Kind.TEMPLATE) for row in self._registry[kind]):
                derived["resources"]["subscribe"] = True
        if self.offers("prompts"):
            derived["prompts"] = {"listChanged": True}
        if self._can_complete() and versions.at_least(version, versions.V2025_03_26):
            derived["completions"] = {}
        # Tasks were part of 2025-11-25, and became an extension in 2026-07-28.
        if self.has_task_tools and versions.is_modern(version):
            derived["extensions"] = {TASKS_EXTENSION: {}}
        elif self.has_task_tools and version == versions.V2025_11_25:
            derived["tasks"] = {"list": {}, "cancel": {}, "requests": {"tools": {"call": {}}}}
        if self.skills is not None and self.skills.entries():
            derived.setdefault("extensions", {})[SKILLS_EXTENSION] = _SKILLS_SETTINGS
        return derived


_log: Final = logging.getLogger(__name__)
_SWEEP_INTERVAL_S: Final = 30.0
_IN_FLIGHT_AFTER_S: Final = 0.25
"""After this time a running request is in `in_flight_requests`."""


class Engine:
    """One MCP server, independent of its transports."""

    def __init__(
        self,
        host: Host,
        registry: Registry,
        pipeline: Pipeline,
        settings: Settings,
        store: Store,
        secret: bytes | None,
    ) -> None:
        self.store = store
        self.registry = registry
        self.pipeline = pipeline
        self.settings = settings
        self.hooks = host.hooks
        self.profile = ServerProfile(host, registry)
        server = settings.server
        self.lists = Lists(
            registry,
            page_size=server.page_size,
            names=server.names,
            only=GATEWAY_TOOLS if server.surface == "gateway" else None,
        )
        idle = server.session_idle_ms / 1000
        liveness = Liveness(self)
        self.sessions = Sessions(self, liveness, idle=idle, limit=server.max_sessions, limits=settings.limits)
        self.tasks = Tasks(self, liveness, limit=server.max_tasks)
        self.broadcast = Broadcast(self.sessions, self.profile.announces, self.can_see_resource, settings.limits)
        self.seal = Seal(secret)
        self.large_results = LargeResults(store, server.max_result_bytes)
        self._background: set[asyncio.Task[Any]] = set()
        self._sweeper: asyncio.Task[None] | None = None
        self._stop_listening: Callable[[], None] | None = None

    @cached_property
    def messages(self) -> MessageLog:
        """The last messages between clients and the hub."""
        return MessageLog(self.settings.server.kept_messages)

    def start(self, *sweeps: Callable[[], Awaitable[Any]]) -> None:
        """Begin to notify clients of changes, and to run `sweeps` at times; call it on the loop that serves them."""
        # A hub can be started again on another loop, as by a second `asyncio.run`; its sweeper ended with the old one.
        if self._stop_listening is not None and self.broadcast.loop is asyncio.get_running_loop():
            return
        self.broadcast.loop = asyncio.get_running_loop()
        if self._stop_listening is None:
            self._stop_listening = self.registry.subscribe(self._registry_changed)
        self._sweeper = asyncio.get_running_loop().create_task(self._sweep(sweeps))

    async def stop(self) -> None:
        """End all streams, sessions and tasks, and wait until that is done; cancelled, it cancels what still runs."""
        self.release()
        # What ran on a loop that is closed by now has ended with it.
        self._background -= {task for task in self._background if task.get_loop() is not asyncio.get_running_loop()}
        if self._sweeper is not None and not self._sweeper.done():
            self._sweeper.cancel()
            self._background.add(self._sweeper)
            self._sweeper.add_done_callback(self._background.discard)
        self._sweeper = None
        self.tasks.stop()
        for session in self.sessions:
            self.sessions.close(session, "shutdown")
        try:
            while self._background:  # work that ends may start more
                await asyncio.wait(self._background)
        except asyncio.CancelledError:
            for task in self._background:
                task.cancel()
            raise
        # Last: while a task still writes its end, its holder must be alive, or another replica takes it over.
        await self.tasks.leave()

    def end_streams(self) -> None:
        """End the streams of notifications; questions to clients stay open, because their calls go on."""
        self.broadcast.close()
        for session in self.sessions:
            session.streams.general.close()

    def release(self) -> None:
        """End the streams of clients that wait for notifications; requests in flight are still answered."""
        if self._stop_listening is not None:
            self._stop_listening()
            self._stop_listening = None
        self.broadcast.close()
        self.sessions.release()

    async def _sweep(self, sweeps: Sequence[Callable[[], Awaitable[Any]]]) -> None:
        while True:
            await asyncio.sleep(min(_SWEEP_INTERVAL_S, self.settings.server.session_idle_ms / 1000))
            self.sessions.sweep()
            if self.store.is_open:
                try:
                    for sweep in (self.store.sweep, *sweeps):
                        await sweep()
                except StoreError as error:
                    _log.warning("expired rows were not deleted from the store: %s", error)

    def apply_key_changes(self, changes: Sequence[KeyChange]) -> None:
        """End the sessions, streams, calls and tasks of revoked keys, and give others their new rights."""
        # By identity, because several keys may share the id of a principal, and only one of them may be revoked.
        by_identity = {id(change.was): change for change in changes}
        self.sessions.apply_key_changes(by_identity)
        self.broadcast.apply_key_changes(by_identity)
        self._apply_to_running(by_identity)
        # Requests without a session are tracked only after a moment, so those that just began are looked at again.
        asyncio.get_running_loop().call_later(_IN_FLIGHT_AFTER_S, self._apply_to_running, by_identity)

    def find_principals_in_use(self) -> set[int]:
        """The `id()` of each principal that a stream, call or task of this process is open for."""
        principals = [exchange.principal for exchange in in_flight_requests()]
        principals += self.broadcast.principals()
        principals += self.tasks.principals()
        for session in self.sessions:
            if session.is_busy:
                principals += session.principals_in_use()
        return {id(principal) for principal in principals}

    def _apply_to_running(self, changes: Mapping[int, KeyChange]) -> None:
        apply_key_changes(in_flight_requests(), changes)
        self.tasks.apply_key_changes(changes)

    def context(self, caller: Caller, deadline: Pausable | None = None) -> Context:
        """The `ctx` of a hook."""
        return Context(caller, self.profile.host, deadline)

    def background(self, work: Coroutine[Any, Any, Any]) -> asyncio.Task[Any]:
        """Run work that no request waits for; `stop` waits for it."""
        task = asyncio.get_running_loop().create_task(work)
        self._background.add(task)
        task.add_done_callback(self._background.discard)
        return task

    async def run_session_hook(self, session_id: str, name: str, argument: Any, *, wait: bool = True) -> Any:
        """Run a hook of the session with an id and return its result, or let it run in the background.

        It runs on the loop that serves the clients, from whichever loop or thread it is called.
        """

        async def run() -> Any:
            session = self.sessions.get(session_id)
            if session is None:
                raise CallError(f"There is no session {session_id}.")
            hook = self.call_hook(session, name, argument)
            return await hook if wait else self.background(hook)

        loop = self.broadcast.loop
        if loop is None or loop is asyncio.get_running_loop():
            return await run()
        return await asyncio.wrap_future(asyncio.run_coroutine_threadsafe(run(), loop))

    async def call_hook(self, session: LegacySession, name: str, *args: Any, about: Any = None) -> Any:
        """Run a hook, one at a time per session; what it raises is logged and raised.

        Its last argument is the session, or what it is about instead.
        """
        hook = self.hooks[name]
        if hook is None:
            return None
        if session.hook_lock.is_held_by_current_task():
            raise WaypostError(f"The hook {name} would wait for the hook it was called from; use hub.cast.")
        async with session.hook_lock:
            try:
                return await maybe_await(hook(*args, about or session))
            except Exception:
                _log.exception("the hook %s failed", name)
                raise

    async def task_status(self, task_id: str, principal: Principal) -> bytes:
        """The notification with the status of a task, for a session of the principal that owns it."""
        return status_notification(await self.tasks.find(task_id, principal))

    @property
    def hides(self) -> bool:
        """Whether a policy hides anything, so that lists differ between principals."""
        return self.profile.host.hides

    def can_see(self, principal: Principal, capability: Capability) -> bool:
        """Whether a principal may see a capability in lists."""
        return capability.is_open_to(principal.scopes) and not self.is_hidden(principal, capability.id)

    def can_see_resource(self, principal: Principal, uri: str) -> bool:
        """Whether a principal may be notified of a resource, registered or not."""
        row = self.registry[Kind.RESOURCE].get(uri)
        return not self.is_hidden(principal, uri) if row is None else self.can_see(principal, row)

    def is_hidden(self, principal: Principal, name: str) -> bool:
        """Whether a policy hides a capability from a principal."""
        return self.hides and self.profile.host.is_hidden(principal, name)

    def _registry_changed(self, change: Change) -> None:
        # Where only the gateway's tools are listed, that list never changes.
        kinds = change.kinds if self.lists.only is None else change.kinds - {Kind.TOOL}

        def may_list(principal: Principal, capability: Capability) -> bool:  # a hook may list anything
            return self.hooks[f"list_{capability.kind.value}"] is not None or self.can_see(principal, capability)

        self.broadcast.registry_changed(Change(kinds, change.rows), may_list)
