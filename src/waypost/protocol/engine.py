"""The engine: what this server is, and the parts that every method needs."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable, Coroutine, Mapping, Sequence
from contextlib import suppress
from functools import cached_property
from typing import TYPE_CHECKING, Any, Final, Protocol

import msgspec

from waypost.capabilities.capability import Capability, Kind
from waypost.capabilities.context import Caller, Context, Pausable, Services
from waypost.capabilities.principals import Principal
from waypost.capabilities.registry import Change, Registry
from waypost.errors import StoreError, WaypostError
from waypost.execution.pipeline import Pipeline
from waypost.loops import maybe_await
from waypost.protocol.broadcast import Broadcast
from waypost.protocol.exchange import apply_key_changes, in_flight_requests
from waypost.protocol.large_results import LargeResults
from waypost.protocol.lists import Lists
from waypost.protocol.responses import ModernBody
from waypost.protocol.rounds import Seal
from waypost.protocol.session import LegacySession
from waypost.protocol.sessions import Sessions
from waypost.protocol.streams import Recorder
from waypost.protocol.tasks import TASKS_EXTENSION, Tasks, status_notification
from waypost.stores.store import Store
from waypost.wire import versions
from waypost.wire.definitions import Implementation, ResourceDefinition, SkillEntry
from waypost.wire.versions import LATEST_LEGACY

if TYPE_CHECKING:
    from waypost.policy.keys import KeyChange


SKILLS_EXTENSION: Final = "io.modelcontextprotocol/skills"
SKILLS_SETTINGS: Final = {"directoryRead": True}


class SkillSource(Protocol):
    """Skills whose files are resources of the registry."""

    def entries(self) -> Sequence[SkillEntry]:
        """Every skill, in the order of the URIs."""

    def entry(self, uri: str) -> SkillEntry | None:
        """The skill whose SKILL.md has this URI."""

    def children(self, uri: str) -> Sequence[ResourceDefinition] | None:
        """What lies in a directory, in the order of the URIs; nothing where there is no such directory."""


Hook = Callable[..., Awaitable[Any] | Any]

_log: Final = logging.getLogger(__name__)
_SWEEP_INTERVAL_S: Final = 30.0
_IN_FLIGHT_AFTER_S: Final = 0.25
"""After how many seconds a request that takes a while is known to."""
_ANSWERED_BY: Final = {
    "prompts": ("list_prompts", "prompt_get"),
    "resources": ("list_resources", "list_resource_templates", "resource_read"),
}
"""The hooks that offer what need not be registered."""
_EXTENSIONS: Final = {"tasks": TASKS_EXTENSION, "skills": SKILLS_EXTENSION}


class Host(Services, Protocol):
    """The hub behind an engine: what it says about itself, and what its user wrote for it."""

    @property
    def hides(self) -> bool: ...
    def is_hidden(self, principal: Principal, name: str) -> bool: ...
    def expects(self, capability: str) -> bool: ...
    def hook(self, name: str) -> Hook | None: ...
    def server_info(self) -> Implementation | Mapping[str, Any]: ...
    def server_capabilities(self) -> dict[str, Any] | None: ...
    def supported_protocol_versions(self) -> Sequence[str]: ...
    def instructions(self) -> str | None: ...


class EngineSettings(msgspec.Struct, frozen=True, kw_only=True):
    """What can be chosen about the protocol."""

    page_size: int = 1000
    portable_names: bool = False
    only_tools: frozenset[str] | None = None
    """The tools that are listed, where not all are."""
    session_idle: float = 1800.0
    max_sessions: int = 10_000
    max_tasks: int = 1_000
    secret: bytes | None = None
    task_after: float = 1.0
    max_result: int = 10 * 1024 * 1024


class Engine:
    """One server's side of MCP."""

    def __init__(
        self,
        host: Host,
        registry: Registry,
        pipeline: Pipeline,
        settings: EngineSettings,
        store: Store,
    ) -> None:
        self.store = store
        self.registry = registry
        self.pipeline = pipeline
        self.settings = settings
        self.hooks = host.hook
        self.lists = Lists(
            registry, page_size=settings.page_size, portable=settings.portable_names, only=settings.only_tools
        )
        self.recorder = Recorder(self, settings.session_idle)
        self.sessions = Sessions(self, idle=settings.session_idle, limit=settings.max_sessions)
        self.tasks = Tasks(self, limit=settings.max_tasks)
        self.broadcast = Broadcast(self.sessions, self._announces, self.can_see_resource)
        self.seal = Seal(settings.secret)
        self.large_results = LargeResults(lambda: self.store, settings.max_result)
        self.skills: SkillSource | None = None
        self._host = host
        self._loop: asyncio.AbstractEventLoop | None = None
        self._background: set[asyncio.Task[Any]] = set()
        self._sweeper: asyncio.Task[None] | None = None
        self._stop_listening: Callable[[], None] | None = None

    def start(self) -> None:
        """Begin to tell clients about changes; call it on the loop that serves them."""
        loop = asyncio.get_running_loop()
        if self._stop_listening is not None and self._loop is loop:
            return
        self._loop = loop
        self.broadcast.bind()
        if self._stop_listening is None:
            self._stop_listening = self.registry.subscribe(self._registry_changed)
        self._sweeper = loop.create_task(self._sweep())

    async def stop(self) -> None:
        """End all streams and sessions, and wait until that is done."""
        self.release()
        if self._sweeper is not None:
            self._sweeper.cancel()
            self._background.add(self._sweeper)
            self._sweeper.add_done_callback(self._background.discard)
            self._sweeper = None
        self.tasks.stop()
        for session in self.sessions:
            self.sessions.close(session, "shutdown")
        while self._background:
            await asyncio.wait(self._background)
        await self.tasks.leave()

    def release(self) -> None:
        """Let everybody go who waits for news; what runs is still answered."""
        if self._stop_listening is not None:
            self._stop_listening()
            self._stop_listening = None
        self.broadcast.close()
        self.sessions.release()

    def apply_key_changes(self, changes: Sequence[KeyChange]) -> None:
        """End everything that is open for who is let in no more, and go by the new rights of others."""
        by_identity = {id(change.was): change for change in changes}
        self.sessions.apply_key_changes(by_identity)
        self.broadcast.apply_key_changes(by_identity)
        self._apply_to_running(by_identity)
        asyncio.get_running_loop().call_later(_IN_FLIGHT_AFTER_S, self._apply_to_running, by_identity)

    def _apply_to_running(self, changes: Mapping[int, KeyChange]) -> None:
        apply_key_changes(in_flight_requests(), changes)
        self.tasks.apply_key_changes(changes)

    async def _sweep(self) -> None:
        while True:
            await asyncio.sleep(min(_SWEEP_INTERVAL_S, self.settings.session_idle))
            self.sessions.sweep()
            if self.store.is_open:
                await self._sweep_store()

    async def _sweep_store(self) -> None:
        try:
            await self.store.sweep()
        except StoreError as error:
            _log.warning("what is over was not swept: %s", error.message)

    @cached_property
    def info(self) -> Implementation:
        """What the server says it is."""
        return msgspec.convert(self._host.server_info(), Implementation)

    @cached_property
    def modern_body(self) -> ModernBody:
        """How results are wrapped for stateless clients."""
        return ModernBody(self.info)

    @cached_property
    def versions(self) -> tuple[str, ...]:
        """The versions served, oldest first."""
        served = self._host.supported_protocol_versions()
        return tuple(version for version in versions.ALL if version in served)

    @cached_property
    def legacy_versions(self) -> tuple[str, ...]:
        """The versions that have sessions."""
        return tuple(version for version in self.versions if not versions.is_modern(version))

    @cached_property
    def modern_versions(self) -> tuple[str, ...]:
        """The versions that have no sessions."""
        return tuple(version for version in self.versions if versions.is_modern(version))

    @property
    def instructions(self) -> str | None:
        """How to use the server."""
        return self._host.instructions()

    def context(self, caller: Caller, deadline: Pausable | None = None) -> Context:
        """What a hook gets to know about a request."""
        return Context(caller, self._host, deadline)

    def background(self, work: Coroutine[Any, Any, Any]) -> asyncio.Task[Any]:
        """Run something that nobody waits for; `stop` does."""
        task = asyncio.get_running_loop().create_task(work)
        self._background.add(task)
        task.add_done_callback(self._background.discard)
        return task

    async def call_hook(self, session: LegacySession, name: str, *args: Any) -> Any:
        """Run a hook about a session, after those that came before it; a crash in it is logged and raised."""
        return await self._call_hook(session, name, *args, session)

    async def call_hook_quietly(self, session: LegacySession, name: str, *args: Any) -> None:
        """Run a hook that nobody waits for, in its turn; a crash in it is logged."""
        with suppress(Exception):
            await self._call_hook(session, name, *args)

    async def _call_hook(self, session: LegacySession, name: str, *args: Any) -> Any:
        hook = self.hooks(name)
        if hook is None:
            return None
        if session.turn.is_held_here():
            raise WaypostError(f"The hook {name} would wait for the hook it was called from; use hub.cast.")
        async with session.turn:
            try:
                return await maybe_await(hook(*args))
            except Exception:
                _log.exception("the hook %s failed", name)
                raise

    @property
    def hides(self) -> bool:
        """Whether somebody may not see what others do."""
        return self._host.hides

    def can_see(self, principal: Principal, capability: Capability) -> bool:
        """Whether somebody may see a capability in lists."""
        return capability.open_to(principal.scopes) and not self._hides(principal, capability.id)

    def can_see_resource(self, principal: Principal, uri: str) -> bool:
        """Whether somebody may hear of a resource, which need not be there."""
        row = self.registry[Kind.RESOURCE].get(uri)
        return not self._hides(principal, uri) if row is None else self.can_see(principal, row)

    def _hides(self, principal: Principal, name: str) -> bool:
        return self.hides and self._host.is_hidden(principal, name)

    async def task_status(self, task_id: str, principal: Principal) -> bytes:
        """The notification that tells a session how one of its tasks stands."""
        return status_notification(await self.tasks.find(task_id, principal))

    async def run_on_loop(self, work: Coroutine[Any, Any, Any]) -> Any:
        """Await `work` on the loop that serves the clients, from whichever loop or thread this is called."""
        if self._loop is None or self._loop is asyncio.get_running_loop():
            return await work
        return await asyncio.wrap_future(asyncio.run_coroutine_threadsafe(work, self._loop))

    def offers(self, capability: str) -> bool:
        """Whether this server has that capability, so that its methods exist."""
        if self._declares_its_own:
            declared = self._host.server_capabilities() or {}
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
                return len(self.registry[Kind.PROMPT]) > 0 or self._is_expected(capability)
            case "resources":
                listed = len(self.registry[Kind.RESOURCE]) + len(self.registry[Kind.TEMPLATE])
                return listed > 0 or self._is_expected(capability)
            case "completions":
                return self._can_complete()
            case _:
                return True

    def _is_expected(self, capability: str) -> bool:
        """Whether there may be something of a kind that is not registered, because the hub's user answers for it."""
        return self._host.expects(capability) or any(self.hooks(hook) is not None for hook in _ANSWERED_BY[capability])

    @cached_property
    def _declares_its_own(self) -> bool:
        return self._host.server_capabilities() is not None

    @property
    def has_task_tools(self) -> bool:
        """Whether any tool can run as a task."""
        return self.registry.tools.tasked > 0

    @property
    def offers_subscriptions(self) -> bool:
        """Whether clients may subscribe to resources."""
        return bool(self.capabilities().get("resources", {}).get("subscribe"))

    def offers_list_changed(self, capability: str) -> bool:
        """Whether clients are told when this list changes."""
        return bool(self.capabilities().get(capability, {}).get("listChanged"))

    def _registry_changed(self, change: Change) -> None:
        """Tell of a change; where only the gateway's tools are listed, theirs is the list that never changes."""
        kinds = change.kinds if self.settings.only_tools is None else change.kinds - {Kind.TOOL}
        self.broadcast.registry_changed(Change(kinds, change.rows), self._may_list)

    def _may_list(self, principal: Principal, capability: Capability) -> bool:
        """Whether somebody may find a capability in a list; a hook may list what it likes."""
        return self.hooks(f"list_{capability.kind.value}") is not None or self.can_see(principal, capability)

    def _announces(self, kind: str) -> bool:
        """Whether changes of a list are sent; a list that just became empty still changed."""
        return self._host.server_capabilities() is None or self.offers_list_changed(kind)

    def capabilities(self, version: str = LATEST_LEGACY) -> dict[str, Any]:
        """What is declared to clients of a version: as configured, else as registered."""
        declared = self._host.server_capabilities()
        return self.derived_capabilities(version) if declared is None else declared

    def derived_capabilities(self, version: str) -> dict[str, Any]:
        """What the registered capabilities allow to declare."""
        derived: dict[str, Any] = {"logging": {}, "tools": {"listChanged": True}}
        if self.offers("resources"):
            derived["resources"] = {"listChanged": True}
            if any(row.subscribable for kind in (Kind.RESOURCE, Kind.TEMPLATE) for row in self.registry[kind]):
                derived["resources"]["subscribe"] = True
        if self.offers("prompts"):
            derived["prompts"] = {"listChanged": True}
        if self._can_complete() and versions.at_least(version, versions.V2025_03_26):
            derived["completions"] = {}
        if self.has_task_tools and versions.is_modern(version):
            derived["extensions"] = {TASKS_EXTENSION: {}}
        elif self.has_task_tools and version == versions.V2025_11_25:
            derived["tasks"] = {"list": {}, "cancel": {}, "requests": {"tools": {"call": {}}}}
        if self.skills is not None and self.skills.entries():
            derived.setdefault("extensions", {})[SKILLS_EXTENSION] = SKILLS_SETTINGS
        return derived

    def _can_complete(self) -> bool:
        return (
            self.hooks("completion") is not None
            or len(self.registry[Kind.PROMPT]) > 0
            or len(self.registry[Kind.TEMPLATE]) > 0
        )
