"""The change feed: every change is one message on the bus, and other replicas read it from the store at once."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from contextlib import suppress
from functools import partial
from typing import Any, ClassVar, Final

import msgspec

from waypost.buses import LocalBus
from waypost.capabilities.context import ListKind
from waypost.execution.breakers import CircuitChange
from waypost.policy.audit import Record
from waypost.runtime.core import Core

SUBJECT: Final = "changes"
RESOURCE: Final = "resource"
LIST: Final = "list"
BREAKER: Final = "breaker"
ACT: Final = "act"
_ACT_KINDS: Final = {
    "key": "keys",
    "skill": "skills",
    "document": "documents",
    "upstream": "upstreams",
    "session": "sessions",
    "task": "tasks",
    "catalog": "tools",
    "policy": "policies",
    "breaker": "breakers",
    "config": "settings",
    "console": "audit",
    "api": "audit",
    "workflow": "instances",
    "transition": "instances",
    "approval": "approvals",
}
"""What an act of the audit changes, by the first word of its action."""
_DEFINITIONS: Final = frozenset({"workflow.defined", "workflow.removed"})

Listener = Callable[[str, str], None]
"""Gets the kind of what changed and its id."""


class Announcement(msgspec.Struct, frozen=True, omit_defaults=True):
    """What changed, and at which replica; `data` is only for what the store does not hold."""

    origin: str
    kind: str
    """A table or counted scope of the store, or `resource`, `list`, `breaker`, `act`, `replicas`."""
    id: str
    data: Any = None


_encode: Final = msgspec.json.Encoder().encode
_decode: Final = msgspec.json.Decoder(Announcement).decode


class ChangeFeed:
    """Announces the changes of this replica, and collects which kinds of records other replicas changed."""

    kinds: ClassVar = frozenset({*_ACT_KINDS.values(), "workflows"})
    """What listeners get changes of."""

    def __init__(self, core: Core) -> None:
        self._core = core
        self._changed: set[str] = set()
        self._has_lost = False
        self._news = asyncio.Event()
        self._listeners: list[Listener] = []
        core.store.on_change = self.announce
        core.bus.on_reconnect(self._look_at_everything)
        if core.guard.breakers is not None:
            core.guard.breakers.on_change = partial(self.announce, BREAKER)

    async def start(self) -> None:
        """Receive what other replicas change, and what they hand over."""
        # An event belongs to the loop on which it was waited for.
        self._news = asyncio.Event()
        await self._core.bus.subscribe(SUBJECT, self._receive)
        self._observe_acts()
        relay = self._core.engine.sessions.liveness.relay
        if relay is not None:
            await relay.start()

    def follow(self, listener: Listener) -> Callable[[], None]:
        """Report the acts at all replicas to a listener until the returned function is called.

        Acts are what people, agents and the hub do beside calls: each is in the audit, and a hub without one has none.
        """
        self._listeners.append(listener)
        self._observe_acts()

        def end() -> None:
            self._listeners.remove(listener)
            self._observe_acts()

        return end

    def _observe_acts(self) -> None:
        """Get the acts of this replica from the audit while anything reads them: a listener, or another replica."""
        if self._core.guard.audit is not None:
            is_read = self._listeners or not isinstance(self._core.bus, LocalBus)
            self._core.guard.audit.on_act = self._announce_act if is_read else None

    def _announce_act(self, record: Record) -> None:
        action, subject = record.action, record.run or record.capability
        kind = "workflows" if action in _DEFINITIONS else _ACT_KINDS.get(action.partition(".")[0])
        if kind is not None:
            self._report(kind, subject)
            if not isinstance(self._core.bus, LocalBus):
                self.announce(ACT, subject, kind)

    def _report(self, kind: str, subject: str) -> None:
        for listener in tuple(self._listeners):
            listener(kind, subject)

    def announce(self, kind: str, record: str, data: Any = None) -> None:
        """Publish a change, from any thread; it is lost where the hub does not run."""
        loop = self._core.engine.broadcast.loop
        if loop is None or loop.is_closed():
            return
        message = _encode(Announcement(self._core.replica, kind, record, data))
        # The bus belongs to the loop.
        loop.call_soon_threadsafe(self._publish, message)

    def list_changed(self, kind: ListKind) -> None:
        """Notify the clients of all replicas that a list changed."""
        self._core.engine.broadcast.list_changed(kind)
        self.announce(LIST, kind)

    def resource_updated(self, uri: str) -> None:
        """Notify the clients of all replicas that subscribed to a resource."""
        self._core.engine.broadcast.resource_updated(uri)
        self.announce(RESOURCE, uri)

    async def wait(self, until: float) -> set[str] | None:
        """The kinds that other replicas changed since the last call.

        `None`, for everything, at `until` by the clock of the loop, or when messages may have been lost.
        """
        with suppress(TimeoutError):
            async with asyncio.timeout_at(until):
                await self._news.wait()
        self._news.clear()
        changed, self._changed = self._changed, set()
        has_lost, self._has_lost = self._has_lost, False
        return changed if changed and not has_lost else None

    def _publish(self, message: bytes) -> None:
        self._core.spawn(self._core.bus.publish(SUBJECT, message))

    def _receive(self, _subject: str, message: bytes) -> None:
        change = _decode(message)
        if change.origin == self._core.replica:
            return
        broadcast, breakers = self._core.engine.broadcast, self._core.guard.breakers
        if change.kind == LIST:
            broadcast.list_changed(msgspec.convert(change.id, ListKind))
        elif change.kind == RESOURCE:
            broadcast.resource_updated(change.id)
        elif change.kind == BREAKER:
            if breakers is not None:
                breakers.follow(change.id, CircuitChange(*change.data))
        elif change.kind == ACT:
            self._report(change.data, change.id)
        else:
            self._changed.add(change.kind)
            self._news.set()

    def _look_at_everything(self) -> None:
        self._has_lost = True
        self._news.set()
