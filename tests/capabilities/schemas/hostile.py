"""Small schemas and values that are expensive to check."""

from __future__ import annotations

from typing import Any

Json = dict[str, Any]


def refer(name: str) -> Json:
    """A reference to a definition."""
    return {"$ref": f"#/$defs/{name}"}


def _operation(name: str, operand: Json) -> Json:
    operands = {"op": {"const": name}, "left": operand, "right": operand}
    return {"type": "object", "properties": operands, "required": ["op", "left", "right"]}


_LEAF: Json = {
    "type": "object",
    "properties": {"op": {"const": "leaf"}, "value": {"type": "integer"}},
    "required": ["op", "value"],
}

EXPRESSION: Json = {
    "type": "object",
    "properties": {"expression": refer("Expression")},
    "$defs": {
        "Expression": {"oneOf": [_operation("and", refer("Expression")), _operation("or", refer("Expression")), _LEAF]}
    },
}
"""An ordinary recursive tagged union."""

_ANY_OPERAND: Json = {"anyOf": [refer("And"), refer("Or"), refer("Leaf")]}
MUTUAL_EXPRESSION: Json = {
    "type": "object",
    "properties": {"expression": _ANY_OPERAND},
    "$defs": {"And": _operation("and", _ANY_OPERAND), "Or": _operation("or", _ANY_OPERAND), "Leaf": _LEAF},
}
"""The same as pydantic writes it: every operand lists all the forms."""


def expression(levels: int, leaf: Any = "wrong") -> Json:
    """A value for these schemas: nested operations with a leaf at the end."""
    value: Json = {"op": "leaf", "value": leaf}
    for _ in range(levels):
        value = {"op": "and", "left": value, "right": {"op": "leaf", "value": 1}}
    return {"expression": value}


def doubling(levels: int, keyword: str = "anyOf", leaf: Json | None = None) -> Json:
    """A schema that refers twice to one that refers twice to one..."""
    definitions: Json = {"L0": leaf or {"type": "string"}}
    for level in range(levels):
        definitions[f"L{level + 1}"] = {keyword: [refer(f"L{level}"), refer(f"L{level}")]}
    return {"type": "object", "properties": {"a": refer(f"L{levels}")}, "$defs": definitions}


def unevaluated(levels: int) -> Json:
    """A schema with `unevaluated` keywords at every level."""
    schema: Json = {"properties": {"a": {}}}
    for _ in range(levels):
        schema = {"allOf": [schema], "unevaluatedProperties": False}
    return {"type": "object", **schema}


def everything_refers_to_everything(count: int) -> Json:
    """Definitions that all refer to each other through a property of the same name."""
    parts = [{"properties": {"a": refer(f"T{number}")}} for number in range(count)]
    return {"type": "object", **refer("T0"), "$defs": {f"T{number}": {"allOf": parts} for number in range(count)}}


def chain(levels: int, end: Any = 1) -> Any:
    """Objects within each other."""
    value = end
    for _ in range(levels):
        value = {"a": value}
    return value


def many_patterns(count: int) -> Json:
    """A schema with this many different patterns."""
    return {
        "type": "object",
        "properties": {f"p{number}": {"pattern": f"^.{{1,200}}{number}$"} for number in range(count)},
    }
