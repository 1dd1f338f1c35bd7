"""What workers say of arguments and answers, as JSON Schema."""

from __future__ import annotations

from typing import Any

import pytest

from tests.protocol.conftest import asynchronous
from tests.workers.wire import at_work, hub_for_workers, wired
from waypost.workers.tools import input_schema, output_schema

OPEN = {"type": "object"}
FIELD = {"name": "n", "type": "number", "description": "How many", "required": True}


@pytest.mark.parametrize(
    ("given", "schema"),
    [
        (None, OPEN),
        (True, OPEN),
        ("text", OPEN),
        ([], OPEN),
        ({}, OPEN),
        ({"type": "string"}, OPEN),
        ({"type": "object", "properties": "none"}, OPEN),
        ({"type": "object", "properties": {"a": 5}}, OPEN),
        ({"type": "object", "required": "a"}, OPEN),
        ({"type": ["object", "null"], "required": ["a"]}, {"type": "object", "required": ["a"]}),
        ({"properties": {"a": {"type": "string"}}}, {"type": "object", "properties": {"a": {"type": "string"}}}),
        (
            {"type": "object", "properties": {"a": True, "b": {"type": "string"}}},
            {"type": "object", "properties": {"a": {}, "b": {"type": "string"}}},
        ),
        ({"$schema": "x", "title": "T", "type": "object"}, {"$schema": "x", "title": "T", "type": "object"}),
        (
            {"name": "input", "type": "object", "body": [FIELD, {"name": "o", "type": "string"}, "odd", {"type": "x"}]},
            {
                "type": "object",
                "properties": {"n": {"type": "number", "description": "How many"}, "o": {"type": "string"}},
                "required": ["n"],
            },
        ),
        (
            {"name": "m", "type": "any", "body": [{"name": "x", "type": "any", "description": "Whatever"}]},
            {"type": "object", "properties": {"x": {"description": "Whatever"}}},
        ),
        (
            {"name": "m", "type": "map", "body": [{"name": "l", "type": "array", "items": {"type": "string"}}]},
            {"type": "object", "properties": {"l": {"type": "array", "items": {"type": "string"}}}},
        ),
    ],
)
def test_any_format_of_a_worker_becomes_the_schema_of_an_object(given: Any, schema: Any) -> None:
    assert input_schema(given) == schema


@pytest.mark.parametrize(
    ("given", "schema"),
    [
        (None, None),
        ({"type": "string"}, None),
        ({"title": "AnyValue"}, None),
        ({"type": "object", "properties": {"a": True}}, {"type": "object", "properties": {"a": {}}}),
        ({"name": "out", "type": "object", "body": []}, {"type": "object", "properties": {}}),
        ({"name": "out", "type": "string"}, None),
    ],
)
def test_an_answer_has_a_schema_where_it_is_an_object(given: Any, schema: Any) -> None:
    assert output_schema(given) == schema


def test_a_deeply_nested_format_is_cut() -> None:
    field: dict[str, Any] = {"name": "f", "type": "object"}
    for _ in range(500):
        field = {"name": "f", "type": "object", "body": [field]}
    depth, schema = 0, input_schema(field)
    while "properties" in schema:
        depth, schema = depth + 1, schema["properties"]["f"]
    assert depth == 32


FORM = {"type": "object", "properties": {"n": {"type": "integer"}}, "required": ["n"]}


@asynchronous
async def test_payloads_between_workers_are_checked_if_the_function_declares_a_schema() -> None:
    hub = hub_for_workers()
    async with at_work(hub), wired(hub) as owner, wired(hub) as caller:
        await owner.offer("a::typed", name="owner", request_format=FORM)
        await owner.offer("a::any", name="owner")
        await caller.introduce("caller")
        for wrong in ({"n": "x"}, {}, None, [1], "text"):
            error = await caller.error("a::typed", wrong)
            assert error["code"] == "invocation_failed"
            assert error["message"].startswith("The payload does not fit: ")
        for function, payload in (("a::typed", {"n": 1, "more": 2}), ("a::any", "text"), ("a::any", None)):
            asked = await caller.ask(function, payload)
            assert (await owner.serve(function, "fine"))["data"] == payload
            assert (await caller.next("invocationresult", invocation_id=asked))["result"] == "fine"


@asynchronous
async def test_events_of_triggers_are_not_checked_against_the_schema() -> None:
    hub = hub_for_workers()
    async with at_work(hub), wired(hub) as owner:
        await owner.offer("a::typed", name="owner", request_format=FORM)
        await owner.send("registertrigger", id="b", trigger_type="state", function_id="a::typed", config={})
        await owner.result("state::set", {"scope": "s", "key": "k", "value": 1})
        assert (await owner.next("invokefunction", function_id="a::typed"))["data"]["key"] == "k"
