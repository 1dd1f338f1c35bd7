"""The definitions: those that can be started today, and those that instances are pinned to."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Iterator, Mapping
from contextlib import suppress
from typing import Final

import msgspec

from waypost.config.workflows import Workflow
from waypost.errors import StaleVersion, StoreDamaged
from waypost.kinds import convert
from waypost.stores.store import Store
from waypost.suggestions import find_nearest
from waypost.workflows.definition import Definition
from waypost.workflows.executors.kind import ExecutorContext

_MOST_PINNED: Final = 1000
CANONICAL: Final = "workflow:"
"""What the name of a workflow's tool begins with; the rest is the id of its definition."""


def tool_name(definition_id: str) -> str:
    """The name of the tool that runs a workflow."""
    return f"{CANONICAL}{definition_id}"


class Pinned(msgspec.Struct, frozen=True):
    """A definition as the store keeps it."""

    id: str
    model: Workflow


class Library:
    """All definitions of a hub."""

    def __init__(self, store: Store, surroundings: ExecutorContext) -> None:
        self._store = store
        self.surroundings = surroundings
        self._current: dict[str, Definition] = {}
        self._pinned: OrderedDict[str, Definition] = OrderedDict()
        self._stored: set[tuple[int, str]] = set()

    def compile_all(self, models: Mapping[str, Workflow]) -> dict[str, Definition]:
        """Definitions out of their models, those that stay the same as they are; a mistake is a `DefinitionError`."""
        compiled = {}
        for name, model in models.items():
            known = self._current.get(name)
            compiled[name] = known if known is not None and known.model == model else self.compiled(name, model)
        return compiled

    def replace(self, definitions: Mapping[str, Definition]) -> None:
        """Have exactly these definitions from now on."""
        self._current = dict(definitions)

    def compiled(self, name: str, model: Workflow) -> Definition:
        """A definition out of its model, ready to run."""
        definition = Definition(name, model, self.surroundings)
        definition.compile()
        return definition

    def __iter__(self) -> Iterator[Definition]:
        return iter(self._current.values())

    def get(self, name: str) -> Definition | None:
        """The definition that would be started under a name."""
        return self._current.get(name)

    def find_nearest(self, name: str) -> list[str]:
        """Return up to three names of definitions that are similar to an unknown one."""
        return find_nearest(name, self._current, limit=3, cutoff=0.5)

    async def pin(self, definition: Definition) -> None:
        """Make sure that instances will find a definition again."""
        store = self._store
        place = (id(store), definition.digest)
        if place not in self._stored:
            with suppress(StaleVersion):
                await store.definitions.put(definition.digest, Pinned(definition.id, definition.model))
            self._stored.add(place)
        self._keep(definition)

    async def pinned(self, digest: str) -> Definition:
        """The definition that an instance started with."""
        found = self._pinned.get(digest)
        if found is not None:
            self._pinned.move_to_end(digest)
            return found
        document = await self._store.definitions.get(digest)
        if document is None:
            raise StoreDamaged(f"The definition {digest[:12]} that an instance started with is not in the store.")
        kept = convert(document.value, Pinned)
        definition = Definition(kept.id, kept.model, self.surroundings)
        self._keep(definition)
        return definition

    def _keep(self, definition: Definition) -> None:
        self._pinned[definition.digest] = definition
        self._pinned.move_to_end(definition.digest)
        while len(self._pinned) > _MOST_PINNED:
            self._pinned.popitem(last=False)
