import json
from enum import Enum
from typing import Any

import pytest

from tests.protocol.conftest import Json, RequestId, assorted_hub, asynchronous, in_session, request, stateless
from waypost import Audio, Context, DefinitionError, Hub, ResourceLink, Result, Text, ToolError
from waypost.capabilities.capability import Capability, Kind
from waypost.protocol.lists import Page
from waypost.protocol.methods import to_page
from waypost.wire.versions import LEGACY, V2024_11_05, V2025_03_26, V2025_06_18


def make(modern: bool, request_id: RequestId, method: str, params: Json) -> Json:
    return (stateless if modern else request)(request_id, method, params)


both_eras = pytest.mark.parametrize("modern", [False, True], ids=["session", "stateless"])


@both_eras
@asynchronous
async def test_a_tool_is_called_with_its_arguments(modern: bool) -> None:
    async with in_session(assorted_hub()) as peer:
        result = await peer.result(make(modern, 1, "tools/call", {"name": "add", "arguments": {"a": 1, "b": 2}}))
        assert result["content"] == [{"type": "text", "text": "3"}]
        assert result["structuredContent"] == {"result": 3}
        assert "isError" not in result or result["isError"] is False


@both_eras
@asynchronous
async def test_a_hidden_tool_is_not_listed_but_can_be_called(modern: bool) -> None:
    async with in_session(assorted_hub()) as peer:
        listed = await peer.result(make(modern, 1, "tools/list", {}))
        assert "secret" not in [row["name"] for row in listed["tools"]]
        result = await peer.result(make(modern, 2, "tools/call", {"name": "secret"}))
        assert result["content"][0]["text"] == "found me"


@both_eras
@pytest.mark.parametrize(
    ("name", "message"),
    [
        ("nobody", "Unknown tool: nobody"),
        ("", "Unknown tool: "),
        ("skill:nobody", "Unknown skill: nobody"),
        ("workflow:nobody", "Unknown workflow: nobody"),
    ],
)
@asynchronous
async def test_the_error_for_an_unknown_tool_names_it(name: str, message: str, modern: bool) -> None:
    async with in_session(assorted_hub()) as peer:
        error = await peer.error(make(modern, 1, "tools/call", {"name": name, "arguments": {}}))
        assert error == {"code": -32602, "message": message}


@both_eras
@asynchronous
async def test_invalid_arguments_and_failures_are_error_results(modern: bool) -> None:
    hub = assorted_hub()

    @hub.tool
    async def refuse() -> str:
        """Refuse."""
        raise ToolError("not today")

    async with in_session(hub) as peer:
        bad = await peer.result(make(modern, 1, "tools/call", {"name": "add", "arguments": {"a": "x"}}))
        refused = await peer.result(make(modern, 2, "tools/call", {"name": "refuse"}))
    assert bad["isError"] is True
    assert bad["content"][0]["text"].startswith("Invalid arguments for tool add: ")
    assert refused["isError"] is True
    assert refused["content"] == [{"type": "text", "text": "not today"}]


@asynchronous
async def test_meta_of_a_result_reaches_both_eras() -> None:
    hub = Hub("hub", version="1")

    @hub.tool
    async def traced() -> Result:
        """Trace."""
        return Result([Text("x")], meta={"trace": 7})

    async with in_session(hub) as peer:
        legacy = await peer.result(request(1, "tools/call", {"name": "traced"}))
        modern = await peer.result(stateless(2, "tools/call", {"name": "traced"}))
    assert legacy["_meta"] == {"trace": 7}
    assert modern["_meta"]["trace"] == 7
    assert modern["_meta"]["io.modelcontextprotocol/serverInfo"]["name"] == "hub"


@pytest.mark.parametrize("version", LEGACY)
@asynchronous
async def test_content_that_a_version_does_not_have_becomes_text(version: str) -> None:
    hub = Hub("hub", version="1")

    @hub.tool
    async def mixed() -> list[Any]:
        """Everything."""
        return [Audio(b"la", "audio/wav"), ResourceLink("a://x", "x")]

    async with in_session(hub, version) as peer:
        result = await peer.result(request(1, "tools/call", {"name": "mixed"}))
    kinds = [block["type"] for block in result["content"]]
    assert kinds == [
        "text" if version == V2024_11_05 else "audio",
        "text" if version in (V2024_11_05, V2025_03_26) else "resource_link",
    ]


@pytest.mark.parametrize("version", LEGACY)
@asynchronous
async def test_structured_content_is_sent_to_versions_that_have_it(version: str) -> None:
    async with in_session(assorted_hub(), version) as peer:
        result = await peer.result(request(1, "tools/call", {"name": "add", "arguments": {"a": 1, "b": 2}}))
        assert ("structuredContent" in result) == (version >= V2025_06_18)
        assert result["content"] == [{"type": "text", "text": "3"}]


