"""Rows that sources offer: their published names, and that live names keep their target."""

from __future__ import annotations

from collections.abc import Callable, Iterable

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from msgspec.structs import replace

from tests.capabilities.test_registry import a_prompt, a_tool, ids
from waypost import DefinitionError, Hub
from waypost.capabilities.capability import Capability, Kind, Priority, disambiguate
from waypost.capabilities.registry import Change, Offer, Registry


def watched() -> tuple[Registry, list[Change]]:
    registry = Registry()
    changes: list[Change] = []
    registry.subscribe(changes.append)
    return registry, changes


def offer(
    registry: Registry, source: str, *rows: Capability, priority: Priority = Priority.WORKER, owner: str | None = None
) -> Offer:
    """Offer rows like a worker or an import, and return the first offer."""
    return registry.offer(source, [replace(row, owner=owner or source) for row in rows], priority)[0]


def withdraw(registry: Registry, source: str, priority: Priority = Priority.WORKER) -> None:
    registry.offer(source, (), priority)


def a_resource(uri: str) -> Capability:
    hub = Hub("one", version="1")

    def read() -> str:
        return "text"

    def read_by(name: str) -> str:
        return name

    hub.resource(uri, name="r")(read_by if "{" in uri else read)
    (row,) = [row for kind in (Kind.RESOURCE, Kind.TEMPLATE) for row in hub.registry[kind]]
    return row


def test_the_later_of_two_tools_with_one_name_gets_a_suffix_that_depends_on_its_source() -> None:
    registry, _ = watched()
    first, second = offer(registry, "one", a_tool("a")), offer(registry, "two", a_tool("a"))

    assert registry.tool("a") is first.row
    assert second.row is registry.tool(disambiguate("two", "a"))
    assert (second.row.definition.title, second.row.metadata.aliases) == ("a", ("a",))


def test_the_name_of_a_withdrawn_tool_is_reserved_for_it() -> None:
    registry, _ = watched()
    offer(registry, "one", a_tool("a"))
    second = offer(registry, "two", a_tool("a"))
    withdraw(registry, "one")
    assert ids(registry.tools) == [disambiguate("two", "a")]
    first = offer(registry, "one", a_tool("a"))

    assert registry.tool("a") is first.row
    assert registry.tool(disambiguate("two", "a")) is second.row


def test_a_tool_of_the_hub_takes_the_name_of_a_disconnected_function() -> None:
    registry, _ = watched()
    offer(registry, "one", a_tool("a"))
    withdraw(registry, "one")
    own = offer(registry, "file", a_tool("a"), priority=Priority.HUB)

    assert registry.tool("a") is own.row
    assert ids(registry.tools) == ["a"]


def test_a_prompt_may_take_the_name_of_a_withdrawn_one() -> None:
    registry, _ = watched()
    offer(registry, "one", a_prompt("a"))
    withdraw(registry, "one")
    assert offer(registry, "two", a_prompt("a")).row is registry.prompt("a")


def test_a_tool_that_is_offered_again_keeps_its_name_without_a_change() -> None:
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


def test_a_freed_name_goes_back_to_the_offer_that_had_it() -> None:
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


def test_a_name_that_is_freed_and_taken_within_one_change_is_not_given_back() -> None:
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


def test_an_unpublished_prompt_is_published_when_its_name_is_freed() -> None:
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


def test_withdrawing_and_offering_an_unpublished_prompt_is_not_a_change() -> None:
    registry, changes = watched()
    own = a_prompt("p")
    registry.add([own])
    offer(registry, "one", a_prompt("p"))
    offer(registry, "one", a_prompt("p"))
    withdraw(registry, "one")
    assert len(changes) == 1
    registry.remove([own])
    assert ids(registry[Kind.PROMPT]) == []


def test_the_later_of_two_prompts_with_one_name_is_unpublished_until_it_is_free() -> None:
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


def test_only_rows_of_the_hub_make_a_name_taken() -> None:
    registry, _ = watched()
    offer(registry, "one", a_tool("a"))
    registry.add([a_tool("b")])

    assert [registry.is_taken(Kind.TOOL, name) for name in ("a", "b", "c")] == [False, True, False]


def test_imports_and_workers_do_not_take_names_from_each_other() -> None:
    registry, _ = watched()
    worker = offer(registry, "one", a_tool("a"))
    imported = offer(registry, "two", a_tool("a"), priority=Priority.IMPORT)
    assert registry.tool("a") is worker.row
    assert imported.row is registry.tool(disambiguate("two", "a"))
    own = a_tool("a")
    registry.add([own])
    assert registry.tool("a") is own
    registry.remove([own])
    assert registry.tool("a") is worker.row


