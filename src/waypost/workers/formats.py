"""What workers say about the shapes of arguments and answers, as JSON Schema for everybody else."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

from waypost.workers.usable import DEEPEST, TYPES

_TYPES: Final = {**{name: name for name in TYPES}, "map": "object"}


def input_schema(given: Any) -> dict[str, Any]:
    """The schema of what a function takes; anything where it says nothing that can be used."""
    schema = _schema(given)
    if schema is None or not _is_of_objects(schema.get("type", "object")):
        return {"type": "object"}
    return schema if schema.get("type") == "object" else {**schema, "type": "object"}


def output_schema(given: Any) -> dict[str, Any] | None:
    """The schema of what a function answers, where that is an object."""
    schema = _schema(given)
    return schema if schema is not None and schema.get("type") == "object" else None


def open_schema(schema: dict[str, Any]) -> dict[str, Any]:
    """What is left of a schema that nobody can use: any object, and what was said of it."""
    said = schema.get("description")
    return {"type": "object", "description": said} if isinstance(said, str) else {"type": "object"}


def _schema(given: Any) -> dict[str, Any] | None:
    if not isinstance(given, Mapping):
        return None
    if _is_tree(given):
        return _from_tree(given, 0)
    schema = dict(given)
    properties, required = schema.get("properties", {}), schema.get("required", [])
    if not isinstance(properties, Mapping) or not isinstance(required, list):
        return None
    if not all(isinstance(one, (Mapping, bool)) for one in properties.values()):
        return None
    if properties:  # some clients stumble over truth values in place of schemas
        schema["properties"] = {name: {} if one is True else one for name, one in properties.items()}
    return schema


def _is_of_objects(kind: Any) -> bool:
    return kind == "object" or (isinstance(kind, list) and "object" in kind)


def _is_tree(given: Mapping[str, Any]) -> bool:
    """Whether it is in the older form: a named field with a type, and with fields of its own."""
    return isinstance(given.get("name"), str) and isinstance(given.get("type"), str) and "properties" not in given


def _from_tree(field: Mapping[str, Any], depth: int) -> dict[str, Any]:
    kind = _TYPES.get(str(field.get("type")))
    schema: dict[str, Any] = {} if kind is None else {"type": kind}
    if isinstance(field.get("description"), str):
        schema["description"] = field["description"]
    body, items = field.get("body"), field.get("items")
    if depth < DEEPEST and isinstance(body, list):
        fields = [one for one in body if isinstance(one, Mapping) and isinstance(one.get("name"), str)]
        schema["properties"] = {one["name"]: _from_tree(one, depth + 1) for one in fields}
        required = [one["name"] for one in fields if one.get("required")]
        if required:
            schema["required"] = required
    if depth < DEEPEST and isinstance(items, Mapping):
        schema["items"] = _from_tree(items, depth + 1)
    return schema
