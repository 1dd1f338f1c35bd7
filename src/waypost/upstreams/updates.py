"""Which resources of a server somebody wants to hear of when they change, told to it by the means of its era."""

from __future__ import annotations

import asyncio
import itertools
from collections.abc import Callable
from contextlib import suppress
from typing import Any, Final

from waypost.errors import RemoteError
from waypost.upstreams.client import Client
from waypost.wire.versions import is_modern

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
