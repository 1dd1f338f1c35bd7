"""Idempotency: what was answered to a request, so that the same request is not carried out twice."""

from __future__ import annotations

from typing import Any, Final

import msgspec

from waypost.stores.database import Database
from waypost.stores.records import checked, decoded, encoded, is_key
from waypost.stores.statements import REAL, Change, delete_where, insert, select
from waypost.stores.tables import REQUESTS


class RequestRecord(msgspec.Struct, frozen=True):
    """A request by its key within a scope; `digest` tells another request under the same key, 0 never expires."""

    scope: str
    key: str
    digest: str
    answer: Any
    expires_at: float = 0.0

    def row(self) -> tuple[Any, ...]:
        """As it is stored."""
        return (checked(self.scope), checked(self.key), self.digest, self.expires_at, encoded(self.answer))


ADD: Final = insert(REQUESTS)
_PUT: Final = Change(insert(REQUESTS, "skip"))
_REPLACE: Final = Change(insert(REQUESTS, "replace"))
_GET: Final = select(REQUESTS, "scope = ? AND key = ?")
_SWEEP: Final = Change(delete_where(REQUESTS, "expires_at > 0 AND expires_at < ?", [REAL], limit=1000))


class Requests:
    """All requests that were answered."""

    def __init__(self, database: Database) -> None:
        self._database = database

    async def get(self, scope: str, key: str) -> RequestRecord | None:
        """What was answered under a key."""
        rows = await self._database.read(_GET, scope, key) if is_key(scope) and is_key(key) else ()
        return RequestRecord(rows[0][0], rows[0][1], rows[0][2], decoded(rows[0][4]), rows[0][3]) if rows else None

    async def put(self, record: RequestRecord) -> bool:
        """Remember an answer; false when there is one under that key already, which stays."""
        return bool(await self._database.write(_PUT, record.row()))

    async def replace(self, record: RequestRecord) -> None:
        """Remember another answer under a key."""
        await self._database.write(_REPLACE, record.row())

    async def sweep(self, now: float) -> int:
        """Forget answers whose time is over."""
        return await self._database.write(_SWEEP, (now,))
