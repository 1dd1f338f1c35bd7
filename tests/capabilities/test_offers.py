"""Rows that sources offer: which name each is published under, and that live names keep calling the same."""

from __future__ import annotations

from collections.abc import Iterable

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.capabilities.test_registry import a_prompt, a_tool, ids
from waypost import DefinitionError
from waypost.capabilities.capability import Capability, Kind, Priority
from waypost.capabilities.names import disambiguate
from waypost.capabilities.registry import Change, Offer, Registry


def watched() -> tuple[Registry, list[Change]]:
    registry = Registry()
    changes: list[Change] = []
    registry.subscribe(changes.append)
    return registry, changes


def offer(registry: Registry, source: str, *rows: Capability) -> Offer:
    """Offer rows as a worker does; returns the first offer."""
    return registry.offer(source, rows, Priority.WORKER)[0]


def withdraw(registry: Registry, source: str) -> None:
    registry.offer(source, (), Priority.WORKER)


def test_the_later_of_two_tools_with_one_name_gets_a_suffix_that_depends_on_its_source() -> None:
    registry, _ = watched()
    first, second = offer(registry, "one", a_tool("a")), offer(registry, "two", a_tool("a"))

    assert registry.tool("a") is first.row
    assert second.row is registry.tool(disambiguate("two", "a"))
    assert (second.row.definition.title, second.row.metadata.aliases) == ("a", ("a",))


def test_a_name_that_its_tool_leaves_stays_free_for_it_and_goes_to_no_other() -> None:
    registry, _ = watched()
    offer(registry, "one", a_tool("a"))
    second = offer(registry, "two", a_tool("a"))
    withdraw(registry, "one")
    assert ids(registry.tools) == [disambiguate("two", "a")]
    first = offer(registry, "one", a_tool("a"))

    assert registry.tool("a") is first.row
    assert registry.tool(disambiguate("two", "a")) is second.row


def test_a_tool_that_is_offered_again_keeps_its_name_and_looks_the_same_to_listeners() -> None:
    registry, changes = watched()
    offer(registry, "one", a_tool("a"))
    offer(registry, "two", a_tool("a"))
    withdraw(registry, "one")
    seen = len(changes)
    again = offer(registry, "two", a_tool("a"))

    assert again.row is registry.tool(disambiguate("two", "a"))
    assert len(changes) == seen


def test_the_portable_spelling_of_a_tool_is_a_live_name_too() -> None:
    registry, _ = watched()
    first = offer(registry, "one", a_tool("x.y"))
    offer(registry, "two", a_tool("x_y"))

    assert registry.find_tool("x_y") is first.row


def test_a_tool_that_is_offered_again_keeps_its_portable_spelling() -> None:
    registry, _ = watched()
    offer(registry, "one", a_tool("x_y"))
    second = offer(registry, "two", a_tool("x.y"))
    assert second.row is not None
    spelled = registry.portable_name(second.row)
    withdraw(registry, "one")
    again = offer(registry, "two", a_tool("x.y"))

    assert registry.find_tool(spelled) is again.row
    assert registry.find_tool("x_y") is None


def test_a_row_of_the_hub_takes_a_name_from_an_offer_and_its_removal_gives_it_back() -> None:
    registry, changes = watched()
    offered = offer(registry, "one", a_tool("a"))
    registry.add([a_tool("b")])
    own = a_tool("a")
    registry.add([own])
    assert registry.tool("a") is own
    assert offered.row is registry.tool(disambiguate("one", "a"))
    assert len(changes) == 3

    registry.remove([own])
    assert registry.tool("a") is offered.row
    assert ids(registry.tools) == ["a", "b"]
    assert len(changes) == 4


def test_a_row_of_the_hub_takes_a_name_also_by_its_portable_spelling() -> None:
    registry, _ = watched()
    offered = offer(registry, "one", a_tool("x_y"))
    own = a_tool("x.y")
    registry.add([own])
    assert registry.find_tool("x_y") is own
    registry.remove([own])
    assert registry.find_tool("x_y") is offered.row


def test_of_two_that_wait_for_a_name_the_one_that_had_it_gets_it_back() -> None:
    registry, _ = watched()
    had = offer(registry, "one", a_tool("a"))
    own = a_tool("a")
    registry.add([own])
    late = offer(registry, "two", a_tool("a"))
    registry.remove([own])

    assert registry.tool("a") is had.row
    withdraw(registry, "one")
    assert late.row is not None
    assert ids(registry.tools) == [late.row.id] == [disambiguate("two", "a")]


def test_a_name_that_is_free_for_a_moment_within_one_change_is_not_given_back() -> None:
    registry, changes = watched()
    own, other = a_tool("a"), a_tool("a")
    registry.add([own])
    offered = offer(registry, "one", a_tool("a"))
    seen = len(changes)
    with registry.as_one_change():
        registry.remove([own])
        registry.add([other])

    assert registry.tool("a") is other
    assert offered.row is registry.tool(disambiguate("one", "a"))
    assert len(changes) <= seen + 1


