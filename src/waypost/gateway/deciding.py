"""Who gets a name that several servers have: the hub itself, then the import that stands first in the file."""

from __future__ import annotations

from collections.abc import Collection, Iterable
from typing import NamedTuple, TypeAlias

from waypost.capabilities.capability import Capability, Kind
from waypost.capabilities.registry import Registry
from waypost.config.proxy import Import
from waypost.gateway.rows import Handlers, Made, Taken, rows_of
from waypost.gateway.sources import Portion, Source

Order: TypeAlias = list[tuple[Source, Portion]]
"""Imports, in the order of the file."""


class Decision(NamedTuple):
    """What an import takes from now on."""

    source: Source
    portion: Portion
    made: Made


def in_order(imports: Iterable[Import], sources: dict[str, Source]) -> Order:
    """The imports of all sources."""
    left = {name: iter(source.portions) for name, source in sources.items()}
    return [(sources[one.connection], next(left[one.connection])) for one in imports if one.connection in sources]


def decided(
    order: Order, changed: Collection[Source], leaving: Iterable[Capability], registry: Registry, handlers: Handlers
) -> list[Decision]:
    """What is different when some sources are: theirs, and what others get or have to give for it."""
    imported = [row for _, portion in order for row in portion.rows]
    gone = {(row.kind, row.id) for row in (*leaving, *imported)}
    taken, fresh = Taken(), Taken()
    taken.take(row for kind in Kind for row in registry[kind] if (kind, row.id) not in gone)
    decisions: list[Decision] = []
    for source, portion in order:
        if source not in changed and not portion.is_short and not _clashes(portion, fresh):
            taken.take(portion.rows)
            continue
        made = rows_of(source, portion, taken, handlers)
        before = {(row.kind, row.id) for row in portion.rows}
        fresh.take(row for row in made.rows if (row.kind, row.id) not in before)
        decisions.append(Decision(source, portion, made))
    return decisions


def _clashes(portion: Portion, fresh: Taken) -> bool:
    return any(fresh.problem(row.kind, row.id) is not None for row in portion.rows)
