"""The audit: what was decided and done, and whether the record of it is whole."""

from __future__ import annotations

import asyncio
import base64
import binascii
from typing import Annotated, Any, Final, Literal

import msgspec
from msgspec import Meta

from waypost.api.routing import Operated, Route
from waypost.errors import InvalidParams
from waypost.policy.verification import Verdict, verify
from waypost.stores.audit import LAST, AuditEntry, Place

_PATIENCE: Final = 2.0


class AuditQuery(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """Which entries are wanted."""

    limit: Annotated[int, Meta(ge=1, le=1000)] = 100
    decision: Literal["allow", "deny"] | None = None
    before: str | None = None


class AuditPage(msgspec.Struct, frozen=True):
    """Entries, the latest first, and where to go on."""

    entries: list[dict[str, Any]]
    next: str | None = None


async def list_entries(hub: Operated, query: AuditQuery) -> AuditPage:
    """The latest entries, or those before them."""
    await _caught_up(hub)
    before = LAST if query.before is None else _place(query.before)
    entries = await hub.core.store.audit.latest(query.limit, before, decision=query.decision)
    shown = [_shown(entry) for entry in entries]
    return AuditPage(shown, _cursor(entries[-1]) if len(entries) == query.limit else None)


async def verify_audit(hub: Operated) -> Verdict:
    """Whether every chain is as it was written."""
    await _caught_up(hub)
    return await verify(hub.core.store)


async def _caught_up(hub: Operated) -> None:
    """Wait for what is about to be written, but not for a store that is away."""
    if hub.core.guard.audit is None:
        return
    try:
        async with asyncio.timeout(_PATIENCE):
            await hub.core.guard.audit.written()
    except TimeoutError:
        return


def _shown(entry: AuditEntry) -> dict[str, Any]:
    return {"chain": entry.chain, "number": entry.number, **entry.value, "digest": entry.digest}


def _cursor(entry: AuditEntry) -> str:
    place: Place = (entry.at, entry.chain, entry.number)
    return base64.urlsafe_b64encode(msgspec.json.encode(place)).decode().rstrip("=")


def _place(cursor: str) -> Place:
    try:
        text = base64.b64decode(cursor + "=" * (-len(cursor) % 4), altchars=b"-_", validate=True)
        place: Place = msgspec.json.decode(text, type=Place)
    except (binascii.Error, ValueError, msgspec.DecodeError):
        raise InvalidParams("The cursor in `before` is none that was given out.") from None
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

ROUTES: Final = (
    Route("GET", "/api/v1/audit", list_entries, "The latest entries", answer=AuditPage([_ENTRY], "WzE3OTAwMF0")),
    Route("GET", "/api/v1/audit/verify", verify_audit, "Whether the audit is whole", answer=Verdict(2, 1207, [])),
)
