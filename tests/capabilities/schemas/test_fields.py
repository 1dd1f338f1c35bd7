from datetime import UTC, date, datetime, time
from enum import Enum, StrEnum
from typing import Any

import pytest

from waypost.capabilities.schemas.forms import parse
from waypost.errors import DefinitionError


class Mode(Enum):
    PLAIN = "plain"
    LOUD = "loud"


class Level(Enum):
    LOW = 1
    HALF = 1.5
    NONE = None


FULL: dict[str, Any] = {
    "message": {"type": "string", "required": True, "description": "Message to echo", "title": "Message"},
    "repeat": {"type": "integer", "min": 1, "max": 10, "default": 1},
    "mode": {"type": "enum", "values": ["plain", "loud"], "default": "plain"},
    "address": {"type": "object", "fields": {"street": {"type": "string", "required": True}}},
    "tags": {"type": "array", "items": "string", "min": 1, "max": 3},
    "rows": {"type": "array", "items": "object", "fields": {"id": "integer"}},
    "code": {"type": "string", "min_length": 1, "max_length": 3, "pattern": "^[a-z]+$", "format": "email"},
    "ratio": {"type": "number", "min": 0, "max": 0.5},
    "on": "date",
    "at": "time",
    "when": "datetime",
    "flag": "boolean",
    "note": "any",
    "list": "array",
}


def test_a_data_form_becomes_a_json_schema() -> None:
    assert parse(FULL).schema == {
        "type": "object",
        "properties": {
            "message": {"type": "string", "description": "Message to echo", "title": "Message"},
            "repeat": {"type": "integer", "minimum": 1, "maximum": 10, "default": 1},
            "mode": {"type": "string", "enum": ["plain", "loud"], "default": "plain"},
            "address": {"type": "object", "properties": {"street": {"type": "string"}}, "required": ["street"]},
            "tags": {"type": "array", "items": {"type": "string"}, "minItems": 1, "maxItems": 3},
            "rows": {"type": "array", "items": {"type": "object", "properties": {"id": {"type": "integer"}}}},
            "code": {"type": "string", "minLength": 1, "maxLength": 3, "pattern": "^[a-z]+$", "format": "email"},
            "ratio": {"type": "number", "minimum": 0, "maximum": 0.5},
            "on": {"type": "string", "format": "date"},
            "at": {"type": "string", "format": "time"},
            "when": {"type": "string", "format": "date-time"},
            "flag": {"type": "boolean"},
            "note": {},
            "list": {"type": "array"},
        },
        "required": ["message"],
    }


def test_properties_keep_the_declared_order() -> None:
    assert list(parse(FULL).schema["properties"]) == list(FULL)


def test_an_empty_spec_is_an_object_without_properties() -> None:
    fields = parse({})

    assert fields.schema == {"type": "object", "properties": {}}
    assert fields.cast({"a": 1}) == {}


@pytest.mark.parametrize(
    ("given", "items"),
    [
        (
            {"items": {"type": "object", "fields": {"id": "string"}}},
            {"type": "object", "properties": {"id": {"type": "string"}}},
        ),
        ({"items": "object", "fields": {"id": "string"}}, {"type": "object", "properties": {"id": {"type": "string"}}}),
        ({"items": {"type": "enum", "values": ["a"]}}, {"type": "string", "enum": ["a"]}),
        ({"items": "enum", "values": ["a"]}, {"type": "string", "enum": ["a"]}),
        ({"items": {"type": "array", "items": "integer"}}, {"type": "array", "items": {"type": "integer"}}),
        ({"items": "any"}, {}),
        ({"items": {"type": "integer", "min": 1}}, {"type": "integer", "minimum": 1}),
    ],
)
def test_array_items_are_a_type_name_or_options(given: dict[str, Any], items: dict[str, Any]) -> None:
    assert parse({"a": {"type": "array", **given}}).schema["properties"]["a"] == {"type": "array", "items": items}


@pytest.mark.parametrize(
    ("values", "schema"),
    [
        (["a", "b"], {"type": "string", "enum": ["a", "b"]}),
        (("a",), {"type": "string", "enum": ["a"]}),
        ([1, 2], {"type": "integer", "enum": [1, 2]}),
        ([1, 2.5], {"type": "number", "enum": [1, 2.5]}),
        ([True, "a", None], {"type": ["boolean", "string", "null"], "enum": [True, "a", None]}),
        (Mode, {"type": "string", "enum": ["plain", "loud"]}),
        (Level, {"type": ["number", "null"], "enum": [1, 1.5, None]}),
    ],
)
def test_an_enum_publishes_its_values_and_only_the_types_they_need(values: Any, schema: dict[str, Any]) -> None:
    assert parse({"a": {"type": "enum", "values": values}}).schema["properties"]["a"] == schema


