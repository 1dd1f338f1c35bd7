"""The engine: the parts of one MCP server that every method needs, and their start and stop."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Coroutine, Mapping, Sequence
from contextlib import suppress
from typing import TYPE_CHECKING, Any, Final

import msgspec

from waypost.capabilities.capability import Capability, Kind
from waypost.capabilities.context import Caller, Context, Pausable
from waypost.capabilities.principals import Principal
from waypost.capabilities.registry import Change, Registry
from waypost.errors import CallError, StoreError, WaypostError
from waypost.execution.pipeline import Pipeline
from waypost.execution.shares import Shares
from waypost.loops import maybe_await
from waypost.protocol.broadcast import Broadcast
from waypost.protocol.exchange import apply_key_changes, in_flight_requests
from waypost.protocol.lists import Lists
from waypost.protocol.profile import Host, ServerProfile
from waypost.protocol.responses import LargeResults
from waypost.protocol.rounds import Seal
from waypost.protocol.session import LegacySession
from waypost.protocol.sessions import Sessions
from waypost.protocol.tasks import Tasks, status_notification
from waypost.settings import Limits
from waypost.stores.store import Store

if TYPE_CHECKING:
    from waypost.identity.keys import KeyChange

_log: Final = logging.getLogger(__name__)
_SWEEP_INTERVAL_S: Final = 30.0
_IN_FLIGHT_AFTER_S: Final = 0.25
"""After this time a running request is in `in_flight_requests`."""


class EngineSettings(msgspec.Struct, frozen=True, kw_only=True):
    """The settings of the protocol."""

    page_size: int
    portable_names: bool
    only_tools: frozenset[str] | None
    """The tools to list, where not all are."""
    session_idle: float
    max_sessions: int
    max_tasks: int
    secret: bytes | None
    task_after: float
    max_result: int
    limits: Limits


class Engine:
    """One MCP server, independent of its transports."""

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
        self.profile = ServerProfile(host, registry)
        self.lists = Lists(
            registry, page_size=settings.page_size, portable=settings.portable_names, only=settings.only_tools
        )
        self.sessions = Sessions(self, idle=settings.session_idle, limit=settings.max_sessions, limits=settings.limits)
        self.tasks = Tasks(self, limit=settings.max_tasks)
        self.broadcast = Broadcast(
            self.sessions, self.profile.announces, self.can_see_resource, Shares(settings.limits.max_streams)
        )
        self.seal = Seal(settings.secret)
        self.large_results = LargeResults(self.store, settings.max_result)
        self._background: set[asyncio.Task[Any]] = set()
        self._sweeper: asyncio.Task[None] | None = None
        self._stop_listening: Callable[[], None] | None = None

    def start(self) -> None:
        """Begin to notify clients of changes; call it on the loop that serves them."""
        if self._stop_listening is not None and self.broadcast.loop is asyncio.get_running_loop():
            return
        self.broadcast.bind()
        if self._stop_listening is None:
            self._stop_listening = self.registry.subscribe(self._registry_changed)
        self._sweeper = asyncio.get_running_loop().create_task(self._sweep())

    async def stop(self) -> None:
        """End all streams, sessions and tasks, and wait until that is done."""
        self.release()
        if self._sweeper is not None:
            self._sweeper.cancel()
            self._background.add(self._sweeper)
            self._sweeper.add_done_callback(self._background.discard)
            self._sweeper = None
        self.tasks.stop()
        for session in self.sessions:
            self.sessions.close(session, "shutdown")
        while self._background:  # work that ends may start more
            await asyncio.wait(self._background)
        await self.tasks.leave()

    def release(self) -> None:
        """End the streams of clients that wait for notifications; requests in flight are still answered."""
        if self._stop_listening is not None:
            self._stop_listening()
            self._stop_listening = None
        self.broadcast.close()
        self.sessions.release()

    async def _sweep(self) -> None:
        while True:
            await asyncio.sleep(min(_SWEEP_INTERVAL_S, self.settings.session_idle))
            self.sessions.sweep()
            if self.store.is_open:
                try:
                    await self.store.sweep()
                except StoreError as error:
                    _log.warning("expired rows were not deleted from the store: %s", error.message)

    def apply_key_changes(self, changes: Sequence[KeyChange]) -> None:
        """End the sessions, streams, calls and tasks of revoked keys, and give others their new rights."""
        by_identity = {id(change.was): change for change in changes}
        self.sessions.apply_key_changes(by_identity)
        self.broadcast.apply_key_changes(by_identity)
        self._apply_to_running(by_identity)
        # Requests without a session are tracked only after a moment, so those that just began are looked at again.
        asyncio.get_running_loop().call_later(_IN_FLIGHT_AFTER_S, self._apply_to_running, by_identity)

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

    async def run_on_loop(self, work: Coroutine[Any, Any, Any]) -> Any:
        """Await `work` on the loop that serves the clients, from any loop or thread."""
        loop = self.broadcast.loop
        if loop is None or loop is asyncio.get_running_loop():
            return await work
        return await asyncio.wrap_future(asyncio.run_coroutine_threadsafe(work, loop))

    async def run_session_hook(self, session_id: str, name: str, argument: Any, *, wait: bool = True) -> Any:
        """Run a hook of the session with an id and return its result, or let it run in the background."""

        async def run() -> Any:
            session = self.sessions.get(session_id)
            if session is None:
                raise CallError(f"There is no session {session_id}.")
            hook = self.call_hook(session, name, argument)
            return await hook if wait else self.background(hook)

        return await self.run_on_loop(run())

    async def call_hook(self, session: LegacySession, name: str, *args: Any) -> Any:
        """Run a hook about a session, one at a time per session; what it raises is logged and raised."""
        return await self._call_hook(session, name, *args, session)

    async def call_hook_quietly(self, session: LegacySession, name: str, *args: Any) -> None:
        """Run a hook of a session whose result does not matter; what it raises is logged."""
        with suppress(Exception):
            await self._call_hook(session, name, *args)

    async def _call_hook(self, session: LegacySession, name: str, *args: Any) -> Any:
        hook = self.hooks(name)
        if hook is None:
            return None
        if session.hook_lock.is_held_by_current_task():
            raise WaypostError(f"The hook {name} would wait for the hook it was called from; use hub.cast.")
        async with session.hook_lock:
            try:
                return await maybe_await(hook(*args))
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
        return capability.is_open_to(principal.scopes) and not self._is_hidden(principal, capability.id)

    def can_see_resource(self, principal: Principal, uri: str) -> bool:
        """Whether a principal may be notified of a resource, registered or not."""
        row = self.registry[Kind.RESOURCE].get(uri)
        return not self._is_hidden(principal, uri) if row is None else self.can_see(principal, row)

    def _is_hidden(self, principal: Principal, name: str) -> bool:
        return self.hides and self.profile.host.is_hidden(principal, name)

    def _registry_changed(self, change: Change) -> None:
        # Where only the gateway's tools are listed, that list never changes.
        kinds = change.kinds if self.settings.only_tools is None else change.kinds - {Kind.TOOL}

        def may_list(principal: Principal, capability: Capability) -> bool:  # a hook may list anything
            return self.hooks(f"list_{capability.kind.value}") is not None or self.can_see(principal, capability)

        self.broadcast.registry_changed(Change(kinds, change.rows), may_list)