def test_an_import_similar_to_a_tool_of_the_hub_does_not_get_a_freed_name() -> None:
    registry, _ = watched()
    alike, same = a_tool("A.b"), a_tool("a.b")
    registry.add([alike, same])
    imported = offer(registry, "two", a_tool("a.b"), priority=Priority.IMPORT)
    worker = offer(registry, "one", a_tool("a.b"))
    registry.remove([same])
    assert registry.tool("a.b") is worker.row
    assert imported.row is registry.tool(disambiguate("two", "a.b"))


@pytest.mark.parametrize("make", [a_tool, a_prompt])
def test_an_import_is_not_published_under_a_name_similar_to_another(make: Callable[[str], Capability]) -> None:
    registry, _ = watched()
    first = offer(registry, "one", make("x.read"), priority=Priority.IMPORT)
    second = offer(registry, "two", make("x.Read"), priority=Priority.IMPORT)
    worker = offer(registry, "three", make("X.read"))
    assert first.row is not None
    assert first.row.id == "x.read"
    assert second.row is None or second.row.id == disambiguate("two", "x.Read")
    assert worker.row is not None
    assert worker.row.id == "X.read"


@pytest.mark.parametrize(
    ("earlier", "later"),
    [
        ("a://{name}", "a://x"),
        ("a://b/{name}", "a://{name}"),
        ("a://{name}", "a://b/{name}"),
        ("a://x", "a://x"),
    ],
)
def test_an_import_with_overlapping_uris_is_unpublished_until_they_are_free(earlier: str, later: str) -> None:
    registry, _ = watched()
    offer(registry, "one", a_resource(earlier), priority=Priority.IMPORT)
    second = offer(registry, "two", a_resource(later), priority=Priority.IMPORT)
    assert second.row is None
    withdraw(registry, "one", Priority.IMPORT)
    assert second.row is not None
    again = offer(registry, "three", a_resource(earlier), priority=Priority.IMPORT, owner="two")
    assert again.row is not None or earlier == later  # overlapping URIs of one server are allowed


SOURCES = {"one": Priority.WORKER, "two": Priority.WORKER, "three": Priority.IMPORT, "four": Priority.IMPORT}
NAMES = st.sampled_from(["a_b", "a.b", "a:b", "A.b"])
STEPS = st.lists(
    st.one_of(
        st.tuples(st.sampled_from(list(SOURCES)), st.lists(NAMES, max_size=3, unique=True)),
        st.tuples(st.just("hub"), st.lists(NAMES, min_size=1, max_size=2, unique=True)),
    ),
    max_size=30,
)


def targets(registry: Registry, offers: Iterable[Offer]) -> dict[str, str]:
    """The target of every published name, canonical and portable."""
    owners = {one.row: f"{one.source}/{one.own.id}" for one in offers if one.row is not None}
    rows = list(registry.tools)
    names = {row.id: row for row in rows} | {registry.portable_name(row): row for row in rows}
    return {name: owners.get(row, "hub") for name, row in names.items()}


@settings(deadline=None, max_examples=300)
@given(STEPS)
def test_a_live_name_keeps_its_target_unless_the_hub_takes_the_name(steps: list[tuple[str, list[str]]]) -> None:
    registry = Registry()
    offers: dict[str, list[Offer]] = {}
    own: dict[str, Capability] = {}
    for source, names in steps:
        before = targets(registry, [one for made in offers.values() for one in made])
        if source == "hub":
            leaving = [own.pop(name) for name in names if name in own]
            arriving = {name: a_tool(name) for name in names if name not in {row.id for row in leaving}}
            own |= arriving
            registry.replace(leaving, arriving.values())
        else:
            # The new offers of the source replace its earlier ones.
            rows = [replace(a_tool(name), owner=source) for name in names]
            offers[source] = registry.offer(source, rows, SOURCES[source])
        every = [one for made in offers.values() for one in made]
        after = targets(registry, every)
        live = {f"{one.source}/{one.own.id}" for one in every} | {"hub"}
        for called, target in before.items():
            if source == "hub":
                assert target == "hub" or after.get(called) in (target, "hub", None)
            elif target in live:
                assert after.get(called) == target
            else:  # withdrawn: no existing row takes over its name
                assert after.get(called) not in before.values()
        # Every offer is published under exactly one name, and every row of the hub has its own.
        assert {row.id: row for row in own.values()}.items() <= {row.id: row for row in registry.tools}.items()
        assert len(registry.tools) == len(own) + len(every)
        assert all(one.row is not None and registry.tool(one.row.id) is one.row for one in every)
        assert all(one.own.priority is one.row.priority for one in every if one.row is not None)
