"""Tool arguments that clients repeat as `Mcp-Param-*` headers, found once when the tool is defined."""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Any, Final

import msgspec

from waypost.errors import DefinitionError

KEYWORD: Final = "x-mcp-header"
_WORD: Final = KEYWORD.encode()
_TOKEN: Final = re.compile(r"[!#$%&'*+.^_`|~0-9A-Za-z-]+")
_TYPES: Final = ("string", "integer", "boolean")
_NAMED_SCHEMAS: Final = ("properties", "patternProperties", "$defs", "definitions", "dependentSchemas")


class HeaderParameter(msgspec.Struct, frozen=True):
    """One argument, by its path, and the header that must agree with it."""

    header: str
    path: tuple[str, ...]
    type: str


def header_parameters(schema: dict[str, Any]) -> tuple[HeaderParameter, ...]:
    """The header parameters of an input schema; a misplaced or malformed one is a `DefinitionError`."""
    if not _may_mention(schema) or next(_all(schema), None) is None:
        return ()
    found = list(_reachable(schema, ()))
    if len(found) != sum(1 for _ in _all(schema)):
        raise DefinitionError(
            f"{KEYWORD} stands where no client can reach it: only properties of objects may carry it."
        )
    names = [parameter.header for parameter in found]
    if len(set(names)) != len(names):
        raise DefinitionError(f"{KEYWORD} names must be unique, whatever their case.")
    return tuple(found)


def _may_mention(schema: Any) -> bool:
    """A look at the text of a schema, which costs less than a walk through it."""
    try:
        return _WORD in msgspec.json.encode(schema)
    except TypeError:
        return True


def _all(schema: Any) -> Iterator[Any]:
    if isinstance(schema, list):
        for item in schema:
            yield from _all(item)
    if not isinstance(schema, dict):
        return
    if KEYWORD in schema:
        yield schema[KEYWORD]
    for keyword, value in schema.items():
        if keyword in _NAMED_SCHEMAS and isinstance(value, dict):
            yield from _all(list(value.values()))
        else:
            yield from _all(value)


def _reachable(schema: dict[str, Any], path: tuple[str, ...]) -> Iterator[HeaderParameter]:
    for name, part in schema.get("properties", {}).items():
        if not isinstance(part, dict):
            continue
        if KEYWORD in part:
            yield _parameter(part, (*path, name))
        yield from _reachable(part, (*path, name))


def _parameter(part: dict[str, Any], path: tuple[str, ...]) -> HeaderParameter:
    header, kind = part[KEYWORD], part.get("type")
    place = ".".join(path)
    if not isinstance(header, str) or not _TOKEN.fullmatch(header):
        raise DefinitionError(f"{place}: {KEYWORD} must be an HTTP token, not {header!r}.")
    if kind not in _TYPES:
        raise DefinitionError(f"{place}: {KEYWORD} needs the type string, integer or boolean, not {kind!r}.")
    return HeaderParameter(header.lower(), path, kind)
