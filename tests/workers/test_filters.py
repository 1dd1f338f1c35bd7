"""Filters: every one that workers use means here what it means to them, and every other one is refused here too."""

from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from iii.filter import FilterError
from iii.filter import compile_filter as theirs

from waypost.errors import InvocationFailed
from waypost.workers.filters import Filter

SCALARS: st.SearchStrategy[Any] = st.one_of(
    st.none(),
    st.booleans(),
    st.integers(-3, 3),
    st.sampled_from([0.0, -0.0, 1.0, 1.5, 2**53, 2**53 + 1, 10**30, 10**400, -1e300]),
    st.sampled_from(["", "a", "ab", "b", "é", "0", "1", "\U0001f98a"]),
)
NAMES = st.sampled_from(["a", "b", "0", "1", "01", "a.b", "a\\b", "é", ""])
VALUES = st.recursive(
    SCALARS, lambda inner: st.lists(inner, max_size=3) | st.dictionaries(NAMES, inner, max_size=3), max_leaves=8
)
SMALL = VALUES.filter(lambda value: "00000000000000000" not in json.dumps(value))
STEPS = st.sampled_from(["a", "b", "0", "1", "01", "a\\.b", "a\\\\b", "é", "-1"])
NUMBERS_AND_TEXTS: st.SearchStrategy[Any] = st.sampled_from([0, 1, 1.5, -1e300, "", "a", "b", "é"])
DOCUMENTS = st.dictionaries(st.sampled_from(["input", "output", "error", "caller", "metadata"]), VALUES, max_size=5)


def members(*each: st.SearchStrategy[Any]) -> st.SearchStrategy[Any]:
    """Objects of these members."""
    return st.lists(st.one_of(*each), min_size=1, max_size=3).map(dict)


def member(*names: str, of: st.SearchStrategy[Any]) -> st.SearchStrategy[Any]:
    """One of these names with one of these values."""
    return st.tuples(st.sampled_from(names), of)


def looking(root: st.SearchStrategy[str], checks: st.SearchStrategy[Any]) -> st.SearchStrategy[Any]:
    """Filters of paths and of each other."""
    path = st.builds(lambda root, steps: ".".join([root, *steps]), root, st.lists(STEPS, max_size=2))
    clause = st.tuples(path, checks)
    return st.recursive(
        st.just({}) | members(clause),
        lambda inner: members(
            clause, member("$not", of=inner), member("$and", "$or", of=st.lists(inner, min_size=1, max_size=3))
        ),
        max_leaves=4,
    )


PLAIN = (
    member("$eq", "$ne", of=SMALL),
    member("$in", "$nin", of=st.lists(SMALL, max_size=4)),
    member("$gt", "$gte", "$lt", "$lte", of=NUMBERS_AND_TEXTS),
    member("$exists", of=st.booleans()),
    member("$prefix", of=st.sampled_from(["", "a", "é"])),
)
CHECKS = st.recursive(
    members(*PLAIN),
    lambda inner: members(*PLAIN, member("$any", of=inner | looking(st.just("@"), inner))),
    max_leaves=3,
)
FILTERS = looking(st.sampled_from(["input", "output", "error", "caller", "metadata"]), CHECKS)

OPERATORS = st.sampled_from(["$eq", "$in", "$gt", "$exists", "$prefix", "$any", "$and", "$or", "$not", "$regex"])
WAYS = st.sampled_from(
    ["input", "input.a", "@", "@.a", "other", "", "input.", ".a", "input..a", "input.\\x", "input.a\\"]
)
NONSENSE: st.SearchStrategy[Any] = st.recursive(
    SCALARS | st.just({}),
    lambda inner: st.lists(inner, max_size=2) | st.dictionaries(OPERATORS | WAYS, inner, max_size=2),
    max_leaves=6,
)


@settings(max_examples=600, deadline=None)
@given(FILTERS | NONSENSE, st.lists(DOCUMENTS, max_size=5))
def test_a_filter_agrees_with_the_one_of_workers(source: Any, documents: list[dict[str, Any]]) -> None:
    try:
        expected = theirs({} if source is None else source)
    except FilterError:
        with pytest.raises(InvocationFailed) as caught:
            Filter(source)
        assert caught.value.code == "INVALID_FILTER"
        return
    found = Filter(source)
    assert found.roots == expected.roots
    for document in documents:
        assert found.matches(document) is expected.matches(document)


@pytest.mark.parametrize("value", [None, True, 1, 1.0, 0, -0.0, False, 2**53 + 1, 10**400, "1", "", [1], {"a": True}])
@pytest.mark.parametrize("name", ["$eq", "$ne", "$in", "$nin"])
def test_values_are_the_same_where_workers_say_so(value: Any, name: str) -> None:
    for literal in (None, True, False, 0, 1, 1.0, 2**53, "1", "", [1], [1.0], [True], {"a": True}, {"a": 1}, {}):
        source = {"input": {name: [literal] if name in ("$in", "$nin") else literal}}
        assert Filter(source).matches({"input": value}) is theirs(source).matches({"input": value}), literal


def deep(levels: int, name: str) -> Any:
    """A filter in a filter in a filter."""
    source: Any = {"input.a": {"$eq": 1}}
    for _ in range(levels):
        source = {name: source if name == "$not" else [source]}
    return source


@pytest.mark.parametrize(
    "source",
    [
        None,
        [],
        "text",
        {"$eq": 1},
        {"input": 5},
        {"input": {}},
        {"input": {"a": 1}},
        {"input": {"$eq": 2**53}},
        {"input": {"$eq": 2**53 + 1}},
        {"input": {"$in": list(range(256))}},
        {"input": {"$in": list(range(257))}},
        {"input": {"$eq": "x" * 8170}},
        {"input": {"$eq": "x" * 8171}},
        {"input" + ".a" * 16: {"$exists": True}},
        {"input" + ".a" * 17: {"$exists": True}},
        {"$or": []},
        {"$and": {}},
        {"$not": []},
        {"input": {"$any": {}}},
        {"input": {"$any": {"@.a": {"$eq": 1}, "$or": [{"@": {"$eq": 1}}]}}},
        {"input": {"$any": {"input.a": {"$eq": 1}}}},
        {"input": {"$any": {"$eq": 1, "@": {"$eq": 1}}}},
        {"$or": [{"input": {"$exists": True}}] * 63},
        {"$or": [{"input": {"$exists": True}}] * 64},
        *(deep(levels, name) for name in ("$not", "$or", "$and") for levels in (7, 8, 55, 58, 60)),
        {"input": {"$eq": json.loads("[" * 32 + "]" * 32)}},
        {"input": {"$eq": json.loads("[" * 33 + "]" * 33)}},
    ],
    ids=lambda source: json.dumps(source)[:40],
)
def test_the_limits_are_those_of_workers(source: Any) -> None:
    try:
        theirs(source)
        is_theirs = True
    except FilterError:
        is_theirs = False
    if source is None:  # no filter at all is one that matches everything
        assert Filter(source).matches({})
        return
    if is_theirs:
        Filter(source)
    else:
        with pytest.raises(InvocationFailed):
            Filter(source)
