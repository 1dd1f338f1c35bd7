"""Mappings into the context, and templates of arguments."""

from __future__ import annotations

import copy
import json
import math
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from waypost.errors import DefinitionError
from waypost.workflows.scope import MISSING, NESTED_ROOTS, Scope, compile_mapping, compile_template

SCOPE = Scope(
    {"tries": 2, "price": 2.5, "name": "ann", "null": None, "flag": True, "list": [1, {"a": "ö"}], "huge": 10**400},
    {"n": 3},
    {"who": "bob"},
    id="wf_1",
    version=4,
    output={"json": {"n": 5}},
)


def mapped(value: Any, scope: Scope = SCOPE) -> Any:
    return compile_mapping({"slot": value}).apply(scope)["slot"]


@pytest.mark.parametrize(
    ("value", "written"),
    [
        ("$.output", {"json": {"n": 5}}),
        ("$.output.json.n", 5),
        ("$.context.name", "ann"),
        ("$.arguments.n", 3),
        ("$.workflow.input.who", "bob"),
        ("$.input.who", "bob"),
        ("$.workflow.version", 4),
        ("$.context.missing", None),
        ("$.context.null", None),
        ("plain text", "plain text"),
        ("$5", "$5"),
        ("", ""),
        (7, 7),
        (None, None),
        (True, True),
        ([1, "$.context.name"], [1, "$.context.name"]),
        ({"a": "$.context.name", "b": 1}, {"a": "$.context.name", "b": 1}),
        ({"other": [1]}, {"other": [1]}),
        ({"add": [1, 2], "set": 3}, {"add": [1, 2], "set": 3}),
        ({}, {}),
        ({"set": "$.context.name"}, "$.context.name"),
        ({"set": "$.50"}, "$.50"),
        ({"set": {"add": [1, 2]}}, {"add": [1, 2]}),
        ({"set": None}, None),
        ({"add": ["$.context.tries", 1]}, 3),
        ({"add": ["$.context.missing", 1]}, 1),
        ({"add": ["$.context.null", None]}, 0),
        ({"add": ["$.context.price", 0.5]}, 3),
        ({"add": [0.1, 0.2]}, 0.1 + 0.2),
        ({"add": ["$.context.name", 1]}, None),
        ({"add": ["$.context.flag", 1]}, None),
        ({"add": ["$.context.list", 1]}, None),
        ({"add": ["$.context.huge", 0.5]}, None),
        ({"add": [9223372036854775807, 1]}, 9.223372036854775808e18),
        ({"subtract": ["$.context.tries", "$.arguments.n"]}, -1),
        ({"subtract": ["$.context.missing", 4]}, -4),
        ({"multiply": ["$.context.price", 2]}, 5),
        ({"multiply": ["$.context.tries", "$.context.missing"]}, 0),
        ({"multiply": [1e300, 1e300]}, None),
        ({"multiply": [1e300, 1]}, 1e300),
        ({"multiply": ["$.context.huge", "$.context.huge"]}, None),
        ({"divide": [7, 2]}, 3.5),
        ({"divide": [8, 2]}, 4),
        ({"divide": [9007199254740993, 1]}, 9007199254740993),
        ({"divide": [1, 0]}, None),
        ({"divide": [1, 0.0]}, None),
        ({"divide": ["$.context.tries", "$.context.missing"]}, None),
        ({"divide": ["$.context.missing", 2]}, 0),
        ({"add": [{"multiply": ["$.context.tries", 10]}, 1]}, 21),
        ({"concat": ["v", "$.context.tries", "-", "$.context.name"]}, "v2-ann"),
        ({"concat": ["$.context.missing", None]}, "nullnull"),
        ({"concat": ["$.context.flag", " ", "$.context.price", " ", "$.context.list"]}, 'true 2.5 [1,{"a":"ö"}]'),
        ({"concat": ["n=", {"add": ["$.context.tries", 1]}]}, "n=3"),
        ({"concat": []}, ""),
    ],
)
def test_a_slot_gets_its_value(value: Any, written: Any) -> None:
    result = mapped(value)

    assert result == written
    assert type(result) is type(written)


def test_integral_results_are_integers() -> None:
    assert repr(mapped({"add": [0.5, 0.5]})) == "1"
    assert repr(mapped({"divide": [5, 2.5]})) == "2"


def test_all_values_are_computed_before_any_is_written() -> None:
    scope = Scope({"a": 1, "b": 2}, {}, {})
    mapping = compile_mapping({"a": "$.context.b", "b": "$.context.a", "sum": {"add": ["$.context.a", "$.context.b"]}})

    assert mapping.apply(scope) == {"a": 2, "b": 1, "sum": 3}
    assert scope.context == {"a": 1, "b": 2}


def test_an_empty_mapping_writes_nothing() -> None:
    assert compile_mapping({}).apply(SCOPE) == {}


@pytest.mark.parametrize(
    ("value", "why"),
    [
        ("$.secrets.x", "not known here"),
        ("$.context.", "a name is missing"),
        ("$.context.a and more", "cannot stand in a name"),
        ({"add": 1}, "add needs a list of 2 numbers or paths"),
        ({"add": [1]}, "add needs a list of 2"),
        ({"divide": [1, 2, 3]}, "divide needs a list of 2"),
        ({"multiply": ["5", 2]}, "multiply needs numbers or paths, not"),
        ({"subtract": [True, 2]}, "subtract needs numbers or paths, not true"),
        ({"add": [[1], 2]}, "add needs numbers or paths"),
        ({"add": [{"a": 1}, 2]}, "add needs numbers or paths"),
        ({"add": ["$.nowhere", 2]}, "not known here"),
        ({"concat": "text"}, "concat needs a list of values"),
        ({"concat": ["$.nowhere.x"]}, "not known here"),
    ],
)
def test_an_invalid_mapping_is_refused_with_its_slot(value: Any, why: str) -> None:
    with pytest.raises(DefinitionError) as caught:
        compile_mapping({"slot": value})

    assert why in caught.value.message
    assert 'the output "slot"' in caught.value.message