@pytest.mark.parametrize("version", LEGACY)
@asynchronous
async def test_structured_data_without_content_is_sent_as_text_to_older_versions(version: str) -> None:
    hub = Hub("hub", version="1")
    hub.tool(lambda: Result(content=[], structured=[1, 2]), name="numbers")
    async with in_session(hub, version) as peer:
        result = await peer.result(request(1, "tools/call", {"name": "numbers"}))
    assert result["content"] == [{"type": "text", "text": "[1,2]"}]
    assert "structuredContent" not in result


@both_eras
@asynchronous
async def test_resources_and_templates_are_read(modern: bool) -> None:
    async with in_session(assorted_hub()) as peer:
        fixed = await peer.result(make(modern, 1, "resources/read", {"uri": "docs://readme"}))
        noted = await peer.result(make(modern, 2, "resources/read", {"uri": "notes://7"}))
    assert fixed["contents"] == [{"uri": "docs://readme", "text": "# Hello"}]
    assert noted["contents"] == [{"uri": "notes://7", "text": "note 7"}]


@pytest.mark.parametrize(("modern", "code"), [(False, -32002), (True, -32602)])
@asynchronous
async def test_an_unknown_resource_is_named_in_the_error(modern: bool, code: int) -> None:
    async with in_session(assorted_hub()) as peer:
        error = await peer.error(make(modern, 1, "resources/read", {"uri": "docs://nothing"}))
        assert error["code"] == code
        assert error["data"] == {"uri": "docs://nothing"}


@both_eras
@asynchronous
async def test_a_prompt_is_written_with_its_arguments(modern: bool) -> None:
    async with in_session(assorted_hub()) as peer:
        got = await peer.result(make(modern, 1, "prompts/get", {"name": "greet", "arguments": {"name": "Ada"}}))
        assert got["messages"] == [{"role": "user", "content": {"type": "text", "text": "Greet Ada."}}]
        assert got["description"] == "Compose a greeting."


@both_eras
@pytest.mark.parametrize("params", [{"name": "nobody"}, {"name": "greet"}, {"name": "greet", "arguments": {}}])
@asynchronous
async def test_an_unknown_prompt_or_missing_argument_is_refused(params: Json, modern: bool) -> None:
    async with in_session(assorted_hub()) as peer:
        assert (await peer.error(make(modern, 1, "prompts/get", params)))["code"] == -32602


class Colour(Enum):
    RED = "red"
    ROSE = "rose"
    BLUE = "blue"


def completing(**hook: Any) -> Hub:
    hub = Hub("completing", version="1")

    @hub.prompt
    def paint(colour: Colour, wall: str = "north") -> str:
        """Paint."""
        return f"{colour} {wall}"

    @hub.resource("walls://{side}")
    def walls(side: str) -> str:
        """A wall."""
        return side

    return hub


def completion(ref: Json, name: str = "colour", value: str = "", /, **more: Any) -> Json:
    return {"ref": ref, "argument": {"name": name, "value": value}, **more}


PAINT = {"type": "ref/prompt", "name": "paint"}


@both_eras
@pytest.mark.parametrize(
    ("value", "values"), [("", ["red", "rose", "blue"]), ("r", ["red", "rose"]), ("RO", ["rose"]), ("x", [])]
)
@asynchronous
async def test_choices_are_completed_without_a_hook(value: str, values: list[str], modern: bool) -> None:
    async with in_session(completing()) as peer:
        result = await peer.result(make(modern, 1, "completion/complete", completion(PAINT, "colour", value)))
        assert result["completion"] == {"values": values, "total": len(values), "hasMore": False}


@both_eras
@pytest.mark.parametrize("count", [0, 100, 101, 5000])
@asynchronous
async def test_at_most_a_hundred_values_are_sent_and_the_rest_counted(count: int, modern: bool) -> None:
    hub = completing()

    @hub.on("completion")
    def complete(ref: str, argument: Json, ctx: Context) -> list[str]:
        return [f"{ref}{number}" for number in range(count)]

    async with in_session(hub) as peer:
        answer = (await peer.result(make(modern, 1, "completion/complete", completion(PAINT))))["completion"]
        assert answer["values"] == [f"paint{number}" for number in range(min(count, 100))]
        assert answer["total"] == count
        assert answer["hasMore"] is (count > 100)


