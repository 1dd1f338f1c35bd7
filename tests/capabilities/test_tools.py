from __future__ import annotations

import asyncio
from typing import Any, ClassVar

import pytest

from tests.capabilities.client import call, connected, listed, new_hub, request, text
from waypost import Context, DefinitionError, Hub, Tool


class Calculator(Tool):
    """Add two numbers."""

    a: float
    b: float = 1.0

    def execute(self, ctx: Context) -> float:
        return self.a + self.b


class GetWeather(Tool, category="Docs", hidden=True):
    async def execute(self) -> str:
        return "sunny"


def test_a_component_is_named_after_its_class() -> None:
    assert [c.id for c in Calculator().capabilities()] == ["calculator"]
    assert GetWeather.component_name() == "get_weather"


def test_fields_are_the_arguments_and_the_docstring_is_the_description() -> None:
    assert listed(new_hub(Calculator))["calculator"] == {
        "name": "calculator",
        "description": "Add two numbers.",
        "inputSchema": {
            "type": "object",
            "properties": {"a": {"type": "number"}, "b": {"type": "number", "default": 1.0}},
            "required": ["a"],
        },
        "outputSchema": {"type": "object", "properties": {"result": {"type": "number"}}, "required": ["result"]},
    }


def test_fields_are_attributes_during_execution() -> None:
    assert call(new_hub(Calculator), "calculator", a=1)["structuredContent"] == {"result": 2.0}


def test_a_component_takes_the_options_of_a_tool() -> None:
    (weather,) = GetWeather().capabilities()
    assert (weather.metadata.category, weather.metadata.hidden) == ("Docs", True)
    assert text(call(new_hub(GetWeather), "get_weather")) == "sunny"


def test_a_component_is_one_record_that_takes_args_and_ctx() -> None:
    class Raw(Tool, input_schema='{"type": "object", "required": ["q"]}', output_schema={"type": "object"}):
        def execute(self, args: dict[str, Any], ctx: Context) -> dict[str, Any]:
            return {"got": args, "as": ctx.principal.id}

    (raw,) = Raw().capabilities()
    assert (raw.metadata.arity, raw.cast_plan, raw.output_schema) == (2, None, {"type": "object"})
    assert call(new_hub(Raw), "raw", q=1, more=2)["structuredContent"] == {
        "got": {"q": 1, "more": 2},
        "as": "anonymous",
    }


def test_overlapping_calls_do_not_share_fields() -> None:
    all_are_here = asyncio.Barrier(3)

    class Wait(Tool):
        n: int

        async def execute(self, ctx: Context) -> str:
            await all_are_here.wait()
            return str(self.n)

    async def scenario() -> list[str]:
        async with connected(new_hub(Wait)) as client:
            return [text(r) for r in await asyncio.gather(*(client.call("wait", n=n) for n in range(3)))]

    assert asyncio.run(scenario()) == ["0", "1", "2"]


def test_private_attributes_of_an_instance_are_not_arguments() -> None:
    class Greeter(Tool):
        name: str
        _greeting = "hello"
        shouted: ClassVar[bool] = False

        def execute(self) -> str:
            return f"{self._greeting} {self.name}"

    greeter = Greeter()
    greeter._greeting = "hi"
    assert list(listed(new_hub(greeter))["greeter"]["inputSchema"]["properties"]) == ["name"]
    assert text(call(new_hub(greeter), "greeter", name="ann")) == "hi ann"


def test_undeclared_arguments_do_not_replace_what_an_instance_keeps() -> None:
    class Fetch(Tool):
        def __init__(self) -> None:
            self._url = "https://example.com"

        def execute(self) -> str:
            return self._url

    class RawFetch(Fetch, input_schema={"type": "object", "properties": {"page": {"type": "integer"}}}):
        page: int

        def execute(self, args: dict[str, Any], ctx: Context) -> str:  # type: ignore[override]  # more parameters
            return f"{self._url} {self.page} {sorted(args)}"

    hub = new_hub(Fetch()).add(RawFetch())
    assert text(call(hub, "fetch", _url="https://evil.example")) == "https://example.com"
    given = {"page": 2, "_url": "https://evil.example"}
    assert text(call(hub, "raw_fetch", **given)) == "https://example.com 2 ['_url', 'page']"


