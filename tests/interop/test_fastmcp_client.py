"""The unchanged FastMCP client, over both transports."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import mcp_types as types
import pytest
from fastmcp import Client
from fastmcp.client.transports import StdioTransport
from fastmcp.exceptions import ToolError
from mcp import MCPError

from tests.interop.processes import ROOT, command

pytestmark = [
    pytest.mark.anyio,
    pytest.mark.filterwarnings("ignore::mcp.shared.exceptions.MCPDeprecationWarning"),
]

Connect = Callable[..., Client[Any]]


@pytest.fixture(params=["http", "stdio"])
def transport(request: pytest.FixtureRequest) -> str | StdioTransport:
    if request.param == "http":
        url: str = request.getfixturevalue("sample_url")
        return url
    program, *arguments = command("sample_server", "stdio")
    return StdioTransport(program, arguments, cwd=str(ROOT), keep_alive=False)


@pytest.fixture(params=["legacy", "auto"])
def connect(request: pytest.FixtureRequest, transport: str | StdioTransport) -> Connect:
    """Makes clients that speak the era under test."""
    return lambda **options: Client(transport, mode=request.param, **options)


async def test_the_client_reads_all_pages_of_a_list(connect: Connect) -> None:
    async with connect() as client:
        listed = [tool.name for tool in await client.list_tools()]
    assert listed == sorted(listed)
    assert len(listed) > 10
    assert "secret" not in listed


async def test_structured_results_are_returned_as_values(connect: Connect) -> None:
    async with connect() as client:
        total = await client.call_tool("add", {"a": 1, "b": 2.5})
        person = await client.call_tool("look_up", {"name": "ada", "age": 36})
    assert total.structured_content == {"result": 3.5}
    assert person.structured_content == {"name": "ada", "age": 36, "emails": ["ada@example.com"]}
    assert (person.data.name, person.data.age) == ("ada", 36)


async def test_content_blocks_of_every_kind_arrive(connect: Connect) -> None:
    async with connect() as client:
        result = await client.call_tool("gallery")
    assert [block.type for block in result.content] == ["text", "image", "audio", "resource", "resource_link"]


async def test_a_failing_tool_raises_its_message(connect: Connect) -> None:
    async with connect() as client:
        with pytest.raises(ToolError, match=r"^Not today\.$"):
            await client.call_tool("refuse", {"reason": "Not today."})


async def test_an_unknown_tool_is_a_protocol_error(connect: Connect) -> None:
    async with connect() as client:
        with pytest.raises(MCPError, match="Unknown tool: nothing"):
            await client.call_tool("nothing")


async def test_progress_arrives_in_order(connect: Connect) -> None:
    answer: list[tuple[float, float | None, str | None]] = []

    async def listen(progress: float, total: float | None, message: str | None) -> None:
        answer.append((progress, total, message))

    async with connect() as client:
        await client.call_tool("count", {"to": 3}, progress_handler=listen)
    assert answer == [(1, 3, "1 of 3"), (2, 3, "2 of 3"), (3, 3, "3 of 3")]


async def test_logs_arrive(connect: Connect) -> None:
    logs: list[str] = []

    async def collect(message: types.LoggingMessageNotificationParams) -> None:
        logs.append(message.level)

    async with connect(log_handler=collect) as client:
        await client.call_tool("chatter")
    assert [level for level in logs if level != "debug"] == ["info", "error"]


async def test_resources_and_templates_are_listed_and_read(connect: Connect) -> None:
    async with connect() as client:
        listed = {str(resource.uri) for resource in await client.list_resources()}
        templates = [template.uri_template for template in await client.list_resource_templates()]
        (logo,) = await client.read_resource("notes://logo")
        (note,) = await client.read_resource("notes://home/3")
    assert listed == {"notes://board", "notes://logo", "notes://sealed"}
    assert templates == ["notes://{shelf}/{number}"]
    assert isinstance(logo, types.BlobResourceContents)
    assert isinstance(note, types.TextResourceContents)
    assert note.text == '{"shelf":"home","number":3}'


async def test_prompts_are_listed_and_rendered(connect: Connect) -> None:
    async with connect() as client:
        listed = [prompt.name for prompt in await client.list_prompts()]
        greeting = await client.get_prompt("greet", {"name": "Ada"})
    assert listed == ["describe_logo", "greet"]
    assert [message.content for message in greeting.messages] == [
        types.TextContent(text="Greet Ada, warm."),
        types.TextContent(text="Dear Ada,"),
    ]


async def test_the_choices_of_an_argument_are_offered_as_completions(connect: Connect) -> None:
    async with connect() as client:
        offered = await client.complete(types.PromptReference(name="greet"), {"name": "tone", "value": "w"})
    assert offered.values == ["warm", "wry"]


async def test_a_session_can_ping(transport: str | StdioTransport) -> None:
    async with Client(transport, mode="legacy") as client:
        assert await client.ping()
