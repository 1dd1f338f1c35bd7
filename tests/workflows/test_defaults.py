"""Defaults of a schema are filled in where a value is missing."""

from __future__ import annotations

from typing import Any

import pytest

from waypost.workflows.definitions import with_defaults


def properties(**given: Any) -> dict[str, Any]:
    return {"type": "object", "properties": given}


@pytest.mark.parametrize(
    ("schema", "value", "filled"),
    [
        (None, {"a": 1}, {"a": 1}),
        ({}, {"a": 1}, {"a": 1}),
        (properties(a={"default": 1}), {}, {"a": 1}),
        (properties(a={"default": 1}), {"a": 2}, {"a": 2}),
        (properties(a={"default": 1}), {"a": None}, {"a": None}),
        (properties(a={"default": None}), {}, {"a": None}),
        (properties(a={"default": 1}), {"b": 3}, {"a": 1, "b": 3}),
        (properties(a=properties(b={"default": 1})), {}, {}),
        (properties(a=properties(b={"default": 1})), {"a": {}}, {"a": {"b": 1}}),
        (properties(a={"default": {}, **properties(b={"default": 1})}), {}, {"a": {"b": 1}}),
        (properties(a={"items": properties(b={"default": 1})}), {"a": [{}, {"b": 2}]}, {"a": [{"b": 1}, {"b": 2}]}),
        (properties(a=True), {}, {}),
        ({"properties": []}, {}, {}),
        (properties(a={"default": 1}), [1], [1]),
        (properties(a={"default": 1}), "text", "text"),
    ],
)
def test_missing_values_are_filled_in_at_any_depth(schema: Any, value: Any, filled: Any) -> None:
    assert with_defaults(schema, value) == filled


def test_the_value_and_the_schema_are_not_changed() -> None:
    schema = properties(list={"default": [1]}, inner=properties(x={"default": 1}))
    value: dict[str, Any] = {"inner": {}}
    filled = with_defaults(schema, value)
    filled["list"].append(2)
    filled["inner"]["y"] = 3
    assert value == {"inner": {}}
    assert with_defaults(schema, {}) == {"list": [1]}
