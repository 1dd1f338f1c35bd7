"""Forms made of a JSON schema, and the arguments that people type into them."""

from __future__ import annotations

import json
from typing import Any

import pytest

from waypost.console.page import WHOLE, InvalidForm, make_fields, read_arguments
from waypost.console.rendering import (
    bound_value,
    count_tokens,
    environment,
    show_bytes,
    show_duration,
    show_milliseconds,
    show_time,
)

SCHEMA: dict[str, Any] = {
    "type": "object",
    "required": ["name"],
    "properties": {
        "name": {"type": "string", "title": "Full name", "description": "Who"},
        "count": {"type": "integer", "default": 3},
        "share": {"type": "number"},
        "loud": {"type": "boolean"},
        "level": {"enum": ["low", "high", 3]},
        "tags": {"type": "array", "items": {"type": "string"}},
    },
}


def test_each_property_is_a_field_with_its_default_or_the_submitted_value() -> None:
    fields = {field.name: field for field in make_fields(SCHEMA, {"arg.name": "Ada"})}

    assert [field.input for field in fields.values()] == ["text", "integer", "number", "boolean", "choice", "json"]
    assert (fields["arg.name"].label, fields["arg.name"].value, fields["arg.name"].is_required) == (
        "Full name",
        "Ada",
        True,
    )
    assert fields["arg.count"].value == "3"
    assert fields["arg.level"].choices == ("low", "high", "3")


def test_submitted_values_become_arguments_of_the_right_types() -> None:
    form = {
        "arg.name": "Ada",
        "arg.count": "4",
        "arg.share": "0.5",
        "arg.loud": "false",
        "arg.level": "3",
        "arg.tags": '["a"]',
        "csrf": "x",
    }
    assert read_arguments(SCHEMA, form) == {
        "name": "Ada", "count": 4, "share": 0.5, "loud": False, "level": 3, "tags": ["a"]
    }  # fmt: skip
    assert read_arguments(SCHEMA, {"arg.name": "12", "arg.level": "low", "arg.count": ""}) == {
        "name": "12",
        "level": "low",
    }


NESTED: dict[str, Any] = {
    "type": "object",
    "required": ["address", "lines"],
    "properties": {
        "address": {"$ref": "#/$defs/Address"},
        "lines": {"type": "array", "items": {"$ref": "#/$defs/Line"}},
        "tags": {"anyOf": [{"type": "array", "items": {"type": "string"}}, {"type": "null"}], "default": None},
        "buyer": {"anyOf": [{"type": "string"}, {"type": "null"}], "default": None},
        "days": {"type": ["integer", "null"], "default": 30},
        "currency": {"$ref": "#/definitions/Currency", "default": "EUR"},
    },
    "definitions": {"Currency": {"enum": ["EUR", "USD"]}},
    "$defs": {
        "Address": {"title": "Address", "type": "object", "properties": {"city": {"type": "string"}}},
        "Line": {
            "type": "object",
            "properties": {
                "sku": {"type": "string"},
                "count": {"type": "integer", "default": 1},
                "parts": {"type": "array", "items": {"$ref": "#/$defs/Line"}},
            },
        },
    },
}


def test_nested_and_optional_types_are_fields_that_show_their_shape() -> None:
    fields = {field.label: field for field in make_fields(NESTED)}

    assert {label: field.input for label, field in fields.items()} == {
        "address": "json", "lines": "json", "tags": "json", "buyer": "text", "days": "integer", "currency": "choice"
    }  # fmt: skip
    assert json.loads(fields["address"].value) == {"city": ""}, "what is required is there to be filled in"
    assert json.loads(fields["lines"].value)[0]["count"] == 1
    assert (fields["tags"].value, json.loads(fields["tags"].example)) == ("", [""]), "what is optional is not sent"
    assert (fields["days"].value, fields["currency"].value) == ("30", "EUR")
    typed = {"arg.address": '{"city": "Ulm"}', "arg.lines": "[]", "arg.buyer": "Ada", "arg.currency": "USD"}
    assert read_arguments(NESTED, typed) == {
        "address": {"city": "Ulm"}, "lines": [], "buyer": "Ada", "currency": "USD"
    }  # fmt: skip


def test_the_examples_of_a_schema_of_any_size_are_bounded() -> None:
    wide: dict[str, Any] = {"type": "object", "properties": {f"p{n}": {"$ref": "#/$defs/Wide"} for n in range(50)}}
    schema = {**wide, "required": list(wide["properties"]), "$defs": {"Wide": wide, "Loop": {"$ref": "#/$defs/Loop"}}}
    schema["properties"] = {**wide["properties"], "loop": {"$ref": "#/$defs/Loop"}, "gone": {"$ref": "#/$defs/No"}}
    assert sum(len(field.value) + len(field.example) for field in make_fields(schema)) <= 4_000


