"""Notifications outside of requests: changed lists and updated resources, to sessions and listen streams."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from contextlib import contextmanager
from functools import partial
from sys import getsizeof
from typing import TYPE_CHECKING, Any, Final

import msgspec

from waypost.capabilities.capability import Capability, Kind
from waypost.capabilities.context import ListKind, check_list
from waypost.capabilities.principals import Principal
from waypost.capabilities.registry import Change
from waypost.errors import Busy, InvalidParams
from waypost.execution.limits import Shares
from waypost.protocol.session import LegacySession
from waypost.protocol.sessions import Sessions
from waypost.protocol.streams import EventStream
from waypost.settings import Limits
from waypost.wire import messages
from waypost.wire.messages import RequestId
from waypost.wire.params import SUBSCRIPTION_ID, ListenFilter

if TYPE_CHECKING:
    from waypost.identity.keys import KeyChange

_LIST_OF: Final[dict[Kind, ListKind]] = {
    Kind.TOOL: "tools",
    Kind.PROMPT: "prompts",
    Kind.RESOURCE: "resources",
    Kind.TEMPLATE: "resources",
}


class Subscription(msgspec.Struct, eq=False):
    """One `subscriptions/listen` stream and its filter."""

    request_id: RequestId
    wants: ListenFilter
    stream: EventStream
    principal: Principal
    uris: frozenset[str] = frozenset()
    """The URIs of `wants`: every update of a resource looks here, whatever number a client sent."""
    is_client: bool = True
    """Whether an MCP client reads it, and not a page of the console."""

    def notify(self, method: str, **params: Any) -> None:
        """Send a notification that names the subscription it belongs to."""
        tagged = {"_meta": {SUBSCRIPTION_ID: self.request_id}, **params}
        self.stream.append(messages.notification(method, tagged))


_MAX_SUBSCRIPTIONS: Final = 10_000


class SubscriptionBudget:
    """How many bytes of URIs and ids each session and listen stream may be subscribed to, and all of them."""

    def __init__(self, limits: Limits) -> None:
        self._limit = limits.max_subscription_bytes
        self._shares = Shares(limits.max_total_subscription_bytes)
        self._held: dict[object, tuple[str, int]] = {}

    def charge(self, holder: object, principal: Principal, names: Collection[str]) -> None:
        """Count the names that a session or stream asks for in place of those it had; refuses too many."""
        # Memory is bounded here, so each string counts with its overhead, which for a short URI is more than its text.
        needed = sum(map(getsizeof, names))
        if len(names) > _MAX_SUBSCRIPTIONS:
            raise InvalidParams(f"A client may subscribe to {_MAX_SUBSCRIPTIONS} resources and tasks; ask for less.")
        if needed > self._limit:
            raise InvalidParams(
                f"The URIs and ids to subscribe to take {needed} bytes, more than {self._limit} (maxSubscriptionBytes)."
            )
        held = self._held.get(holder, ("", 0))[1]
        # Only growth can be refused: a client that is over its share may still unsubscribe.
        if needed > held and not self._shares.try_take(principal.id, needed - held):
            raise Busy(
                f"Clients are subscribed to {self._shares.total} bytes of URIs and ids already "
                "(maxTotalSubscriptionBytes); try again later."
            )
        if needed > held:
            self._held[holder] = (principal.id, needed)
        else:
            self.count(holder, principal, names)

    def count(self, holder: object, principal: Principal, names: Collection[str]) -> None:
        """Count names without a refusal: those of a session that was stored, or none."""
        owner, held = self._held.pop(holder, ("", 0))
        if held:
            self._shares.give_back(owner, held)
        needed = sum(map(getsizeof, names))
        if needed:
            self._shares.take(principal.id, needed)
            self._held[holder] = (principal.id, needed)


class Broadcast:
    """Sends changes, from any thread, once to each session and stream whose principal may see them."""

    def __init__(
        self,
        sessions: Sessions,
        announces: Callable[[str], bool],
        can_see: Callable[[Principal, str], bool],
        limits: Limits,
    ) -> None:
        self._streams = Shares(limits.max_streams)
        """The open streams of notifications: GET streams of sessions, and `subscriptions/listen`."""
        self._sessions = sessions
        self._announces = announces
        self._can_see = can_see
        self._subscriptions: set[Subscription] = set()
        self.loop: asyncio.AbstractEventLoop | None = None
        """The loop that serves the clients."""
        self._batched: set[ListKind] | None = None
        self.on_subscriptions_changed: Callable[[], None] | None = None
        self.budget = SubscriptionBudget(limits)
        sessions.on_subscriptions = self._count_session

    @contextmanager
    def hold_stream(self, principal: Principal, names: Collection[str] = ()) -> Iterator[None]:
        """Count a stream and what it is subscribed to while it is open; `Busy` when its principal has too many."""
        if not self._streams.try_take(principal.id):
            raise Busy(f"{self._streams.total} streams are open already (maxStreams); try again later.")
        holder = object()
        try:
            self.budget.charge(holder, principal, names)
            yield
        finally:
            self.budget.count(holder, principal, ())
            self._streams.give_back(principal.id)

    def __len__(self) -> int:
        return len(self._subscriptions)

    def count_clients(self) -> int:
        """How many streams MCP clients listen on."""
        return sum(one.is_client for one in self._subscriptions)

    def subscribe(self, subscription: Subscription) -> Callable[[], None]:
        """Send to a listen stream until the returned function is called."""
        self._subscriptions.add(subscription)
        self.subscriptions_changed()

        def end() -> None:
            self._subscriptions.discard(subscription)
            self.subscriptions_changed()

        return end

    def _count_session(self, session: LegacySession, uris: Collection[str]) -> None:
        self.budget.count(session, session.principal, uris)
        self.subscriptions_changed()

    def subscriptions_changed(self) -> None:
        """Call `on_subscriptions_changed`: the subscribed resources may be others now."""
        if self.on_subscriptions_changed is not None:
            self.on_subscriptions_changed()

    def subscribed_uris(self) -> set[str]:
        """The resources that any client is subscribed to."""
        lists = [one.uris for one in self._subscriptions]
        return {uri for uris in (*lists, *(session.subscriptions for session in self._sessions)) for uri in uris}

    def registry_changed(self, change: Change, shows: Callable[[Principal, Capability], bool]) -> None:
        """Send one notification per list that changed, to the clients whose list differs."""
        kinds = {_LIST_OF[kind] for kind in change.kinds}
        if self._batched is not None:
            self._batched |= kinds
            return
        for kind in sorted(kinds):
            rows = [row for row in change.rows if _LIST_OF[row.kind] == kind]

            # The default argument binds the rows of this kind: the function may run after the loop has gone on.
            def is_affected(principal: Principal, rows: list[Capability] = rows) -> bool:
                return any(shows(principal, row) for row in rows)

            self._on_loop(partial(self._list_changed, kind, is_affected))

    def list_changed(self, kind: ListKind) -> None:
        """Notify all clients that a list changed."""
        check_list(kind)
        if self._batched is not None:
            self._batched.add(kind)
            return
        self._on_loop(lambda: self._list_changed(kind, lambda _: True))

    @contextmanager
    def batch_for_all(self) -> Iterator[None]:
        """Collect the changes inside, and notify all clients once per list at the end."""
        batched = self._batched = set[ListKind]()
        try:
            yield
        finally:
            self._batched = None
            for kind in sorted(batched):
                self.list_changed(kind)

    def resource_updated(self, uri: str, also: Sequence[str] = ()) -> None:
        """Notify subscribers of `uri` who may see the resource under this URI and all others it has."""
        self._on_loop(lambda: self._resource_updated(uri, (uri, *also)))

    def apply_key_changes(self, changes: Mapping[int, KeyChange]) -> None:
        """End the streams of revoked keys, give others their new rights, and notify those whose lists may differ."""
        for subscription in self._subscriptions:
            change = changes.get(id(subscription.principal))
            if change is not None and change.ended:
                subscription.stream.close()
            elif change is not None and change.now is not None:
                subscription.principal = change.now
        differing = {id(change.now) for change in changes.values() if change.now not in (None, change.was)}
        for kind in sorted(set(_LIST_OF.values())) if differing else ():
            self._list_changed(kind, lambda principal: id(principal) in differing)

    def principals(self) -> list[Principal]:
        """The principals of the listen streams."""
        return [subscription.principal for subscription in self._subscriptions]

    def close(self) -> None:
        """End every listen stream."""
        for subscription in tuple(self._subscriptions):
            subscription.stream.close()

    def _on_loop(self, action: Callable[[], None]) -> None:
        # Without a loop that serves clients there are no streams to write to.
        if self.loop is None or self.loop.is_closed():
            return
        try:
            here = asyncio.get_running_loop()
        except RuntimeError:
            here = None
        if here is self.loop:
            action()
        else:
            # Synchronous handlers change the registry from their threads; streams belong to the loop.
            self.loop.call_soon_threadsafe(action)

    def _list_changed(self, kind: ListKind, is_affected: Callable[[Principal], bool]) -> None:
        if not self._announces(kind):
            return
        method = f"notifications/{kind}/list_changed"
        message = messages.notification(method)
        for session in self._sessions:
            if is_affected(session.principal):
                session.push(message, is_for_all=True)
        for subscription in tuple(self._subscriptions):
            if getattr(subscription.wants, f"{kind}_list_changed") and is_affected(subscription.principal):
                subscription.notify(method)

    def _resource_updated(self, uri: str, uris: Sequence[str]) -> None:
        method = "notifications/resources/updated"
        message = messages.notification(method, {"uri": uri})
        for session in self._sessions:
            if uri in session.subscriptions and self._can_see_all(session.principal, uris):
                session.push(message, is_for_all=True)
        for subscription in tuple(self._subscriptions):
            if uri in subscription.uris and self._can_see_all(subscription.principal, uris):
                subscription.notify(method, uri=uri)

    def _can_see_all(self, principal: Principal, uris: Sequence[str]) -> bool:
        return all(self._can_see(principal, uri) for uri in uris)