def test_a_prompt_is_left_out_and_back_in_the_change_that_frees_its_name() -> None:
    registry, _ = watched()
    own, other = a_prompt("p"), a_prompt("p")
    offered = offer(registry, "one", a_prompt("p"))
    registry.add([own])
    assert (registry.prompt("p"), offered.row) == (own, None)
    registry.replace([own], [other])
    assert registry.prompt("p") is other
    registry.remove([other])
    assert registry.prompt("p") is offered.row
    withdraw(registry, "one")
    assert ids(registry[Kind.PROMPT]) == []


def test_a_prompt_that_is_left_out_can_be_withdrawn_and_offered_again_without_a_change() -> None:
    registry, changes = watched()
    own = a_prompt("p")
    registry.add([own])
    offer(registry, "one", a_prompt("p"))
    offer(registry, "one", a_prompt("p"))
    withdraw(registry, "one")
    assert len(changes) == 1
    registry.remove([own])
    assert ids(registry[Kind.PROMPT]) == []


def test_the_later_of_two_prompts_with_one_name_is_left_out_until_the_name_is_free() -> None:
    registry, _ = watched()
    first, second = offer(registry, "one", a_prompt("p")), offer(registry, "two", a_prompt("p"))
    assert (registry.prompt("p"), second.row) == (first.row, None)
    withdraw(registry, "one")
    assert registry.prompt("p") is second.row


def test_two_rows_of_the_hub_with_one_name_are_refused_and_nothing_changes() -> None:
    registry, changes = watched()
    offered = offer(registry, "one", a_tool("a"))
    registry.add([a_tool("b")])
    for clash in ([a_tool("c"), a_tool("b")], [a_tool("a"), a_tool("b")], [a_tool("a"), a_tool("a")]):
        with pytest.raises(DefinitionError, match="already; give one of them another name"):
            registry.add(clash)

    assert registry.tool("a") is offered.row
    assert (ids(registry.tools), len(changes)) == (["a", "b"], 2)


def test_only_rows_of_the_hub_take_a_name_for_good() -> None:
    registry, _ = watched()
    offer(registry, "one", a_tool("a"))
    registry.add([a_tool("b")])

    assert [registry.is_taken(Kind.TOOL, name) for name in ("a", "b", "c")] == [False, True, False]


SOURCES = st.sampled_from(["one", "two", "three"])
NAMES = st.sampled_from(["a_b", "a.b", "a:b"])
STEPS = st.lists(
    st.one_of(
        st.tuples(st.just("offer"), SOURCES, NAMES),
        st.tuples(st.just("withdraw"), SOURCES, NAMES),
        st.tuples(st.just("hub"), st.just(""), NAMES),
    ),
    max_size=30,
)


def targets(registry: Registry) -> dict[str, Capability]:
    """What every name that agents may hold calls, canonical and portable."""
    rows = list(registry.tools)
    return {row.id: row for row in rows} | {registry.portable_name(row): row for row in rows}


def sources(rows: Iterable[Offer]) -> dict[Capability, str]:
    return {one.row: f"{one.source}/{one.own.id}" for one in rows if one.row is not None}


@settings(deadline=None, max_examples=300)
@given(STEPS)
def test_no_live_name_changes_what_it_calls_unless_the_hub_takes_it(steps: list[tuple[str, str, str]]) -> None:
    registry = Registry()
    offers: dict[tuple[str, str], Offer] = {}
    own: dict[str, Capability] = {}
    for step, source, name in steps:
        before = {called: sources(offers.values()).get(row, "hub") for called, row in targets(registry).items()}
        if step == "hub":
            if name in own:
                registry.remove([own.pop(name)])
            else:
                own[name] = a_tool(name)
                registry.add([own[name]])
        elif step == "offer":
            offers[source, name] = offer(registry, f"{source}/{name}", a_tool(name))
        elif offers.pop((source, name), None) is not None:
            withdraw(registry, f"{source}/{name}")
        after = {called: sources(offers.values()).get(row, "hub") for called, row in targets(registry).items()}
        live = {"hub", *sources(offers.values()).values()}
        for called, target in before.items():
            if step == "hub":
                assert target == "hub" or after.get(called) in (target, "hub", None)
            else:
                assert after.get(called) == (target if target in live else None)
        # Every offer is published under exactly one name, and every row of the hub has its own.
        assert {row.id: row for row in own.values()}.items() <= {row.id: row for row in registry.tools}.items()
        assert len(registry.tools) == len(own) + len(offers)
        assert all(one.row is not None and registry.tool(one.row.id) is one.row for one in offers.values())
