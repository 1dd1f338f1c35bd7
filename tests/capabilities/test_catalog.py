from __future__ import annotations

import asyncio
from typing import Any

import msgspec
import pytest

from tests.capabilities.client import call, connected, listed, new_hub, request, text
from waypost import Catalog, Context, Hub, Prompt, Resource, Tool, Toolkit, tool
from waypost.protocol.lists import Page


class Files(Toolkit):
    @tool(name="files.read", category="Files", description="Read a FILE", input={"path": "string"})
    def read_file(self, args: dict[str, Any]) -> None: ...

    @tool(hidden=True)
    def internal(self) -> str:
        return "reached"


class Ask(Prompt, category="files"):
    """Ask for it."""

    def messages(self) -> str:
        return ""


class Manual(Resource, uri="docs://manual"):
    def read(self) -> str:
        return ""


class Note(Resource, uri_template="notes://{id}", hidden=True):
    id: str

    def read(self) -> str:
        return ""


@pytest.fixture
def hub() -> Hub:
    return new_hub(Files, Ask, Manual, Note).add(Catalog, hidden=True)


def names(hub: Hub, **arguments: Any) -> dict[str, list[str]]:
    sections = call(hub, "catalog", **arguments)["structuredContent"]
    return {section: [entry["name"] for entry in entries] for section, entries in sections.items()}


def test_the_catalog_lists_hidden_items_and_itself(hub: Hub) -> None:
    assert names(hub) == {
        "tools": ["catalog", "files.read", "internal"],
        "prompts": ["ask"],
        "resources": ["manual"],
        "resource_templates": ["note"],
    }


def test_the_catalog_may_be_hidden_and_still_be_called(hub: Hub) -> None:
    assert "catalog" not in listed(hub)
    (entry,) = [e for e in call(hub, "catalog", type="tools")["structuredContent"]["tools"] if e["name"] == "catalog"]
    assert entry["hidden"] is True


def test_an_entry_is_the_wire_definition_with_hidden_and_category(hub: Hub) -> None:
    (entry,) = call(hub, "catalog", query="files.read")["structuredContent"]["tools"]
    assert entry == listed(hub)["files.read"] | {"hidden": False, "category": "Files"}
    assert entry["_meta"] == {"category": "Files"}
    (internal,) = call(hub, "catalog", query="internal")["structuredContent"]["tools"]
    assert internal == {"name": "internal", "inputSchema": {"type": "object"}, "hidden": True}


@pytest.mark.parametrize("section", ["tools", "prompts", "resources", "resource_templates"])
def test_only_the_requested_sections_are_returned(hub: Hub, section: str) -> None:
    assert list(names(hub, type=section)) == [section]
    assert names(hub, type="all") == names(hub)


def test_hidden_items_can_be_left_out(hub: Hub) -> None:
    assert names(hub, include_hidden=False) == {
        "tools": ["files.read"],
        "prompts": ["ask"],
        "resources": ["manual"],
        "resource_templates": [],
    }


@pytest.mark.parametrize(
    ("query", "found"),
    [
        ("READ", ["files.read"]),
        ("a file", ["files.read"]),
        ("for IT", ["ask"]),
        ("docs://", ["manual"]),
        ("notes://{", ["note"]),
        ("nowhere", []),
    ],
)
def test_a_query_looks_into_names_descriptions_and_addresses(hub: Hub, query: str, found: list[str]) -> None:
    assert [name for section in names(hub, query=query).values() for name in section] == found


def test_a_category_is_matched_whole_and_without_case_in_every_section(hub: Hub) -> None:
    assert names(hub, category="FILES") == {
        "tools": ["files.read"],
        "prompts": ["ask"],
        "resources": [],
        "resource_templates": [],
    }
    assert all(not found for found in names(hub, category="File").values())


def test_filters_add_up(hub: Hub) -> None:
    assert names(hub, type="tools", category="files", query="read", include_hidden=False) == {"tools": ["files.read"]}
    assert names(hub, type="tools", category="files", query="internal") == {"tools": []}


@pytest.mark.parametrize("arguments", [{"type": "everything"}, {"include_hidden": "yes"}, {"query": 3}])
def test_invalid_arguments_are_an_error_result(hub: Hub, arguments: dict[str, Any]) -> None:
    refused = call(hub, "catalog", **arguments)
    assert refused["isError"] is True
    assert text(refused).startswith(f"Invalid arguments for tool catalog: {next(iter(arguments))}: ")


def test_the_structured_answer_is_there_as_text_too(hub: Hub) -> None:
    answer = call(hub, "catalog", type="prompts")
    assert msgspec.json.decode(text(answer)) == answer["structuredContent"]


def test_the_catalog_ignores_list_hooks(hub: Hub) -> None:
    @hub.on("list_tools")
    def nothing(cursor: str | None, ctx: Context) -> Page:
        return Page([])

    assert listed(hub) == {}
    assert "files.read" in names(hub)["tools"]


class Unlock(Tool):
    async def execute(self, ctx: Context) -> str:
        await ctx.session.put("unlocked", True)
        await ctx.session.notify_changed("tools")
        return "unlocked"


class Gated(Hub):
    async def on_list_tools(self, cursor: str | None, ctx: Context) -> Page:
        return self.list_registered("tools", cursor, include_hidden=ctx.session.assigns.get("unlocked") is True)


def test_a_list_may_depend_on_the_session_and_changes_for_that_session_alone() -> None:
    async def scenario() -> None:
        hub = Gated("test", version="1").add(Unlock).add(Files)
        async with connected(hub) as mine, connected(hub) as theirs:
            assert await mine.names() == await theirs.names() == ["files.read", "unlock"]
            assert text(await mine.call("internal")) == "reached"
            await mine.call("unlock")
            assert await mine.names() == ["files.read", "internal", "unlock"]
            assert await theirs.names() == ["files.read", "unlock"]
            assert [note["method"] for note in mine.notifications] == ["notifications/tools/list_changed"]
            assert theirs.notifications == []

    asyncio.run(scenario())


def test_a_list_change_can_be_sent_to_all_clients() -> None:
    async def scenario() -> list[list[str]]:
        hub = new_hub(Files)
        async with connected(hub) as one, connected(hub) as two:
            for kind in ("tools", "prompts", "resources"):
                await hub.notify_changed(kind)
            await one.result("ping")
            await two.result("ping")
            return [[note["method"] for note in client.notifications] for client in (one, two)]

    message = [f"notifications/{kind}/list_changed" for kind in ("tools", "prompts", "resources")]
    assert asyncio.run(scenario()) == [message, message]


def test_capabilities_are_derived_from_what_is_registered() -> None:
    def declared(hub: Hub) -> Any:
        info = {"name": "c", "version": "1"}
        params = {"protocolVersion": "2025-11-25", "capabilities": {}, "clientInfo": info}
        return request(hub, "initialize", **params)["result"]["capabilities"]

    class Watched(Resource, uri="docs://watched", subscribable=True):
        def read(self) -> str:
            return ""

    assert declared(new_hub()) == {"logging": {}, "tools": {"listChanged": True}}
    assert declared(new_hub(Manual))["resources"] == {"listChanged": True}
    assert declared(new_hub(Watched))["resources"] == {"listChanged": True, "subscribe": True}
    full = declared(new_hub(Ask, Note))
    assert full["prompts"] == {"listChanged": True}
    assert full["completions"] == {}
    chosen = {"tools": {}, "resources": {"subscribe": True}}
    assert declared(Hub("test", version="1", capabilities=chosen)) == chosen
