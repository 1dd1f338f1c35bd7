"""Why a value does not match: the messages, and the limited number of steps to find them."""

from typing import Any

import jsonschema_rs
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from tests.capabilities.schemas.hostile import (
    EXPRESSION,
    MUTUAL_EXPRESSION,
    chain,
    doubling,
    everything_refers_to_everything,
    expression,
    refer,
)
from waypost.capabilities.schemas.graph import MAX_PROBLEM_STEPS, SchemaGraph
from waypost.capabilities.schemas.problems import Parts, Problem, Reasons
from waypost.capabilities.schemas.validators import Validator
from waypost.errors import DefinitionError


@pytest.fixture(autouse=True)
def no_deadline(monkeypatch: pytest.MonkeyPatch) -> None:
    """Steps alone limit the search, so that a slow machine finds the same reasons as a fast one."""
    monkeypatch.setattr("waypost.capabilities.schemas.problems.MAX_PROBLEM_SECONDS", 60)


def look(schema: dict[str, Any], value: Any) -> tuple[list[Problem], int]:
    """The problems of a value, and in how many steps they were found."""
    reasons = Reasons(SchemaGraph(schema), Parts(jsonschema_rs.validator_for, None))
    return reasons.find(value), reasons.steps


def lines(schema: dict[str, Any], value: Any) -> list[str]:
    return [problem.line for problem in look(schema, value)[0]]


@pytest.mark.parametrize("schema", [EXPRESSION, MUTUAL_EXPRESSION])
@pytest.mark.parametrize("levels", [0, 1, 3, 60])
def test_the_branch_of_a_tagged_union_with_the_tag_is_followed_to_the_end(schema: dict[str, Any], levels: int) -> None:
    problems, steps = look(schema, expression(levels))

    assert [problem.line for problem in problems] == [
        f'expression{".left" * levels}.value: must be of type integer, got "wrong"'
    ]
    assert steps < 300 * (levels + 1)


@pytest.mark.parametrize("keyword", ["anyOf", "oneOf", "allOf"])
def test_branches_that_are_referenced_repeatedly_are_checked_once(keyword: str) -> None:
    problems, steps = look(doubling(30, keyword), {"a": 1})

    assert problems
    assert steps <= MAX_PROBLEM_STEPS or keyword == "allOf"


def test_problems_of_cyclic_references_are_found_in_limited_steps() -> None:
    problems, steps = look(everything_refers_to_everything(20), chain(60))

    assert len(problems) == 1
    assert steps < MAX_PROBLEM_STEPS + 100


def test_one_invalid_item_among_many_is_found() -> None:
    validator = Validator({"items": {"type": "object", "properties": {"id": {"type": "integer"}}}})
    rows: list[dict[str, Any]] = [{"id": number} for number in range(5000)]

    assert validator.problems([*rows, {"id": "x"}]) == ['[5000].id: must be of type integer, got "x"']


def test_one_invalid_member_among_many_is_found() -> None:
    validator = Validator({"additionalProperties": {"$ref": "#/$defs/n"}, "$defs": {"n": {"type": "integer"}}})
    members: dict[str, Any] = {f"k{number}": number for number in range(5000)}

    assert validator.problems({**members, "last": "x"}) == ['last: must be of type integer, got "x"']


@pytest.mark.parametrize("more", [{}, {"$id": "http://x.example/root"}, {"$defs": {"x": {"$id": "other"}}}])
def test_one_invalid_item_among_many_is_found_below_escaped_names(more: dict[str, Any]) -> None:
    validator = Validator({**more, "properties": {"a/b %~": {"items": {"anyOf": [{"type": "string"}, {"const": 1}]}}}})

    assert validator.problems({"a/b %~": ["x"] * 50 + [1, True]}) == ['["a/b %~"][51]: must be 1']


def test_a_reference_to_a_false_schema_is_explained() -> None:
    assert lines({"properties": {"a": refer("never")}, "$defs": {"never": False}}, {"a": 1}) == ["a: is not allowed"]


DRAFT_7 = "http://json-schema.org/draft-07/schema#"


