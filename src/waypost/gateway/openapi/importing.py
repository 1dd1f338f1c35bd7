"""Taking over the operations of an HTTP API: which of them, and under which names."""

from __future__ import annotations

import re
from typing import Final

from msgspec import Struct

from waypost.config.connections import RestConnection
from waypost.config.proxy import Import
from waypost.errors import DefinitionError
from waypost.gateway.offers import Offer
from waypost.gateway.openapi.operations import LeftOut, Operation, operations
from waypost.gateway.openapi.reading import read

LONGEST_NAME: Final = 128
_ODD: Final = re.compile(r"[^a-zA-Z0-9_.-]+")


class Imported(Struct):
    """What came of an import: offers, what had to be left out, and names that nothing has."""

    offers: list[Offer] = []
    left_out: list[LeftOut] = []
    unknown: list[str] = []


def imported(entry: Import, connection: RestConnection) -> Imported:
    """The operations that an import asks for; a `DefinitionError` where the document cannot be used at all."""
    if connection.openapi is None:
        raise DefinitionError("the connection has no `openapi` document to take operations from")
    result = Imported()
    names: set[str] = set()
    seen: set[str] = set()
    prefix = prefix_of(entry)
    for found in operations(read(connection.openapi), entry.connection, connection.headers):
        seen.add(found.id)
        if (entry.include and found.id not in entry.include) or found.id in entry.exclude:
            continue
        if isinstance(found, LeftOut):
            result.left_out.append(found)
            continue
        name = f"{prefix}.{_ODD.sub('_', found.id)}"
        if len(name) > LONGEST_NAME:
            result.left_out.append(LeftOut(found.id, f"its name would be longer than {LONGEST_NAME} characters"))
        elif name in names:
            result.left_out.append(LeftOut(found.id, f"another one is called {name} already"))
        else:
            names.add(name)
            result.offers.append(_offer(name, found, entry))
    result.unknown = [name for name in dict.fromkeys([*entry.include, *entry.exclude]) if name not in seen]
    return result


def prefix_of(entry: Import) -> str:
    """What the names of an import begin with."""
    if entry.prefix is not None:
        return entry.prefix
    plain = _ODD.sub("_", entry.connection)
    return plain if plain[:1].isalpha() else f"api_{plain}"


def _offer(name: str, found: Operation, entry: Import) -> Offer:
    return Offer(
        name=name,
        title=found.title,
        description=found.description,
        tags=list(dict.fromkeys([*found.tags, *entry.tags])),
        input_schema=found.input_schema,
        executor=found.request,
        bare=found.bare,
        annotations=found.annotations,
    )
