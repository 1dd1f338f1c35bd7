"""Notifications of changes at a server, subscribed to as its era wants it."""

from __future__ import annotations

import asyncio
import itertools
from collections.abc import Callable
from contextlib import suppress
from typing import Any, Final

from waypost.errors import RemoteError
from waypost.loops import running_loop
from waypost.upstreams.client import METHOD_NOT_FOUND, Client
from waypost.upstreams.replies import Reply
from waypost.upstreams.transport import Transport
from waypost.wire.versions import is_modern

LISTS: Final = {"toolsListChanged": True, "promptsListChanged": True, "resourcesListChanged": True}
"""What servers of the stateless era are asked to notify of."""
_ACKNOWLEDGED: Final = "notifications/subscriptions/acknowledged"
_LIST_STREAM: Final = "changes"
_STABLE_S: Final = 60.0
_NUMBERS: Final = itertools.count(1)


async def follow_changes(
    client: Client, transport: Transport, missed: Callable[[], None], first_pause: float, longest_pause: float
) -> None:
    """Receive notifications of changed lists, until cancelled or the server refuses to send them.

    A stream that ends is opened again, and `missed` is called then, because changes may have gone unnoticed. The pauses
    before that double while streams are short.
    """
    if not is_modern(client.version):
        # In a session, notifications arrive anyway, except over HTTP, where they need a stream of their own.
        follow: Any = getattr(transport, "follow", None)
        if follow is not None:
            await follow(client.version)
        return
    opened = 0

    def count_streams(note: Reply) -> None:
        nonlocal opened
        if note["method"] == _ACKNOWLEDGED:
            opened += 1
            if opened > 1:
                missed()

    client.listen_to(count_streams)
    pause = first_pause
    while True:
        began = running_loop().time()
        try:
            with suppress(OSError):
                await client.send_request(_LIST_STREAM, "subscriptions/listen", {"notifications": LISTS})
        except RemoteError as error:
            if error.code == METHOD_NOT_FOUND:
                return
        pause = first_pause if running_loop().time() - began >= _STABLE_S else pause
        await asyncio.sleep(pause)
        pause = min(pause * 2, longest_pause)


class ResourceSubscriptions:
    """The resources of a server whose changes it notifies of, in the session that lasts."""

    def __init__(self) -> None:
        self.uris: set[str] = set()
        self._client: Client | None = None
        self._stream: str | None = None

    async def update(self, client: Client, wanted: set[str], ended: Callable[[], None]) -> None:
        """Subscribe to exactly these; `ended` is called if the server ends the subscription by itself."""
        if client is not self._client:
            self._client, self._stream, self.uris = client, None, set()
        if wanted == self.uris:
            return
        if is_modern(client.version):
            await self._listen(client, wanted, ended)
        else:
            await self._subscribe(client, wanted)

    async def _listen(self, client: Client, wanted: set[str], ended: Callable[[], None]) -> None:
        # The new stream is opened before the old one is closed, so that no change falls between them.
        before, self._stream, self.uris = self._stream, None, set(wanted)
        if wanted:
            stream = self._stream = f"updates-{next(_NUMBERS)}"

            def on_end(future: asyncio.Future[Any]) -> None:
                if not future.cancelled():
                    future.exception()
                if self._stream == stream:
                    self._stream, self.uris = None, set()
                    ended()

            params = {"notifications": {"resourceSubscriptions": sorted(wanted)}}
            client.send_request(stream, "subscriptions/listen", params).add_done_callback(on_end)
        if before is not None:
            await client.cancel(before)

    async def _subscribe(self, client: Client, wanted: set[str]) -> None:
        """Subscribe one by one; one that is refused is not tried again in this session."""
        for uri in wanted - self.uris:
            with suppress(RemoteError):
                await client.subscribe(uri)
            self.uris.add(uri)
        for uri in self.uris - wanted:
            with suppress(RemoteError):
                await client.unsubscribe(uri)
            self.uris.discard(uri)
