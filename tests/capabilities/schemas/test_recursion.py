import gc
import threading
from typing import Any
from weakref import ref

import jsonschema_rs
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.capabilities.schemas.hostile import (
    MUTUAL_EXPRESSION,
    chain,
    everything_refers_to_everything,
    expression,
    refer,
)
from waypost.capabilities.schemas.costs import assess
from waypost.capabilities.schemas.graph import MAX_CHECKS, SchemaGraph
from waypost.capabilities.schemas.validators import RecursiveCheck, TooMuchWork
from waypost.errors import DefinitionError


def check(schema: dict[str, Any], checks: int = 100) -> RecursiveCheck:
    graph = SchemaGraph(schema)
    return RecursiveCheck(graph, assess(graph).heads, checks, jsonschema_rs.validator_for)


def test_the_check_agrees_with_the_engine_on_expressions() -> None:
    fits, engine = check(MUTUAL_EXPRESSION), jsonschema_rs.validator_for(MUTUAL_EXPRESSION)

    for levels in range(5):
        for leaf in (1, "wrong"):
            value = expression(levels, leaf)
            assert fits(value) == engine.is_valid(value) == (leaf == 1)


def test_a_deep_value_takes_no_time() -> None:
    assert check(MUTUAL_EXPRESSION)(expression(60, 1))
    assert not check(MUTUAL_EXPRESSION)(expression(60))
    assert check(everything_refers_to_everything(12))(chain(60))


@pytest.mark.parametrize(
    "draft", ["http://json-schema.org/draft-07/schema#", "http://json-schema.org/draft-04/schema#"]
)
def test_in_old_dialects_keywords_beside_a_reference_are_ignored(draft: str) -> None:
    a = {"properties": {"a": {"$ref": "#/definitions/B", "type": "string"}}}
    b = {"allOf": [{"properties": {"a": {"$ref": "#/definitions/A"}}}] * 2}
    schema = {"$schema": draft, "$ref": "#/definitions/A", "type": "string", "definitions": {"A": a, "B": b}}

    assert check(schema)({"a": {"a": {"a": {}}}})


def test_a_reference_in_data_is_not_followed() -> None:
    schema = {**MUTUAL_EXPRESSION, "const": {"$ref": "#/$defs/And"}}

    assert check({**schema, "properties": {}})({"$ref": "#/$defs/And"})


def test_a_schema_cannot_use_the_keyword_itself() -> None:
    schema = {**MUTUAL_EXPRESSION, "waypost:recursion": "x"}

    assert check(schema)(expression(1, 1))


def test_a_schema_that_applies_only_itself_accepts_any_value() -> None:
    schema = {
        **refer("A"),
        "$defs": {"A": {"allOf": [refer("B"), refer("B")]}, "B": {"allOf": [refer("A"), refer("A")]}},
    }

    assert check(schema)({"a": 1})


def test_the_steps_are_limited() -> None:
    fits = check(MUTUAL_EXPRESSION, MAX_CHECKS // 10)

    with pytest.raises(TooMuchWork, match="too large or too deeply nested"):
        fits(expression(40, 1))
    assert fits(expression(0, 1))


def test_depth_is_limited() -> None:
    with pytest.raises(TooMuchWork, match="too large or too deeply nested"):
        check(MUTUAL_EXPRESSION)(expression(400, 1))


def test_several_threads_check_at_once() -> None:
    fits = check(MUTUAL_EXPRESSION)
    answers: list[bool] = []
    threads = [
        threading.Thread(target=lambda: answers.extend(fits(expression(20, 1)) for _ in range(20))) for _ in range(4)
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()

    assert answers == [True] * 80


def test_embedded_resources_are_refused() -> None:
    definitions = {**MUTUAL_EXPRESSION["$defs"], "other": {"$id": "other"}}

    with pytest.raises(DefinitionError, match="embeds other"):
        check({**MUTUAL_EXPRESSION, "$defs": definitions})


def test_the_check_is_freed_without_garbage_collection() -> None:
    fits = check(MUTUAL_EXPRESSION)
    weak = ref(fits)
    gc.disable()
    try:
        del fits
        assert weak() is None
    finally:
        gc.enable()


operands = st.recursive(
    st.sampled_from([{"op": "leaf", "value": 1}, {"op": "leaf", "value": "x"}, {"op": "leaf"}, 5]),
    lambda inner: st.fixed_dictionaries({"op": st.sampled_from(["and", "or", "xor"]), "left": inner, "right": inner}),
    max_leaves=6,
)


@settings(max_examples=150, deadline=None)
@given(operands)
def test_the_check_agrees_with_the_engine_on_any_value(operand: Any) -> None:
    value = {"expression": operand}

    assert check(MUTUAL_EXPRESSION)(value) == jsonschema_rs.validator_for(MUTUAL_EXPRESSION).is_valid(value)