def test_a_mapping_can_read_only_its_roots() -> None:
    with pytest.raises(DefinitionError, match=r"\$\.branch is not known here"):
        compile_mapping({"a": "$.branch.value"})


def test_a_mapping_lists_each_path_once() -> None:
    mapping = compile_mapping(
        {"a": "$.output.x", "b": {"add": ["$.output.x", "$.context.n"]}, "c": {"set": "$.context.not"}}
    )

    assert [path.text for path in mapping.paths] == ["$.output.x", "$.context.n"]


def test_a_literal_is_copied_each_time() -> None:
    definition = {"a": [1, {"b": []}], "c": {"set": {"d": [2]}}}
    mapping = compile_mapping(definition)
    mapping.apply(SCOPE)["a"][1]["b"].append("changed")
    mapping.apply(SCOPE)["c"]["d"].append("changed")

    assert mapping.apply(SCOPE) == {"a": [1, {"b": []}], "c": {"d": [2]}}


@pytest.mark.parametrize(
    ("template", "filled"),
    [
        ("$.context.name", "ann"),
        ("hello $.context.name", "hello $.context.name"),
        ({"a": "$.context.name", "b": ["$.arguments.n", {"c": "$.input.who"}]}, {"a": "ann", "b": [3, {"c": "bob"}]}),
        ({"a": "$.context.missing", "b": "$.context.null"}, {"b": None}),
        ({"a": {"b": "$.context.missing"}}, {"a": {}}),
        (["$.context.missing", "$.context.null", "x"], [None, None, "x"]),
        ([], []),
        ({}, {}),
        (None, None),
        (3.5, 3.5),
        ({"$.context.name": 1}, {"$.context.name": 1}),
        ({"set": "$.context.name"}, {"set": "ann"}),
    ],
)
def test_a_template_is_filled(template: Any, filled: Any) -> None:
    assert compile_template(template).fill(SCOPE) == filled


def test_a_template_that_is_only_a_missing_path_is_missing() -> None:
    assert compile_template("$.context.missing").fill(SCOPE) is MISSING


def test_a_template_lists_each_path_once() -> None:
    template = compile_template({"a": "$.branch.value", "b": ["$.context.x", "$.branch.value"]}, NESTED_ROOTS)

    assert [path.text for path in template.paths] == ["$.branch.value", "$.context.x"]


@pytest.mark.parametrize("template", ["$.branch.value", {"a": ["$.context..b"]}, ["$.50"]])
def test_a_template_with_an_invalid_path_is_refused(template: Any) -> None:
    with pytest.raises(DefinitionError):
        compile_template(template)


def test_values_nested_too_deeply_are_refused() -> None:
    deep: Any = 1
    for _ in range(5000):
        deep = [deep]

    for value in (deep, {"set": deep}, {"concat": [deep]}):
        with pytest.raises(DefinitionError, match="nested deeper than 64"):
            compile_mapping({"slot": value})
    with pytest.raises(DefinitionError, match="nested deeper than 64"):
        compile_template({"a": deep})


JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=3),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=2), inner, max_size=3),
    max_leaves=8,
)
NUMBERS = st.integers() | st.floats(allow_nan=False) | st.none()
OPERATORS = ["add", "subtract", "multiply", "divide"]


@given(st.sampled_from(OPERATORS), JSON | NUMBERS, JSON | NUMBERS)
def test_arithmetic_gives_a_json_number_or_null(name: str, left: Any, right: Any) -> None:
    scope = Scope({"left": left, "right": right}, {}, {})
    result = mapped({name: ["$.context.left", "$.context.right"]}, scope)

    assert result is None or (type(result) in (int, float) and math.isfinite(result))
    if type(result) is float and result.is_integer():
        assert abs(result) >= 2**63


@given(st.integers(-(2**40), 2**40), st.integers(-(2**20), 2**20))
def test_arithmetic_on_integers_is_exact(left: int, right: int) -> None:
    scope = Scope({"left": left, "right": right}, {}, {})
    results = [mapped({name: ["$.context.left", "$.context.right"]}, scope) for name in OPERATORS]

    assert results == [left + right, left - right, left * right, left / right if right else None]


@given(st.lists(JSON, max_size=4))
def test_concat_always_gives_a_text(values: list[Any]) -> None:
    scope = Scope({"values": values}, {}, {})
    paths = [f"$.context.values[{index}]" for index in range(len(values))]
    texts = [value if isinstance(value, str) else None for value in values]
    result = mapped({"concat": paths}, scope)

    assert result == "".join(
        text if text is not None else json.dumps(value, ensure_ascii=False, separators=(",", ":"))
        for text, value in zip(texts, values, strict=True)
    )


def plain(value: Any) -> bool:
    return "$." not in json.dumps(value)


@given(JSON.filter(plain))
def test_a_template_without_paths_is_filled_unchanged(value: Any) -> None:
    before = copy.deepcopy(value)
    filled = compile_template(value).fill(SCOPE)

    assert repr(filled) == repr(before)


@given(JSON, JSON)
def test_a_template_is_filled_with_values_at_any_depth(one: Any, other: Any) -> None:
    scope = Scope({"one": one, "other": other}, {}, {})
    template = compile_template({"a": ["$.context.one", {"b": "$.context.other"}], "c": "$.context.none"})

    assert repr(template.fill(scope)) == repr({"a": [one, {"b": other}]})
