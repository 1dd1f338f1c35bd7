from __future__ import annotations

import asyncio
import functools
import threading
from dataclasses import dataclass
from typing import TYPE_CHECKING, Annotated, Any, Optional

import pytest

import waypost
from tests.capabilities.client import call, listed, new_hub, text
from waypost import DefinitionError, Result, Text
from waypost.capabilities.components import is_async
from waypost.testing import connect
from waypost.wire.versions import V2025_11_25, V2026_07_28

if TYPE_CHECKING:
    from waypost import Context

    class Unseen: ...


@dataclass
class Sum:
    total: float


def add(a: float, b: Annotated[float, "What to add"] = 1.0) -> Sum:
    """Add two numbers."""
    return Sum(a + b)


def test_a_signature_is_the_schema_and_a_return_type_the_promise() -> None:
    hub = new_hub()
    assert hub.tool(add) is add
    assert listed(hub)["add"] == {
        "name": "add",
        "description": "Add two numbers.",
        "inputSchema": {
            "type": "object",
            "properties": {
                "a": {"type": "number"},
                "b": {"type": "number", "default": 1.0, "description": "What to add"},
            },
            "required": ["a"],
        },
        "outputSchema": {"type": "object", "properties": {"total": {"type": "number"}}, "required": ["total"]},
    }
    assert call(hub, "add", a=1)["structuredContent"] == {"total": 2.0}


def test_a_function_that_takes_only_the_context_does_not_get_undeclared_arguments() -> None:
    """Some clients send a made-up argument to each tool that has none."""
    hub = new_hub()

    @hub.tool
    async def alone(ctx: Context) -> str:
        """By position."""
        return f"alone {ctx.caller.client_info is not None}"

    @hub.tool
    def named(*, ctx: Context) -> str:
        """By name."""
        return "named"

    class Kit(waypost.Toolkit):
        @waypost.tool
        def inside(self, ctx: Context) -> str:
            """Of a toolkit."""
            return "inside"

    hub.add(Kit)
    assert [text(call(hub, name, random_string="dummy")) for name in ("alone", "named", "inside")] == [
        "alone True",
        "named",
        "inside",
    ]


@pytest.mark.parametrize("version", [V2025_11_25, V2026_07_28])
def test_a_prompt_or_template_that_takes_only_the_context_does_not_get_undeclared_arguments(version: str) -> None:
    hub = new_hub()

    @hub.prompt
    async def greeting(ctx: Context) -> str:
        """Greet."""
        return "Hello"

    @hub.resource("notes://{name}")
    async def note(ctx: Context) -> str:
        """Read."""
        return "a note"

    async def run() -> None:
        async with connect(hub, version=version) as client:
            messages = (await client.get_prompt("greeting", {"tone": "warm"}))["messages"]
            assert messages[0]["content"]["text"] == "Hello"
            assert (await client.read_resource("notes://a"))["contents"][0]["text"] == "a note"

    asyncio.run(run())


def test_a_registered_function_is_not_changed() -> None:
    hub, other = new_hub(), new_hub()

    def work() -> str:
        return "done"

    before = dict(vars(work))
    assert hub.tool(work, name="first") is hub.tool(name="second")(work) is other.tool(work) is work
    assert vars(work) == before
    assert list(listed(hub)) == ["first", "second"]
    assert list(listed(other)) == ["work"]


def test_marked_functions_can_be_registered_with_more_options() -> None:
    hub = new_hub()

    @hub.tool(category="Later", title="Outer")
    @waypost.tool(name="marked", title="Nearer")
    def work() -> None: ...

    row = listed(hub)["marked"]
    assert (row["title"], row["_meta"]) == ("Nearer", {"category": "Later"})


def test_a_context_is_injected_by_its_type_in_any_position() -> None:
    hub = new_hub()

    @hub.tool
    def first(ctx: Context, word: str) -> str:
        return f"{word} {ctx.principal.id}"

    @hub.tool
    async def last(word: str, *, person: Context) -> str:
        return f"{word} {person.principal.id}"

    @hub.tool
    def alone(ctx: Context) -> str:
        return ctx.principal.id

    rows = listed(hub)
    assert list(rows["first"]["inputSchema"]["properties"]) == ["word"]
    assert list(rows["last"]["inputSchema"]["properties"]) == ["word"]
    assert rows["alone"]["inputSchema"] == {"type": "object"}
    assert text(call(hub, "first", word="hi")) == text(call(hub, "last", word="hi")) == "hi anonymous"
    assert text(call(hub, "alone")) == "anonymous"


def test_a_context_may_be_optional_and_is_always_given() -> None:
    hub = new_hub()

    @hub.tool
    def greet(word: str, ctx: Context | None = None) -> str:
        return f"{word} {'nobody' if ctx is None else ctx.principal.id}"

    @hub.tool
    def name(ctx: Optional[Context] = None) -> str:  # noqa: UP045  # as older code writes it
        return "nobody" if ctx is None else ctx.principal.id

    rows = listed(hub)
    assert list(rows["greet"]["inputSchema"]["properties"]) == ["word"]
    assert rows["name"]["inputSchema"] == {"type": "object"}
    assert text(call(hub, "greet", word="hi", ctx="x")) == "hi anonymous"
    assert text(call(hub, "name")) == "anonymous"


