"""The client of the official SDK, in both eras, over both transports."""

from __future__ import annotations

import uuid
from typing import Any

import anyio
import mcp_types as types
import pytest
from mcp import Client, MCPError

from tests.interop.official import MODERN, Connect, Server, all_tools, text_of
from tests.interop.sample_server import BOARD

pytestmark = [
    pytest.mark.anyio,
    pytest.mark.filterwarnings("ignore::mcp.shared.exceptions.MCPDeprecationWarning"),
]

RESOURCE_NOT_FOUND = -32002
VISIBLE = [
    "add",
    "chatter",
    "count",
    "detour",
    "gallery",
    "learn",
    "look_up",
    "primes",
    "refuse",
    "route",
    "until_stopped",
    "wait",
    "write_on_board",
]


def assert_introduced(client: Client) -> None:
    assert client.server_info == types.Implementation(
        name="sample",
        version="2.1.0",
        title="A sample",
        description="One of everything.",
        website_url="https://example.com",
        icons=[types.Icon(src="https://example.com/icon.png", mime_type="image/png", sizes=["48x48"])],
    )
    assert client.instructions == "Add numbers, read notes."
    assert client.server_capabilities.resources == types.ResourcesCapability(subscribe=True, list_changed=True)
    assert client.server_capabilities.completions is not None


async def test_a_client_that_initialises_gets_the_newest_session_version(connect_session: Connect) -> None:
    async with connect_session() as client:
        assert client.protocol_version == "2025-11-25"
        assert_introduced(client)


async def test_a_client_that_probes_ends_up_stateless(server: Server) -> None:
    async with Client(server, mode="auto") as client:
        assert client.protocol_version == MODERN
        assert_introduced(client)


async def test_the_pages_of_a_list_hold_every_visible_tool_once(connect: Connect) -> None:
    async with connect() as client:
        first = await client.list_tools()
        assert [tool.name for tool in first.tools] == VISIBLE[:5]
        listed = list(await all_tools(client))
    assert [name for name in listed if name in VISIBLE] == VISIBLE
    assert listed == sorted(listed)
    assert "secret" not in listed


async def test_a_made_up_cursor_is_refused(connect: Connect) -> None:
    async with connect() as client:
        with pytest.raises(MCPError) as refused:
            await client.list_tools(cursor="made-up")
    assert refused.value.code == types.INVALID_PARAMS


async def test_a_definition_has_all_metadata_of_its_tool(connect: Connect) -> None:
    async with connect() as client:
        tool = (await all_tools(client))["add"]
    assert tool.title == "Addition"
    assert tool.description == "Add two numbers."
    assert tool.input_schema["required"] == ["a", "b"]
    assert tool.annotations is not None
    assert tool.annotations.read_only_hint is True
    assert tool.meta == {"category": "Math"}


async def test_numbers_are_returned_as_text_and_as_structured_content(connect: Connect) -> None:
    async with connect() as client:
        result = await client.call_tool("add", {"a": 1, "b": 2.5})
    assert (text_of(result), result.structured_content, result.is_error) == ("3.5", {"result": 3.5}, False)


async def test_dataclasses_are_returned_as_structured_content_that_matches_their_schema(connect: Connect) -> None:
    async with connect() as client:
        await all_tools(client)
        result = await client.call_tool("look_up", {"name": "ada"})
    assert result.structured_content == {"name": "ada", "age": 30, "emails": ["ada@example.com"]}


async def test_structured_content_other_than_objects_reaches_stateless_clients(connect_stateless: Connect) -> None:
    async with connect_stateless() as client:
        tool = (await all_tools(client))["primes"]
        result = await client.call_tool("primes")
    assert tool.output_schema == {"type": "array", "items": {"type": "integer"}}
    assert result.structured_content == [2, 3, 5]


async def test_structured_content_other_than_objects_is_text_in_sessions(connect_session: Connect) -> None:
    async with connect_session() as client:
        tool = (await all_tools(client))["primes"]
        result = await client.call_tool("primes")
    assert tool.output_schema is None
    assert result.structured_content is None
    assert text_of(result) == "[2,3,5]"