@asynchronous
async def test_a_completion_hook_gets_the_arguments_of_the_context() -> None:
    hub = completing()
    seen: list[Any] = []

    @hub.on("completion")
    async def complete(ref: str, argument: Json, ctx: Context) -> list[str]:
        seen.append((ref, argument, ctx.request_id))
        return []

    settled: Json = {"context": {"arguments": {"wall": "east"}}}
    walls = {"type": "ref/resource", "uri": "walls://{side}"}
    async with in_session(hub) as peer:
        await peer.result(request(1, "completion/complete", completion(PAINT, "colour", "r", **settled)))
        await peer.result(request(2, "completion/complete", completion(walls, "side", "n")))
    assert seen == [
        ("paint", {"name": "colour", "value": "r", **settled}, 1),
        ("walls://{side}", {"name": "side", "value": "n"}, 2),
    ]


@both_eras
@pytest.mark.parametrize(
    "params",
    [
        completion({"type": "ref/prompt", "name": "nobody"}),
        completion({"type": "ref/prompt"}),
        completion({"type": "ref/resource"}),
        completion({"type": "ref/tool", "name": "paint"}),
        {"ref": PAINT},
        {"argument": {"name": "colour", "value": ""}},
        {"ref": PAINT, "argument": {"name": "colour"}},
        completion(PAINT, context={"arguments": {"wall": 7}}),
    ],
)
@asynchronous
async def test_a_completion_of_an_unknown_reference_is_refused(params: Json, modern: bool) -> None:
    async with in_session(completing()) as peer:
        assert (await peer.error(make(modern, 1, "completion/complete", params)))["code"] == -32602


@asynchronous
async def test_an_unknown_argument_has_no_completions() -> None:
    async with in_session(completing()) as peer:
        result = await peer.result(request(1, "completion/complete", completion(PAINT, "nothing")))
        assert result["completion"]["values"] == []


@asynchronous
async def test_a_list_hook_decides_per_request_and_its_lists_are_private() -> None:
    hub = assorted_hub()

    @hub.on("list_tools")
    async def list_tools(cursor: str | None, ctx: Context) -> Page:
        page = hub.list_registered("tools", cursor, include_hidden=True)
        return Page([row for row in page.items if isinstance(row, Capability) and row.id in ("add", "secret")])

    async with in_session(hub) as peer:
        legacy = await peer.result(request(1, "tools/list"))
        modern = await peer.result(stateless(2, "tools/list"))
    assert [row["name"] for row in legacy["tools"]] == [row["name"] for row in modern["tools"]] == ["add", "secret"]
    assert modern["cacheScope"] == "private"


@asynchronous
async def test_a_synchronous_list_hook_may_return_items_and_a_cursor() -> None:
    hub = assorted_hub()

    @hub.on("list_prompts")
    def list_prompts(cursor: str | None, ctx: Context) -> tuple[list[Any], str | None]:
        return list(hub.list_registered("prompts").items), "more" if cursor is None else None

    async with in_session(hub) as peer:
        first = await peer.result(request(1, "prompts/list"))
        last = await peer.result(request(2, "prompts/list", {"cursor": "more"}))
    assert first["nextCursor"] == "more"
    assert "nextCursor" not in last
    assert [row["name"] for row in first["prompts"]] == ["greet"]


def test_the_return_value_of_a_list_hook_becomes_a_page() -> None:
    rows = list(assorted_hub().registry[Kind.TOOL])
    page = Page(rows, "next")
    assert to_page(Kind.TOOL, page) is page
    assert to_page(Kind.TOOL, iter(rows)).items == rows
    assert to_page(Kind.TOOL, (iter(rows), "next")) == page
    assert to_page(Kind.TOOL, (rows, None)) == Page(rows)
    assert to_page(Kind.TOOL, tuple(rows[:2])) == Page(rows[:2])
    assert to_page(Kind.TOOL, {"tools": iter(rows), "nextCursor": "next"}) == page
    assert to_page(Kind.TEMPLATE, {"resourceTemplates": []}) == Page([])


@pytest.mark.parametrize("listed", [None, 5, "add", ["add"], {"prompts": []}, {"tools": None}, {"tools": ["add"]}])
def test_an_invalid_return_value_of_a_list_hook_is_refused(listed: Any) -> None:
    with pytest.raises(DefinitionError, match="on_list_tools returns definitions"):
        to_page(Kind.TOOL, listed)


@asynchronous
async def test_a_crash_of_a_list_hook_is_answered_without_details() -> None:
    hub = assorted_hub()

    @hub.on("list_tools")
    def list_tools(cursor: str | None, ctx: Context) -> Page:
        raise RuntimeError("password=hunter2")

    async with in_session(hub) as peer:
        error = await peer.error(request(1, "tools/list"))
        assert error["code"] == -32603
        assert "hunter2" not in json.dumps(error)