def test_a_value_of_the_wrong_type_is_refused_with_the_name_of_the_field() -> None:
    with pytest.raises(InvalidForm, match=r"^tags: '\[a' is not JSON"):
        read_arguments(SCHEMA, {"arg.tags": "[a"})


@pytest.mark.parametrize("schema", [{}, {"type": "object"}, True, {"properties": {f"p{n}": {} for n in range(99)}}])
def test_a_schema_without_few_properties_is_one_field_of_json(schema: Any) -> None:
    assert [field.name for field in make_fields(schema)] == ["arguments"]
    assert read_arguments(schema, {"arguments": '{"a": 1}'}) == {"a": 1}
    with pytest.raises(InvalidForm, match="a JSON object is needed"):
        read_arguments(schema, {"arguments": "[1]"})


def test_a_value_of_any_size_is_shown_in_part() -> None:
    value = {"rows": [{"text": "x" * 5000, "n": n} for n in range(10_000)]}
    html = (
        environment()
        .from_string('{% import "macros.html" as ui %}{{ ui.tree(value) }}')
        .render(value=value, static=lambda name: name, make_fields=make_fields)
    )

    assert len(html) < 300_000
    assert "more" in html
    assert bound_value({"a": [1, None, "b"]}) == {"a": [1, None, "b"]}


def test_names_and_values_are_escaped_in_trees_and_fields() -> None:
    evil = "</textarea><script>alert(1)</script>"
    schema = {"properties": {evil: {"title": evil, "description": evil, "enum": [evil], "default": evil}}}
    template = '{% import "macros.html" as ui with context %}{{ ui.tree(value, 9) }}{{ ui.schema_fields(schema, {}) }}'
    html = (
        environment()
        .from_string(template)
        .render(value={evil: [evil, {evil: evil}]}, schema=schema, make_fields=make_fields, static=lambda name: name)
    )

    assert "<script" not in html
    assert html.count("&lt;script&gt;") >= 6


def test_numbers_times_and_sizes_read_well() -> None:
    assert count_tokens({"a": "b" * 100}) == 28
    assert (show_bytes(999), show_bytes(66_000_000), show_bytes(3.2e9)) == ("999 B", "66 MB", "3.2 GB")
    assert (show_duration(0.2), show_duration(90), show_duration(90_061)) == ("0 s", "1 min 30 s", "1 d 1 h")
    assert "2026-11-17 13:00:00 UTC" in show_time("2026-11-17T13:00:00Z")
    assert "1970-01-01 00:00:01 UTC" in show_time(1.0)
    assert "never" in show_time(None)


@pytest.mark.parametrize(
    ("value", "shown"), [(0.0314, "0.031 ms"), (0.5, "0.5 ms"), (1.0, "1.0 ms"), (12_345.67, "12,345.7 ms")]
)
def test_a_call_of_less_than_a_millisecond_is_not_shown_as_none(value: float, shown: str) -> None:
    assert show_milliseconds(value) == shown


def test_what_was_typed_is_shown_again_as_far_as_it_fits_a_page() -> None:
    schema = {"type": "object", "properties": {"text": {"type": "string"}, "note": {"type": "string"}}}
    typed = {"arg.text": '"' * 90_000, "arg.note": "short"}
    assert [field.value for field in make_fields(schema, typed)] == ["", "short"]
    assert read_arguments(schema, typed)["text"] == typed["arg.text"], "all of it is sent"
    assert make_fields({}, {WHOLE: '"' * 90_000})[0].value == ""


def test_fields_with_long_descriptions_fit_a_page_and_are_read_as_they_are_shown() -> None:
    def describe(count: int, text: str) -> dict[str, Any]:
        return {"properties": {f"p{n}": {"type": "string", "description": text} for n in range(count)}}

    shown = make_fields(describe(5, "x" * 1000))
    assert [len(field.description) for field in shown] == [601] * 5
    assert [len(field.description) for field in make_fields(describe(30, "x" * 1000))] == [121] * 30
    crowded = describe(60, '"' * 1000)
    assert [len(field.description) for field in make_fields(crowded)] == [0] * 60
    endless = {"properties": {f"p{n}": {"title": '"' * 500} for n in range(60)}}
    assert [field.name for field in make_fields(endless, {"arg.p1": "x"})] == ["arguments"]
    assert read_arguments(endless, {"arguments": '{"p1": 1}'}) == {"p1": 1}
    assert read_arguments(crowded, {"arg.p1": "x"}) == {"p1": "x"}
