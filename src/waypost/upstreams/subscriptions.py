"""Hearing of what changes at a server, for as long as a session with it lasts, by the means of its era."""

from __future__ import annotations

import asyncio
import itertools
from collections.abc import Callable
from contextlib import suppress
from typing import Any, Final

from waypost.errors import RemoteError
from waypost.loops import running_loop
from waypost.upstreams.client import Client
from waypost.upstreams.replies import Reply
from waypost.upstreams.transport import Link
from waypost.wire.versions import is_modern

WANTED: Final = {"toolsListChanged": True, "promptsListChanged": True, "resourcesListChanged": True}
"""What servers of the newest era are asked to tell of."""
_ACKNOWLEDGED: Final = "notifications/subscriptions/acknowledged"
_STREAM: Final = "changes"
_NOT_KNOWN: Final = -32601
_LASTED: Final = 60.0


async def follow(client: Client, link: Link, missed: Callable[[], None], first: float, longest: float) -> None:
    """Hear of changes; a stream that ends is opened again, and then `missed` is called for what was not heard of.

    The pauses before that grow from `first` to `longest` seconds while streams are short.
    """
    if is_modern(client.version):
        await _listen(client, missed, first, longest)
        return
    own: Any = getattr(link, "follow", None)
    if own is not None:
        await own(client.version)


async def _listen(client: Client, missed: Callable[[], None], first: float, longest: float) -> None:
    opened = 0

    def count(note: Reply) -> None:
        nonlocal opened
        if note["method"] == _ACKNOWLEDGED:
            opened += 1
            if opened > 1:
                missed()

    client.listen_to(count)
    pause = first
    while True:
        began = running_loop().time()
        try:
            with suppress(OSError):
                await client.send_request(_STREAM, "subscriptions/listen", {"notifications": WANTED})
        except RemoteError as error:
            if error.code == _NOT_KNOWN:
                return
        pause = first if running_loop().time() - began >= _LASTED else pause
        await asyncio.sleep(pause)
        pause = min(pause * 2, longest)


_NUMBERS: Final = itertools.count(1)


class Watched:
    """The resources whose changes a server tells of, in the session that lasts."""

    def __init__(self) -> None:
        self.uris: set[str] = set()
        self._client: Client | None = None
        self._stream: str | None = None

    async def settle(self, client: Client, wanted: set[str], ended: Callable[[], None]) -> None:
        """Have the server tell of exactly these; `ended` is called if it stops before it is told to."""
        if client is not self._client:
            self._client, self._stream, self.uris = client, None, set()
        if wanted == self.uris:
            return
        if is_modern(client.version):
            await self._listen(client, wanted, ended)
        else:
            await self._subscribe(client, wanted)

    async def _listen(self, client: Client, wanted: set[str], ended: Callable[[], None]) -> None:
        before, self._stream, self.uris = self._stream, None, set(wanted)
        if wanted:
            stream = self._stream = f"updates-{next(_NUMBERS)}"

            def over(future: asyncio.Future[Any]) -> None:
                if not future.cancelled():
                    future.exception()
                if self._stream == stream:
                    self._stream, self.uris = None, set()
                    ended()

            asked = {"notifications": {"resourceSubscriptions": sorted(wanted)}}
            client.send_request(stream, "subscriptions/listen", asked).add_done_callback(over)
        if before is not None:
            await client.cancel(before)

    async def _subscribe(self, client: Client, wanted: set[str]) -> None:
        """One that is refused is not asked for again in this session."""
        for uri in wanted - self.uris:
            with suppress(RemoteError):
                await client.subscribe(uri)
            self.uris.add(uri)
        for uri in self.uris - wanted:
            with suppress(RemoteError):
                await client.unsubscribe(uri)
            self.uris.discard(uri)
