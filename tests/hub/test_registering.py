"""Registering capabilities: decorators for functions, and `add` with its options."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any

import pytest

from tests.hub.samples import ERAS, Arithmetic, Shout, empty, ids, names
from waypost import DefinitionError, Hub
from waypost.testing import connect


@pytest.mark.parametrize("options", [{}, {"name": "other", "description": "Another name"}])
def test_decorators_return_the_function_unchanged(options: dict[str, str]) -> None:
    hub = empty()

    def double(a: int) -> int:
        return a * 2

    assert hub.tool(**options)(double) is double
    assert hub.prompt(**options)(double) is double
    assert hub.resource("docs://double", **options)(plain_text) is plain_text
    assert hub.resource("docs://{a}", **options)(double) is double
    assert double(3) == 6


def test_decorators_without_brackets_return_the_function_unchanged() -> None:
    hub = empty()

    assert hub.tool(plain_text) is plain_text
    assert hub.prompt(plain_text) is plain_text
    assert plain_text() == "text"


def plain_text() -> str:
    return "text"


@pytest.mark.parametrize("version", ERAS)
def test_decorated_functions_are_called_read_and_got(version: str) -> None:
    hub = empty()

    @hub.tool
    async def add(a: int, b: int) -> int:
        """Add two numbers."""
        return a + b

    @hub.tool(name="maths.negate", title="Negate", description="The other sign", category="Maths")
    def negate(a: int) -> int:
        return -a

    @hub.prompt
    def greet(name: str) -> str:
        """Compose a greeting."""
        return f"Greet {name}."

    @hub.prompt(name="part", description="Say goodbye")
    def goodbye(name: str = "you") -> str:
        return f"Goodbye {name}."

    @hub.resource("docs://readme", mime_type="text/markdown")
    def readme() -> str:
        return "# Hello"

    @hub.resource("notes://{number}", name="note")
    def a_note(number: int) -> str:
        return f"note {number + 1}"

    async def scenario() -> None:
        async with connect(hub, version) as client:
            tools = {row.name: row for row in await client.list_tools()}
            assert tools["add"].description == "Add two numbers."
            assert tools["maths.negate"].description == "The other sign"
            assert tools["maths.negate"].meta == {"category": "Maths"}
            assert names(await client.list_prompts()) == ["greet", "part"]
            assert [row.uri for row in await client.list_resources()] == ["docs://readme"]
            assert [row.uri_template for row in await client.list_resource_templates()] == ["notes://{number}"]
            assert (await client.call_tool("add", {"a": 1, "b": 2})).structured == {"result": 3}
            assert (await client.call_tool("maths.negate", {"a": 1})).structured == {"result": -1}
            assert (await client.get_prompt("greet", {"name": "Ada"})).text == "Greet Ada."
            assert (await client.get_prompt("part")).text == "Goodbye you."
            assert (await client.read_resource("docs://readme")).text == "# Hello"
            assert (await client.read_resource("notes://41")).text == "note 42"

    asyncio.run(scenario())


def test_one_function_has_a_name_of_its_own_on_each_hub() -> None:
    def lookup(word: str) -> str:
        return word

    first, second = empty(), empty()
    first.tool(lookup, name="first.lookup", description="The first")
    second.tool(lookup, name="second.lookup", description="The second")

    assert (ids(first), ids(second)) == (["first.lookup"], ["second.lookup"])


@pytest.mark.parametrize("register", [Hub.tool, Hub.prompt])
def test_an_unknown_option_is_refused_by_its_name(register: Callable[..., Any]) -> None:
    hub = empty()

    with pytest.raises(DefinitionError, match=r"'descripton'.*'description'"):
        register(hub, plain_text, descripton="Typo")
    assert ids(hub) == ids(hub, "prompts") == []


def test_an_object_that_is_not_a_tool_is_refused() -> None:
    with pytest.raises(DefinitionError, match="int is no tool"):
        empty().add(42)


# Adding with overrides


def test_options_of_the_registration_override_the_tool() -> None:
    hub = empty()
    hub.add(Shout, name="loud", description="LOUD", category="Voice", hidden=True)

    (found,) = hub.expand("tools")
    assert (found.id, found.metadata.category, found.metadata.hidden) == ("loud", "Voice", True)
    assert (found.definition.name, found.definition.description) == ("loud", "LOUD")
    assert found.definition.meta == {"category": "Voice"}


def test_the_same_component_can_be_added_under_two_names() -> None:
    hub = empty().add(Shout).add(Shout, name="scream")

    assert ids(hub) == ["scream", "shout"]


def test_a_kit_takes_category_and_visibility_for_all_its_tools() -> None:
    hub = empty().add(Arithmetic, category="Admin", visible=True)

    assert {(row.metadata.category, row.metadata.hidden) for row in hub.expand()} == {("Admin", False)}


def test_a_kit_without_overrides_keeps_its_own_metadata() -> None:
    hub = empty().add(Arithmetic)

    assert ids(hub) == ["add", "divide", "maths.power", "multiply", "subtract"]
    assert {row.metadata.category for row in hub.expand()} == {"Maths"}
    assert [row.id for row in hub.expand() if row.metadata.hidden] == ["divide"]


def test_one_name_for_a_kit_of_many_tools_is_refused() -> None:
    hub = empty()

    with pytest.raises(DefinitionError, match="5 tools of Arithmetic is ambiguous"):
        hub.add(Arithmetic, name="maths")
    assert ids(hub) == []


def test_a_name_that_cannot_go_over_the_wire_is_refused() -> None:
    hub = empty()

    with pytest.raises(DefinitionError, match="not usable"):
        hub.add(Shout, name="two words")
    assert ids(hub) == []
