from typing import Any

import pytest

from waypost.capabilities.schemas.problems import ECHO, location, shown
from waypost.capabilities.schemas.validators import Validator


@pytest.mark.parametrize(
    ("path", "written"),
    [
        ([], ""),
        (["address", "street"], "address.street"),
        (["rows", 0, "id"], "rows[0].id"),
        ([2, 1], "[2][1]"),
        (["rows", None, "id"], "rows[].id"),
        (["headers", "x.y"], 'headers["x.y"]'),
        (["content-type", "$ref"], "content-type.$ref"),
    ],
)
def test_a_path_is_written_with_dots_and_brackets(path: list[str | int | None], written: str) -> None:
    assert location(path) == written


@pytest.mark.parametrize(
    "value", ["x" * 10_000, list(range(10_000)), dict.fromkeys(map(str, range(10_000))), ["y" * 500]]
)
def test_an_echoed_value_stays_short(value: Any) -> None:
    assert len(shown(value)) <= ECHO


@pytest.mark.parametrize(
    ("schema", "value", "expected"),
    [
        ({"type": "integer"}, "x", ['must be of type integer, got "x"']),
        ({"type": ["integer", "null"]}, "x", ['must be of type integer or null, got "x"']),
        ({"enum": ["a", 2]}, "b", ['must be one of "a", 2, got "b"']),
        ({"const": 4}, 5, ["must be 4"]),
        ({"minimum": 3}, 1, ["must be at least 3, got 1"]),
        ({"exclusiveMaximum": 3}, 3, ["must be less than 3, got 3"]),
        ({"multipleOf": 2}, 3, ["must be a multiple of 2, got 3"]),
        ({"minLength": 1}, "", ["must have at least 1 character"]),
        ({"maxItems": 2}, [1, 2, 3], ["must have at most 2 items"]),
        ({"minProperties": 2}, {}, ["must have at least 2 properties"]),
        ({"pattern": "^a$"}, "b", ['must match the pattern ^a$, got "b"']),
        ({"format": "email"}, "x", ['must be a valid email, got "x"']),
        ({"uniqueItems": True}, [1, 1], ["must not hold an item twice"]),
        ({"contains": {"type": "string"}}, [1], ["must contain a fitting item"]),
        ({"not": {}}, 1, ["has a form that is not allowed"]),
        ({"properties": {"a": False}}, {"a": 1}, ["a: is not allowed"]),
        (
            {"properties": {"a": {}}, "additionalProperties": False},
            {"b": 1, "c": 2},
            ["b: is not allowed", "c: is not allowed"],
        ),
        (
            {"propertyNames": {"minLength": 3}},
            {"ab": 1},
            ["has a property name that does not fit: must have at least 3 characters"],
        ),
        ({"dependentRequired": {"a": ["b"]}}, {"a": 1}, ["b: is required"]),
        ({"prefixItems": [{}], "unevaluatedItems": False}, [1, "extra"], None),
    ],
)
def test_every_keyword_has_its_own_message(schema: dict[str, Any], value: Any, expected: list[str] | None) -> None:
    problems = Validator(schema).problems(value)

    assert problems
    assert expected is None or problems == expected


PERSON = {"type": "object", "properties": {"name": {"type": "string"}}, "required": ["name"]}


def test_problems_of_an_optional_object_are_reported_like_those_of_a_required_one() -> None:
    validator = Validator({"properties": {"who": {"anyOf": [PERSON, {"type": "null"}]}}})

    assert validator.problems({"who": {}}) == ["who.name: is required"]


def test_alternatives_of_other_types_are_listed() -> None:
    validator = Validator({"properties": {"who": {"anyOf": [PERSON, {"type": "null"}]}}})

    assert validator.problems({"who": 3}) == ["who: must be of type object or null, got 3"]


def test_several_near_alternatives_are_only_counted_out() -> None:
    validator = Validator({"oneOf": [{"minimum": 5}, {"multipleOf": 2}]})

    assert validator.problems(3) == ["fits none of the allowed forms, got 3"]
    assert validator.problems(6) == ["fits more than one of the allowed forms"]


CIRCLE = {"properties": {"kind": {"const": "circle"}, "radius": {"type": "number"}}, "required": ["kind", "radius"]}
SQUARE = {"properties": {"kind": {"enum": ["square"]}, "side": {"type": "number"}}, "required": ["kind", "side"]}


def test_the_problems_of_the_alternative_with_the_tag_of_the_value_are_reported() -> None:
    validator = Validator({"oneOf": [CIRCLE, {"$ref": "#/$defs/square"}], "$defs": {"square": SQUARE}})

    assert validator.problems({"kind": "square"}) == ["side: is required"]
    assert validator.problems({"kind": "circle", "radius": "x"}) == ['radius: must be of type number, got "x"']
    assert validator.problems({"kind": "line"}) == ['fits none of the allowed forms, got {"kind": "line"}']


def test_a_property_of_only_one_alternative_is_not_a_tag() -> None:
    validator = Validator({"anyOf": [{"properties": {"mode": {"const": "a"}}}, {"required": ["name"]}]})

    assert validator.problems({"mode": "b"}) == ['fits none of the allowed forms, got {"mode": "b"}']


def test_only_the_beginning_of_a_value_is_written() -> None:
    assert shown({"a": {"b": ["x" * 1_000_000] * 50}}) == '{"a": {"b": ["' + "x" * 63 + "..."
    assert shown([[], {}, (1, None)]) == "[[], {}, [1, null]]"
