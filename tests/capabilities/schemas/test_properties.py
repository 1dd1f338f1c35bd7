"""The data form against an independent JSON Schema validator, over random specs and arguments."""

from datetime import date, datetime, time
from enum import Enum
from typing import Any

import jsonschema
import msgspec
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from waypost.capabilities.schemas.forms import DataForm, declared, parse
from waypost.errors import DefinitionError, InvalidArguments

QUICK = settings(max_examples=150, deadline=None, suppress_health_check=[HealthCheck.too_slow])


class Mode(Enum):
    PLAIN = "plain"
    LOUD = "loud"
    FIRST = 1


names = st.sampled_from(["a", "b", "rows", "type", "x y", "ä"])
words = st.text(st.characters(exclude_categories=["Cs"]), max_size=4)
scalars = st.one_of(st.none(), st.booleans(), st.integers(-5, 5), st.sampled_from([0.0, 1.0, 2.5]), words)


def with_bounds(kind: str, least: str, most: str, values: st.SearchStrategy[Any]) -> st.SearchStrategy[dict[str, Any]]:
    def ordered(options: dict[str, Any]) -> dict[str, Any]:
        if least in options and most in options:
            options[least], options[most] = sorted((options[least], options[most]))
        return options

    return st.fixed_dictionaries({"type": st.just(kind)}, optional={least: values, most: values}).map(ordered)


def with_texts(options: dict[str, Any], texts: dict[str, str]) -> dict[str, Any]:
    return {**options, **texts}


texts = st.fixed_dictionaries({}, optional={"title": words, "description": words})
plain = st.one_of(
    with_bounds("string", "min_length", "max_length", st.integers(0, 3)),
    st.fixed_dictionaries({"type": st.just("string"), "pattern": st.sampled_from(["^a", "b$", "[0-9]+", "x|y"])}),
    with_bounds("integer", "min", "max", st.integers(-3, 3)),
    with_bounds("number", "min", "max", st.one_of(st.integers(-3, 3), st.sampled_from([0.5, -1.5]))),
    st.sampled_from(["boolean", "any", "array", "date", "time", "datetime"]).map(lambda kind: {"type": kind}),
    st.lists(scalars, min_size=1, max_size=3).map(lambda values: {"type": "enum", "values": values}),
    st.just({"type": "enum", "values": Mode}),
)


def containers(options: st.SearchStrategy[dict[str, Any]]) -> st.SearchStrategy[dict[str, Any]]:
    arrays = with_bounds("array", "min", "max", st.integers(0, 3))
    objects = specs_of(options).map(lambda fields: {"type": "object", "fields": fields})
    return st.one_of(
        objects,
        st.builds(lambda array, items: {**array, "items": items}, arrays, options),
        st.builds(lambda array, item: {**array, **item, "type": "array", "items": "object"}, arrays, objects),
    )


def specs_of(options: st.SearchStrategy[dict[str, Any]]) -> st.SearchStrategy[dict[str, Any]]:
    described = st.builds(with_texts, options, texts)
    required = st.builds(lambda given, needed: {**given, "required": needed}, described, st.booleans())
    return st.dictionaries(names, st.one_of(described, required), max_size=4)


specs = specs_of(st.recursive(plain, containers, max_leaves=6))
dates = st.sampled_from(["2026-01-02", "10:30:00", "10:30:00Z", "2026-01-02T10:30:00Z", "2026-02-30", "0000-01-01"])
json_values = st.recursive(
    st.one_of(scalars, dates, st.just("plain")),
    lambda inner: st.one_of(st.lists(inner, max_size=3), st.dictionaries(names, inner, max_size=3)),
    max_leaves=6,
)


def fitting(schema: dict[str, Any]) -> st.SearchStrategy[Any]:
    """Values that often match a schema of the data form."""
    if "enum" in schema:
        return st.sampled_from(schema["enum"])
    match schema.get("type"):
        case "string":
            return dates if "format" in schema else words | st.sampled_from(["a1b", "xb", "a"])
        case "integer":
            return st.integers(-3, 3) | st.sampled_from([1.0, -2.0])
        case "number":
            return st.integers(-3, 3) | st.sampled_from([1.0, 0.5, 0.75])
        case "boolean":
            return st.booleans()
        case "array":
            return st.lists(fitting(schema.get("items", {})), max_size=3)
        case "object":
            members = {name: fitting(child) for name, child in schema["properties"].items()}
            needed = {name: members.pop(name) for name in schema.get("required", ())}
            return st.fixed_dictionaries(needed, optional=members)
        case _:
            return json_values


def arguments_for(schema: dict[str, Any]) -> st.SearchStrategy[dict[str, Any]]:
    broken = st.builds(
        lambda good, extra: {**good, **extra}, fitting(schema), st.dictionaries(names, json_values, max_size=2)
    )
    return fitting(schema) | broken


def admitted(form: DataForm, arguments: dict[str, Any]) -> dict[str, Any] | None:
    try:
        return form.admit(arguments)
    except InvalidArguments as error:
        assert error.problems
        return None


@QUICK
@given(specs)
def test_every_spec_gives_a_schema_the_official_validator_accepts(spec: dict[str, Any]) -> None:
    jsonschema.Draft202012Validator.check_schema(parse(spec).schema)


@QUICK
@given(specs, st.data())
def test_the_verdict_equals_that_of_the_official_validator_and_casting_agrees(
    spec: dict[str, Any], data: st.DataObject
) -> None:
    form = DataForm(parse(spec))
    checker = jsonschema.FormatChecker([])
    for name, kind in (("date", date), ("time", time), ("date-time", datetime)):
        checker.checks(name, raises=msgspec.ValidationError)(lambda value, kind=kind: parses(value, kind))
    official = jsonschema.Draft202012Validator(form.schema, format_checker=checker)
    arguments = data.draw(arguments_for(form.schema))

    result = admitted(form, arguments)

    assert (result is not None) == official.is_valid(arguments)
    if result is not None:
        assert official.is_valid(msgspec.to_builtins(result))
        assert admitted(form, msgspec.to_builtins(result)) == result
        assert result.keys() <= spec.keys()


def parses(value: object, kind: type) -> bool:
    return not isinstance(value, str) or msgspec.convert(value, kind) is not None


@QUICK
@given(specs, st.data())
def test_a_fitting_default_is_published_and_delivered(spec: dict[str, Any], data: st.DataObject) -> None:
    form = DataForm(parse(spec))
    arguments = data.draw(fitting(form.schema))
    if admitted(form, arguments) is None or not arguments:
        return
    with_defaults = {name: {**spec[name], "default": arguments[name]} for name in arguments}

    defaulted = parse(with_defaults)

    jsonschema.Draft202012Validator.check_schema(defaulted.schema)
    present = {name: value for name, value in arguments.items() if value is not None}
    assert defaulted.cast({}) == defaulted.cast(present)


@QUICK
@given(
    st.dictionaries(st.text(max_size=5) | st.integers(), json_values | st.sampled_from(["string", "enum"]), max_size=3)
)
def test_any_data_is_either_a_spec_or_refused(spec: dict[Any, Any]) -> None:
    try:
        form = declared(spec, raw=False)
    except DefinitionError as error:
        assert "\n" not in error.message
    else:
        jsonschema.Draft202012Validator.check_schema(form.schema)
