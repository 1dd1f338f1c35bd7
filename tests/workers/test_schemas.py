"""What workers say of arguments and answers, as JSON Schema."""

from __future__ import annotations

from typing import Any

import pytest

from waypost.workers.tools import input_schema, output_schema

OPEN = {"type": "object"}
FIELD = {"name": "n", "type": "number", "description": "How many", "required": True}


@pytest.mark.parametrize(
    ("given", "schema"),
    [
        (None, OPEN),
        (True, OPEN),
        ("text", OPEN),
        ([], OPEN),
        ({}, OPEN),
        ({"type": "string"}, OPEN),
        ({"type": "object", "properties": "none"}, OPEN),
        ({"type": "object", "properties": {"a": 5}}, OPEN),
        ({"type": "object", "required": "a"}, OPEN),
        ({"type": ["object", "null"], "required": ["a"]}, {"type": "object", "required": ["a"]}),
        ({"properties": {"a": {"type": "string"}}}, {"type": "object", "properties": {"a": {"type": "string"}}}),
        (
            {"type": "object", "properties": {"a": True, "b": {"type": "string"}}},
            {"type": "object", "properties": {"a": {}, "b": {"type": "string"}}},
        ),
        ({"$schema": "x", "title": "T", "type": "object"}, {"$schema": "x", "title": "T", "type": "object"}),
        (
            {"name": "input", "type": "object", "body": [FIELD, {"name": "o", "type": "string"}, "odd", {"type": "x"}]},
            {
                "type": "object",
                "properties": {"n": {"type": "number", "description": "How many"}, "o": {"type": "string"}},
                "required": ["n"],
            },
        ),
        (
            {"name": "m", "type": "any", "body": [{"name": "x", "type": "any", "description": "Whatever"}]},
            {"type": "object", "properties": {"x": {"description": "Whatever"}}},
        ),
        (
            {"name": "m", "type": "map", "body": [{"name": "l", "type": "array", "items": {"type": "string"}}]},
            {"type": "object", "properties": {"l": {"type": "array", "items": {"type": "string"}}}},
        ),
    ],
)
def test_whatever_a_worker_says_becomes_the_schema_of_an_object(given: Any, schema: Any) -> None:
    assert input_schema(given) == schema


@pytest.mark.parametrize(
    ("given", "schema"),
    [
        (None, None),
        ({"type": "string"}, None),
        ({"title": "AnyValue"}, None),
        ({"type": "object", "properties": {"a": True}}, {"type": "object", "properties": {"a": {}}}),
        ({"name": "out", "type": "object", "body": []}, {"type": "object", "properties": {}}),
        ({"name": "out", "type": "string"}, None),
    ],
)
def test_an_answer_has_a_schema_where_it_is_an_object(given: Any, schema: Any) -> None:
    assert output_schema(given) == schema


def test_what_is_nested_without_end_is_cut() -> None:
    field: dict[str, Any] = {"name": "f", "type": "object"}
    for _ in range(500):
        field = {"name": "f", "type": "object", "body": [field]}
    depth, schema = 0, input_schema(field)
    while "properties" in schema:
        depth, schema = depth + 1, schema["properties"]["f"]
    assert depth == 32
