"""Forms made of a JSON schema, and the arguments that people type into them."""

from __future__ import annotations

from typing import Any

import pytest

from waypost.console.page import InvalidForm, make_fields, read_arguments
from waypost.console.rendering import bound_value, count_tokens, environment, show_bytes, show_duration, show_time

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


def test_each_property_is_a_field_with_its_default_or_what_was_typed() -> None:
    fields = {field.name: field for field in make_fields(SCHEMA, {"arg.name": "Ada"})}

    assert [field.input for field in fields.values()] == ["text", "integer", "number", "boolean", "choice", "json"]
    assert (fields["arg.name"].label, fields["arg.name"].value, fields["arg.name"].is_required) == (
        "Full name",
        "Ada",
        True,
    )
    assert fields["arg.count"].value == "3"
    assert fields["arg.level"].choices == ("low", "high", "3")


def test_what_was_typed_becomes_arguments_of_the_right_types() -> None:
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


def test_what_is_not_of_the_type_is_refused_with_the_name_of_the_field() -> None:
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
