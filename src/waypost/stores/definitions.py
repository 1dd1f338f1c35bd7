"""The definitions of workflows in a store: those that people made, beside those that instances are pinned to."""

from __future__ import annotations

import logging
from typing import Final

from waypost.errors import StoreError
from waypost.stores.store import Store

PREFIX: Final = "workflow:"
"""How the ids of those begin that people made; the ids of the others are digests."""
_log: Final = logging.getLogger(__name__)


async def any_created(store: Store) -> bool:
    """Whether a store holds workflows that people made; a store that is not there yet is not made for that."""
    try:
        if not store.database.lasts or not await store.database.step():
            return False
        found = await store.definitions.page(PREFIX, 1)
    except StoreError as error:
        _log.warning("workflows that were made earlier were not looked for: %s", error.message)
        return False
    return bool(found) and found[0].id.startswith(PREFIX)
