import base64
import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.protocol.conftest import Json, asynchronous, connected, in_session, request, stateless
from waypost import Hub
from waypost.capabilities.capability import Capability, Kind
from waypost.capabilities.tools import expand
from waypost.errors import InvalidParams
from waypost.protocol.lists import Lists
from waypost.wire.params import decode_cursor, encode_cursor
from waypost.wire.versions import ALL, V2024_11_05, V2025_11_25, V2026_07_28


def hub_with(*names: str, page_size: int = 2, **options: Any) -> Hub:
    hub = Hub("listed", version="1", page_size=page_size, **options)
    for name in names:
        add(hub, name)
    return hub


def add(hub: Hub, name: str, **options: Any) -> None:
    hub.tool(name=name, description=f"Tool {name}", **options)(lambda: name)


def page(hub: Hub, cursor: str | None = None, version: str = V2026_07_28) -> Json:
    body: Json = json.loads(hub.engine.lists.page(Kind.TOOL, cursor, version))
    return body


def names(body: Json) -> list[str]:
    return [row["name"] for row in body["tools"]]


def walk(hub: Hub) -> list[list[str]]:
    body = page(hub)
    pages = [names(body)]
    while "nextCursor" in body:
        body = page(hub, body["nextCursor"])
        pages.append(names(body))
    return pages


def test_a_list_is_sorted_by_name_and_paged() -> None:
    assert walk(hub_with("e", "b", "d", "a", "c")) == [["a", "b"], ["c", "d"], ["e"]]


def test_the_last_page_has_no_cursor_even_when_it_is_full() -> None:
    assert walk(hub_with("a", "b", "c", "d")) == [["a", "b"], ["c", "d"]]


def test_an_empty_list_is_one_empty_page() -> None:
    assert page(hub_with()) == {"tools": []}


def test_hidden_items_do_not_count_towards_the_page_size() -> None:
    hub = hub_with("a", "c", "e")
    add(hub, "b", hidden=True)
    add(hub, "f", hidden=True)
    assert walk(hub) == [["a", "c"], ["e"]]
    everything = hub.engine.lists.select(Kind.TOOL, None, include_hidden=True)
    assert [row.id for row in everything.items if isinstance(row, Capability)] == ["a", "b"]


def test_a_cursor_stays_valid_while_items_are_added_and_removed() -> None:
    hub = hub_with("b", "d", "f", "h")
    cursor = page(hub)["nextCursor"]
    add(hub, "a")
    add(hub, "e")
    hub.remove("d")
    assert names(page(hub, cursor)) == ["e", "f"]


def test_a_cursor_after_the_last_item_gives_an_empty_page() -> None:
    hub = hub_with("a", "b", "c")
    cursor = page(hub)["nextCursor"]
    hub.remove("c")
    assert page(hub, cursor) == {"tools": []}


@pytest.mark.parametrize(
    "cursor",
    [
        "",
        "2",
        "!!!",
        "ä",
        "\u2028",
        "Zm9v",
        base64.b64encode(b"before:a").decode(),
        base64.urlsafe_b64encode(b"after:\xff").decode(),
        encode_cursor("a") + "!",
        encode_cursor("a")[:-3],
        "A" * 100_000,
    ],
)
def test_an_invalid_cursor_is_refused(cursor: str) -> None:
    with pytest.raises(InvalidParams, match="cursor"):
        page(hub_with("a", "b", "c"), cursor)


@given(st.text(st.characters(exclude_categories=["Cs"])))
def test_a_cursor_decodes_to_its_key(key: str) -> None:
    cursor = encode_cursor(key)
    assert decode_cursor(cursor) == key
    assert cursor.isascii()


@given(st.text(max_size=12))
def test_any_text_as_a_cursor_is_accepted_or_refused(cursor: str) -> None:
    try:
        decode_cursor(cursor)
    except InvalidParams as error:
        assert error.code == -32602


@pytest.mark.parametrize(
    ("method", "key"),
    [
        ("tools/list", "tools"),
        ("prompts/list", "prompts"),
        ("resources/list", "resources"),
        ("resources/templates/list", "resourceTemplates"),
    ],
)
@asynchronous
async def test_all_four_lists_are_paged_and_refuse_invalid_cursors_in_both_eras(method: str, key: str) -> None:
    hub = hub_with("t1", "t2", page_size=1)
    for number in ("1", "2"):
        hub.prompt(name=f"p{number}")(lambda: "x")
        hub.resource(f"r://{number}", name=f"r{number}")(lambda: "x")
        hub.resource(f"r{number}://{{x}}", name=f"rt{number}")(lambda x: "x")
    async with in_session(hub) as peer:
        for make, first_id in ((request, 1), (stateless, 10)):
            first = await peer.result(make(first_id, method, {}))
            second = await peer.result(make(first_id + 1, method, {"cursor": first["nextCursor"]}))
            assert len(first[key]) == len(second[key]) == 1
            assert first[key] != second[key]
            assert "nextCursor" not in second
            assert (await peer.error(make(first_id + 2, method, {"cursor": "bad"})))["code"] == -32602
            assert (await peer.result(make(first_id + 3, method, {"cursor": None})))[key] == first[key]


def test_a_page_is_encoded_once() -> None:
    listing = hub_with("a", "b", "c").engine.lists
    assert listing.page(Kind.TOOL, None, V2025_11_25) is listing.page(Kind.TOOL, None, V2025_11_25)


