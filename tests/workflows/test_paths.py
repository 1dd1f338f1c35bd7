"""Paths: what they find, what they miss, and which are refused."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from waypost.errors import DefinitionError
from waypost.workflows.scope import GUARD_ROOTS, MISSING, Path, Scope, is_path, parse_path

JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=3),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.sampled_from(["a", "b", "0"]), inner, max_size=3),
    max_leaves=8,
)

SCOPE = Scope(
    {"a": {"b": [{"c": 7}]}, "odd key": 1, 'quo"te': 2, "null": None, "x-y": 3, "größe": 4, "it's": 5, "text": "abc"},
    {"x": [1, 2]},
    {"y": {"z": "deep"}},
    id="wf_1",
    state="build",
    version=4,
    output={"json": {"n": 5}},
    branch={"value": {"name": "one"}, "index": 2},
    steps=({"status": "succeeded", "output": {"x": 9}},),
    previous={"p": False},
)


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ("$.context.a.b[0].c", 7),
        ("$.context.a.b", [{"c": 7}]),
        ('$.context["a"]["b"][0]["c"]', 7),
        ('$.context["odd key"]', 1),
        ("$.context['odd key']", 1),
        (r'$.context["quo\"te"]', 2),
        (r"$.context['it\'s']", 5),
        ('$.context["gr\\u00f6\\u00dfe"]', 4),
        ("$.context.größe", 4),
        ("$.context.x-y", 3),
        ("$.context.null", None),
        ("$.arguments.x[1]", 2),
        ("$.arguments", {"x": [1, 2]}),
        ("$.input.y.z", "deep"),
        ("$.input", {"y": {"z": "deep"}}),
        ("$.workflow.input.y.z", "deep"),
        ("$.workflow.input", {"y": {"z": "deep"}}),
        ("$.workflow.id", "wf_1"),
        ("$.workflow.state", "build"),
        ("$.workflow.version", 4),
        ("$.output", {"json": {"n": 5}}),
        ("$.output.json.n", 5),
        ("$.branch.value", {"name": "one"}),
        ("$.branch.value.name", "one"),
        ("$.branch.index", 2),
        ("$.steps[0].output.x", 9),
        ("$.steps[0].status", "succeeded"),
        ("$.previous.p", False),
        ("$.previous", {"p": False}),
    ],
)
def test_a_path_finds_an_existing_value(text: str, value: Any) -> None:
    path = parse_path(text)

    assert path.get(SCOPE) == value
    assert path.text == text


@pytest.mark.parametrize(
    "text",
    [
        "$.context.nothing",
        "$.context.nothing.at.all",
        "$.context.a.b[1]",
        "$.context.a.b[999999999]",
        "$.context.a[0]",
        "$.context.a.b.c",
        "$.context[0]",
        "$.context.text[0]",
        "$.context.null.more",
        "$.workflow.input.y.z.more",
        "$.steps[1].output",
        "$.output.none",
    ],
)
def test_a_path_without_a_value_is_missing(text: str) -> None:
    assert parse_path(text).get(SCOPE) is MISSING


def test_values_of_nested_executors_are_missing_elsewhere() -> None:
    scope = Scope({}, {}, {})

    assert parse_path("$.branch.value").get(scope) is MISSING
    assert parse_path("$.steps[0].output").get(scope) is MISSING
    assert parse_path("$.previous.x").get(scope) is MISSING
    assert parse_path("$.output.x").get(scope) is MISSING


def test_a_path_has_a_root_and_keys() -> None:
    path = parse_path('$.context.a["b c"][0]')

    assert (path.root, path.keys) == ("context", ("a", "b c", 0))


def test_the_two_names_of_the_input_are_equal() -> None:
    assert parse_path("$.workflow.input.x") == parse_path("$.input.x")
    assert len({parse_path("$.workflow.input.x"), parse_path("$.input['x']")}) == 1
    assert parse_path("$.input.x") != parse_path("$.input.y")


@pytest.mark.parametrize(
    ("text", "why"),
    [
        ("", "begins with"),
        ("$", "begins with"),
        ("context.a", "begins with"),
        ("$context", "begins with"),
        ("$.", "a name is missing"),
        ("$.context.", "a name is missing"),
        ("$.context..a", "a name is missing"),
        ("$.context.a b", "cannot stand in a name"),
        ("$.context.a ", "cannot stand in a name"),
        ("$.context.a]", "cannot stand in a name"),
        ("$.context.a[", "a position from 0"),
        ("$.context.a[]", "a position from 0"),
        ("$.context.a[-1]", "a position from 0"),
        ("$.context.a[*]", "a position from 0"),
        ("$.context.a[9999999999]", "a position from 0"),
        ('$.context["a', "does not end"),
        ('$.context["a"', "closing bracket"),
        (r'$.context["\u12"]', "stands for no character"),
        (r'$.context["\ud800"]', "stands for no character"),
        ("$.secrets.x", "$.secrets is not known here"),
        ("$.workflow", "goes on with one of .id, .state, .version, .input"),
        ("$.workflow.owner", "goes on with"),
        ("$.workflow.id.more", "nothing inside $.workflow.id"),
        ("$.branch", "goes on with one of .value, .index"),
        ("$.branch.index[0]", "nothing inside"),
        ("$.steps.first", "by its position"),
        ("$.context." + "a" * 5000, "longer than 4096"),
    ],
)
def test_a_malformed_path_is_refused_with_the_position(text: str, why: str) -> None:
    with pytest.raises(DefinitionError) as caught:
        parse_path(text)

    assert why in caught.value.message
    assert "at position" in caught.value.message
    assert len(caught.value.message) < 500


def test_a_path_with_an_unavailable_root_is_refused() -> None:
    with pytest.raises(DefinitionError, match=r"\$\.output is not known here"):
        parse_path("$.output.x", GUARD_ROOTS)


@pytest.mark.parametrize(
    ("text", "meant"),
    [("$.context.a", True), ("$.nonsense", True), ("$.", True), ("$", False), ("$5", False), (" $.context", False)],
)
def test_a_text_is_recognised_as_a_path_by_its_prefix(text: str, meant: bool) -> None:
    assert is_path(text) is meant


@given(st.text(max_size=40) | st.text("$.[]\"\\'ab0 ", max_size=20).map(lambda text: f"$.context{text}"))
def test_any_text_is_a_path_or_refused(text: str) -> None:
    try:
        path = parse_path(text)
    except DefinitionError:
        return

    assert isinstance(path, Path)
    assert parse_path(path.text) == path


KEYS = st.lists(st.sampled_from(["a", "b", "0"]) | st.integers(0, 3), max_size=4)


@given(KEYS, JSON, st.dictionaries(st.sampled_from(["a", "b"]), JSON))
def test_a_lookup_never_fails_and_equals_following_the_keys(keys: list[str | int], value: Any, context: Any) -> None:
    suffix = "".join(f"[{key}]" if isinstance(key, int) else f".{key}" for key in keys)
    scope = Scope(context, {}, {}, output=value)

    assert found(value, keys) == repr(parse_path(f"$.output{suffix}").get(scope))
    assert found(context, keys) == repr(parse_path(f"$.context{suffix}").get(scope))


def found(value: Any, keys: list[str | int]) -> str:
    """The value found by following the keys, as text, since NaN is not equal to itself."""
    for key in keys:
        try:
            if isinstance(value, str):
                return "MISSING"
            value = value[key]
        except (KeyError, IndexError, TypeError):
            return "MISSING"
    return repr(value)
