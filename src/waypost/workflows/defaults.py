"""Filling in what a JSON Schema gives as defaults."""

from __future__ import annotations

from copy import deepcopy
from typing import Any


def with_defaults(schema: dict[str, Any] | None, value: Any) -> Any:
    """The value with the defaults of its schema where it says nothing, at any depth; the value itself stays."""
    if not schema:
        return value
    if isinstance(value, dict):
        properties = schema.get("properties")
        return value if not isinstance(properties, dict) else _filled(properties, value)
    items = schema.get("items")
    if isinstance(value, list) and isinstance(items, dict):
        return [with_defaults(items, item) for item in value]
    return value


def _filled(properties: dict[str, Any], value: dict[str, Any]) -> dict[str, Any]:
    filled = dict(value)
    for name, schema in properties.items():
        if not isinstance(schema, dict):
            continue
        if name in filled:
            filled[name] = with_defaults(schema, filled[name])
        elif "default" in schema:
            filled[name] = with_defaults(schema, deepcopy(schema["default"]))
    return filled
