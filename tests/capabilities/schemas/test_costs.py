from typing import Any

import pytest

from tests.capabilities.schemas.hostile import (
    EXPRESSION,
    MUTUAL_EXPRESSION,
    doubling,
    everything_refers_to_everything,
    refer,
    unevaluated,
)
from waypost.capabilities.schemas.costs import Cost, assess
from waypost.capabilities.schemas.graph import FREE_CHECKS_PER_CHARACTER, FREE_CHECKS_PER_PLACE, SchemaGraph


def cost(schema: dict[str, Any]) -> Cost:
    return assess(SchemaGraph(schema))


def checks(schema: dict[str, Any]) -> int:
    return cost(schema).per_place


@pytest.mark.parametrize("keyword", ["anyOf", "allOf", "oneOf"])
def test_references_that_double_cost_twice_as_much_with_each_level(keyword: str) -> None:
    few, more = checks(doubling(10, keyword)), checks(doubling(20, keyword))

    assert more // few == pytest.approx(2**10, rel=0.01)


def test_references_that_double_a_thousand_times_are_measured_quickly() -> None:
    assert checks(doubling(1000)) > 2**1000


def test_members_of_different_names_do_not_add_up() -> None:
    one = {"type": "object", "properties": {"a": {"type": "string"}}}
    many = {"type": "object", "properties": {name: {"type": "string"} for name in "abcdefgh"}}

    assert checks(one) == checks(many) < FREE_CHECKS_PER_PLACE


def test_the_same_definition_under_different_names_does_not_add_up() -> None:
    definitions: dict[str, Any] = {"T0": {"type": "string"}}
    for level in range(20):
        definitions[f"T{level + 1}"] = {"properties": {"a": refer(f"T{level}"), "b": refer(f"T{level}")}}

    assert checks({**refer("T20"), "$defs": definitions}) < FREE_CHECKS_PER_PLACE


def test_members_and_items_do_not_add_up() -> None:
    part = {"anyOf": [{"type": "string"}] * 10}

    assert checks({"properties": {"a": part}, "items": part}) == checks({"items": part})


@pytest.mark.parametrize(
    "twice",
    [
        {"patternProperties": {"^a": {"type": "string"}, "^b": {"type": "string"}}},
        {"items": {"type": "string"}, "contains": {"type": "string"}},
        {"allOf": [{"properties": {"a": {"type": "string"}}}, {"properties": {"a": {"type": "string"}}}]},
        {"if": {"type": "string"}, "then": {"type": "string"}},
        {"dependentSchemas": {"a": {"type": "string"}, "b": {"type": "string"}}},
        {"$ref": "#/$defs/a", "not": {"type": "string"}, "$defs": {"a": {"type": "string"}}},
    ],
)
def test_subschemas_applied_to_the_same_value_add_up(twice: dict[str, Any]) -> None:
    assert checks(twice) >= 3


def test_nested_unevaluated_keywords_multiply() -> None:
    assert checks(unevaluated(10)) > 2 * checks(unevaluated(9)) > 4 * checks(unevaluated(8))


@pytest.mark.parametrize(
    "schema",
    [
        {"enum": [0.5, 1.5]},
        {"enum": [1, 2]},
        {"enum": [{"a": 1}, [1]]},
        {"enum": ["a", 2]},
        {"const": 0.5},
        {"multipleOf": 0.01},
        {"allOf": [{"minimum": 1, "maximum": 2}, {"exclusiveMinimum": 1}]},
        {"dependentRequired": {str(number): ["a"] for number in range(100)}},
    ],
)
def test_keywords_that_compare_numbers_or_many_keys_are_not_free(schema: dict[str, Any]) -> None:
    assert checks(schema) > FREE_CHECKS_PER_PLACE


@pytest.mark.parametrize(
    "schema",
    [
        {"type": "integer", "minimum": 0, "maximum": 10},
        {"enum": [f"option {number}" for number in range(1000)]},
        {"type": "array", "items": {"type": "string", "format": "date"}, "uniqueItems": True},
        {"properties": {"a": {"anyOf": [{"type": "string"}, {"type": "null"}]}}, "required": ["a"]},
        {"type": "object", "properties": {"id": {"type": "string", "pattern": "^[a-z]+$"}}},
    ],
)
def test_ordinary_schemas_are_free(schema: dict[str, Any]) -> None:
    assert cost(schema).per_place <= FREE_CHECKS_PER_PLACE
    assert cost(schema).per_character <= FREE_CHECKS_PER_CHARACTER


def test_patterns_cost_by_character_and_add_up() -> None:
    heavy = {"pattern": "^[01]*1[01]{20}x$"}

    assert cost({"items": heavy}).per_character == cost(heavy).per_character > FREE_CHECKS_PER_CHARACTER
    assert cost({"allOf": [heavy, heavy]}).per_character == 2 * cost(heavy).per_character
    assert cost({"properties": {"a": heavy, "b": heavy}}).per_character == cost(heavy).per_character


TREE = {"$defs": {"T": {"properties": {"left": refer("T"), "right": refer("T")}}}, **refer("T")}
JSON = {
    "$defs": {
        "J": {
            "anyOf": [
                {"type": "string"},
                {"type": "array", "items": refer("J")},
                {"type": "object", "additionalProperties": refer("J")},
            ]
        }
    },
    **refer("J"),
}


@pytest.mark.parametrize("schema", [TREE, JSON, {"properties": {"next": {"$ref": "#"}}}])
def test_a_recursive_schema_that_applies_itself_once_to_each_part_does_not_multiply(schema: dict[str, Any]) -> None:
    assert cost(schema).heads
    assert not cost(schema).is_multiplying
    assert cost(schema).per_place <= FREE_CHECKS_PER_PLACE


def test_a_union_that_refers_only_to_itself_does_not_multiply() -> None:
    assert cost(EXPRESSION).heads
    assert not cost(EXPRESSION).is_multiplying


SKIPPING = {"properties": {"a": {**refer("A"), "properties": {"a": refer("B")}}}}


@pytest.mark.parametrize(
    "schema",
    [
        MUTUAL_EXPRESSION,
        everything_refers_to_everything(3),
        {**refer("A"), "$defs": {"A": SKIPPING, "B": {"allOf": [refer("A")]}}},
        {
            **refer("B"),
            "$defs": {"A": {"allOf": [{"$id": "#x", **refer("B")}, refer("B")]}, "B": {"items": refer("A")}},
        },
    ],
)
def test_recursion_that_meets_itself_several_times_on_a_path_multiplies(schema: dict[str, Any]) -> None:
    assert cost(schema).is_multiplying


def test_a_reference_back_to_its_container_is_found_on_every_path() -> None:
    inner = {"properties": {"a": {"$ref": "#/$defs/Outer"}}}
    schema = {"$ref": "#/$defs/Outer/properties/b", "$defs": {"Outer": {"properties": {"b": inner, "c": inner}}}}

    assert list(cost(schema).heads.values()) == [schema["$defs"]["Outer"]]  # type: ignore[index]
