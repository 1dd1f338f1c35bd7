from __future__ import annotations

from typing import Any

import pytest

from tests.capabilities.client import call, listed, new_hub, text
from waypost import DefinitionError, Prompt, Resource, Tool, Toolkit, tool
from waypost.capabilities.tools import expand


class Kit(Toolkit, category="Kit"):
    @tool
    def one(self) -> str:
        return "one"

    @tool(hidden=True, category="Own")
    def two(self) -> str:
        return "two"


class Single(Toolkit):
    @tool(description="Old")
    def only(self) -> str:
        return "only"


class Lone(Tool, hidden=True):
    def execute(self) -> str:
        return "lone"


class Page(Resource, uri="docs://page"):
    def read(self) -> str:
        return ""


class Ask(Prompt):
    def messages(self) -> str:
        return ""


def loose() -> str:
    """A plain function."""
    return "loose"


def test_every_registrable_object_becomes_capabilities_in_source_order() -> None:
    (direct,) = expand(loose)
    mixed = expand([Kit, Lone(), (Page, Ask), loose, direct])
    assert [c.id for c in mixed] == ["one", "two", "lone", "docs://page", "ask", "loose", "loose"]
    assert [c.owner for c in mixed[:5]] == ["Kit", "Kit", "Lone", "Page", "Ask"]


@pytest.mark.parametrize(
    ("options", "hidden"),
    [
        ({}, [False, True]),
        ({"hidden": True}, [True, True]),
        ({"hidden": False}, [False, False]),
        ({"visible": True}, [False, False]),
        ({"visible": False}, [True, True]),
        ({"hidden": True, "visible": True}, [True, True]),
        ({"hidden": False, "visible": False}, [False, False]),
    ],
)
def test_a_registration_hides_and_shows_over_the_definition(options: dict[str, Any], hidden: list[bool]) -> None:
    assert [c.metadata.hidden for c in expand(Kit, **options)] == hidden


@pytest.mark.parametrize("option", [{"hidden": 1}, {"hidden": "no"}, {"visible": 0}])
def test_a_registration_is_hidden_by_true_and_false_only(option: dict[str, Any]) -> None:
    with pytest.raises(DefinitionError, match=next(iter(option))):
        expand(Kit, **option)


def test_overrides_leave_the_class_as_it_was() -> None:
    hub = new_hub().add(Kit, category="Admin", hidden=False)
    assert {c.metadata.category for c in hub.expand()} == {"Admin"}
    assert [c.metadata.category for c in expand(Kit)] == ["Kit", "Own"]
    assert [c.metadata.hidden for c in expand(Kit)] == [False, True]


@pytest.mark.parametrize("option", [{"name": "x"}, {"description": "x"}])
@pytest.mark.parametrize("source", [Kit, [Lone, loose], []])
def test_one_name_for_several_tools_is_ambiguous(source: Any, option: dict[str, Any]) -> None:
    with pytest.raises(DefinitionError, match="ambiguous"):
        expand(source, **option)


def test_a_toolkit_of_one_function_may_be_renamed() -> None:
    hub = new_hub().add(Single, name="renamed", description="New").add(Single)
    rows = listed(hub)
    assert {name: row["description"] for name, row in rows.items()} == {"renamed": "New", "only": "Old"}
    assert text(call(hub, "renamed")) == "only"


def test_an_override_that_cannot_be_a_name_is_refused() -> None:
    with pytest.raises(DefinitionError, match="'not a name' is not usable"):
        expand(Lone, name="not a name")


@pytest.mark.parametrize("source", [3, "tool", None, dict, object(), Exception])
def test_an_object_that_cannot_be_registered_is_refused(source: Any) -> None:
    with pytest.raises(DefinitionError, match="is no tool, toolkit, resource or prompt"):
        expand(source)


def test_a_hub_returns_its_capabilities_for_custom_filters() -> None:
    hub = new_hub(Kit).add(Lone, hidden=False, category="Solo")
    assert [(c.id, c.metadata.hidden, c.metadata.category) for c in hub.expand()] == [
        ("lone", False, "Solo"),
        ("one", False, "Kit"),
        ("two", True, "Own"),
    ]
    assert hub.expand("resources") == []
