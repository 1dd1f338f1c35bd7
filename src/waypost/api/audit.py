"""The audit: its entries, and whether it is intact."""

from __future__ import annotations

import asyncio
import base64
import binascii
from collections.abc import AsyncIterator
from contextlib import suppress
from typing import Annotated, Any, Final, Literal

import msgspec
from msgspec import Meta

from waypost.api.routing import ManagedHub
from waypost.errors import InvalidParams
from waypost.policy.audit import Verdict
from waypost.stores.audit import LAST, AuditEntry, Place

FLUSH_TIMEOUT_S: Final = 2.0
EXPORT_PAGE_ENTRIES: Final = 500
MAX_BLOCKS: Final = 256
"""How much of the audit one request reads for a filter; the cursor continues from there."""
Text = Annotated[str, Meta(max_length=1024)]


class AuditFilter(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """Which entries: of a decision, of a principal, about a capability, with an action, and between two times."""

    decision: Literal["allow", "deny"] | None = None
    principal: Text = ""
    capability: Text = ""
    action: Text = ""
    after: Annotated[float, Meta(ge=0, description="A Unix time; only entries since then")] = 0.0
    until: Annotated[float, Meta(ge=0, description="A Unix time; only entries before it")] | None = None

    def keeps(self, entry: AuditEntry) -> bool:
        """Whether an entry is wanted."""
        return (
            self.principal in ("", entry.principal)
            and self.capability in entry.capability
            and self.action in ("", entry.value.get("action", "call"))
            and entry.at >= self.after
        )

    @property
    def words(self) -> list[str]:
        """What the strings of every wanted entry have; an entry of a call does not name its action."""
        return [word for word in (self.principal, self.capability, self.action) if word and word != "call"]


class AuditQuery(AuditFilter, frozen=True, forbid_unknown_fields=True):
    """Which entries to list."""

    limit: Annotated[int, Meta(ge=1, le=1000)] = 100
    before: str | None = None


class AuditPage(msgspec.Struct, frozen=True):
    """Entries, the latest first, and the cursor of the next page.

    A page may have fewer entries than were asked for, and even none, where a filter has few matches; the last page is
    the one without a cursor.
    """

    entries: list[dict[str, Any]]
    next: str | None = None


async def list_entries(hub: ManagedHub, query: AuditQuery) -> AuditPage:
    """List the latest entries of the audit."""
    await _flush(hub)
    entries, end = await _scan(hub, query, query.limit, _first_place(query, query.before))
    return AuditPage([one.as_row() for one in entries], None if end is None else _format_cursor(end))


class AuditLines:
    """All entries that a filter selects, a line of JSON each, the latest first; read page by page."""

    def __init__(self, hub: ManagedHub, query: AuditFilter) -> None:
        self._hub = hub
        self._query = query

    async def __aiter__(self) -> AsyncIterator[bytes]:
        place: Place | None = _first_place(self._query)
        while place is not None:
            entries, place = await _scan(self._hub, self._query, EXPORT_PAGE_ENTRIES, place)
            yield b"".join(msgspec.json.encode(one.as_row()) + b"\n" for one in entries)

    def close(self) -> None:
        """Nothing is open between two pages."""


async def export_audit(hub: ManagedHub, query: AuditFilter) -> AuditLines:
    """Export entries of the audit as lines of JSON, the latest first."""
    await _flush(hub)
    return AuditLines(hub, query)


async def _scan(
    hub: ManagedHub, query: AuditFilter, limit: int, before: Place
) -> tuple[list[AuditEntry], Place | None]:
    entries, end = await hub.core.store.audit.scan(limit, before, query.decision, query.keeps, MAX_BLOCKS, query.words)
    return entries, None if end is None or end[0] < query.after else end


def _first_place(query: AuditFilter, cursor: str | None = None) -> Place:
    if cursor is not None:
        return _parse_cursor(cursor)
    return LAST if query.until is None else (query.until, "", 0)


async def verify_audit(hub: ManagedHub) -> Verdict:
    """Check that no entry of the audit was changed or removed."""
    await _flush(hub)
    return await hub.core.chains.verify()


async def _flush(hub: ManagedHub) -> None:
    """Wait for entries that are still to be written, but not longer for a store that is unavailable."""
    if hub.core.guard.audit is not None:
        with suppress(TimeoutError):
            async with asyncio.timeout(FLUSH_TIMEOUT_S):
                await hub.core.guard.audit.written()


def _format_cursor(place: Place) -> str:
    return base64.urlsafe_b64encode(msgspec.json.encode(place)).decode().rstrip("=")


def _parse_cursor(cursor: str) -> Place:
    try:
        text = base64.b64decode(cursor + "=" * (-len(cursor) % 4), altchars=b"-_", validate=True)
        place: Place = msgspec.json.decode(text, type=Place)
    except (binascii.Error, ValueError, msgspec.DecodeError):
        raise InvalidParams("Invalid cursor in `before`.") from None
    return place


ENTRY: Final = {
    "chain": "5f0c",
    "number": 7,
    "at": 1790000000.0,
    "principal": "ci",
    "callerType": "mcp",
    "capability": "deploy",
    "decision": "deny",
    "reason": "permission 'deploy' is not granted to ci",
    "rule": "permissions",
    "outcome": "denied",
    "digest": "41aa",
}
PAGE: Final = AuditPage([ENTRY], "WzE3OTAwMF0")
VERDICT: Final = Verdict(2, 1207, [])
