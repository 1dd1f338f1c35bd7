"""Toolkits: how marks and options turn functions into tools."""

from __future__ import annotations

import enum
import functools
from collections.abc import Callable
from typing import Any, overload

import msgspec
import pytest

from tests.capabilities.client import call, listed, new_hub, text
from tests.capabilities.kits import OBJECT, Files
from waypost import Context, Toolkit, tool
from waypost.capabilities.tools import expand


def test_one_registration_offers_every_marked_function_in_the_order_they_are_written() -> None:
    assert [capability.id for capability in Files().capabilities()] == ["files.read", "server_time", "lookup"]
    assert [capability.id for capability in new_hub(Files).expand()] == ["files.read", "lookup", "server_time"]


def test_a_name_that_is_not_given_is_the_functions() -> None:
    assert "server_time" in listed(new_hub(Files))


@pytest.mark.parametrize(
    ("name", "arguments", "answer"),
    [
        ("files.read", {"path": "/x"}, "read /x for anonymous"),
        ("server_time", {}, "noon"),
        ("lookup", {"q": "word"}, "word"),
    ],
)
def test_a_function_gets_as_much_of_args_and_ctx_as_it_takes(name: str, arguments: dict[str, Any], answer: str) -> None:
    assert text(call(new_hub(Files), name, **arguments)) == answer


def test_a_function_that_takes_nothing_still_has_its_arguments_checked() -> None:
    class Kit(Toolkit):
        @tool(input={"n": {"type": "integer", "required": True}})
        def stamp(self) -> str:
            return "done"

    refused = call(new_hub(Kit), "stamp", n="one")
    assert refused["isError"] is True
    assert text(refused).startswith("Invalid arguments for tool stamp: n: ")
    assert text(call(new_hub(Kit), "stamp", n=1)) == "done"


def test_stacked_marks_add_up_and_the_nearest_to_the_function_wins() -> None:
    class Kit(Toolkit):
        @tool(name="first", category="Reports", title="Kept")
        @tool(description="The middle one", category="Middle")
        @tool(name="last", input=OBJECT)
        def weekly(self, args: dict[str, Any]) -> None: ...

    (weekly,) = Kit().capabilities()
    assert weekly.id == "last"
    assert weekly.metadata.category == "Middle"
    assert weekly.definition.title == "Kept"
    assert weekly.definition.description == "The middle one"
    assert weekly.arguments.schema == OBJECT


def test_marks_are_merged_before_hidden_and_visible_are_weighed() -> None:
    class Kit(Toolkit):
        @tool(hidden=False)
        @tool(visible=False)
        def shown(self) -> None: ...

    assert [capability.metadata.hidden for capability in Kit().capabilities()] == [False]


def test_every_option_may_be_given() -> None:
    class Kit(Toolkit):
        @tool(
            name="all.of.it",
            title="All",
            description="Everything",
            category="Misc",
            input={"a": "string"},
            output={"b": "string"},
            input_schema=OBJECT,
            output_schema=OBJECT,
            annotations={"read_only_hint": True},
            icons=[{"src": "https://example.com/i.png"}],
            meta={"origin": "here"},
            hidden=False,
            visible=True,
            tags=["x"],
            aliases=["everything"],
            timeout=2.5,
            task="optional",
            scopes=["s"],
            permissions=["p"],
        )
        def everything(self, args: dict[str, Any], ctx: Context) -> None: ...

    (made,) = Kit().capabilities()
    assert (made.metadata.tags, made.metadata.aliases, made.timeout, made.mcp.task) == (
        ("x",),
        ("everything",),
        2.5,
        "optional",
    )
    assert (made.scopes, made.permissions) == (("s",), ("p",))
    row = msgspec.to_builtins(made.definition)
    row.pop("execution", None)
    assert row == {
        "name": "all.of.it",
        "title": "All",
        "description": "Everything",
        "inputSchema": OBJECT,
        "outputSchema": OBJECT,
        "annotations": {"readOnlyHint": True},
        "icons": [{"src": "https://example.com/i.png"}],
        "_meta": {"origin": "here", "category": "Misc"},
    }


def test_options_that_are_not_given_are_not_on_the_wire() -> None:
    class Kit(Toolkit):
        @tool
        def bare(self) -> None: ...

    assert listed(new_hub(Kit)) == {"bare": {"name": "bare", "inputSchema": {"type": "object"}}}


def test_a_docstring_is_the_description_unless_one_is_given() -> None:
    class Kit(Toolkit):
        @tool
        def documented(self) -> None:
            """What it does.

            And when.
            """

        @tool(description="Better")
        def overruled(self) -> None:
            """Ignored."""

    assert [c.definition.description for c in Kit().capabilities()] == ["What it does.\n\nAnd when.", "Better"]


def test_a_tools_category_beats_its_toolkits() -> None:
    assert [capability.metadata.category for capability in Files().capabilities()] == ["Files", "Utility", "Utility"]


def test_a_category_of_none_takes_the_toolkits_away() -> None:
    class Kit(Toolkit, category="Utility"):
        @tool(category=None)
        def loose(self) -> None: ...

    (loose,) = Kit().capabilities()
    assert loose.metadata.category is None
    assert "_meta" not in listed(new_hub(Kit))["loose"]


def test_a_registrations_category_beats_all_and_covers_the_whole_toolkit() -> None:
    hub = new_hub().add(Files, category="Admin", hidden=False)
    assert {row["_meta"]["category"] for row in listed(hub).values()} == {"Admin"}
    assert len(listed(hub)) == 3


