"""Pages that servers sent people to, and the sessions that are to hear when something was done there."""

from __future__ import annotations

import asyncio
from collections.abc import Iterable
from typing import Any, Final

from waypost.capabilities.context import Context
from waypost.capabilities.session import Session
from waypost.wire.versions import V2025_11_25

_MOST: Final = 1000


class Pages:
    """Remembers the pages that were shown last; a server can only tell of those it showed itself."""

    def __init__(self) -> None:
        self._shown: dict[tuple[str, str], Session] = {}
        self._telling: set[asyncio.Task[None]] = set()

    def show(self, connection: str, pages: Iterable[Any], ctx: Context) -> bool:
        """Remember who was sent to pages of a server; whether there is anything to hear about them."""
        if ctx.caller.version != V2025_11_25:  # no other has a word for it
            return False
        known = [found for page in pages if (found := _id_of(page)) is not None]
        for one in known:
            self._shown[connection, one] = ctx.caller.session
        for oldest in list(self._shown)[: max(0, len(self._shown) - _MOST)]:
            del self._shown[oldest]
        return bool(known)

    def done(self, connection: str, page: Any) -> None:
        """Tell whoever was sent to a page that something was done there."""
        known = _id_of(page)
        session = None if known is None else self._shown.pop((connection, known), None)
        if known is None or session is None:
            return
        telling = asyncio.get_running_loop().create_task(session.send_elicitation_complete(known))
        self._telling.add(telling)
        telling.add_done_callback(self._telling.discard)


def _id_of(page: Any) -> str | None:
    found = page.get("elicitationId") if isinstance(page, dict) else None
    return found if isinstance(found, str) else None