def test_fields_are_inherited() -> None:
    class Base(Tool):
        a: int

    class Derived(Base):
        b: int

        def execute(self) -> str:
            return f"{self.a} {self.b}"

    assert text(call(new_hub(Derived), "derived", a=1, b=2)) == "1 2"
    with pytest.raises(DefinitionError, match=r"Base has no execute\(\) method"):
        new_hub(Base)


def test_one_class_may_be_registered_under_several_names() -> None:
    hub = new_hub(Calculator).add(Calculator, name="sum", description="The same again")
    rows = listed(hub)
    assert (rows["sum"]["description"], rows["calculator"]["description"]) == ("The same again", "Add two numbers.")
    assert call(hub, "sum", a=2)["structuredContent"] == {"result": 3.0}


def test_too_many_parameters_are_refused_naming_the_class() -> None:
    with pytest.raises(DefinitionError, match=r"Tool Many: execute\(\) takes at most \(self, args, ctx\)"):

        class Many(Tool):
            def execute(self, args: Any, ctx: Any, more: Any) -> None: ...


@pytest.mark.parametrize(
    ("options", "sentence"),
    [
        ({"input": "{"}, "Tool Bad: malformed JSON text"),
        ({"colour": "red"}, "Tool Bad: unknown option 'colour'"),
        ({"timeout": 0}, "Tool Bad: timeout must be more than 0"),
        ({"timeout": "soon"}, "Tool Bad: timeout must be a number of seconds, not 'soon'"),
        ({"task": "maybe"}, "Tool Bad: task must be 'forbidden', 'optional' or 'required', not 'maybe'"),
        ({"annotations": {"readonly": True}}, "unknown annotation 'readonly'"),
        ({"name": "no spaces"}, "'no spaces' is not usable"),
    ],
)
def test_an_invalid_option_is_refused_when_the_class_is_defined(options: dict[str, Any], sentence: str) -> None:
    with pytest.raises(DefinitionError, match=sentence):
        type("Bad", (Tool,), {"execute": lambda self: None}, **options)


def test_a_class_name_that_cannot_go_over_the_wire_is_refused() -> None:
    with pytest.raises(DefinitionError, match="grüße"):
        type("Grüße", (Tool,), {"execute": lambda self: None})


def test_a_field_without_a_json_form_is_refused_by_name() -> None:
    with pytest.raises(DefinitionError, match=r"Tool Odd: .*the type of handle"):

        class Odd(Tool):
            handle: object
            other: asyncio.Event

            def execute(self) -> None: ...

        Odd()


def test_an_unknown_field_cannot_be_preset() -> None:
    with pytest.raises(TypeError, match="no field 'c'"):
        Calculator(c=1)


@pytest.mark.parametrize("given", [{"version": "1"}, {"name": "x"}, {"name": "", "version": "1"}])
def test_a_hub_needs_a_name_and_a_version(given: dict[str, Any]) -> None:
    with pytest.raises(DefinitionError, match="A hub needs a"):
        Hub(**given)


def test_an_unknown_tool_is_a_protocol_error() -> None:
    error = request(new_hub(Calculator), "tools/call", name="nope")["error"]
    assert (error["code"], error["message"]) == (-32602, "Unknown tool: nope")


@pytest.mark.parametrize("params", [{}, {"name": 3}, {"name": None}, {"name": "calculator", "arguments": []}])
def test_a_call_without_a_proper_name_is_a_protocol_error(params: dict[str, Any]) -> None:
    assert request(new_hub(Calculator), "tools/call", **params)["error"]["code"] == -32602


def test_wrong_arguments_are_a_result_that_names_each_problem() -> None:
    result = call(new_hub(Calculator), "calculator", a="one", b="two")
    assert result["isError"] is True
    assert text(result).startswith("Invalid arguments for tool calculator: a: ")
    assert "; b: " in text(result)
