"""Toolkits that are refused when they are defined, and the error messages."""

from __future__ import annotations

import re
from typing import Any

import pytest

from tests.capabilities.client import new_hub, request
from tests.capabilities.kits import OBJECT, Files
from waypost import DefinitionError, Tool, Toolkit, tool


@pytest.mark.parametrize("option", [{"hidden": 1}, {"hidden": "yes"}, {"visible": 0}, {"visible": ""}])
def test_only_true_and_false_say_whether_a_tool_is_hidden(option: dict[str, Any]) -> None:
    with pytest.raises(DefinitionError, match=r"Tool 'a': \w+ must be True or False, not "):

        class Kit(Toolkit):
            @tool(**option)
            def a(self) -> None: ...


def refused(*marks: Any, take: Any = None) -> str:
    """The error message for a toolkit with a function that is marked like this."""

    def subject(self: object, args: object, ctx: object) -> None: ...

    function = take or subject
    for mark in marks:
        function = mark(function)
    with pytest.raises(DefinitionError) as caught:
        type("Kit", (Toolkit,), {"subject": function})
    return caught.value.message


def test_a_private_function_is_no_tool() -> None:
    def _secret(self: object) -> None: ...

    assert "Tool '_secret'" in refused(tool, take=_secret)
    assert "private" in refused(tool(name="public"), take=_secret)


def test_more_than_args_and_ctx_is_refused() -> None:
    def three(self: object, args, ctx, more):  # type: ignore[no-untyped-def]
        ...

    assert "Tool 'three'" in refused(tool, take=three)
    assert "at most two parameters" in refused(tool(input=OBJECT), take=three)


@pytest.mark.parametrize("second", [tool, tool(name="other")])
@pytest.mark.parametrize("first", [tool, tool(name="one")])
def test_two_tools_with_the_same_function_name_in_one_class_are_refused(first: Any, second: Any) -> None:
    with pytest.raises(DefinitionError, match=r"^Tool 'same': \S*Kit has two functions of that name\.$"):

        class Kit(Toolkit):
            @first
            def same(self) -> None: ...

            @second  # type: ignore[no-redef]
            def same(self) -> None: ...  # noqa: F811  # that is the mistake


def test_a_subclass_may_override_a_tool() -> None:
    class Kit(Toolkit):
        @tool
        def same(self) -> str:
            return "first"

        same = tool(category="Marked again")(same)

    class Own(Kit):
        @tool
        def same(self) -> str:
            return "second"

    assert request(new_hub(Own), "tools/call", name="same")["result"]["content"][0]["text"] == "second"


def test_two_tools_of_one_name_in_a_toolkit_are_refused_by_name() -> None:
    with pytest.raises(DefinitionError, match=r"Kit.*same\.name"):

        class Kit(Toolkit):
            @tool(name="same.name")
            def a(self) -> None: ...

            @tool(name="same.name")
            def b(self) -> None: ...


@pytest.mark.parametrize("option", ["input", "output", "input_schema", "output_schema"])
@pytest.mark.parametrize(
    ("schema", "complaint"),
    [
        ('{"type": ', "malformed JSON text"),
        ('["type", "object"]', "must decode to an object"),
        (7, "expected a"),
        ([("q", "string")], "expected a"),
        ({"type": "object", "properties": {"q": {"type": "strin"}}}, "invalid JSON Schema"),
    ],
)
def test_a_malformed_schema_is_refused_naming_the_tool(option: str, schema: object, complaint: str) -> None:
    message = refused(tool(name="the.tool", **{option: schema}))
    assert message.startswith("Tool 'the.tool'")
    assert complaint in message


@pytest.mark.parametrize(
    "spec",
    [
        {"a": {}},
        {"a": {"type": "strin"}},
        {"a": {"type": "enum"}},
        {"a": {"type": "enum", "values": []}},
        {"a": {"type": "object"}},
        {"a": {"type": "array", "items": "object"}},
        {"a": ["string"]},
        {"a": {"type": "array", "items": "bogus"}},
        {"a": {"type": "string", "minimum": 3}},
        {1: "string"},
    ],
)
def test_a_wrong_field_spec_is_refused_naming_the_tool(spec: dict[Any, Any]) -> None:
    assert refused(tool(name="the.tool", input=spec)).startswith("Tool 'the.tool': field ")


@pytest.mark.parametrize("option", ["input_schema", "output_schema"])
def test_the_raw_options_never_take_a_field_spec(option: str) -> None:
    assert "the.tool" in refused(tool(name="the.tool", **{option: {"q": {"type": "string"}, "type": "bogus"}}))


def test_an_unknown_option_is_refused_with_the_nearest_known_one() -> None:
    sentence = "Tool 'work': unknown option 'descripton', did you mean 'description'?"
    with pytest.raises(DefinitionError, match=f"^{re.escape(sentence)}$"):

        @tool(descripton="x")
        def work() -> None: ...


@pytest.mark.parametrize(
    "annotations", [{"read_only": True}, {"readonly_hint": True}, {"destructive": False}, {"hint": 1}]
)
def test_an_unknown_annotation_is_refused(annotations: dict[str, Any]) -> None:
    assert "unknown annotation" in refused(tool(annotations=annotations))


@pytest.mark.parametrize("given", ["name", 3, {"name": "x"}, ["name"], Tool])
def test_a_mark_that_is_not_made_of_options_is_refused(given: Any) -> None:
    with pytest.raises(DefinitionError, match="options go by keyword"):
        tool(given)


def test_a_mark_without_a_function_is_refused() -> None:
    with pytest.raises(DefinitionError, match=r"Kit.*dangling.*without a function"):

        class Kit(Toolkit):
            dangling = tool(name="x")


def test_a_mark_on_an_object_that_is_not_a_function_is_refused() -> None:
    with pytest.raises(DefinitionError, match="@tool"):

        class Kit(Toolkit):
            @tool  # type: ignore[prop-decorator]
            @property
            def size(self) -> int:
                return 1


def test_a_mark_that_a_property_would_swallow_is_refused() -> None:
    with pytest.raises(DefinitionError, match="size"):

        class Kit(Toolkit):
            @property
            @tool
            def size(self) -> int:
                return 1


@pytest.mark.parametrize("name", ["", "two words", "ü", "a" * 129, "tab\there", 7])
def test_a_name_that_cannot_go_over_the_wire_is_refused(name: Any) -> None:
    with pytest.raises(DefinitionError, match="name"):
        tool(name=name)(lambda: None)


def test_an_unknown_toolkit_option_is_refused() -> None:
    with pytest.raises(DefinitionError, match=r"Toolkit Kit: unknown option 'categry'"):

        class Kit(Toolkit, categry="x"):
            pass


def test_two_registrations_of_one_name_are_refused_and_change_nothing() -> None:
    class Other(Toolkit):
        @tool
        def fresh(self) -> None: ...

        @tool
        def server_time(self) -> None: ...

    hub = new_hub(Files)
    with pytest.raises(DefinitionError, match="server_time"):
        hub.add(Other)
    assert len(hub.expand()) == 3
    assert request(hub, "tools/call", name="fresh")["error"]["code"] == -32602
