from typing import Any

import pytest

from waypost.capabilities.questions import ElicitationAnswer, parse_elicitation_answer, to_form, to_older_form
from waypost.errors import InvalidAnswer, SchemaNotAllowed
from waypost.wire.versions import V2025_06_18, V2025_11_25, V2026_07_28

TITLED = [{"const": "r", "title": "Red"}, {"const": "g", "title": "Green"}]

ALLOWED: dict[str, dict[str, Any]] = {
    "text": {"type": "string"},
    "text with everything": {
        "type": "string",
        "title": "Name",
        "description": "Yours",
        "minLength": 1,
        "maxLength": 9,
        "pattern": "^[a-z]+$",
        "default": "a",
    },
    "email": {"type": "string", "format": "email"},
    "uri": {"type": "string", "format": "uri"},
    "date": {"type": "string", "format": "date"},
    "date-time": {"type": "string", "format": "date-time"},
    "number": {"type": "number", "minimum": 0.5, "maximum": 1.5, "default": 1.0},
    "integer": {"type": "integer", "minimum": 0, "maximum": 10, "default": 1},
    "boolean": {"type": "boolean", "default": True},
    "choice": {"type": "string", "enum": ["a", "b"], "default": "a"},
    "choice without a type": {"enum": ["a", "b"]},
    "choice with old titles": {"type": "string", "enum": ["a", "b"], "enumNames": ["A", "B"]},
    "choice with titles": {"type": "string", "oneOf": TITLED, "default": "r"},
    "several": {"type": "array", "items": {"type": "string", "enum": ["a", "b"]}, "minItems": 1, "maxItems": 2},
    "several with titles": {"type": "array", "items": {"anyOf": TITLED}, "default": ["r"]},
}

REFUSED: dict[str, Any] = {
    "no mapping": "string",
    "no type": {"title": "x"},
    "an unknown type": {"type": "date"},
    "a list of types": {"type": ["string", "null"]},
    "null": {"type": "null"},
    "an object": {"type": "object", "properties": {}},
    "a free list": {"type": "array"},
    "a list of text": {"type": "array", "items": {"type": "string"}},
    "a list of numbers": {"type": "array", "items": {"type": "integer", "enum": [1]}},
    "a list of an empty choice": {"type": "array", "items": {"type": "string", "enum": []}},
    "a list with more to say about its items": {"type": "array", "items": {"type": "string", "enum": ["a"], "x": 1}},
    "a list with titles and more": {"type": "array", "items": {"anyOf": TITLED, "type": "string"}},
    "a list with unique items": {"type": "array", "items": {"anyOf": TITLED}, "uniqueItems": True},
    "an unknown format": {"type": "string", "format": "uuid"},
    "a reference": {"$ref": "#/$defs/x"},
    "a reference beside a type": {"type": "string", "$ref": "#/$defs/x"},
    "a const": {"type": "string", "const": "a"},
    "an empty choice": {"type": "string", "enum": []},
    "a choice of numbers": {"type": "string", "enum": [1, 2]},
    "a choice that is no list": {"type": "string", "enum": "ab"},
    "too few titles": {"type": "string", "enum": ["a", "b"], "enumNames": ["A"]},
    "titles without a choice": {"type": "string", "enumNames": ["A"]},
    "no titled choices": {"type": "string", "oneOf": []},
    "a titled choice without a title": {"type": "string", "oneOf": [{"const": "a"}]},
    "a titled choice with more": {"type": "string", "oneOf": [{"const": "a", "title": "A", "x": 1}]},
    "a titled choice that is no mapping": {"type": "string", "oneOf": ["a"]},
    "a titled choice of numbers": {"type": "string", "oneOf": [{"const": 1, "title": "One"}]},
    "a title that is no text": {"type": "array", "items": {"anyOf": [{"const": "a", "title": 1}]}},
    "old titles that are no list": {"type": "string", "enum": ["a"], "enumNames": 1},
    "bounds that exclude": {"type": "number", "exclusiveMinimum": 0},
    "multiples": {"type": "integer", "multipleOf": 2},
    "text limits on a number": {"type": "number", "minLength": 1},
    "a choice of a boolean": {"type": "boolean", "enum": [True]},
    "alternatives": {"type": "string", "anyOf": [{"type": "string"}]},
}


def of(**properties: Any) -> dict[str, Any]:
    return {"type": "object", "properties": properties}


@pytest.mark.parametrize("name", ALLOWED)
def test_a_form_may_have(name: str) -> None:
    schema = of(field=ALLOWED[name]) | {"required": ["field"]}
    assert to_form(schema) == schema


@pytest.mark.parametrize("name", REFUSED)
def test_a_form_may_not_have(name: str) -> None:
    with pytest.raises(SchemaNotAllowed, match="field"):
        to_form(of(fine={"type": "string"}, field=REFUSED[name]))


@pytest.mark.parametrize(
    "schema",
    [
        None,
        "text",
        [],
        {"type": "string"},
        {"type": "object"},
        {"type": "object", "properties": []},
        of() | {"additionalProperties": False},
        of() | {"$defs": {}},
        of() | {"allOf": []},
        of(a={"type": "string"}) | {"required": ["b"]},
        of(a={"type": "string"}) | {"required": "a"},
        of(a={"type": "string"}) | {"required": None},
    ],
)
def test_a_schema_that_is_not_a_form_is_refused(schema: Any) -> None:
    with pytest.raises(SchemaNotAllowed):
        to_form(schema)