def test_defaults_are_published_in_json_form() -> None:
    spec = {
        "mode": {"type": "enum", "values": Mode, "default": Mode.LOUD},
        "on": {"type": "date", "default": date(2026, 1, 2)},
        "at": {"type": "time", "default": time(10, 30)},
        "when": {"type": "datetime", "default": datetime(2026, 1, 2, tzinfo=UTC)},
        "modes": {"type": "array", "items": "enum", "values": Mode, "default": [Mode.PLAIN]},
    }
    fields = parse(spec)

    assert {name: schema["default"] for name, schema in fields.schema["properties"].items()} == {
        "mode": "loud",
        "on": "2026-01-02",
        "at": "10:30:00",
        "when": "2026-01-02T00:00:00Z",
        "modes": ["plain"],
    }
    assert fields.cast({}) == {name: options["default"] for name, options in spec.items()}


@pytest.mark.parametrize(
    ("spec", "sentence"),
    [
        (["a"], "field spec: expected a map from field names to types"),
        ({1: "string"}, "field spec: field names must be strings, not 1"),
        ({"a": 3}, "field a: expected a type name or a map of options, not 3"),
        ({"a": None}, "field a: expected a type name or a map of options, not None"),
        ({"a": {"min": 1}}, "field a: has no type; known types are string, integer, number"),
        ({"a": "strng"}, "field a: unknown type 'strng', did you mean 'string'?; known types are string"),
        ({"a": {"type": int}}, "field a: unknown type <class 'int'>; known types are"),
        ({"a": {"type": "enum"}}, "field a: an enum needs values"),
        ({"a": {"type": "enum", "values": []}}, "field a: an enum needs values"),
        ({"a": {"type": "enum", "values": [[1]]}}, "field a: an enum needs values"),
        ({"a": {"type": "enum", "values": [float("inf")]}}, "field a: an enum needs values"),
        ({"a": {"type": "enum", "values": "abc"}}, "field a: an enum needs values"),
        ({"a": {"type": "enum", "values": StrEnum("Empty", [])}}, "field a: an enum needs values"),
        ({"a": "object"}, "field a: an object needs fields"),
        ({"a": {"type": "object", "fields": "b"}}, "field a: expected a map from field names to types"),
        (
            {"a": {"type": "object", "fields": {"b": "objct"}}},
            "field a.b: unknown type 'objct', did you mean 'object'?",
        ),
        ({"a": {"type": "array", "items": "object"}}, "field a[]: an object needs fields"),
        ({"a": {"type": "array", "items": "enum"}}, "field a[]: an enum needs values"),
        ({"a": {"type": "array", "items": "bogus"}}, "field a[]: unknown type 'bogus'"),
        (
            {"a": {"type": "array", "fields": {}, "items": {"type": "object"}}},
            "field a: fields must stand inside items",
        ),
        ({"a": {"type": "array", "values": ["b"]}}, "field a: values must stand inside items"),
        ({"a": {"type": "array", "values": ["b"], "items": "string"}}, "field a[]: unknown option 'values'"),
        ({"a": {"type": "array", "items": {"type": "object", "fields": {"b": "x"}}}}, "field a[].b: unknown type 'x'"),
        (
            {"a": {"type": "string", "minlength": 1}},
            "unknown option 'minlength', did you mean 'min_length'?; string takes",
        ),
        ({"a": {"type": "string", "min": 1}}, "field a: unknown option 'min'"),
        ({"a": {"type": "boolean", 3: 1}}, "field a: unknown option 3; boolean takes type, title"),
        (
            {"a": {"type": "integer", "default": "x"}},
            'field a: the default does not fit: must be of type integer, got "x"',
        ),
        (
            {"a": {"type": "integer", "min": 2, "default": 1}},
            "field a: the default does not fit: must be at least 2, got 1",
        ),
        ({"a": {"type": "enum", "values": Mode, "default": "x"}}, "field a: the default does not fit"),
        ({"a": {"type": "any", "default": object()}}, "field a: the default has no JSON form"),
        ({"a": {"type": "string", "pattern": "("}}, "field a: pattern '(' is no regular expression"),
        ({"a": {"type": "string", "pattern": 3}}, "field a: pattern must be a string, not 3"),
        ({"a": {"type": "integer", "min": 2, "max": 1}}, "field a: min 2 is greater than max 1"),
        ({"a": {"type": "string", "min_length": 2, "max_length": 1}}, "min_length 2 is greater than max_length 1"),
        ({"a": {"type": "string", "min_length": -1}}, "field a: min_length must not be negative"),
        ({"a": {"type": "array", "min": True}}, "field a: min must be an integer, not True"),
        ({"a": {"type": "integer", "max": 1.5}}, "field a: max must be an integer, not 1.5"),
        ({"a": {"type": "number", "max": float("nan")}}, "field a: max must be a number, not nan"),
        ({"a": {"type": "string", "required": "yes"}}, "field a: required must be True or False, not 'yes'"),
        ({"a": {"type": "string", "description": 1}}, "field a: description must be a string, not 1"),
    ],
)
def test_a_wrong_spec_is_refused_naming_the_field(spec: Any, sentence: str) -> None:
    with pytest.raises(DefinitionError) as caught:
        parse(spec)

    assert sentence in caught.value.message


