from __future__ import annotations

import re
import string
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from waypost.capabilities.capability import (
    Capability,
    Kind,
    check_name,
    disambiguate,
    is_portable,
    snake_case,
    to_portable,
)
from waypost.capabilities.registry import Registry
from waypost.errors import DefinitionError
from waypost.wire.definitions import ToolDefinition

PORTABLE = re.compile(r"^[a-zA-Z0-9_-]{1,64}$")
WIRE = string.ascii_letters + string.digits + "_.:/-"

wire_names = st.one_of(
    st.text("ab_.:/-", min_size=1, max_size=4),
    st.text(WIRE, min_size=1, max_size=128),
    st.builds(lambda letter, n, tail: letter * n + tail, st.sampled_from("a.:"), st.integers(50, 127), st.just("z")),
)


def named(name: str) -> Capability:
    return Capability(
        kind=Kind.TOOL, id=name, definition=ToolDefinition(name), handler=lambda args, ctx: None, is_async=False
    )


def registered(*names: str) -> Registry:
    registry = Registry()
    for name in names:
        registry.add([named(name)])
    return registry


@pytest.mark.parametrize(
    ("class_name", "name"),
    [
        ("GetWeather", "get_weather"),
        ("Calculator", "calculator"),
        ("HTTPServer", "http_server"),
        ("ParseHTML5Page", "parse_html5_page"),
        ("already_snake", "already_snake"),
        ("X", "x"),
    ],
)
def test_class_names_become_snake_case(class_name: str, name: str) -> None:
    assert snake_case(class_name) == name


@pytest.mark.parametrize("name", ["a", "files.read", "skill:web_search", "a/b-c", "A" * 128])
def test_wire_names_pass(name: str) -> None:
    assert check_name(name) is name


@pytest.mark.parametrize("name", ["", " ", "a b", "ä", "a\n", "a" * 129, None, 7])
def test_other_names_are_refused(name: Any) -> None:
    with pytest.raises(DefinitionError, match="is not usable"):
        check_name(name)


@pytest.mark.parametrize(
    ("name", "spelled"),
    [
        ("add", "add"),
        ("skill:web_search", "skill__web_search"),
        ("workflow:Tech News Digest", "workflow__tech_news_digest"),
        ("gateway.home", "gateway_home"),
        ("a__b", "a__b"),
    ],
)
def test_portable_spellings(name: str, spelled: str) -> None:
    assert to_portable(name) == spelled
    assert is_portable(spelled)


@settings(deadline=None)
@given(wire_names | st.text(st.characters(exclude_categories=["Cs"]), min_size=1, max_size=200))
def test_every_spelling_is_portable_and_always_the_same(name: str) -> None:
    assert PORTABLE.match(to_portable(name))
    assert to_portable(name) == to_portable(name)
    assert PORTABLE.match(disambiguate(name, to_portable(name)))
    assert to_portable(to_portable(name)) == to_portable(name)


@settings(deadline=None)
@given(st.lists(wire_names, unique=True, max_size=12), st.data())
def test_portable_names_are_unique_and_both_names_find_the_tool(names: list[str], data: st.DataObject) -> None:
    registry = registered(*names)
    leaving = data.draw(st.lists(st.sampled_from(names), unique=True)) if names else []
    registry.remove([named(name) for name in leaving])
    back = data.draw(st.lists(st.sampled_from(leaving), unique=True)) if leaving else []
    registry.add([named(name) for name in back])

    tools = list(registry[Kind.TOOL])
    spelled = [registry.portable_name(tool) for tool in tools]
    assert len(set(spelled)) == len(tools) == len(names) - len(leaving) + len(back)
    for tool, name in zip(tools, spelled, strict=True):
        assert PORTABLE.match(name)
        assert registry.tool(name) is registry.tool(tool.id) is tool


@settings(deadline=None)
@given(st.lists(wire_names, unique=True, min_size=1, max_size=12))
def test_a_portable_name_is_never_changed(names: list[str]) -> None:
    registry = registered(*names)
    for tool in registry[Kind.TOOL]:
        if PORTABLE.match(tool.id):
            assert registry.portable_name(tool) == tool.id


def test_the_later_of_two_names_with_the_same_portable_spelling_gets_a_suffix() -> None:
    registry = registered("a.b", "a/b")
    assert registry.portable_name(registry.tool("a.b")) == "a_b"
    assert registry.portable_name(registry.tool("a/b")) == disambiguate("a/b", "a_b")


def test_a_suffixed_name_that_another_tool_has_is_not_assigned_again() -> None:
    squatter = disambiguate("a/b", "a_b")
    registry = registered(squatter, "a.b", "a/b")
    spelled = {name: registry.portable_name(registry.tool(name)) for name in (squatter, "a.b", "a/b")}
    assert spelled[squatter] == squatter
    assert len(set(spelled.values())) == 3


def test_a_portable_spelling_yields_to_a_tool_with_that_name() -> None:
    registry = registered("a.b", "a_b")
    assert registry.tool("a_b").id == "a_b"
    moved = registry.portable_name(registry.tool("a.b"))
    assert moved == disambiguate("a.b", "a_b")
    assert registry.tool(moved).id == "a.b"
