"""Who is alive: processes that hold something in the store say so again and again."""

from __future__ import annotations

from typing import Final

from waypost.stores.database import Database
from waypost.stores.statements import REAL, Change, Query, delete, delete_where, insert
from waypost.stores.tables import HOLDERS

_BEAT: Final = Change(insert(HOLDERS, "replace"))
_LEAVE: Final = Change(delete(HOLDERS))
_ALIVE: Final = Query("SELECT 1 FROM holders WHERE id = ? AND expires_at >= ?")
_SWEEP: Final = Change(delete_where(HOLDERS, "expires_at < ?", [REAL]))


class Holders:
    """The holders and how long each may be taken for alive."""

    def __init__(self, database: Database) -> None:
        self._database = database

    async def beat(self, holder: str, until: float) -> None:
        """Be taken for alive until then."""
        await self._database.write(_BEAT, (holder, until))

    async def leave(self, holder: str) -> None:
        """Hold nothing any more."""
        await self._database.write(_LEAVE, (holder,))

    async def is_alive(self, holder: str, now: float) -> bool:
        """Whether a holder was heard of lately."""
        return bool(await self._database.read(_ALIVE, holder, now))

    async def sweep(self, now: float) -> int:
        """Forget holders that are gone."""
        return await self._database.write(_SWEEP, (now,))
