import subprocess
import sys
import time
from contextlib import suppress
from typing import Any

import pytest

from tests.capabilities.schemas.hostile import (
    EXPRESSION,
    MUTUAL_EXPRESSION,
    doubling,
    expression,
    many_patterns,
    unevaluated,
)
from waypost.capabilities.schemas import validators
from waypost.capabilities.schemas.graph import (
    MAX_DEPTH,
    MAX_PROBLEMS,
    MAX_PROBLEMS_BYTES,
    MAX_SCHEMA_BYTES,
    MAX_SUBSCHEMAS,
)
from waypost.capabilities.schemas.validators import Validator, check_limits
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


def test_every_problem_is_reported_with_its_path() -> None:
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
def test_an_invalid_schema_is_refused_with_a_one_line_message(schema: dict[str, Any], sentence: str) -> None:
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
    started = time.thread_time()

    assert not validator.is_valid("a" * 100_000 + "b")
    assert time.thread_time() - started < 2


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
    with pytest.raises(DefinitionError, match="more than 4000 subschemas"):
        Validator(wide(MAX_SUBSCHEMAS + 1))


def test_a_deferred_validator_is_compiled_on_first_use() -> None:
    assert Validator.deferred({"type": "integer"}).problems("x") == ['must be of type integer, got "x"']
    wrong = Validator.deferred({"type": "bogus"})
    with pytest.raises(DefinitionError):
        wrong.is_valid(1)


def test_importing_the_schemas_does_not_load_the_engine() -> None:
    code = "import sys, waypost.capabilities.schemas.forms; sys.exit('jsonschema_rs' in sys.modules)"

    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0


def test_live_validators_of_the_same_schema_share_the_compiled_schema() -> None:
    validators._recent.clear()
    one, other = Validator({"const": "shared"}), Validator({"const": "shared"})
    assert one._compiled is other._compiled
    count = len(validators._shared)

    del one, other
    validators._recent.clear()

    assert len(validators._shared) < count


def test_a_large_compiled_schema_lives_no_longer_than_its_validators() -> None:
    validators._recent.clear()
    for size, kept in ((10, 1), (10_000, 0)):
        validator = Validator({"enum": [f"value {number}" for number in range(size)]})
        assert validator.is_valid("value 1")
        del validator
        assert len(validators._recent) == kept
        validators._recent.clear()


@pytest.mark.parametrize("schema", [EXPRESSION, MUTUAL_EXPRESSION])
def test_a_deep_value_of_a_recursive_union_is_checked_quickly(schema: dict[str, Any]) -> None:
    validator = Validator(schema)
    started = time.thread_time()

    assert validator.is_valid(expression(60, 1))
    assert not validator.is_valid(expression(60))
    assert validator.problems(expression(60)) == [
        f'expression{".left" * 60}.value: must be of type integer, got "wrong"'
    ]
    assert time.thread_time() - started < 10


@pytest.mark.parametrize("schema", ["EXPRESSION", "MUTUAL_EXPRESSION", "doubling(16)"])
def test_refusing_a_value_takes_little_memory(schema: str) -> None:
    code = f"""
import resource
from tests.capabilities.schemas.hostile import *
from waypost.capabilities.schemas.validators import Validator
validator = Validator({schema})
before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
assert validator.problems({{**expression(60), "a": 1}})
print(resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before)
"""
    run = subprocess.run([sys.executable, "-c", code], check=True, capture_output=True, text=True, timeout=90)

    assert int(run.stdout) < 64 * 1024  # KiB


@pytest.mark.parametrize(
    ("schema", "limit"),
    [
        (doubling(18), "a value may need more than 500000 checks, as unions and references multiply"),
        (doubling(24, "allOf"), "a value may need more than 500000 checks"),
        (doubling(1000, "oneOf"), "a value may need more than 500000 checks"),
        (unevaluated(30), "a value may need more than 500000 checks"),
        ({"enum": [number + 0.5 for number in range(5000)]}, "a value may need more than 500000 checks"),
        (many_patterns(2000), "its patterns have more than 40000 positions"),
        ({"patternProperties": {f"^{number}": {} for number in range(2000)}}, "more than 500 patterns"),
        ({"description": "x" * MAX_SCHEMA_BYTES}, f"more than {MAX_SCHEMA_BYTES} bytes"),
    ],
)
def test_a_schema_beyond_a_limit_is_refused_with_a_message_that_names_the_limit(
    schema: dict[str, Any], limit: str
) -> None:
    started = time.thread_time()

    for refuse in (Validator, check_limits):
        with pytest.raises(DefinitionError) as caught:
            refuse(schema)
        assert caught.value.message.startswith(f"invalid JSON Schema: {limit}")
        assert "\n" not in caught.value.message
    assert time.thread_time() - started < 5


def test_a_recursive_union_beside_unevaluated_keywords_is_refused() -> None:
    schema = {**MUTUAL_EXPRESSION, "allOf": [{"$ref": "#/$defs/And"}], "unevaluatedProperties": False}

    check_limits(schema)
    with pytest.raises(DefinitionError, match="contains itself several times next to `unevaluated` keywords"):
        Validator(schema)


@pytest.mark.parametrize("schema", [MUTUAL_EXPRESSION, {"type": "object"}])
def test_deeply_nested_data_in_a_schema_is_accepted_or_refused(schema: dict[str, Any]) -> None:
    default: list[Any] = []
    for _ in range(500):
        default = [default]

    with suppress(DefinitionError):
        Validator({**schema, "default": default})


