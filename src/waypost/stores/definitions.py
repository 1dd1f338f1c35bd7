"""What people and workers left in a store: definitions of workflows, skills, prompts."""

from __future__ import annotations

import logging
from typing import Final, NamedTuple

from waypost.errors import StoreError
from waypost.stores.statements import Query
from waypost.stores.store import Store

PREFIX: Final = "workflow:"
"""How the ids of those begin that people made; the ids of the others are digests."""
_BEHIND: Final = "workflow;"
"""What sorts right behind everything that begins so."""
_LEFT: Final = Query(
    "SELECT EXISTS (SELECT 1 FROM definitions WHERE id > ? AND id < ?), "
    "EXISTS (SELECT 1 FROM skills) OR EXISTS (SELECT 1 FROM prompts)"
)
_log: Final = logging.getLogger(__name__)


class Left(NamedTuple):
    """What of earlier days a store holds."""

    workflows: bool
    """Whether people made workflows."""
    content: bool
    """Whether somebody published skills or prompts."""


async def left_in(store: Store) -> Left:
    """One look at what an earlier process left in a store; a store that is not there yet is not made for that."""
    try:
        if store.database.lasts and await store.database.step():
            ((workflows, content),) = await store.database.read(_LEFT, PREFIX, _BEHIND)
            return Left(bool(workflows), bool(content))
    except StoreError as error:
        _log.warning("what was made earlier was not looked for: %s", error.message)
    return Left(workflows=False, content=False)
