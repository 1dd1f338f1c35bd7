from __future__ import annotations

import asyncio
from collections.abc import Iterable
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from msgspec.structs import replace

from tests.capabilities.client import connected, listed, new_hub, request
from waypost import DefinitionError, Hub, InvalidParams, UnknownPrompt, UnknownTool
from waypost.capabilities import registry as registry_module
from waypost.capabilities.capability import Capability, Kind, McpFeatures, Metadata
from waypost.capabilities.registry import Change, Registry
from waypost.capabilities.resources import UriTemplate
from waypost.errors import UnknownResource
from waypost.protocol.lists import Lists
from waypost.wire.definitions import PromptDefinition, ResourceDefinition, TemplateDefinition, ToolDefinition
from waypost.wire.params import decode_cursor, encode_cursor


def nothing(args: object, ctx: object) -> None: ...


def a_tool(name: str, *, hidden: bool = False, title: str = "") -> Capability:
    definition = ToolDefinition(name, title=title) if title else ToolDefinition(name)
    return Capability(
        kind=Kind.TOOL,
        id=name,
        definition=definition,
        handler=nothing,
        is_async=False,
        metadata=Metadata(hidden=hidden),
    )


def a_prompt(name: str) -> Capability:
    return Capability(kind=Kind.PROMPT, id=name, definition=PromptDefinition(name), handler=nothing, is_async=False)


def a_template(uri: str, name: str) -> Capability:
    return Capability(
        kind=Kind.TEMPLATE,
        id=uri,
        definition=TemplateDefinition(uri, name),
        handler=nothing,
        is_async=False,
        mcp=McpFeatures(template=UriTemplate(uri)),
    )


def a_resource(uri: str) -> Capability:
    return Capability(
        kind=Kind.RESOURCE, id=uri, definition=ResourceDefinition(uri, uri), handler=nothing, is_async=False
    )


def ids(rows: Iterable[Capability]) -> list[str]:
    return [row.id for row in rows]


def test_rows_are_sorted_by_name_in_any_order_of_registration() -> None:
    registry = Registry()
    registry.add([a_tool("b"), a_tool("a")])
    registry.add([a_tool("aa")])
    assert ids(registry[Kind.TOOL]) == ["a", "aa", "b"]


def test_a_tool_and_a_prompt_may_have_the_same_name() -> None:
    registry = Registry()
    registry.add([a_tool("same"), a_prompt("same")])
    assert registry.tool("same").kind is Kind.TOOL
    assert registry.prompt("same").kind is Kind.PROMPT


@pytest.mark.parametrize("arriving", [["new", "old"], ["new", "new"]])
def test_a_duplicate_is_refused_and_nothing_is_added(arriving: list[str]) -> None:
    registry = Registry()
    registry.add([a_tool("old")])
    changes: list[Change] = []
    registry.subscribe(changes.append)
    with pytest.raises(DefinitionError, match=r"There is a tool '(old|new)' already"):
        registry.add([a_tool(name) for name in arriving])
    assert ids(registry[Kind.TOOL]) == ["old"]
    assert changes == []


def test_every_mutation_is_one_change_that_names_the_lists() -> None:
    registry = Registry()
    changes: list[Change] = []
    stop = registry.subscribe(changes.append)
    registry.add([a_tool("a"), a_tool("b"), a_prompt("p")])
    registry.replace([a_tool("a")], [a_tool("c"), a_tool("d")])
    registry.remove([a_prompt("p")])
    registry.add([])
    stop()
    registry.add([a_tool("unheard")])
    assert [change.kinds for change in changes] == [{Kind.TOOL, Kind.PROMPT}, {Kind.TOOL}, {Kind.PROMPT}]


def test_grouped_changes_are_reported_as_one() -> None:
    registry = Registry()
    changes: list[Change] = []
    registry.subscribe(changes.append)
    with registry.as_one_change():
        registry.add([a_tool("a")])
        with registry.as_one_change():
            registry.add([a_prompt("p")])
        assert ids(registry[Kind.TOOL]) == ["a"]
        assert changes == []
    with registry.as_one_change():
        pass
    with pytest.raises(DefinitionError), registry.as_one_change():
        registry.add([a_tool("b")])
        registry.add([a_tool("a")])
    assert [change.kinds for change in changes] == [{Kind.TOOL, Kind.PROMPT}, {Kind.TOOL}]


