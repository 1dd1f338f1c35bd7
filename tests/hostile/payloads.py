"""Payloads that cost more to handle than to send, in as many variations as are asked for; all follow from a seed."""

from __future__ import annotations

import json
import random
from collections.abc import Callable
from typing import Any, Final

Json = dict[str, Any]


def nested_union(chance: random.Random) -> Json:
    """A tree of and/or whose leaf is invalid: each level may double the reasons."""
    node: Json = {"kind": "leaf", "value": chance.choice(("x", None, [], 1.5))}
    for _ in range(chance.randint(8, 30)):
        node = {"kind": chance.choice(("and", "or")), "parts": [node] * chance.choice((1, 1, 1, 2))}
        if len(json.dumps(node)) > 100_000:
            break
    return node


def doubling_references(chance: random.Random) -> Json:
    """Definitions that each refer twice to the next."""
    levels, keyword = chance.randint(6, 40), chance.choice(("anyOf", "oneOf", "allOf"))
    parts: Json = {f"l{n}": {keyword: [{"$ref": f"#/$defs/l{n + 1}"}] * 2} for n in range(levels)}
    parts[f"l{levels}"] = {"type": "integer"}
    return {"type": "object", "properties": {"v": {"$ref": "#/$defs/l0"}}, "$defs": parts}


def many_patterns(chance: random.Random) -> Json:
    """Patterns with many positions, as properties or beside each other."""
    count, size = chance.choice((50, 400, 2_000)), chance.choice((5, 200, 1_000))
    patterns = {f"^[01]*1[01]{{{size}}}x{n}$": {"type": "string", "pattern": f"(a|b|{n})*c"} for n in range(count)}
    return {"type": "object", "patternProperties": patterns, "properties": {"v": {"pattern": f"^(a+)+{'b?' * 50}$"}}}


def wide_union(chance: random.Random) -> Json:
    """A union of very many branches."""
    count = chance.choice((100, 1_000, 5_000))
    branches = [{"type": "object", "properties": {f"p{n}": {"const": n}}, "required": [f"p{n}"]} for n in range(count)]
    return {"type": "object", "properties": {"v": {chance.choice(("anyOf", "oneOf")): branches}}}


def huge_enum(chance: random.Random) -> Json:
    """An enum of very many values."""
    count = chance.choice((1_000, 20_000, 60_000))
    values: list[Any] = [n if chance.random() < 0.5 else f"v{n}" for n in range(count)]
    return {"type": "object", "properties": {"v": {"enum": values}}, "required": ["v"]}


def deep_schema(chance: random.Random) -> Json:
    """Objects in objects in arrays."""
    schema: Json = {"type": "string"}
    for _ in range(chance.choice((30, 63, 65, 400))):
        schema = {"type": "object", "properties": {"a": schema}} if chance.random() < 0.5 else {"items": schema}
    return {"type": "object", "properties": {"v": schema}}


def long_names(chance: random.Random) -> Json:
    """Very long names and descriptions."""
    size = chance.choice((1_000, 50_000, 500_000))
    return {"type": "object", "properties": {"n" * size: {"type": "string", "description": "d" * size}}}


def unevaluated(chance: random.Random) -> Json:
    """Keywords that ask again which other keywords applied."""
    parts = [{"properties": {f"p{n}": True}, "if": {"required": [f"p{n}"]}} for n in range(chance.choice((20, 200)))]
    return {"type": "object", "allOf": parts, "unevaluatedProperties": {"not": {}}}


def numbers(chance: random.Random) -> Json:
    """Exact arithmetic on numbers with many digits."""
    digits = chance.choice((20, 300))
    return {"type": "object", "properties": {"v": {"multipleOf": 0.1**20, "maximum": int("9" * digits)}}}


SCHEMAS: Final[tuple[Callable[[random.Random], Json], ...]] = (
    doubling_references,
    many_patterns,
    wide_union,
    huge_enum,
    deep_schema,
    long_names,
    unevaluated,
    numbers,
)


def hostile_schema(chance: random.Random) -> Json:
    """One of the schemas."""
    return chance.choice(SCHEMAS)(chance)


def hostile_arguments(chance: random.Random) -> Json:
    """Arguments for a tool whose schema may be hostile too."""
    size = chance.choice((1, 100, 10_000))
    value: Any = chance.choice(
        (
            ["x"] * size,
            {f"p{n}": n for n in range(min(size, 5_000))},
            "01" * size,
            "a" * size + "!",
            10**300,
            0.1 + size,
            [[{}]] * min(size, 1_000),
        )
    )
    return {"v": value, "1" * 40 + "x1": value}
