"""Change notifications for the client of the official SDK, in both eras, over both transports."""

from __future__ import annotations

import uuid
from contextlib import ExitStack

import anyio
import anyio.to_thread
import mcp_types as types
import pytest
from mcp import Client
from mcp.client.subscriptions import ResourceUpdated, ToolsListChanged

from tests.interop.official import MODERN, Connect, Inbox, all_tools, text_of
from tests.interop.processes import served
from tests.interop.sample_server import BOARD

pytestmark = [
    pytest.mark.anyio,
    pytest.mark.filterwarnings("ignore::mcp.shared.exceptions.MCPDeprecationWarning"),
]


async def test_a_session_gets_updates_of_its_subscribed_resources(connect_session: Connect) -> None:
    inbox = Inbox()
    async with connect_session(message_handler=inbox) as client:
        await client.call_tool("write_on_board", {"text": "before"})
        await client.subscribe_resource(BOARD)
        await client.call_tool("write_on_board", {"text": "news"})
        answer = await inbox.next()
        await client.unsubscribe_resource(BOARD)
        await client.call_tool("write_on_board", {"text": "after"})
        await client.call_tool("learn", {"name": f"tool_{uuid.uuid4().hex}"})
        following = await inbox.next()
    assert isinstance(answer, types.ResourceUpdatedNotification)
    assert answer.params.uri == BOARD
    assert isinstance(following, types.ToolListChangedNotification)


async def test_a_stream_gets_updates_of_its_resources(connect_stateless: Connect) -> None:
    async with connect_stateless() as client, client.listen(resource_subscriptions=[BOARD]) as changes:
        assert changes.honored.resource_subscriptions == [BOARD]
        await client.call_tool("write_on_board", {"text": "news"})
        with anyio.fail_after(10):
            assert await anext(changes) == ResourceUpdated(uri=BOARD)


async def test_a_session_is_notified_of_an_added_tool_and_can_call_it(connect_session: Connect) -> None:
    inbox, name = Inbox(), f"tool_{uuid.uuid4().hex}"
    async with connect_session(message_handler=inbox) as client:
        await client.call_tool("learn", {"name": name})
        assert isinstance(await inbox.next(), types.ToolListChangedNotification)
        assert name in await all_tools(client)
        assert text_of(await client.call_tool(name)) == f"I am {name}."


async def test_a_stream_is_notified_of_an_added_tool_and_the_client_can_call_it(connect_stateless: Connect) -> None:
    name = f"tool_{uuid.uuid4().hex}"
    async with connect_stateless() as client, client.listen(tools_list_changed=True) as changes:
        assert changes.honored == types.SubscriptionFilter(tools_list_changed=True)
        await client.call_tool("learn", {"name": name})
        with anyio.fail_after(10):
            assert await anext(changes) == ToolsListChanged()
        assert name in await all_tools(client)
        assert text_of(await client.call_tool(name)) == f"I am {name}."


async def test_a_stream_ends_without_an_error_when_the_server_stops() -> None:
    with ExitStack() as running:
        url = running.enter_context(served("sample_server"))
        async with (
            Client(url, mode=MODERN) as client,
            client.listen(tools_list_changed=True) as changes,
            anyio.create_task_group() as tasks,
        ):
            tasks.start_soon(anyio.to_thread.run_sync, running.close)
            with anyio.fail_after(10):
                assert [event async for event in changes] == []
