"""Instances by id: from the store, or from memory where that is as good.

An instance never changes without its version or its reservation changing, and every write is fenced by both. So a
copy in memory may be used to try a move from its version; whoever was wrong finds out at the write and reads again.
"""

from __future__ import annotations

from collections import OrderedDict
from typing import Final

from waypost.stores.instances import Instance
from waypost.stores.store import Store
from waypost.workflows.library import Library
from waypost.workflows.live import Live
from waypost.workflows.records import body_of, held_of

_MOST: Final = 10_000


class Shelf:
    """The instances that were used lately."""

    def __init__(self, store: Store, library: Library) -> None:
        self._store = store
        self._library = library
        self._kept: OrderedDict[str, Live] = OrderedDict()

    async def get(self, workflow_id: str) -> Live | None:
        """The instance as the store has it now."""
        instance = await self._store.instances.get(workflow_id)
        if instance is None:
            return None
        live = await self.live(instance)
        self.keep(live)
        return live

    async def at(self, workflow_id: str, version: int) -> Live | None:
        """The instance, from memory if that has the version and nothing on its way.

        What goes on by itself halts and is resumed within one version, maybe elsewhere.
        """
        kept = self._kept.get(workflow_id)
        if kept is not None and kept.version == version and kept.held is None and not kept.body.pending:
            return kept
        return await self.get(workflow_id)

    async def live(self, instance: Instance) -> Live:
        """A stored instance, with its definition."""
        body = body_of(instance)
        definition = await self._library.pinned(body.digest)
        reservation = instance.reservation
        return Live(
            id=instance.id,
            version=instance.version,
            definition=definition,
            state=definition.state(instance.state),
            settled=instance.status,
            body=body,
            held=held_of(instance),
            token="" if reservation is None else reservation.token,
            until=0.0 if reservation is None else reservation.until,
        )

    def keep(self, live: Live) -> None:
        """Remember how an instance stands."""
        kept = self._kept
        kept[live.id] = live
        kept.move_to_end(live.id)
        if len(kept) > _MOST:
            kept.popitem(last=False)

    def drop(self, workflow_id: str) -> None:
        """Forget an instance that somebody else moved."""
        self._kept.pop(workflow_id, None)
