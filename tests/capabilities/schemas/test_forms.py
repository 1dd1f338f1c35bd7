from typing import Any

import pytest

from waypost.capabilities.schemas.forms import OPEN, DataForm, RawForm, declared, output
from waypost.errors import DefinitionError, InvalidArguments

QUERY = {"type": "object", "properties": {"q": {"type": "string", "minLength": 2}}, "required": ["q"]}
QUERY_TEXT = '{"type": "object", "properties": {"q": {"type": "string", "minLength": 2}}, "required": ["q"]}'


@pytest.mark.parametrize(
    "spec",
    [
        {"type": "object"},
        {"properties": {}},
        {"oneOf": [{}]},
        {"anyOf": [{}]},
        {"allOf": [{}]},
        {"$comment": "x"},
        QUERY,
    ],
)
def test_a_dict_that_looks_like_json_schema_is_used_as_one(spec: dict[str, Any]) -> None:
    assert isinstance(declared(spec, raw=False), RawForm)


@pytest.mark.parametrize("spec", [{}, {"type": "string"}, {"type": {"type": "object", "fields": {}}}, {"q": "string"}])
def test_any_other_dict_is_the_data_form(spec: dict[str, Any]) -> None:
    assert isinstance(declared(spec, raw=False), DataForm)


def test_the_raw_option_never_reads_the_data_form() -> None:
    form = declared({"title": "string"}, raw=True)

    assert form.schema == {"type": "object", "title": "string"}
    assert form.cast_plan is None


@pytest.mark.parametrize("spec", [QUERY, QUERY_TEXT])
@pytest.mark.parametrize("raw", [True, False])
def test_raw_forms_deliver_arguments_as_they_came(spec: object, raw: bool) -> None:
    form = declared(spec, raw=raw)
    arguments = {"q": "hello", "extra": 1.0}

    assert form.schema == QUERY
    assert form.cast_plan is None
    assert form.admit(arguments) is arguments
    with pytest.raises(InvalidArguments) as caught:
        form.admit({"q": "x"})
    assert caught.value.problems == ("q: must have at least 2 characters",)


def test_a_raw_input_schema_is_published_as_given() -> None:
    assert declared(QUERY, raw=True).schema is QUERY


def test_a_missing_root_type_is_added_to_a_copy() -> None:
    spec = {"oneOf": [{"required": ["a"]}, {"required": ["b"]}]}
    form = declared(spec, raw=False)

    assert form.schema == {"type": "object", **spec}
    assert "type" not in spec
    assert form.admit({"a": 1}) == {"a": 1}


@pytest.mark.parametrize(
    ("spec", "raw", "sentence"),
    [
        ("{", True, "malformed JSON text: "),
        ("{'a': 1}", False, "malformed JSON text: "),
        ("[" * 100_000, False, "malformed JSON text: "),
        ("[1]", False, "JSON text must decode to an object"),
        ("true", True, "JSON text must decode to an object"),
        (3, True, "expected a schema map or JSON text, not int"),
        (None, True, "expected a schema map or JSON text, not NoneType"),
        ([("q", "string")], False, "expected a field spec, a schema map or JSON text, not list"),
        ({"type": "string"}, True, "the root type of an input schema must be \"object\", not 'string'"),
        ({"type": ["object", "null"], "properties": {}}, False, "the root type of an input schema must be"),
        ({"type": "object", "properties": {"a": {"type": "bogus"}}}, False, "properties.a.type: "),
    ],
)
def test_an_invalid_schema_is_refused_when_declared(spec: object, raw: bool, sentence: str) -> None:
    with pytest.raises(DefinitionError) as caught:
        declared(spec, raw=raw)

    assert sentence in caught.value.message


def test_the_data_form_validates_then_casts() -> None:
    form = declared({"n": {"type": "integer", "required": True}, "m": {"type": "integer", "default": 2}}, raw=False)

    assert form.cast_plan is not None
    assert form.admit({"n": 1.0, "x": 1}) == {"n": 1, "m": 2}
    with pytest.raises(InvalidArguments) as caught:
        form.admit({"m": "x"})
    assert sorted(caught.value.problems) == ['m: must be of type integer, got "x"', "n: is required"]


def test_a_tool_without_input_takes_anything() -> None:
    arguments = {"anything": 1}

    assert OPEN.schema == {"type": "object"}
    assert OPEN.cast_plan is None
    assert OPEN.admit(arguments) is arguments


@pytest.mark.parametrize(
    ("spec", "raw", "schema"),
    [
        ({"n": "integer"}, False, {"type": "object", "properties": {"n": {"type": "integer"}}}),
        ({"type": "array"}, True, {"type": "array"}),
        ('{"type": "array"}', False, {"type": "array"}),
        (QUERY, False, QUERY),
    ],
)
def test_an_output_schema_may_have_any_root(spec: object, raw: bool, schema: dict[str, Any]) -> None:
    assert output(spec, raw=raw).schema == schema


def test_an_invalid_output_schema_is_refused_when_declared() -> None:
    with pytest.raises(DefinitionError):
        output({"type": "bogus"}, raw=True)
    with pytest.raises(DefinitionError):
        output({"a": "bogus"}, raw=False)
