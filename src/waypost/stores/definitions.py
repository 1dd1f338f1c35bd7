"""What people and workers left in a store: definitions of workflows, skills, prompts."""

from __future__ import annotations

import logging
from typing import Final

from waypost.errors import StoreError
from waypost.stores.documents import Document, Documents
from waypost.stores.store import Store

PREFIX: Final = "workflow:"
"""How the ids of those begin that people made; the ids of the others are digests."""
_log: Final = logging.getLogger(__name__)


async def any_created(store: Store) -> bool:
    """Whether a store holds workflows that people made; a store that is not there yet is not made for that."""
    return any(found.id.startswith(PREFIX) for found in await _first(store, store.definitions, PREFIX))


async def any_content(store: Store) -> bool:
    """Whether a store holds skills or prompts that somebody published; one that is not there yet is not made."""
    return bool(await _first(store, store.skills) or await _first(store, store.prompts))


async def _first(store: Store, documents: Documents, after: str = "") -> list[Document]:
    try:
        if not store.database.lasts or not await store.database.step():
            return []
        return await documents.page(after, 1)
    except StoreError as error:
        _log.warning("what was made earlier was not looked for: %s", error.message)
        return []