async def test_content_blocks_of_every_kind_arrive(connect: Connect) -> None:
    async with connect() as client:
        text, image, audio, embedded, link = (await client.call_tool("gallery")).content
    assert text == types.TextContent(text="Look:", _meta={"example": True})
    assert image == types.ImageContent(data="iVBORw==", mime_type="image/png")
    assert audio == types.AudioContent(data="UklGRg==", mime_type="audio/wav")
    assert isinstance(embedded, types.EmbeddedResource)
    assert embedded.resource == types.TextResourceContents(uri="notes://1", text="first note", _meta={"example": True})
    assert isinstance(link, types.ResourceLink)
    assert (link.uri, link.name, link.title, link.size) == (BOARD, "board", "The board", 12)


async def test_a_failing_tool_answers_with_an_error_result(connect: Connect) -> None:
    async with connect() as client:
        result = await client.call_tool("refuse", {"reason": "Not today."})
    assert (text_of(result), result.is_error) == ("Not today.", True)


async def test_wrong_arguments_are_an_error_result_that_names_them(connect: Connect) -> None:
    async with connect() as client:
        result = await client.call_tool("add", {"a": "one", "b": 2})
    assert result.is_error
    assert text_of(result).startswith("Invalid arguments for tool add: a: ")


async def test_an_unknown_tool_is_a_protocol_error(connect: Connect) -> None:
    async with connect() as client:
        with pytest.raises(MCPError) as unknown:
            await client.call_tool("nothing")
    assert (unknown.value.code, unknown.value.message) == (types.INVALID_PARAMS, "Unknown tool: nothing")


async def test_a_hidden_tool_can_be_called(connect: Connect) -> None:
    async with connect() as client:
        assert text_of(await client.call_tool("secret")) == "You know me."


async def test_many_calls_at_once_are_all_answered(connect: Connect) -> None:
    sums: dict[int, Any] = {}

    async def call(client: Client, number: int) -> None:
        sums[number] = (await client.call_tool("add", {"a": number, "b": number})).structured_content

    async with connect() as client, anyio.create_task_group() as tasks:
        for number in range(20):
            tasks.start_soon(call, client, number)
    assert sums == {number: {"result": 2.0 * number} for number in range(20)}


async def test_progress_arrives_in_order_before_the_answer(connect: Connect) -> None:
    answer: list[tuple[float, float | None, str | None]] = []

    async def listen(progress: float, total: float | None, message: str | None) -> None:
        answer.append((progress, total, message))

    async with connect() as client:
        result = await client.call_tool("count", {"to": 3}, progress_callback=listen)
    assert answer == [(1, 3, "1 of 3"), (2, 3, "2 of 3"), (3, 3, "3 of 3")]
    assert text_of(result) == "Counted to 3."


async def test_logs_arrive_from_the_level_a_session_asked_for(connect_session: Connect) -> None:
    logs: list[tuple[str, Any]] = []

    async def collect(params: types.LoggingMessageNotificationParams) -> None:
        logs.append((params.level, params.data))

    async with connect_session(logging_callback=collect) as client:
        await client.set_logging_level("error")
        await client.call_tool("chatter")
        await client.set_logging_level("info")
        await client.call_tool("chatter")
    assert logs == [("error", "trouble"), ("info", {"message": "news", "number": 1}), ("error", "trouble")]


@pytest.mark.parametrize(("level", "expected"), [(None, []), ("error", ["error"]), ("info", ["info", "error"])])
async def test_logs_arrive_only_if_a_stateless_request_asks(
    connect_stateless: Connect, level: types.LoggingLevel | None, expected: list[str]
) -> None:
    logs: list[str] = []

    async def collect(params: types.LoggingMessageNotificationParams) -> None:
        logs.append(params.level)

    async with connect_stateless(logging_callback=collect, log_level=level) as client:
        await client.call_tool("chatter")
    assert logs == expected


async def test_a_cancelled_call_stops_on_the_server(connect: Connect) -> None:
    key = uuid.uuid4().hex
    started = anyio.Event()

    async def starting(progress: float, total: float | None, message: str | None) -> None:
        started.set()

    async with connect() as client:
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(client.call_tool, "wait", {"key": key}, None, starting)
            with anyio.fail_after(10):
                await started.wait()
            tasks.cancel_scope.cancel()
        with anyio.fail_after(10):
            assert text_of(await client.call_tool("until_stopped", {"key": key})) == "It was given up."


