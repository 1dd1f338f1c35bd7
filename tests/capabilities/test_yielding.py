"""Rows that make room: what does not yield always has its name, whichever came first."""

from __future__ import annotations

from dataclasses import replace

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.capabilities.test_registry import a_prompt, a_tool, ids
from waypost import DefinitionError
from waypost.capabilities.capability import Capability, IsTaken, Kind
from waypost.capabilities.registry import Change, Registry


def moving(name: str, moves: list[str] | None = None) -> Capability:
    """A tool that takes the first free name with a number behind it."""

    def move(is_taken: IsTaken) -> Capability:
        number = next(number for number in range(100) if not is_taken(f"{name}{number}"))
        if moves is not None:
            moves.append(f"{name}{number}")
        return replace(a_tool(f"{name}{number}"), yields=move)

    return replace(a_tool(name), yields=move)


def waiting(name: str) -> Capability:
    """A prompt that waits."""
    return replace(a_prompt(name), yields=lambda _: None)


def watched() -> tuple[Registry, list[Change]]:
    registry = Registry()
    changes: list[Change] = []
    registry.subscribe(changes.append)
    return registry, changes


def test_a_tool_moves_aside_in_the_change_that_gives_its_name_away() -> None:
    registry, changes = watched()
    registry.add([moving("a"), a_tool("a0")])
    firm = a_tool("a")
    registry.add([firm])

    assert registry.tool("a") is firm
    assert ids(registry.tools) == ["a", "a0", "a1"]
    assert len(changes) == 2


def test_a_tool_that_comes_later_moves_aside_too_and_not_to_a_name_that_comes_with_it() -> None:
    registry, _ = watched()
    firm = a_tool("a")
    registry.add([firm])
    registry.add([moving("a"), a_tool("a0")])

    assert registry.tool("a") is firm
    assert ids(registry.tools) == ["a", "a0", "a1"]


def test_a_prompt_waits_and_is_back_in_the_change_that_frees_its_name() -> None:
    registry, changes = watched()
    soft, firm, other = waiting("p"), a_prompt("p"), a_prompt("p")
    registry.add([soft])
    registry.add([firm])
    assert registry.prompt("p") is firm
    registry.replace([firm], [other])
    assert registry.prompt("p") is other
    before = len(changes)
    registry.remove([other])

    assert registry.prompt("p") is soft
    registry.remove([soft])
    assert ids(registry[Kind.PROMPT]) == []
    assert len(changes) == before + 1, "the prompt looks the same as the one in its place"


def test_what_waits_can_be_taken_out_and_exchanged_and_leaves_the_other_alone() -> None:
    registry, changes = watched()
    firm, first, second = a_prompt("p"), waiting("p"), waiting("p")
    registry.add([firm])
    registry.add([first])
    registry.replace([first], [second])
    assert registry.prompt("p") is firm
    registry.remove([second])
    assert len(changes) == 1
    registry.remove([firm])
    assert ids(registry[Kind.PROMPT]) == []


def test_two_that_both_yield_or_both_do_not_are_refused_and_nothing_changes() -> None:
    registry, changes = watched()
    moves: list[str] = []
    registry.add([moving("a", moves), a_tool("b"), waiting("p")])
    for clash in ([moving("a")], [a_tool("c"), a_tool("b")], [a_tool("a"), a_tool("b")], [waiting("p")]):
        with pytest.raises(DefinitionError, match="already; give one of them another name"):
            registry.add(clash)

    assert (ids(registry.tools), moves, len(changes)) == (["a", "b"], [], 1)


def test_a_name_is_taken_by_what_does_not_yield() -> None:
    registry, _ = watched()
    registry.add([moving("a"), a_tool("b")])

    assert [registry.is_taken(Kind.TOOL, name) for name in ("a", "b", "c")] == [False, True, False]


names = st.sampled_from(["a", "b", "c"])


@settings(deadline=None)
@given(st.lists(st.tuples(st.booleans(), names)))
def test_of_what_is_there_the_one_that_does_not_yield_is_seen(steps: list[tuple[bool, str]]) -> None:
    registry, _ = watched()
    firm: dict[str, Capability] = {}
    soft: dict[str, Capability] = {}
    for is_firm, name in steps:
        mine = firm if is_firm else soft
        if name in mine:
            registry.remove([mine.pop(name)])
        else:
            mine[name] = a_prompt(name) if is_firm else waiting(name)
            registry.add([mine[name]])
        assert {row.id: row for row in registry[Kind.PROMPT]} == {**soft, **firm}