def test_a_form_may_have_a_title_a_description_and_a_dialect() -> None:
    schema = of() | {"title": "T", "description": "D", "$schema": "https://json-schema.org/draft/2020-12/schema"}
    assert to_form(schema) == schema


def test_a_form_may_be_written_as_data() -> None:
    shown = to_form({"name": {"type": "string", "required": True}, "age": "integer"})
    assert shown["required"] == ["name"]
    assert shown["properties"]["name"]["type"] == "string"
    assert shown["properties"]["age"]["type"] == "integer"


def test_a_field_of_a_form_written_as_data_may_be_called_type() -> None:
    kinds = {"type": {"type": "enum", "values": ["a", "b"]}, "name": "string"}
    assert to_form(kinds)["properties"] == {"type": {"type": "string", "enum": ["a", "b"]}, "name": {"type": "string"}}


@pytest.mark.parametrize("version", [V2025_11_25, V2026_07_28])
def test_newer_clients_get_the_form_unchanged(version: str) -> None:
    schema = of(**ALLOWED)
    assert to_older_form(schema, version) == schema


def test_older_clients_get_enum_names_for_titled_choices_and_only_boolean_defaults() -> None:
    schema = of(
        color={"type": "string", "oneOf": TITLED, "default": "r", "title": "Color"},
        name={"type": "string", "default": "x"},
        age={"type": "integer", "default": 1},
        sure={"type": "boolean", "default": False},
    )
    assert to_older_form(schema, V2025_06_18)["properties"] == {
        "color": {"type": "string", "enum": ["r", "g"], "enumNames": ["Red", "Green"], "title": "Color"},
        "name": {"type": "string"},
        "age": {"type": "integer"},
        "sure": {"type": "boolean", "default": False},
    }
    assert "oneOf" in schema["properties"]["color"]


def test_older_clients_cannot_get_multiple_choice_fields() -> None:
    with pytest.raises(SchemaNotAllowed, match="several"):
        to_older_form(of(several=ALLOWED["several"]), V2025_06_18)


PERSON = of(
    name={"type": "string", "minLength": 2, "pattern": "^[A-Z]"},
    age={"type": "integer", "minimum": 0},
    color={"type": "string", "oneOf": TITLED},
    size={"type": "string", "enum": ["s", "l"], "enumNames": ["Small", "Large"]},
    tags={"type": "array", "items": {"anyOf": TITLED}, "maxItems": 1},
) | {"required": ["name"]}


@pytest.mark.parametrize(
    "content",
    [{"name": "Ada"}, {"name": "Ada", "age": 1, "color": "r", "size": "l", "tags": ["g"]}],
)
def test_an_answer_that_matches_the_form_is_accepted(content: dict[str, Any]) -> None:
    given = parse_elicitation_answer({"action": "accept", "content": content, "_meta": {}}, PERSON)
    assert given.accepted
    assert given.content == content


@pytest.mark.parametrize(
    "content",
    [
        None,
        {},
        {"age": 1},
        {"name": "A"},
        {"name": "ada"},
        {"name": 1},
        {"name": "Ada", "age": -1},
        {"name": "Ada", "age": "1"},
        {"name": "Ada", "age": 1.5},
        {"name": "Ada", "color": "Red"},
        {"name": "Ada", "size": "m"},
        {"name": "Ada", "tags": ["r", "g"]},
        {"name": "Ada", "tags": "r"},
        {"name": "Ada", "extra": True},
    ],
)
def test_an_accepted_answer_that_does_not_match_the_form_is_refused(content: Any) -> None:
    with pytest.raises(InvalidAnswer, match="does not fit the form"):
        parse_elicitation_answer({"action": "accept", "content": content}, PERSON)


@pytest.mark.parametrize("result", [None, 1, "accept", [], {}, {"action": 1}, {"action": "accept", "content": []}])
def test_an_answer_that_is_malformed_is_refused(result: Any) -> None:
    with pytest.raises(InvalidAnswer, match="malformed"):
        parse_elicitation_answer(result, PERSON)


def test_a_form_beyond_the_limits_of_schemas_is_refused() -> None:
    fields = {f"f{number}": {"type": "string", "pattern": f"^.{{1,200}}{number}$"} for number in range(2000)}

    with pytest.raises(SchemaNotAllowed, match="its patterns have more than 40000 positions"):
        to_form({"type": "object", "properties": fields})


def test_an_answer_with_an_unknown_action_is_refused() -> None:
    with pytest.raises(InvalidAnswer, match="'maybe'"):
        parse_elicitation_answer({"action": "maybe"}, PERSON)


@pytest.mark.parametrize("action", ["decline", "cancel"])
def test_the_content_of_a_declined_or_cancelled_form_is_dropped(action: str) -> None:
    given = parse_elicitation_answer({"action": action, "content": {"name": 5}}, PERSON)
    assert not given.accepted
    assert (given.action, given.content) == (action, None)


def test_the_content_of_an_answer_without_a_form_is_dropped_unchecked() -> None:
    assert parse_elicitation_answer({"action": "accept", "content": {"unchecked": 1}}, None) == ElicitationAnswer(
        "accept"
    )