def test_a_category_replaces_the_one_in_meta_and_leaves_the_rest() -> None:
    class Kit(Toolkit):
        @tool(category="New", meta={"category": "Old", "other": 1})
        def both(self) -> None: ...

        @tool(meta={"category": "Own"})
        def own(self) -> None: ...

    rows = listed(new_hub(Kit))
    assert rows["both"]["_meta"] == {"category": "New", "other": 1}
    assert rows["own"]["_meta"] == {"category": "Own"}


def test_a_hidden_tool_is_not_listed_but_answers_like_any_other() -> None:
    hub = new_hub(Files)
    assert "lookup" not in listed(hub)
    assert text(call(hub, "lookup", q="found")) == "found"


def test_hidden_wins_over_visible_where_a_tool_is_defined() -> None:
    class Kit(Toolkit):
        @tool(hidden=True, visible=True)
        def a(self) -> None: ...

        @tool(hidden=False, visible=False)
        def b(self) -> None: ...

    assert [capability.metadata.hidden for capability in Kit().capabilities()] == [True, False]


def test_instances_keep_their_state() -> None:
    class Counter(Toolkit):
        def __init__(self, start: int) -> None:
            self.start = start

        @tool
        def start_value(self) -> str:
            return str(self.start)

    assert text(call(new_hub(Counter(7)), "start_value")) == "7"


def test_static_and_class_methods_are_tools_too() -> None:
    class Kit(Toolkit):
        greeting = "hello"

        @tool
        @staticmethod
        def fixed(name: str) -> str:
            return name

        @classmethod
        @tool
        def classy(cls, name: str) -> str:
            return f"{cls.greeting} {name}"

    hub = new_hub(Kit)
    assert text(call(hub, "fixed", name="ann")) == "ann"
    assert text(call(hub, "classy", name="ann")) == "hello ann"


def test_a_subclass_inherits_tools_and_may_replace_them() -> None:
    class Base(Toolkit):
        @tool
        def one(self) -> str:
            return "base one"

        @tool
        def two(self) -> str:
            return "base two"

    class Derived(Base):
        @tool
        def two(self) -> str:
            return "derived two"

        @tool
        def three(self) -> str:
            return "three"

    hub = new_hub(Derived)
    assert [capability.id for capability in Derived().capabilities()] == ["one", "two", "three"]
    assert text(call(hub, "two")) == "derived two"


def test_a_function_defined_again_is_one_tool() -> None:
    class Kit(Toolkit):
        @overload
        def twice(self, value: int) -> int: ...
        @overload
        def twice(self, value: str) -> str: ...
        @tool(input={"value": "any"})
        def twice(self, value: Any) -> Any:
            return "second"

    assert [capability.id for capability in Kit().capabilities()] == ["twice"]


def test_a_wrapped_function_keeps_its_mark() -> None:
    def logged(function: Callable[..., str]) -> Callable[..., str]:
        @functools.wraps(function)
        def inner(*args: Any, **kwargs: Any) -> str:
            return "logged " + function(*args, **kwargs)

        return inner

    class Kit(Toolkit):
        @logged
        @tool(name="wrapped")
        def work(self, name: str) -> str:
            return name

    assert text(call(new_hub(Kit), "wrapped", name="x")) == "logged x"


def test_an_enum_class_is_published_by_value_and_delivered_as_members() -> None:
    class Mode(enum.Enum):
        LOUD = "loud"

    class Kit(Toolkit):
        @tool(input={"mode": {"type": "enum", "values": Mode}})
        def speak(self, args: dict[str, Any]) -> str:
            return repr(args["mode"] is Mode.LOUD)

    hub = new_hub(Kit)
    assert listed(hub)["speak"]["inputSchema"]["properties"]["mode"] == {"type": "string", "enum": ["loud"]}
    assert text(call(hub, "speak", mode="loud")) == "True"


def test_raw_schemas_beat_field_specs_when_both_are_given() -> None:
    class Kit(Toolkit):
        @tool(input={"a": "integer"}, input_schema=OBJECT, output={"a": "integer"}, output_schema=OBJECT)
        def both(self, args: dict[str, Any]) -> dict[str, Any]:
            return args

    (both,) = Kit().capabilities()
    assert both.arguments.schema == both.output_schema == OBJECT
    assert both.cast_plan is None


def test_annotations_are_translated_and_wire_names_pass() -> None:
    class Kit(Toolkit):
        @tool(
            annotations={
                "title": "T",
                "read_only_hint": False,
                "destructive_hint": True,
                "idempotent_hint": True,
                "open_world_hint": False,
            }
        )
        def snake(self) -> None: ...

        @tool(annotations={"readOnlyHint": True, "vendorHint": 1})
        def wire(self) -> None: ...

    rows = listed(new_hub(Kit))
    assert rows["snake"]["annotations"] == {
        "title": "T",
        "readOnlyHint": False,
        "destructiveHint": True,
        "idempotentHint": True,
        "openWorldHint": False,
    }
    assert rows["wire"]["annotations"] == {"readOnlyHint": True, "vendorHint": 1}


def test_a_tool_is_described_by_one_normalised_record() -> None:
    read, time, lookup = Files().capabilities()
    assert [c.metadata.arity for c in (read, time, lookup)] == [2, 0, 1]
    assert {c.owner for c in (read, time, lookup)} == {"Files"}
    assert read.cast_plan is not None
    assert (time.cast_plan, lookup.cast_plan) == (None, None)
    assert [c.metadata.hidden for c in (read, time, lookup)] == [False, False, True]
    assert read.output_schema is None


def test_an_empty_toolkit_offers_nothing() -> None:
    class Kit(Toolkit):
        pass

    assert expand(Kit) == []
