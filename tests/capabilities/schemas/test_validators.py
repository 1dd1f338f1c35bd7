import subprocess
import sys
import time
from typing import Any

import pytest

from waypost.capabilities.schemas.validators import MAX_DEPTH, MAX_PROBLEMS, MAX_SUBSCHEMAS, Validator
from waypost.errors import DefinitionError

ADDRESS = {
    "type": "object",
    "properties": {
        "address": {"type": "object", "properties": {"street": {"type": "string"}}, "required": ["street"]},
        "rows": {"type": "array", "items": {"type": "object", "properties": {"id": {"type": "integer"}}}},
    },
    "required": ["x"],
}


def test_a_fitting_value_has_no_problems() -> None:
    validator = Validator(ADDRESS)

    assert validator.is_valid({"x": 1, "address": {"street": "Main"}})
    assert validator.problems({"x": 1, "address": {"street": "Main"}}) == []
    assert validator.schema is ADDRESS


def test_every_problem_is_reported_at_its_place() -> None:
    validator = Validator(ADDRESS)
    value = {"address": {}, "rows": [{"id": "a"}]}

    assert not validator.is_valid(value)
    assert sorted(validator.problems(value)) == [
        "address.street: is required",
        'rows[0].id: must be of type integer, got "a"',
        "x: is required",
    ]
    assert validator.problems(value) == validator.problems(value)


def test_a_problem_of_the_root_has_no_path() -> None:
    assert Validator({"type": "object"}).problems(3) == ["must be of type object, got 3"]


@pytest.mark.parametrize(
    ("schema", "sentence"),
    [
        ({"properties": {"a": {"type": "strin"}}}, "properties.a.type: "),
        ({"properties": {"a": {"minimum": "x"}}}, 'properties.a.minimum: must be of type number, got "x"'),
        ({"pattern": "("}, "pattern: must be a valid regex"),
        ({"pattern": "(?=a)b"}, "look-around and back-references are not supported"),
        ({"$ref": "#/$defs/nope"}, "/$defs/nope"),
        ({"$ref": "https://example.com/schema.json"}, "https://example.com/schema.json"),
        ({"$ref": "file:///etc/passwd"}, "file:///etc/passwd"),
        ({"$ref": "other.json"}, "other.json"),
        ({"$schema": "https://example.com/meta"}, "Unknown meta-schema"),
        ({"default": {1, 2}}, "not expressible in JSON"),
        ({"minimum": float("nan")}, "not expressible in JSON"),
    ],
)
def test_an_invalid_schema_is_refused_with_one_sentence(schema: dict[str, Any], sentence: str) -> None:
    with pytest.raises(DefinitionError) as caught:
        Validator(schema)

    assert caught.value.message.startswith("invalid JSON Schema: ")
    assert sentence in caught.value.message
    assert "\n" not in caught.value.message


def test_references_inside_the_schema_are_followed() -> None:
    validator = Validator(
        {"$ref": "#/$defs/node", "$defs": {"node": {"items": {"$ref": "#/$defs/node"}, "type": "array"}}}
    )

    assert validator.is_valid([[], [[]]])
    assert validator.problems([[], [3]]) == ["[1][0]: must be of type array, got 3"]


def test_the_dialect_follows_the_schema_keyword() -> None:
    draft_7 = Validator({"$schema": "http://json-schema.org/draft-07/schema#", "items": [{"type": "string"}]})

    assert draft_7.problems([1]) == ["[0]: must be of type string, got 1"]
    with pytest.raises(DefinitionError):
        Validator({"items": [{"type": "string"}]})


def test_a_hostile_pattern_is_matched_in_linear_time() -> None:
    validator = Validator({"pattern": "^(a+)+$"})
    started = time.perf_counter()

    assert not validator.is_valid("a" * 100_000 + "b")
    assert time.perf_counter() - started < 1


@pytest.mark.parametrize(
    ("name", "good", "bad"),
    [
        ("date", ["2026-02-28"], ["2026-02-30", "0000-01-01", "28.2.2026", "20260228"]),
        ("time", ["10:30:00", "10:30:00Z", "10:30:00.5+02:00"], ["10:30", "25:00:00"]),
        ("date-time", ["2026-02-28T10:30:00Z", "2026-02-28T10:30:00"], ["2026-02-28", "yesterday"]),
        ("email", ["a@example.com"], ["a"]),
        ("uri", ["https://example.com/x"], ["x y"]),
        ("of-my-own", ["anything"], []),
    ],
)
def test_formats_are_asserted(name: str, good: list[str], bad: list[str]) -> None:
    validator = Validator({"format": name})

    assert [value for value in good if not validator.is_valid(value)] == []
    assert [value for value in bad if validator.is_valid(value)] == []


@pytest.mark.parametrize("value", [object(), {1: 2}, "\ud800", b"x"])
def test_a_value_that_json_cannot_express_does_not_fit(value: Any) -> None:
    validator = Validator({"type": ["object", "string", "array"]})

    assert not validator.is_valid(value)
    [problem] = validator.problems(value)
    assert problem.startswith("is not a JSON value: ")


def test_a_huge_value_is_answered_with_its_first_problem() -> None:
    validator = Validator({"items": {"type": "string"}})

    assert validator.problems([0] * 200_000) == ["[0]: must be of type string, got 0"]
    assert validator.problems(["x"] * 200_000) == []


def test_the_number_of_problems_is_bounded() -> None:
    problems = Validator({"items": {"type": "string"}}).problems([0] * 150)

    assert len(problems) == MAX_PROBLEMS + 1
    assert problems[-1] == "and 50 more problems"


def nested(levels: int) -> dict[str, Any]:
    schema: dict[str, Any] = {}
    for _ in range(levels - 1):
        schema = {"type": "object", "properties": {"child": schema}}
    return schema


def test_nesting_is_bounded() -> None:
    assert Validator(nested(MAX_DEPTH)).is_valid({})
    with pytest.raises(DefinitionError, match="nested deeper than 64 levels"):
        Validator(nested(MAX_DEPTH + 1))
    with pytest.raises(DefinitionError, match="nested deeper than 64 levels"):
        Validator(nested(100_000))


def test_a_schema_that_holds_itself_is_refused() -> None:
    schema: dict[str, Any] = {}
    schema["not"] = schema
    default: dict[str, Any] = {}
    default["default"] = default

    for endless in (schema, default):
        with pytest.raises(DefinitionError):
            Validator(endless)


def test_the_number_of_subschemas_is_bounded() -> None:
    def wide(count: int) -> dict[str, Any]:
        return {"anyOf": [{"const": number} for number in range(count - 1)]}

    assert Validator(wide(MAX_SUBSCHEMAS)).is_valid(3)
    with pytest.raises(DefinitionError, match="more than 10000 subschemas"):
        Validator(wide(MAX_SUBSCHEMAS + 1))


def test_a_deferred_validator_is_compiled_when_first_asked() -> None:
    assert Validator.deferred({"type": "integer"}).problems("x") == ['must be of type integer, got "x"']
    wrong = Validator.deferred({"type": "bogus"})
    with pytest.raises(DefinitionError):
        wrong.is_valid(1)


def test_importing_the_schemas_does_not_load_the_engine() -> None:
    code = "import sys, waypost.capabilities.schemas.forms; sys.exit('jsonschema_rs' in sys.modules)"

    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0
