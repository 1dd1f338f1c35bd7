"""The audit: its entries, and whether it is intact."""

from __future__ import annotations

import asyncio
import base64
import binascii
from typing import Annotated, Any, Final, Literal

import msgspec
from msgspec import Meta

from waypost.api.routing import ManagedHub
from waypost.errors import InvalidParams
from waypost.policy.audit import Verdict, verify
from waypost.stores.audit import LAST, AuditEntry, Place

FLUSH_TIMEOUT_S: Final = 2.0


class AuditQuery(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """Which entries to list."""

    limit: Annotated[int, Meta(ge=1, le=1000)] = 100
    decision: Literal["allow", "deny"] | None = None
    before: str | None = None


class AuditPage(msgspec.Struct, frozen=True):
    """Entries, the latest first, and the cursor of the next page."""

    entries: list[dict[str, Any]]
    next: str | None = None


async def list_entries(hub: ManagedHub, query: AuditQuery) -> AuditPage:
    """List the latest entries of the audit."""
    await _flush(hub)
    before = LAST if query.before is None else _parse_cursor(query.before)
    entries = await hub.core.store.audit.latest(query.limit, before, decision=query.decision)
    rows = [{"chain": one.chain, "number": one.number, **one.value, "digest": one.digest} for one in entries]
    return AuditPage(rows, _format_cursor(entries[-1]) if len(entries) == query.limit else None)


async def verify_audit(hub: ManagedHub) -> Verdict:
    """Check that no entry of the audit was changed or removed."""
    await _flush(hub)
    return await verify(hub.core.store)


async def _flush(hub: ManagedHub) -> None:
    """Wait for entries that are still to be written, but not longer for a store that is unavailable."""
    if hub.core.guard.audit is None:
        return
    try:
        async with asyncio.timeout(FLUSH_TIMEOUT_S):
            await hub.core.guard.audit.written()
    except TimeoutError:
        return


def _format_cursor(entry: AuditEntry) -> str:
    place: Place = (entry.at, entry.chain, entry.number)
    return base64.urlsafe_b64encode(msgspec.json.encode(place)).decode().rstrip("=")


def _parse_cursor(cursor: str) -> Place:
    try:
        text = base64.b64decode(cursor + "=" * (-len(cursor) % 4), altchars=b"-_", validate=True)
        place: Place = msgspec.json.decode(text, type=Place)
    except (binascii.Error, ValueError, msgspec.DecodeError):
        raise InvalidParams("Invalid cursor in `before`.") from None
    return place


_ENTRY: Final = {
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
PAGE: Final = AuditPage([_ENTRY], "WzE3OTAwMF0")
VERDICT: Final = Verdict(2, 1207, [])
