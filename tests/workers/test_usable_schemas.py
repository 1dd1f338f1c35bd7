"""Which schemas of workers are shown to clients."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.capabilities.schemas.hostile import EXPRESSION, MUTUAL_EXPRESSION, doubling, many_patterns
from tests.protocol.conftest import asynchronous
from tests.workers.wire import at_work, hub_for_workers, wired
from waypost.capabilities.schemas.validators import Validator
from waypost.workers.frames import RegisterFunction
from waypost.workers.tools import MAX_SCHEMA_DEPTH, check_schemas, find_schema_problem

Schema = dict[str, Any]


def nested(levels: int) -> Schema:
    """A schema nested to a number of levels."""
    schema: Schema = {"type": "object"}
    for _ in range(levels):
        schema = {"type": "object", "properties": {"a": schema}}
    return schema


def wrapped(levels: int) -> Any:
    """A value in a number of nested lists."""
    value: Any = 1
    for _ in range(levels):
        value = [value]
    return value


GOOD: list[Schema] = [
    {},
    {"type": "object"},
    nested(MAX_SCHEMA_DEPTH),
    {"type": ["object", "null"], "required": ["a"], "additionalProperties": False},
    {"properties": {"a": {"$ref": "#/$defs/A"}, "b": True}, "$defs": {"A": {"type": "string", "pattern": "^a+$"}}},
    {"properties": {"a": {"anyOf": [{"enum": [1, None]}, {"const": {"x": 1}}], "default": {"x": [1]}}}},
    {"$schema": "http://json-schema.org/draft-07/schema#", "properties": {"a": {"items": {"minimum": 0.5}}}},
    {"patternProperties": {"^x-": {"type": "string"}}, "not": {"required": ["y"]}},
    EXPRESSION,
    MUTUAL_EXPRESSION,
    {"x-order": 5, "properties": {"a": {"nullable": True, "propertyNames": {"maxLength": 5}}}},
]
BAD: dict[str, Schema] = {
    "too deep": nested(MAX_SCHEMA_DEPTH + 1),
    "very deep": nested(300),
    "a deep default": {"properties": {"a": {"default": wrapped(300)}}},
    "a deep word of its own": {"x-tree": wrapped(300)},
    "required": {"required": [1]},
    "required twice": {"required": ["a", "a"]},
    "pattern": {"properties": {"a": {"type": "string", "pattern": "("}}},
    "title": {"title": 5},
    "type": {"properties": {"a": {"type": "any"}}},
    "types": {"properties": {"a": {"type": [["string"]]}}},
    "reference": {"properties": {"a": {"$ref": "#/$defs/Nothing"}}},
    "reference elsewhere": {"properties": {"a": {"$ref": "http://nowhere.example/schema"}}},
    "draft": {"$schema": "x"},
    "no schema": {"properties": {"a": {"items": 5}}},
    "nothing to choose": {"properties": {"a": {"anyOf": []}}},
    "negative": {"properties": {"a": {"maxLength": -1}}},
    "references that double": doubling(24),
    "many patterns": many_patterns(2000),
    "many subschemas": {"properties": {f"p{number}": {} for number in range(5000)}},
}


@pytest.mark.parametrize("schema", GOOD)
def test_a_schema_that_clients_can_use_is_usable(schema: Schema) -> None:
    assert find_schema_problem(schema) is None


@pytest.mark.parametrize("schema", BAD.values(), ids=BAD)
def test_a_schema_that_clients_cannot_use_is_not(schema: Schema) -> None:
    assert find_schema_problem(schema)


KEYWORDS = [
    *("a", "type", "title", "properties", "required", "items", "anyOf", "$ref", "$defs", "pattern", "enum"),
    *("default", "minimum", "maxLength", "additionalProperties", "uniqueItems", "examples", "const", "format"),
]
values = st.recursive(
    st.none() | st.booleans() | st.integers(-2, 3) | st.sampled_from(["string", "any", "a", "(", "#/$defs/a", "#"]),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.sampled_from(KEYWORDS), inner, max_size=4),
    max_leaves=12,
)


@given(st.dictionaries(st.sampled_from(["properties", "$defs", "items", "type", "required", "anyOf"]), values))
def test_every_usable_schema_makes_a_validator(schema: Schema) -> None:
    if find_schema_problem(schema) is None:
        Validator(schema)


@pytest.mark.parametrize("schema", BAD.values(), ids=BAD)
def test_a_function_with_such_a_schema_takes_any_object_and_keeps_its_words(schema: Schema) -> None:
    @asynchronous
    async def scenario() -> None:
        hub = hub_for_workers()
        said = {"type": "object", **schema, "description": "What it takes."}
        async with at_work(hub) as client, wired(hub) as worker:
            await worker.offer("a::b", description="Does it.", request_format=said, response_format=said)
            (tool,) = [tool for tool in await client.list_tools() if tool["name"] == "a__b"]
            assert tool["inputSchema"] == {"type": "object", "description": "What it takes."}
            assert tool["description"] == "Does it."
            assert "outputSchema" not in tool

    scenario()


@asynchronous
async def test_unusable_schemas_are_logged_a_few_times(caplog: pytest.LogCaptureFixture) -> None:
    hub = hub_for_workers()
    async with at_work(hub), wired(hub) as worker:
        await worker.offer(*(f"a::f{number}" for number in range(10)), request_format=BAD["pattern"])
        received = [record.getMessage() for record in caplog.records if "cannot be used" in record.getMessage()]
        assert len(received) == 3
        assert "a::f0" in received[0]


def test_what_takes_long_to_compile_is_compiled_before_the_first_call() -> None:
    def is_compiled(schema: Any) -> bool:
        return check_schemas(RegisterFunction("a::b", None, schema)).validator is not None

    def requiring(count: int, **more: Any) -> Any:
        return {"type": "object", "allOf": [{"properties": {f"p{n}": True}} for n in range(count)], **more}

    assert not is_compiled(requiring(1))
    assert not is_compiled(requiring(100))
    assert not is_compiled(requiring(1, unevaluatedProperties=False))
    assert is_compiled(requiring(100, unevaluatedProperties=False))
    assert is_compiled(requiring(1_000))