@pytest.mark.parametrize(
    ("schema", "value", "expected"),
    [
        ({"if": {"type": "string"}, "then": {"minLength": 2}, "else": False}, "x", "must have at least 2 characters"),
        ({"if": {"type": "string"}, "then": {"minLength": 2}, "else": False}, 3, "is not allowed"),
        ({"dependentSchemas": {"a": {"required": ["b"]}}}, {"a": 1}, "b: is required"),
        ({"patternProperties": {"^n": {"type": "integer"}}}, {"n1": "x"}, 'n1: must be of type integer, got "x"'),
        (
            {"patternProperties": {"^n": {}}, "properties": {"m": {}}, "additionalProperties": False},
            {"n": 1, "m": 2, "o": 3},
            "o: is not allowed",
        ),
        ({"prefixItems": [{"type": "string"}], "items": False}, ["a", 1], "[1]: is not allowed"),
        ({"prefixItems": [{"type": "string"}]}, [1], "[0]: must be of type string, got 1"),
        ({"contains": {"const": 1}, "maxContains": 1}, [1, 1], "contains too many fitting items"),
        ({"contains": {"const": 1}, "minContains": 2}, [1], "must contain a fitting item"),
        ({"properties": {"a": {}}, "unevaluatedProperties": False}, {"a": 1, "b": 2}, "b: is not allowed"),
        (
            {"anyOf": [{"properties": {"a": {}}}, {"required": ["z"]}], "unevaluatedProperties": False},
            {"a": 1, "b": 2},
            "b: is not allowed",
        ),
        (
            {"if": {"required": ["a"]}, "then": {"properties": {"a": {}}}, "unevaluatedProperties": False},
            {"a": 1, "b": 2},
            "b: is not allowed",
        ),
        ({"prefixItems": [{}], "unevaluatedItems": False}, [1, 2], "[1]: is not allowed"),
        ({"contains": {"const": 1}, "unevaluatedItems": {"const": 2}}, [1, 2, 3], "[2]: must be 2"),
        ({"not": {"type": "string"}}, "x", "has a form that is not allowed"),
        ({"allOf": [{"$ref": "#/$defs/a"}], "$defs": {"a": {"minimum": 3}}}, 1, "must be at least 3, got 1"),
        ({"$schema": DRAFT_7, "items": [{}, {"type": "string"}]}, [1, 2], "[1]: must be of type string, got 2"),
        ({"$schema": DRAFT_7, "items": [{}], "additionalItems": False}, [1, 2], "[1]: is not allowed"),
        ({"$schema": DRAFT_7, "dependencies": {"a": ["b"]}}, {"a": 1}, "b: is required"),
        ({"$schema": DRAFT_7, "dependencies": {"a": {"required": ["c"]}}}, {"a": 1}, "c: is required"),
        (
            {"$schema": DRAFT_7, "$ref": "#/definitions/a", "type": "string", "definitions": {"a": {"minimum": 3}}},
            1,
            "must be at least 3, got 1",
        ),
        (
            {"$schema": "http://json-schema.org/draft-04/schema#", "minimum": 3, "exclusiveMinimum": True},
            3,
            "must be greater than 3, got 3",
        ),
    ],
)
def test_each_way_to_apply_a_subschema_is_explained(schema: dict[str, Any], value: Any, expected: str) -> None:
    assert Validator(schema).problems(value) == [expected]


names = st.sampled_from(["a", "b"])
definitions = ["T0", "T1", "T2"]
scalars = st.sampled_from([None, True, 0, 1, 2.5, "", "a", "abc"])
values = st.recursive(
    scalars,
    lambda inner: st.one_of(st.lists(inner, max_size=3), st.dictionaries(names, inner, max_size=2)),
    max_leaves=8,
)
leaf_schemas = st.one_of(
    st.booleans(),
    st.sampled_from(definitions).map(refer),
    st.sampled_from(
        [
            {"type": "object"},
            {"type": "array"},
            {"type": ["string", "integer"]},
            {"minimum": 1},
            {"maxLength": 2},
            {"const": 1},
            {"enum": ["a", 0]},
            {"required": ["a"]},
            {"minItems": 1},
            {"maxProperties": 1},
            {"pattern": "^a"},
            {"uniqueItems": True},
            {"dependentRequired": {"a": ["b"]}},
        ]
    ),
)


def containers(inner: st.SearchStrategy[Any]) -> st.SearchStrategy[Any]:
    several = st.lists(inner, min_size=1, max_size=3)
    members = st.dictionaries(names, inner, min_size=1, max_size=2)
    keywords: dict[str, st.SearchStrategy[Any]] = {
        **dict.fromkeys(("allOf", "anyOf", "oneOf", "prefixItems"), several),
        **dict.fromkeys(("properties", "dependentSchemas"), members),
        **dict.fromkeys(("items", "additionalProperties", "not", "if", "then", "else", "contains"), inner),
        **dict.fromkeys(("unevaluatedProperties", "unevaluatedItems"), inner),
        "patternProperties": inner.map(lambda part: {"^a": part}),
        "propertyNames": st.sampled_from([{"maxLength": 0}, {"const": "a"}]),
    }
    return st.lists(st.sampled_from(sorted(keywords)), min_size=1, max_size=3, unique=True).flatmap(
        lambda chosen: st.fixed_dictionaries({keyword: keywords[keyword] for keyword in chosen})
    )


schemas = st.builds(
    lambda root, parts: {
        **(root if isinstance(root, dict) else {}),
        "$defs": dict(zip(definitions, parts, strict=True)),
    },
    st.recursive(leaf_schemas, containers, max_leaves=6),
    st.tuples(*[st.recursive(leaf_schemas, containers, max_leaves=4)] * 3),
)


def leads_back_in_place(schema: dict[str, Any]) -> bool:
    """Whether a schema applies itself to the same value, which has no defined result."""
    in_place = ("allOf", "anyOf", "oneOf", "not", "if", "then", "else", "dependentSchemas")

    def reached(part: Any) -> set[str]:
        if not isinstance(part, dict):
            return set()
        found = {part["$ref"].rpartition("/")[2]} if "$ref" in part else set()
        for keyword in in_place:
            inner = part.get(keyword)
            for one in (
                inner
                if isinstance(inner, list)
                else inner.values()
                if keyword == "dependentSchemas" and inner
                else [inner]
            ):
                found |= reached(one)
        return found

    edges = {name: reached(part) for name, part in schema["$defs"].items()}
    for _ in edges:
        edges = {name: found.union(*(edges[one] for one in found)) for name, found in edges.items()}
    return any(name in found for name, found in edges.items())


@settings(max_examples=400, deadline=None, suppress_health_check=[HealthCheck.too_slow, HealthCheck.filter_too_much])
@given(schemas.filter(lambda schema: not leads_back_in_place(schema)), values)
def test_there_are_problems_exactly_if_the_engine_rejects_a_value(schema: dict[str, Any], value: Any) -> None:
    try:
        validator = Validator(schema)
    except DefinitionError:
        return
    is_valid = jsonschema_rs.validator_for(schema).is_valid(value)

    problems = validator.problems(value)

    assert validator.is_valid(value) == is_valid == (not problems)
    assert problems != ["does not fit its schema"]
    assert is_valid or look(schema, value)[1] <= MAX_PROBLEM_STEPS + 100
