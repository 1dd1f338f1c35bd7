"""Hearing of what changes at a server, for as long as a session with it lasts, by the means of its era."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from contextlib import suppress
from typing import Any, Final

from waypost.errors import RemoteError
from waypost.loops import running_loop
from waypost.upstreams.client import Client
from waypost.upstreams.link import Link
from waypost.upstreams.replies import Reply
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