def test_a_table_returns_the_changes_since_a_revision() -> None:
    table = Registry()[Kind.TOOL]
    assert table.changed_since(-1) is None
    assert table.changed_since(0) == []
    table.put(a_tool("a"))
    table.put(a_tool("b"))
    seen = table.revision
    table.put(a_tool("a", title="New"))
    table.pop("b")
    table.pop("nobody")
    assert set(table.changed_since(seen) or ()) == {"a", "b"}
    assert table.changed_since(table.revision) == []


def test_a_table_forgets_old_changes(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(registry_module, "REMEMBERED", 4)
    table = Registry()[Kind.TOOL]
    for number in range(50):
        table.put(a_tool(f"t{number}"))
    assert table.changed_since(1) is None
    assert table.changed_since(table.revision - 4) == ["t46", "t47", "t48", "t49"]


def test_a_row_may_be_replaced_by_one_of_the_same_name() -> None:
    registry = Registry()
    old, new = a_tool("a"), a_tool("a", title="New")
    registry.add([old])
    registry.replace([old], [new])
    assert registry.tool("a") is new
    assert registry.portable_name(new) == "a"


def test_a_removed_tool_is_unknown_under_both_names() -> None:
    registry = Registry()
    registry.add([a_tool("a.b")])
    registry.remove([registry.tool("a_b")])
    for name in ("a.b", "a_b"):
        with pytest.raises(UnknownTool):
            registry.tool(name)
    assert len(registry[Kind.TOOL]) == 0


@pytest.mark.parametrize(
    ("name", "sentence"),
    [
        ("x", "Unknown tool: x"),
        ("", "Unknown tool: "),
        ("skill:x", "Unknown skill: x"),
        ("workflow:x", "Unknown workflow: x"),
        ("skill::fetch", "Unknown tool: skill::fetch"),
        ("workflow:::x", "Unknown tool: workflow:::x"),
    ],
)
def test_the_error_for_an_unknown_tool_depends_on_its_prefix(name: str, sentence: str) -> None:
    with pytest.raises(UnknownTool, match=f"^{sentence}$"):
        Registry().tool(name)


def test_an_unknown_prompt_or_resource_is_named() -> None:
    with pytest.raises(UnknownPrompt, match="Unknown prompt: p"):
        Registry().prompt("p")
    with pytest.raises(UnknownResource, match="Resource not found: u:x"):
        Registry().resource("u:x")


def test_the_error_for_an_unknown_prompt_suggests_a_visible_one() -> None:
    registry = Registry()
    registry.add(
        [a_prompt("hello"), a_prompt("held"), replace(a_prompt("helo-hidden"), metadata=Metadata(hidden=True))]
    )
    with pytest.raises(UnknownPrompt, match=r'^Unknown prompt: helo; did you mean "hello"\?$'):
        registry.prompt("helo", lambda row: True)
    with pytest.raises(UnknownPrompt, match=r'^Unknown prompt: helo; did you mean "held"\?$'):
        registry.prompt("helo", lambda row: row.id != "hello")
    with pytest.raises(UnknownPrompt, match=r"^Unknown prompt: helo$"):
        registry.prompt("helo")


def test_a_fixed_resource_comes_first_then_templates_in_the_order_of_their_names() -> None:
    registry = Registry()
    registry.add([a_template("u:{+all}", "b"), a_template("u:{x}", "a"), a_template("v:{x}", "c"), a_resource("u:1")])
    assert [(row.id, variables) for row, variables in registry.resources("u:1")] == [
        ("u:1", {}),
        ("u:{x}", {"x": "1"}),
        ("u:{+all}", {"all": "1"}),
    ]


names = st.text("abcü/:.", min_size=1, max_size=3)


@settings(deadline=None)
@given(st.sets(names, max_size=15), st.integers(1, 4), st.data())
def test_paging_neither_repeats_nor_skips_what_stays(start: set[str], size: int, data: st.DataObject) -> None:
    registry = Registry()
    registry.add([a_tool(name, hidden=name.startswith("c")) for name in start])
    listing = Lists(registry, page_size=size)
    staying = {name for name in start if not name.startswith("c")}
    seen: list[str] = []
    cursor = None
    while True:
        page = listing.select(Kind.TOOL, cursor)
        assert len(page.items) <= size
        seen += [item.id for item in page.items if isinstance(item, Capability)]
        if page.next_cursor is None:
            break
        cursor = page.next_cursor
        present = set(ids(registry[Kind.TOOL]))
        leaving = data.draw(st.sets(st.sampled_from(sorted(present)), max_size=3)) if present else set()
        arriving = data.draw(st.sets(names, max_size=3)) - present
        registry.replace([a_tool(name) for name in leaving], [a_tool(name) for name in arriving])
        staying -= leaving
    assert len(seen) == len(set(seen))
    assert seen == sorted(seen)
    assert staying <= set(seen)


@settings(deadline=None)
@given(st.text(st.characters(exclude_categories=["Cs"]), max_size=20))
def test_a_cursor_decodes_to_its_key(key: str) -> None:
    assert decode_cursor(encode_cursor(key)) == key


@settings(deadline=None)
@given(st.text(max_size=20).filter(lambda text: not text.startswith(encode_cursor("").rstrip("="))))
def test_any_other_cursor_is_refused(cursor: str) -> None:
    with pytest.raises(InvalidParams, match=r"^Invalid cursor"):
        decode_cursor(cursor)


@pytest.mark.parametrize("cursor", ["", "x", "bm90aGluZw", "!!!!", "ü"])
def test_a_bad_cursor_is_a_protocol_error(cursor: str) -> None:
    error = request(new_hub(), "tools/list", cursor=cursor)["error"]
    assert error["code"] == -32602
    assert error["message"].startswith("Invalid cursor")


def test_a_list_comes_in_pages_of_the_chosen_size() -> None:
    hub = Hub("test", version="1", page_size=2)
    for name in "edcba":
        hub.tool(lambda: None, name=name)

    async def scenario() -> list[list[str]]:
        pages: list[list[str]] = []
        cursor: dict[str, str] = {}
        async with connected(hub) as client:
            while True:
                page = await client.result("tools/list", **cursor)
                pages.append([row["name"] for row in page["tools"]])
                if "nextCursor" not in page:
                    return pages
                cursor = {"cursor": page["nextCursor"]}

    assert asyncio.run(scenario()) == [["a", "b"], ["c", "d"], ["e"]]


def test_a_thousand_tools_fit_on_the_first_page() -> None:
    hub = new_hub([a_tool(f"t{number:04}") for number in range(1001)])
    page = request(hub, "tools/list")["result"]
    assert len(page["tools"]) == 1000
    assert "nextCursor" in page


def test_portable_names_are_published_and_both_forms_are_called() -> None:
    hub = Hub("test", version="1", names="portable")
    hub.tool(lambda: "found", name="skill:web.search")
    hub.tool(lambda: "found", name="other.tool", title="Its own title")
    rows = listed(hub)
    assert {name: row["title"] for name, row in rows.items()} == {
        "skill__web_search": "skill:web.search",
        "other_tool": "Its own title",
    }
    for name in ("skill__web_search", "skill:web.search"):
        assert "result" in request(hub, "tools/call", name=name)


def test_a_connected_client_gets_one_notification_per_changed_list() -> None:
    async def scenario() -> list[dict[str, Any]]:
        hub = new_hub()
        async with connected(hub) as client:
            hub.add([a_tool("a"), a_tool("b"), a_prompt("p"), a_template("u:{x}", "t"), a_resource("u:1")])
            await client.result("ping")
            assert await client.names() == ["a", "b"]
            return client.notifications

    methods = [note["method"] for note in asyncio.run(scenario())]
    assert methods == [f"notifications/{kind}/list_changed" for kind in ("prompts", "resources", "tools")]


def test_removing_takes_an_item_off_the_list() -> None:
    hub = new_hub([a_tool("a"), a_tool("b"), a_prompt("p")])
    hub.remove("a", "nobody")
    hub.remove("p", kind=Kind.PROMPT)
    assert list(listed(hub)) == ["b"]
    assert hub.expand("prompts") == []