def test_a_spec_that_holds_itself_is_refused() -> None:
    spec: dict[str, Any] = {"a": {"type": "object"}}
    spec["a"]["fields"] = spec

    with pytest.raises(DefinitionError, match="nested deeper than 64 levels"):
        parse(spec)


def test_undeclared_keys_are_dropped_at_every_level() -> None:
    fields = parse(FULL)

    assert fields.cast(
        {"message": "hi", "x": 1, "address": {"street": "Main", "y": 2}, "rows": [{"id": 1, "z": 3}, {}]}
    ) == {
        "message": "hi",
        "repeat": 1,
        "mode": "plain",
        "address": {"street": "Main"},
        "rows": [{"id": 1}, {}],
    }


def test_defaults_fill_absent_keys_only() -> None:
    fields = parse({"a": {"type": "any", "default": 1}, "b": {"type": "any", "default": None}, "c": "any"})

    assert fields.cast({}) == {"a": 1}
    assert fields.cast({"a": None, "c": None}) == {"a": None, "c": None}
    assert "default" not in fields.schema["properties"]["b"]


def test_nested_defaults_apply_only_when_the_parent_is_present() -> None:
    fields = parse({"parent": {"type": "object", "fields": {"child": {"type": "integer", "default": 3}}}})

    assert fields.cast({}) == {}
    assert fields.cast({"parent": {}}) == {"parent": {"child": 3}}


def test_a_mutable_default_is_fresh_for_every_call() -> None:
    default = [1]
    fields = parse({"a": {"type": "array", "default": default}})
    first = fields.cast({})
    first["a"].append(2)
    default.append(3)

    assert fields.cast({}) == {"a": [1]}


def test_enum_values_become_members_only_for_an_enum_class() -> None:
    fields = parse(
        {
            "listed": {"type": "enum", "values": ["plain"]},
            "mode": {"type": "enum", "values": Mode},
            "levels": {"type": "array", "items": "enum", "values": Level},
        }
    )

    assert fields.cast({"listed": "plain", "mode": "loud", "levels": [1, None]}) == {
        "listed": "plain",
        "mode": Mode.LOUD,
        "levels": [Level.LOW, Level.NONE],
    }


def test_dates_are_parsed() -> None:
    fields = parse({"on": "date", "at": "time", "when": "datetime", "days": {"type": "array", "items": "date"}})

    assert fields.cast(
        {"on": "2026-01-02", "at": "10:30:00", "when": "2026-01-02T10:30:00Z", "days": ["2026-01-02"]}
    ) == {
        "on": date(2026, 1, 2),
        "at": time(10, 30),
        "when": datetime(2026, 1, 2, 10, 30, tzinfo=UTC),
        "days": [date(2026, 1, 2)],
    }


def test_numbers_are_left_alone_but_for_integral_floats_declared_integer() -> None:
    cast = parse({"count": "integer", "size": "number", "note": "any"}).cast({"count": 2.0, "size": 2.0, "note": 2.0})

    assert [type(value) for value in cast.values()] == [int, float, float]
