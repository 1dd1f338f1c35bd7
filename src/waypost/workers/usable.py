"""Whether a schema of a worker can be shown to clients, some of which drop the whole list of tools over a bad one.

Nearly all schemas have a plain shape, and a look at it is enough; the validator, which is slow to build, judges others.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import lru_cache
from typing import Any, Final

from waypost.capabilities.schemas.validators import Validator
from waypost.errors import DefinitionError

DEEPEST: Final = 32
"""How many schemas may stand within each other."""
TYPES: Final = frozenset(("object", "array", "string", "number", "integer", "boolean", "null"))
_LEVELS: Final = 2 * DEEPEST + 2
"""Levels of JSON that many schemas have: each stands in the `properties` of the one around it."""
_DRAFTS: Final = frozenset(
    (
        "http://json-schema.org/draft-07/schema#",
        "http://json-schema.org/draft-07/schema",
        "https://json-schema.org/draft/2020-12/schema",
    )
)
_PLACES: Final = ("$defs", "definitions")


def unusable(schema: dict[str, Any]) -> str | None:
    """Why a schema cannot be used, if it cannot."""
    if _is_plain(schema, _LEVELS, schema):
        return None
    if not _is_shallow(schema, _LEVELS):
        return f"it is nested deeper than {DEEPEST} levels"
    try:
        Validator(schema)
    except DefinitionError as error:
        return error.message
    return None


def _is_shallow(value: Any, levels: int) -> bool:
    if isinstance(value, dict):
        value = value.values()
    elif not isinstance(value, list):
        return True
    return levels > 0 and all(_is_shallow(one, levels - 1) for one in value)


def _is_plain(schema: Any, levels: int, root: dict[str, Any]) -> bool:
    """Whether everything in a schema is of a kind that needs no further look."""
    if type(schema) is bool:
        return True
    if type(schema) is not dict or levels <= 0:
        return False
    for keyword, value in schema.items():
        simple = _SIMPLE.get(keyword)
        if simple is not None:
            if not simple(value):
                return False
        elif not _is_plain_part(keyword, value, levels, root):
            return False
    return True


def _is_plain_part(keyword: str, value: Any, levels: int, root: dict[str, Any]) -> bool:
    if keyword in ("properties", *_PLACES):
        return type(value) is dict and all(_is_plain(one, levels - 2, root) for one in value.values())
    if keyword in ("items", "additionalProperties"):
        return _is_plain(value, levels - 1, root)
    if keyword in ("anyOf", "oneOf", "allOf"):
        return type(value) is list and bool(value) and all(_is_plain(one, levels - 2, root) for one in value)
    if keyword in ("default", "const"):
        return _is_shallow(value, levels - 1)
    if keyword in ("enum", "examples"):
        return type(value) is list and _is_shallow(value, levels - 1)
    return keyword == "$ref" and type(value) is str and _is_there(value, root)


def _is_there(reference: str, root: dict[str, Any]) -> bool:
    """Whether a reference leads to one of the definitions of the same schema."""
    start, _, rest = reference.partition("/")
    place, _, name = rest.partition("/")
    found = root.get(place) if start == "#" and place in _PLACES else None
    return type(found) is dict and name in found and not set(name) & set("~%/")


def _is_type(value: Any) -> bool:
    if type(value) is str:
        return value in TYPES
    return type(value) is list and 0 < len(value) == len(set(map(str, value))) and all(map(_is_name, value))


def _is_name(value: Any) -> bool:
    return type(value) is str and value in TYPES


def _is_text(value: Any) -> bool:
    return type(value) is str


def _is_flag(value: Any) -> bool:
    return type(value) is bool


def _is_number(value: Any) -> bool:
    return type(value) is int or type(value) is float


def _is_count(value: Any) -> bool:
    return type(value) is int and value >= 0


def _is_draft(value: Any) -> bool:
    return type(value) is str and value in _DRAFTS


def _are_names(value: Any) -> bool:
    return type(value) is list and all(map(_is_text, value)) and len(value) == len(set(value))


def _is_pattern(value: Any) -> bool:
    return type(value) is str and _compiles(value)


@lru_cache(maxsize=1024)
def _compiles(pattern: str) -> bool:
    try:
        Validator({"pattern": pattern})
    except DefinitionError:
        return False
    return True


_SIMPLE: Final[dict[str, Callable[[Any], bool]]] = {
    "type": _is_type,
    "required": _are_names,
    "pattern": _is_pattern,
    "$schema": _is_draft,
    **dict.fromkeys(("title", "description", "format", "$comment"), _is_text),
    **dict.fromkeys(("deprecated", "readOnly", "writeOnly", "uniqueItems"), _is_flag),
    **dict.fromkeys(("minimum", "maximum", "exclusiveMinimum", "exclusiveMaximum"), _is_number),
    **dict.fromkeys(("minLength", "maxLength", "minItems", "maxItems", "minProperties", "maxProperties"), _is_count),
}
