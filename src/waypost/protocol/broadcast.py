"""What happens outside of requests, told to everybody who may hear it: sessions and listen streams."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from functools import partial
from typing import TYPE_CHECKING, Any, Final

import msgspec

from waypost.capabilities.capability import Capability, Kind
from waypost.capabilities.principals import Principal
from waypost.capabilities.registry import Change
from waypost.capabilities.session import ListKind, check_list
from waypost.protocol.sessions import Sessions
from waypost.protocol.streams import EventStream
from waypost.wire import messages
from waypost.wire.messages import RequestId
from waypost.wire.params import SUBSCRIPTION_ID, ListenFilter

if TYPE_CHECKING:
    from waypost.policy.keys import KeyChange

_LISTS: Final[dict[Kind, ListKind]] = {
    Kind.TOOL: "tools",
    Kind.PROMPT: "prompts",
    Kind.RESOURCE: "resources",
    Kind.TEMPLATE: "resources",
}


class Subscription(msgspec.Struct, eq=False):
    """One listen stream and what it asked for."""

    request_id: RequestId
    wants: ListenFilter
    stream: EventStream
    principal: Principal

    def wants_list(self, kind: ListKind) -> bool:
        """Whether it asked to hear of changes to this list."""
        return bool(getattr(self.wants, f"{kind}_list_changed"))

    def notify(self, method: str, **params: Any) -> None:
        """Send a notification that names the subscription it belongs to."""
        tagged = {"_meta": {SUBSCRIPTION_ID: self.request_id}, **params}
        self.stream.append(messages.notification(method, tagged))


class Broadcast:
    """Delivers changes, from any thread, each once to each who may see it."""

    def __init__(
        self, sessions: Sessions, is_told: Callable[[str], bool], may_hear: Callable[[Principal, str], bool]
    ) -> None:
        self._sessions = sessions
        self._is_told = is_told
        self._may_hear = may_hear
        self._subscriptions: set[Subscription] = set()
        self.loop: asyncio.AbstractEventLoop | None = None
        self._held: set[ListKind] | None = None
        self.on_subscriptions_changed: Callable[[], None] | None = None
        sessions.on_subscriptions = self.subscriptions_changed

    def __len__(self) -> int:
        return len(self._subscriptions)

    def bind(self) -> None:
        """Remember the loop that streams live on."""
        self.loop = asyncio.get_running_loop()

    def subscribe(self, subscription: Subscription) -> Callable[[], None]:
        """Deliver to a listen stream until the returned function is called."""
        self._subscriptions.add(subscription)
        self.subscriptions_changed()

        def end() -> None:
            self._subscriptions.discard(subscription)
            self.subscriptions_changed()

        return end

    def subscriptions_changed(self) -> None:
        """Somebody begins or ceases to want to hear of resources."""
        if self.on_subscriptions_changed is not None:
            self.on_subscriptions_changed()

    def subscribed_uris(self) -> set[str]:
        """The resources that somebody wants to hear of now."""
        lists = [one.wants.resource_subscriptions for one in self._subscriptions]
        return {uri for uris in (*lists, *(session.subscriptions for session in self._sessions)) for uri in uris}

    def registry_changed(self, change: Change, shows: Callable[[Principal, Capability], bool]) -> None:
        """One change of the registry: one notification per list that looks different, for those who can see that."""
        kinds = {_LISTS[kind] for kind in change.kinds}
        if self._held is not None:
            self._held |= kinds
            return
        for kind in sorted(kinds):
            rows = [row for row in change.rows if _LISTS[row.kind] == kind]
            self._on_loop(partial(self._list_changed, kind, partial(_sees_any, rows, shows)))

    def list_changed(self, kind: ListKind) -> None:
        """Tell everybody that a list changed."""
        check_list(kind)
        if self._held is not None:
            self._held.add(kind)
            return
        self._on_loop(lambda: self._list_changed(kind, lambda _: True))

    @contextmanager
    def batch_for_all(self) -> Iterator[None]:
        """Tell everybody once of each list that changes inside, when it is over."""
        held = self._held = set[ListKind]()
        try:
            yield
        finally:
            self._held = None
            for kind in sorted(held):
                self.list_changed(kind)

    def resource_updated(self, uri: str, also: Sequence[str] = ()) -> None:
        """Tell those who subscribed to `uri`, and may see it under all of its URIs, that it changed."""
        self._on_loop(lambda: self._resource_updated(uri, (uri, *also)))

    def apply_key_changes(self, changes: Mapping[int, KeyChange]) -> None:
        """Go by the new rights of those who listen, and tell them; who is let in no more has nothing to hear."""
        for subscription in self._subscriptions:
            change = changes.get(id(subscription.principal))
            if change is not None and change.ended:
                subscription.stream.close()
            elif change is not None and change.now is not None:
                subscription.principal = change.now
        differing = {id(change.now) for change in changes.values() if change.now not in (None, change.was)}
        for kind in sorted(set(_LISTS.values())) if differing else ():
            self._list_changed(kind, lambda principal: id(principal) in differing)

    def close(self) -> None:
        """End every listen stream."""
        for subscription in tuple(self._subscriptions):
            subscription.stream.close()

    def _on_loop(self, action: Callable[[], None]) -> None:
        if self.loop is None or self.loop.is_closed():
            return
        try:
            here = asyncio.get_running_loop()
        except RuntimeError:
            here = None
        if here is self.loop:
            action()
        else:
            self.loop.call_soon_threadsafe(action)

    def _list_changed(self, kind: ListKind, concerns: Callable[[Principal], bool]) -> None:
        if not self._is_told(kind):
            return
        method = f"notifications/{kind}/list_changed"
        message = messages.notification(method)
        for session in self._sessions:
            if concerns(session.principal):
                session.push(message)
        for subscription in tuple(self._subscriptions):
            if subscription.wants_list(kind) and concerns(subscription.principal):
                subscription.notify(method)

    def _resource_updated(self, uri: str, known_by: Sequence[str]) -> None:
        method = "notifications/resources/updated"
        message = messages.notification(method, {"uri": uri})
        for session in self._sessions:
            if uri in session.subscriptions and self._may_hear_all(session.principal, known_by):
                session.push(message)
        for subscription in tuple(self._subscriptions):
            wanted = uri in subscription.wants.resource_subscriptions
            if wanted and self._may_hear_all(subscription.principal, known_by):
                subscription.notify(method, uri=uri)

    def _may_hear_all(self, principal: Principal, uris: Sequence[str]) -> bool:
        return all(self._may_hear(principal, uri) for uri in uris)


def _sees_any(rows: Sequence[Capability], shows: Callable[[Principal, Capability], bool], principal: Principal) -> bool:
    return any(shows(principal, row) for row in rows)