@pytest.mark.parametrize("city", ["Oslo", "Malmö", " padded ", "=?base64?odd?="])
async def test_an_argument_that_is_repeated_as_a_header_arrives_unchanged(connect: Connect, city: str) -> None:
    async with connect() as client:
        assert text_of(await client.call_tool("route", {"city": city})) == f"To {city}."


async def test_a_disconnected_client_reconnects_for_the_answer(connect: Connect) -> None:
    async with connect() as client:
        with anyio.fail_after(10):
            assert text_of(await client.call_tool("detour")) == "Back again."


async def test_resources_are_listed_and_read(connect: Connect) -> None:
    async with connect() as client:
        listed = {resource.uri: resource for resource in (await client.list_resources()).resources}
        (logo,) = (await client.read_resource("notes://logo")).contents
    assert set(listed) == {BOARD, "notes://logo", "notes://sealed"}
    assert (listed["notes://logo"].title, listed["notes://logo"].size) == ("The logo", 4)
    assert listed[BOARD].annotations == types.Annotations(priority=0.5, last_modified="2026-07-28T00:00:00Z")
    assert logo == types.BlobResourceContents(uri="notes://logo", blob="iVBORw==", mime_type="image/png")


async def test_templates_are_listed_and_read(connect: Connect) -> None:
    async with connect() as client:
        (template,) = (await client.list_resource_templates()).resource_templates
        (note,) = (await client.read_resource("notes://work/7")).contents
    assert (template.uri_template, template.title) == ("notes://{shelf}/{number}", "A note")
    assert isinstance(note, types.TextResourceContents)
    assert (note.text, note.mime_type) == ('{"shelf":"work","number":7}', "application/json")


@pytest.mark.parametrize("uri", ["notes://nowhere", "notes://garage/7"])
async def test_an_unknown_resource_is_an_error_with_its_uri(connect: Connect, uri: str) -> None:
    async with connect() as client:
        with pytest.raises(MCPError) as unknown:
            await client.read_resource(uri)
        expected = types.INVALID_PARAMS if client.protocol_version == MODERN else RESOURCE_NOT_FOUND
    assert unknown.value.code == expected
    assert unknown.value.data == {"uri": uri}


async def test_prompts_are_listed_and_rendered(connect: Connect) -> None:
    async with connect() as client:
        listed = {prompt.name: prompt for prompt in (await client.list_prompts()).prompts}
        greeting = await client.get_prompt("greet", {"name": "Ada", "tone": "wry"})
    assert set(listed) == {"describe_logo", "greet"}
    assert listed["greet"].title == "A greeting"
    assert [(argument.name, bool(argument.required)) for argument in listed["greet"].arguments or ()] == [
        ("name", True),
        ("tone", False),
    ]
    assert greeting.description == "Compose a greeting."
    assert [(message.role, message.content) for message in greeting.messages] == [
        ("user", types.TextContent(text="Greet Ada, wry.")),
        ("assistant", types.TextContent(text="Dear Ada,")),
    ]


async def test_a_prompt_without_a_required_argument_is_refused(connect: Connect) -> None:
    async with connect() as client:
        with pytest.raises(MCPError) as refused:
            await client.get_prompt("greet")
    assert refused.value.code == types.INVALID_PARAMS


@pytest.mark.parametrize(
    ("reference", "argument", "expected"),
    [
        (types.PromptReference(name="greet"), {"name": "tone", "value": "w"}, ["warm", "wry"]),
        (
            types.ResourceTemplateReference(uri="notes://{shelf}/{number}"),
            {"name": "shelf", "value": "ho"},
            ["home", "holiday"],
        ),
    ],
)
async def test_the_choices_of_an_argument_are_offered_as_completions(
    connect: Connect,
    reference: types.PromptReference | types.ResourceTemplateReference,
    argument: dict[str, str],
    expected: list[str],
) -> None:
    async with connect() as client:
        offered = (await client.complete(reference, argument)).completion
    assert (offered.values, offered.total, offered.has_more) == (expected, len(expected), False)


async def test_a_session_can_ping(connect_session: Connect) -> None:
    async with connect_session() as client:
        await client.send_ping()
