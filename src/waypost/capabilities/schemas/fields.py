"""The data form: fields written as plain data, turned into a JSON Schema and a cast plan."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from enum import Enum
from math import isfinite
from typing import Any, NamedTuple

import msgspec

from waypost.capabilities.schemas import casts
from waypost.capabilities.schemas.options import Path, checked, fail
from waypost.capabilities.schemas.validators import Validator


@dataclass(frozen=True, slots=True)
class Fields:
    """A parsed data form; `cast` takes arguments that fit the schema."""

    schema: dict[str, Any]
    cast: Callable[[dict[str, Any]], dict[str, Any]]


class _Shape(NamedTuple):
    schema: dict[str, Any]
    cast: casts.Cast | None = None


def parse(spec: object) -> Fields:
    """Converts a data form to its JSON Schema and cast plan, or raises an error."""
    schema, cast = _record((), spec)
    assert cast is not None
    return Fields(schema, cast)


def _record(path: Path, spec: object) -> _Shape:
    if not isinstance(spec, Mapping):
        fail(path, "expected a map from field names to types")
    properties, required, members = {}, [], []
    for name, given in spec.items():
        if not isinstance(name, str):
            fail(path, f"field names must be strings, not {name!r}")
        options = checked((*path, name), given)
        shape = _shape((*path, name), options)
        properties[name] = shape.schema
        if options.get("required"):
            required.append(name)
        members.append(casts.Member(name, shape.cast, _fallback((*path, name), shape, options)))
    schema: dict[str, Any] = {"type": "object", "properties": properties}
    if required:
        schema["required"] = required
    return _Shape(schema, casts.to_record(members))


def _fallback(path: Path, shape: _Shape, options: dict[str, Any]) -> Callable[[], Any] | None:
    if options.get("default") is None:
        return None
    try:
        default = msgspec.to_builtins(options["default"], str_keys=True)
    except (TypeError, RecursionError) as error:
        fail(path, f"the default has no JSON form: {error}")
    if problems := Validator(shape.schema).problems(default):
        fail(path, f"the default does not fit: {'; '.join(problems)}")
    shape.schema["default"] = default
    return casts.fallback(default if shape.cast is None else shape.cast(default))


def _shape(path: Path, options: dict[str, Any]) -> _Shape:
    schema, cast = _BUILDERS[options["type"]](path, options)
    schema |= {key: options[key] for key in options if key in ("title", "description")}
    return _Shape(schema, cast)


def _plain(path: Path, options: dict[str, Any]) -> _Shape:
    schema = {"type": options["type"]}
    schema |= {keyword: options[option] for option, keyword in _KEYWORDS.items() if option in options}
    return _Shape(schema, casts.to_integer if options["type"] == "integer" else None)


def _array(path: Path, options: dict[str, Any]) -> _Shape:
    bounds = {keyword: options[option] for option, keyword in _ARRAY_KEYWORDS.items() if option in options}
    if not options.keys() & {"items", "fields", "values"}:
        return _Shape({"type": "array"} | bounds)
    item = _shape((*path, None), _item_options(path, options))
    schema = {"type": "array", "items": item.schema} | bounds
    return _Shape(schema, None if item.cast is None else casts.to_list(item.cast))


def _item_options(path: Path, options: dict[str, Any]) -> dict[str, Any]:
    items = options.get("items")
    moved = {option: options[option] for option in ("fields", "values") if option in options}
    if moved and not isinstance(items, str):
        fail(path, f"{' and '.join(moved)} must stand inside items")
    return checked((*path, None), moved | {"type": items} if moved else items)


def _enum(path: Path, options: dict[str, Any]) -> _Shape:
    given = options.get("values")
    if isinstance(given, type) and issubclass(given, Enum):
        return _Shape(_enum_schema(path, [member.value for member in given]), casts.to_member(given))
    return _Shape(_enum_schema(path, given))


def _enum_schema(path: Path, values: object) -> dict[str, Any]:
    if not isinstance(values, list | tuple) or not values or not all(map(_is_scalar, values)):
        fail(path, "an enum needs values: a non-empty list of strings, numbers, booleans or None, or an Enum class")
    types = list(dict.fromkeys(_TYPE_NAMES[type(value)] for value in values))
    if "number" in types and "integer" in types:
        types.remove("integer")
    return {"type": types[0] if len(types) == 1 else types, "enum": list(values)}


def _is_scalar(value: object) -> bool:
    return type(value) in _TYPE_NAMES and not (isinstance(value, float) and not isfinite(value))


def _object(path: Path, options: dict[str, Any]) -> _Shape:
    if "fields" not in options:
        fail(path, "an object needs fields: a map from field names to types")
    return _record(path, options["fields"])


def _dated(format: str, cast: casts.Cast) -> Callable[[Path, dict[str, Any]], _Shape]:
    return lambda path, options: _Shape({"type": "string", "format": format}, cast)


_TYPE_NAMES = {str: "string", bool: "boolean", int: "integer", float: "number", type(None): "null"}

_KEYWORDS = {
    "min_length": "minLength",
    "max_length": "maxLength",
    "pattern": "pattern",
    "format": "format",
    "min": "minimum",
    "max": "maximum",
}
_ARRAY_KEYWORDS = {"min": "minItems", "max": "maxItems"}

_BUILDERS: dict[str, Callable[[Path, dict[str, Any]], _Shape]] = {
    "string": _plain,
    "integer": _plain,
    "number": _plain,
    "boolean": _plain,
    "enum": _enum,
    "object": _object,
    "array": _array,
    "any": lambda path, options: _Shape({}),
    "date": _dated("date", casts.to_date),
    "time": _dated("time", casts.to_time),
    "datetime": _dated("date-time", casts.to_datetime),
}