@pytest.mark.parametrize(
    "schema", [{}, {"type": "bogus"}, {"$ref": "http://x.example/y"}, {"pattern": "("}, {"default": {1}}, EXPRESSION]
)
def test_a_schema_within_the_limits_need_not_be_valid_for_them(schema: dict[str, Any]) -> None:
    check_limits(schema)


LARGEST: dict[str, dict[str, Any]] = {
    "properties": {"properties": {f"p{number}": {"type": "string"} for number in range(MAX_SUBSCHEMAS - 1)}},
    "alternatives": {
        "oneOf": [{"properties": {"a": {"const": str(number)}}} for number in range(MAX_SUBSCHEMAS // 2 - 1)]
    },
    "a line of references": {
        "$ref": "#/$defs/d0",
        "$defs": {
            f"d{number}": {"properties": {"a": {"$ref": f"#/$defs/d{(number + 1) % 1990}"}}} for number in range(1990)
        },
    },
    "bytes": {"enum": ["x" * 20 + str(number) for number in range(35_000)]},
    "patterns": {"properties": {f"p{number}": {"pattern": f"^.{{1,95}}{number}$"} for number in range(95)}},
    "scripts": {"properties": {f"p{number}": {"pattern": f"^\\p{{L}}+{number}$"} for number in range(150)}},
}


@pytest.mark.parametrize("schema", LARGEST.values(), ids=LARGEST)
def test_the_largest_schemas_are_compiled_in_a_moment(schema: dict[str, Any]) -> None:
    started = time.thread_time()

    Validator(schema)

    assert time.thread_time() - started < 5  # about 0.1 on an idle machine


def test_a_large_invalid_schema_is_refused_quickly() -> None:
    schema: dict[str, Any] = {"type": "bogus", "description": "x" * 900_000}
    for _ in range(60):
        schema = {"items": schema}
    started = time.thread_time()

    with pytest.raises(DefinitionError) as caught:
        Validator({"$schema": "http://json-schema.org/draft-07/schema#", **schema})

    assert caught.value.message == "invalid JSON Schema: it does not follow the rules of its dialect"
    assert time.thread_time() - started < 5


TOO_LARGE: dict[str, tuple[dict[str, Any], Any]] = {
    "places": ({"items": {"multipleOf": 0.01}}, [1e300] * 20_000),
    "characters": ({"pattern": "^[01]*1[01]{1000}x$"}, "01" * 100_000),
    "names": ({"patternProperties": {"^[01]*1[01]{1000}x$": {}}}, {"01" * 100_000: 1}),
    "parts": (MUTUAL_EXPRESSION, {"expression": [expression(1, 1)["expression"]] * 200_000}),
    "depth": (MUTUAL_EXPRESSION, expression(300, 1)),
}


@pytest.mark.parametrize("case", TOO_LARGE)
def test_a_value_that_would_take_too_long_does_not_fit(case: str) -> None:
    schema, value = TOO_LARGE[case]
    validator = Validator(schema)
    started = time.thread_time()

    assert not validator.is_valid(value)
    [problem] = validator.problems(value)
    assert problem.startswith("is too large ")
    assert time.thread_time() - started < 10


@pytest.mark.parametrize(
    ("schema", "value"),
    [
        ({"items": {"multipleOf": 0.01}}, [12.5] * 1000),
        (
            {"properties": {"name": {"pattern": "^([a-z]{1,63}\\.)+$"}, "body": {}}},
            {"name": "a.b.", "body": "x" * 100_000},
        ),
        ({"items": {"enum": [0.5, 1, 2]}}, [0.5, 1, 2] * 1000),
    ],
)
def test_ordinary_values_are_not_too_large(schema: dict[str, Any], value: Any) -> None:
    assert Validator(schema).is_valid(value)


VERBOSE: dict[str, tuple[dict[str, Any], Any]] = {
    "a long text": ({"anyOf": [{"type": "integer"}] * 50}, "x" * 4_000_000),
    "a long text within": ({"properties": {"a": {"maxProperties": 0}}}, {"a": {"b": {"c": "x" * 4_000_000}}}),
    "many choices": ({"items": {"enum": [f"choice {number}" for number in range(10_000)]}}, ["x"] * 1000),
    "a long choice": ({"enum": ["x" * 100_000, "y" * 100_000]}, "z" * 100_000),
    "a long constant": ({"const": "x" * 100_000}, 1),
    "many names": ({"required": [f"name {number}" for number in range(10_000)]}, {"a": "x" * 100_000}),
    "many surplus names": ({"additionalProperties": False}, {f"name {number}": 1 for number in range(100_000)}),
    "long surplus names": ({"additionalProperties": False}, {f"{number}" + "x" * 10_000: 1 for number in range(100)}),
    "many wrong items": ({"items": {"type": "string"}}, [1] * 100_000),
    "many wrong items of unions": ({"items": {"anyOf": [{"type": "string"}, {"type": "null"}]}}, [1] * 100_000),
    "a long pattern": ({"pattern": "^" + "x" * 30_000}, "y"),
    "a long format": ({"format": "email"}, "x" * 1_000_000),
    "nested wrong items": (
        {"$ref": "#/$defs/n", "$defs": {"n": {"maxItems": 0, "items": {"$ref": "#/$defs/n"}}}},
        [[[["x" * 1_000_000] * 3] * 3] * 3] * 3,
    ),
}


@pytest.mark.parametrize("case", VERBOSE)
def test_problems_of_a_value_are_short_and_found_quickly(case: str) -> None:
    schema, value = VERBOSE[case]
    validator = Validator(schema)
    started = time.thread_time()

    problems = validator.problems(value)

    assert problems
    assert len("; ".join(problems)) < MAX_PROBLEMS_BYTES + 1000
    assert time.thread_time() - started < 10
