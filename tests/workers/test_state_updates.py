"""Operations that change a value in place."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from waypost.workers.state import apply_updates

DEEP: Any = {}
for _ in range(20):
    DEEP = {"a": DEEP}


@pytest.mark.parametrize(
    ("old", "operation", "new"),
    [
        (None, {"type": "set", "path": "a", "value": 1}, {"a": 1}),
        (None, {"type": "set", "value": 1}, 1),
        ({"a": 1}, {"type": "set", "path": "", "value": 2}, 2),
        ({"a": {"b": 1}}, {"type": "set", "path": ["a", "c"], "value": 2}, {"a": {"b": 1, "c": 2}}),
        ({"a.b": 1}, {"type": "set", "path": "a.b", "value": 2}, {"a.b": 2}),
        ("text", {"type": "set", "path": "a", "value": 1}, {"a": 1}),
        ({"n": 1}, {"type": "increment", "path": "n", "by": 2}, {"n": 3}),
        (None, {"type": "increment", "path": "n"}, {"n": 1}),
        ({"n": 1.5}, {"type": "decrement", "path": "n", "by": 0.5}, {"n": 1.0}),
        ({"l": [1]}, {"type": "append", "path": "l", "value": 2}, {"l": [1, 2]}),
        ({"l": "a"}, {"type": "append", "path": "l", "value": "b"}, {"l": "ab"}),
        (None, {"type": "append", "path": "l", "value": 1}, {"l": [1]}),
        ({"a": 1, "b": 2}, {"type": "remove", "path": "a"}, {"b": 2}),
        ({"a": {"b": 1}}, {"type": "remove", "path": ["a", "b"]}, {"a": {}}),
        ({"a": 1}, {"type": "remove", "path": ["x", "y"]}, {"a": 1}),
        ({"a": 1}, {"type": "merge", "value": {"b": 2}}, {"a": 1, "b": 2}),
        ({"a": {"b": 1}}, {"type": "merge", "path": ["a"], "value": {"c": 2}}, {"a": {"b": 1, "c": 2}}),
    ],
)
def test_an_operation_changes_the_value(old: Any, operation: Any, new: Any) -> None:
    before = repr(old)
    assert asyncio.run(apply_updates(old, [operation])) == (new, [])
    assert repr(old) == before


@pytest.mark.parametrize(
    ("old", "operation", "code"),
    [
        (None, {"type": "explode"}, "op.unknown"),
        (None, "nonsense", "op.unknown"),
        (None, {"type": ["set"]}, "op.unknown"),
        ({"n": "x"}, {"type": "increment", "path": "n"}, "increment.type_mismatch"),
        ({"n": True}, {"type": "increment", "path": "n"}, "increment.type_mismatch"),
        ({"n": 1}, {"type": "increment", "path": "n", "by": "x"}, "increment.type_mismatch"),
        ({"l": 5}, {"type": "append", "path": "l", "value": 1}, "append.type_mismatch"),
        ("text", {"type": "append", "path": "l", "value": 1}, "append.target_not_object"),
        (None, {"type": "merge", "value": 5}, "merge.value.not_an_object"),
        (None, {"type": "merge", "value": {"__proto__": 1}}, "merge.value.proto_polluted"),
        (None, {"type": "merge", "value": {str(n): n for n in range(1025)}}, "merge.value.too_many_keys"),
        (None, {"type": "merge", "value": DEEP}, "merge.value.too_deep"),
        (None, {"type": "set", "path": ["constructor"], "value": 1}, "set.path.proto_polluted"),
        (None, {"type": "set", "path": ["a"] * 33, "value": 1}, "set.path.too_deep"),
        (None, {"type": "set", "path": "a" * 257, "value": 1}, "set.path.segment_too_long"),
        (None, {"type": "set", "path": {"a": 1}, "value": 1}, "set.path.invalid"),
        (None, {"type": "set", "path": [1], "value": 1}, "set.path.invalid"),
    ],
)
def test_an_invalid_operation_is_reported_and_the_others_are_applied(old: Any, operation: Any, code: str) -> None:
    value, errors = asyncio.run(apply_updates(old, [operation, {"type": "set", "path": "done", "value": True}]))
    assert [(error["op_index"], error["code"]) for error in errors] == [(0, code)]
    assert value["done"] is True


def test_many_operations_leave_turns_for_others() -> None:
    turns = 0

    async def count_turns() -> None:
        nonlocal turns
        while True:
            await asyncio.sleep(0)
            turns += 1

    async def scenario() -> list[int]:
        other = asyncio.create_task(count_turns())
        operations = [{"type": "append", "path": "a", "value": number} for number in range(20_000)]
        value, errors = await apply_updates({"a": [-1]}, operations)
        other.cancel()
        assert not errors
        numbers: list[int] = value["a"]
        return numbers

    assert asyncio.run(scenario()) == list(range(-1, 20_000))
    assert turns >= 3


def test_the_old_value_stays_as_it_was() -> None:
    old = {"list": [1], "object": {"a": {"b": 1}}}
    operations = [
        {"type": "append", "path": "list", "value": 2},
        {"type": "merge", "path": ["object", "a"], "value": {"c": 2}},
        {"type": "set", "path": ["object", "a", "b"], "value": 3},
    ]
    new, _ = asyncio.run(apply_updates(old, operations))
    assert new == {"list": [1, 2], "object": {"a": {"b": 3, "c": 2}}}
    assert old == {"list": [1], "object": {"a": {"b": 1}}}