def test_a_function_without_annotations_takes_args_and_ctx_as_they_come() -> None:
    hub = new_hub()

    @hub.tool
    def none():  # type: ignore[no-untyped-def]
        return "nothing"

    @hub.tool
    def one(args):  # type: ignore[no-untyped-def]
        return args

    @hub.tool
    async def two(args, ctx):  # type: ignore[no-untyped-def]
        return {**args, "by": ctx.principal.id}

    assert [row["inputSchema"] for row in listed(hub).values()] == [{"type": "object"}] * 3
    assert text(call(hub, "none", ignored=1)) == "nothing"
    assert call(hub, "one", a=[1])["structuredContent"] == {"a": [1]}
    assert call(hub, "two", a=1)["structuredContent"] == {"a": 1, "by": "anonymous"}


def test_the_data_form_drops_what_is_not_declared_and_raw_schemas_keep_it() -> None:
    hub = new_hub()

    @hub.tool(input={"a": {"type": "integer", "default": 4}})
    def declared(args: dict[str, Any]) -> dict[str, Any]:
        return args

    @hub.tool(input_schema={"properties": {"a": {"type": "integer", "default": 4}}})
    def raw(args: dict[str, Any]) -> dict[str, Any]:
        return args

    @hub.tool(input='{"type": "object", "properties": {"a": {"type": "integer"}}}')
    def from_text(args: dict[str, Any]) -> dict[str, Any]:
        return args

    assert call(hub, "declared", b=1)["structuredContent"] == {"a": 4}
    assert call(hub, "raw", b=1)["structuredContent"] == {"b": 1}
    assert call(hub, "from_text", a=2, b=1)["structuredContent"] == {"a": 2, "b": 1}
    assert call(hub, "from_text", a="two")["isError"] is True


def test_a_function_without_parameters_still_promises_its_return_type() -> None:
    hub = new_hub()

    @hub.tool
    def answer() -> int:
        return 42

    assert listed(hub)["answer"]["outputSchema"] == {
        "type": "object",
        "properties": {"result": {"type": "integer"}},
        "required": ["result"],
    }


def test_content_and_results_promise_no_schema() -> None:
    hub = new_hub()

    @hub.tool
    def block(word: str) -> Text:
        return Text(word)

    @hub.tool
    def whole(word: str) -> Result:
        return Result([word])

    @hub.tool
    def plain(word: str) -> str:
        return word

    assert all("outputSchema" not in row for row in listed(hub).values())


def test_callable_objects_and_partials_are_tools_too() -> None:
    class Power:
        def __call__(self, base: int, exponent: int = 2) -> int:
            return int(base**exponent)

    hub = new_hub()
    hub.add(Power(), name="square")
    hub.add(functools.partial(add, b=10.0), name="add_ten")
    hub.add(functools.partial(functools.partial(add), b=10.0))
    assert [listed(hub)[name]["description"] for name in ("add", "add_ten")] == ["Add two numbers."] * 2
    assert call(hub, "square", base=3)["structuredContent"] == {"result": 9}
    assert call(hub, "add_ten", a=1)["structuredContent"] == {"total": 11.0}


def test_methods_are_registered_with_their_instance() -> None:
    class Counter:
        def __init__(self) -> None:
            self.value = 0

        def up(self, by: int) -> str:
            self.value += by
            return str(self.value)

    hub = new_hub()
    hub.tool(Counter().up)
    assert text(call(hub, "up", by=2)) == "2"
    assert text(call(hub, "up", by=3)) == "5"


def test_synchronous_functions_run_off_the_event_loop() -> None:
    hub = new_hub()

    @hub.tool
    def where() -> str:
        return threading.current_thread().name

    assert text(call(hub, "where")) == "waypost-handler"


def test_a_coroutine_function_is_recognised_behind_wrappers() -> None:
    async def work() -> None: ...

    class Work:
        async def __call__(self) -> None: ...

    assert is_async(work)
    assert is_async(functools.partial(work))
    assert is_async(Work())
    assert not is_async(add)
    assert not is_async(lambda: work())


def test_a_synchronous_function_may_return_an_awaitable() -> None:
    hub = new_hub()

    async def later(word: str) -> str:
        return word

    hub.tool(lambda args: later(args["word"]), name="later")
    assert text(call(hub, "later", word="soon")) == "soon"


def test_an_annotation_that_cannot_be_resolved_is_refused_naming_the_tool() -> None:
    def work(value: Unseen) -> None: ...

    with pytest.raises(DefinitionError, match=r"Tool 'work'.*'Unseen' cannot be resolved"):
        new_hub(work)


def test_parameters_that_have_no_name_to_give_are_refused() -> None:
    def positional(value: int, /) -> None: ...
    def collecting(*values: int) -> None: ...
    def keywords(**values: int) -> None: ...

    for function in (positional, collecting, keywords):
        with pytest.raises(DefinitionError, match=rf"Tool '{function.__name__}'"):
            new_hub(function)


def test_collected_parameters_are_refused_without_annotations_too() -> None:
    def everything(*a: Any, **k: Any) -> None: ...

    everything.__annotations__.clear()

    for options in ({}, {"input": {"word": "string"}}):
        with pytest.raises(DefinitionError, match=r"^Tool 'everything': \*a and \*\*k cannot be arguments; name them$"):
            new_hub().tool(**options)(everything)


def test_a_required_keyword_beside_declared_input_is_refused() -> None:
    with pytest.raises(DefinitionError, match=r"Tool 'work': takes at most two parameters"):

        @new_hub().tool(input={"a": "string"})
        def work(args: Any, *, needed: Any) -> None: ...


def test_a_type_without_a_json_form_is_refused_naming_the_parameter() -> None:
    def work(lock: Annotated[threading.Thread, "a thread"]) -> None: ...

    with pytest.raises(DefinitionError, match=r"Tool 'work'.*lock"):
        new_hub(work)
