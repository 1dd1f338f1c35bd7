"""The change feed as server-sent events: what changed in the hub, as it happens."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable
from contextlib import ExitStack
from typing import Annotated, Final

import msgspec
from msgspec import Meta

from waypost.api.routing import ManagedHub, Operator, may_act_as
from waypost.capabilities.capability import Kind
from waypost.capabilities.principals import Principal
from waypost.capabilities.registry import Change as RegistryChange
from waypost.capabilities.registry import Registry
from waypost.errors import InvalidParams
from waypost.protocol.broadcast import Broadcast, Subscription
from waypost.protocol.streams import EventStream
from waypost.runtime.component import Component
from waypost.runtime.feed import ChangeFeed, Listener
from waypost.wire.params import ListenFilter

KEEP_ALIVE_S: Final = 15.0
OPEN_KINDS: Final = frozenset({"approvals"})
"""What every key may follow, because every key may have a role that an approval asks for."""
MAX_ROWS: Final = 20
"""How many rows of one change of the registry are reported one by one."""
_LISTS: Final = {Kind.TOOL: "tools", Kind.PROMPT: "prompts", Kind.RESOURCE: "resources", Kind.TEMPLATE: "resources"}
KINDS: Final = ChangeFeed.kinds | frozenset(_LISTS.values())


class Changes(Component):
    """Reports changes to listeners; nothing is observed while there is none.

    Changes of the registry come from the registry, all others from the change feed of all replicas.
    """

    name = "changes"

    def __init__(self, registry: Registry, feed: ChangeFeed) -> None:
        self._registry = registry
        self._feed = feed
        self._listeners: list[Listener] = []
        self._observing = ExitStack()
        self._loop: asyncio.AbstractEventLoop | None = None

    def subscribe(self, listener: Listener) -> Callable[[], None]:
        """Report changes to a listener until the returned function is called."""
        self._listeners.append(listener)
        self._loop = asyncio.get_running_loop()
        if len(self._listeners) == 1:
            self._observing.callback(self._registry.subscribe(self._on_registry_change))
            self._observing.callback(self._feed.follow(self._report))

        def end() -> None:
            self._listeners.remove(listener)
            if not self._listeners:
                self._observing.close()

        return end

    def _on_registry_change(self, change: RegistryChange) -> None:
        """Report the changed rows, from any thread; many rows at once are one change of each list."""
        if len(change.rows) <= MAX_ROWS:
            changed = [(_LISTS[row.kind], row.id) for row in change.rows]
        else:
            changed = [(kind, "") for kind in sorted({_LISTS[kind] for kind in change.kinds})]
        loop = self._loop
        if loop is not None and not loop.is_closed():
            for kind, changed_id in changed:
                loop.call_soon_threadsafe(self._report, kind, changed_id)

    def _report(self, kind: str, changed_id: str) -> None:
        for listener in tuple(self._listeners):
            listener(kind, changed_id)


class Change(msgspec.Struct, frozen=True):
    """Something changed; read it again."""

    kind: str
    id: str


class ChangesQuery(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """Which changes to send."""

    kinds: Annotated[str, Meta(max_length=500, description="Kinds of changes, joined by commas; left out, all")] = ""


_encode: Final = msgspec.json.Encoder().encode


class ChangeStream:
    """The changes from now on as server-sent events, for one client.

    It counts as a stream of its principal, ends with the principal's key and with the hub, and holds a bounded number
    of events: a client that does not read is disconnected.
    """

    def __init__(self, changes: Changes, broadcast: Broadcast, principal: Principal, kinds: frozenset[str]) -> None:
        self._kinds = kinds
        self._stream = EventStream("", is_resumable=False)
        # A limit may refuse the stream: what was begun before that is undone.
        with ExitStack() as stack:
            stack.enter_context(broadcast.hold_stream(principal))
            # It wants no notifications: the subscription is what ends the stream with the key and with the hub.
            held = Subscription(0, ListenFilter(), self._stream, principal, is_client=False)
            stack.callback(broadcast.subscribe(held))
            stack.callback(changes.subscribe(self._add))
            self._open = stack.pop_all()

    def _add(self, kind: str, changed_id: str) -> None:
        if not self._kinds or kind in self._kinds:
            self._stream.append(b"event: change\ndata: %b\n\n" % _encode(Change(kind, changed_id)))

    async def __aiter__(self) -> AsyncIterator[bytes]:
        yield b": connected\n\n"
        async for event in self._stream.follow(0, KEEP_ALIVE_S):
            yield b": keep-alive\n\n" if event is None else event.message

    def close(self) -> None:
        """Stop receiving changes."""
        self._open.close()


async def follow_changes(hub: ManagedHub, query: ChangesQuery, by: Operator) -> ChangeStream:
    """Stream what changes in the hub as server-sent events; without the role viewer, only of approvals."""
    kinds = frozenset(kind for kind in query.kinds.split(",") if kind)
    if unknown := sorted(kinds - KINDS):
        raise InvalidParams(f"There are no changes of the kind {unknown[0]!r}; use {' or '.join(sorted(KINDS))}.")
    if not may_act_as("viewer", by.principal):
        kinds = OPEN_KINDS
    return ChangeStream(hub.changes, hub.core.engine.broadcast, by.principal, kinds)


CHANGE: Final = Change("keys", "ci")