def test_a_change_of_the_registry_is_seen_at_once() -> None:
    hub = hub_with("a", page_size=10)
    listing = hub.engine.lists
    before = listing.page(Kind.TOOL, None, V2025_11_25)
    add(hub, "b")
    assert names(page(hub)) == ["a", "b"]
    hub.remove("a")
    assert names(page(hub)) == ["b"]
    add(hub, "a")
    hub.remove("b")
    assert listing.page(Kind.TOOL, None, V2025_11_25) == before


def test_a_replaced_tool_is_listed_with_its_new_description() -> None:
    hub = hub_with("a")
    assert page(hub)["tools"][0]["description"] == "Tool a"
    [old] = hub.registry[Kind.TOOL]
    hub.registry.replace([old], expand(old, description="Better"))
    assert page(hub)["tools"][0]["description"] == "Better"


def test_changes_of_other_lists_do_not_change_a_page() -> None:
    hub = hub_with("a")
    kept = hub.engine.lists.page(Kind.TOOL, None, V2025_11_25)
    hub.prompt(name="p")(lambda: "x")
    assert hub.engine.lists.page(Kind.TOOL, None, V2025_11_25) is kept


def test_forged_cursors_do_not_fill_the_memory() -> None:
    hub = hub_with("a", "b", "c")
    for number in range(3000):
        hub.engine.lists.page(Kind.TOOL, encode_cursor(f"x{number}"), V2026_07_28)
    assert len(hub.engine.lists._pages) <= 1024
    assert walk(hub) == [["a", "b"], ["c"]]


@pytest.mark.parametrize("version", ALL)
def test_every_version_gets_its_own_page(version: str) -> None:
    hub = hub_with(page_size=10)
    add(hub, "a", title="The A", icons=[{"src": "a.png"}], meta={"x": 1})
    everything = page(hub, version=V2026_07_28)["tools"][0]
    row = page(hub, version=version)["tools"][0]
    assert {"title", "icons", "_meta"} <= everything.keys()
    assert row["name"] == "a"
    assert ("title" in row) == (version >= "2025-06-18")
    assert ("icons" in row) == (version >= "2025-11-25")
    assert page(hub, version=V2024_11_05)["tools"][0].keys() == {"name", "description", "inputSchema"}


def test_portable_names_are_published_and_keep_the_canonical_one_as_title() -> None:
    hub = hub_with("skill:web_search", "plain", names="portable")
    rows = {row["name"]: row.get("title") for row in page(hub)["tools"]}
    assert rows["plain"] is None
    [other] = rows.keys() - {"plain"}
    assert other.replace("_", "").isalnum()
    assert rows[other] == "skill:web_search"


def test_lists_are_sorted_by_portable_names() -> None:
    hub = hub_with("a.z", "a_b", "a:c", "aB", names="portable")
    first = page(hub)
    assert walk(hub) == [["aB", "a__c"], ["a_b", "a_z"]]

    add(hub, "a.a")
    assert names(page(hub, first["nextCursor"])) == ["a_a", "a_b"]


def test_portable_names_follow_the_registry() -> None:
    hub = hub_with("a.b", names="portable", page_size=10)
    listing = Lists(hub.registry, page_size=10, names="portable")
    [borrowed] = names(json.loads(listing.page(Kind.TOOL, None, V2026_07_28)))
    add(hub, borrowed)
    listed = names(json.loads(listing.page(Kind.TOOL, None, V2026_07_28)))
    assert len(set(listed)) == 2
    assert borrowed in listed


@asynchronous
async def test_a_list_that_differs_by_client_is_not_for_a_shared_cache() -> None:
    for setting, scope in (("auto", "private"), ("canonical", "public")):
        async with connected(hub_with("a.b", names=setting)) as peer:
            assert (await peer.result(stateless(1, "tools/list")))["cacheScope"] == scope


def only(hub: Hub, *names: str, page_size: int = 10) -> Lists:
    return Lists(hub.registry, page_size=page_size, only=frozenset(names))


def test_tools_outside_the_selection_do_not_count_towards_the_page_size() -> None:
    listing = only(hub_with("a", "b", "c", "d"), "a", "d", "x", page_size=1)
    first = json.loads(listing.page(Kind.TOOL, None, V2026_07_28))
    second = json.loads(listing.page(Kind.TOOL, first["nextCursor"], V2026_07_28))
    assert (names(first), names(second)) == (["a"], ["d"])
    assert "nextCursor" not in second


def test_adding_a_tool_outside_the_selection_does_not_change_the_page() -> None:
    hub = hub_with("a")
    listing = only(hub, "a")
    before = listing.page(Kind.TOOL, None, V2026_07_28)
    add(hub, "b")
    assert listing.page(Kind.TOOL, None, V2026_07_28) == before


def test_a_selection_of_tools_does_not_apply_to_other_lists() -> None:
    hub = hub_with("a")
    hub.prompt(name="p")(lambda: "x")
    assert b'"name":"p"' in only(hub, "a").page(Kind.PROMPT, None, V2026_07_28)


def test_hidden_items_include_tools_outside_the_selection() -> None:
    everything = only(hub_with("a", "b"), "a").select(Kind.TOOL, None, include_hidden=True)
    assert [row.id for row in everything.items if isinstance(row, Capability)] == ["a", "b"]
