import asyncio
import threading
from typing import Any

import pytest

from tests.protocol.conftest import (
    Json,
    Peer,
    assorted_hub,
    asynchronous,
    connected,
    idle,
    in_session,
    initialization,
    request,
    stateless,
)
from waypost import Hub, Toolkit, tool
from waypost.capabilities.capability import Kind
from waypost.capabilities.context import ListKind
from waypost.capabilities.principals import Principal
from waypost.wire.params import SUBSCRIPTION_ID

TOOLS = "notifications/tools/list_changed"
PROMPTS = "notifications/prompts/list_changed"
RESOURCES = "notifications/resources/list_changed"
UPDATED = "notifications/resources/updated"
ACKNOWLEDGED = "notifications/subscriptions/acknowledged"


class Kit(Toolkit):
    @tool
    def one(self) -> str:
        """One."""
        return "1"

    @tool
    def two(self) -> str:
        """Two."""
        return "2"


async def listen(peer: Peer, request_id: int | str, **wants: Any) -> None:
    heard = len(peer.notifications(ACKNOWLEDGED))
    peer.send(stateless(request_id, "subscriptions/listen", {"notifications": wants}))
    await peer.hears(ACKNOWLEDGED, heard + 1)


def tag(params: Json) -> Any:
    return params["_meta"][SUBSCRIPTION_ID]


@asynchronous
async def test_a_session_gets_one_notification_for_a_registration_of_many_tools() -> None:
    hub = assorted_hub()
    async with in_session(hub) as peer:
        hub.add(Kit)
        await idle()
        assert peer.notifications(TOOLS) == [{}]
        hub.remove("one", "two")
        await idle()
        assert len(peer.notifications(TOOLS)) == 2
        assert peer.notifications(PROMPTS) == peer.notifications(RESOURCES) == []


@asynchronous
async def test_resources_and_templates_changed_together_make_one_notification() -> None:
    hub = assorted_hub()
    async with in_session(hub) as peer:
        rows = [*hub.registry[Kind.RESOURCE], *hub.registry[Kind.TEMPLATE], *hub.registry[Kind.PROMPT]]
        hub.registry.remove(rows)
        await idle()
        assert len(peer.notifications(RESOURCES)) == 1
        assert len(peer.notifications(PROMPTS)) == 1
        assert peer.notifications(TOOLS) == []


@asynchronous
async def test_every_session_gets_a_notification_of_a_change() -> None:
    hub = assorted_hub()
    async with in_session(hub) as first, in_session(hub) as second:
        await hub.notify_changed("prompts")
        await idle()
        assert len(first.notifications(PROMPTS)) == len(second.notifications(PROMPTS)) == 1


@asynchronous
async def test_only_clients_that_see_a_changed_tool_are_notified() -> None:
    hub = assorted_hub()
    async with in_session(hub) as able, in_session(hub) as other:
        await listen(other, "l", toolsListChanged=True)
        first = next(iter(hub.engine.sessions))
        first.principal = Principal("ada", scopes=("write",))
        with hub.registry.as_one_change():
            hub.tool(lambda: "x", name="write.a", scopes=["write"])
            hub.tool(lambda: "x", name="write.b", scopes=["write"])
        hub.remove("write.a")
        await idle()
        assert (len(able.notifications(TOOLS)), other.notifications(TOOLS)) == (2, [])
        hub.tool(lambda: "x", name="read.a")
        await idle()
        assert (len(able.notifications(TOOLS)), len(other.notifications(TOOLS))) == (3, 2)

        hub.on("list_tools")(lambda cursor, ctx: [])
        hub.tool(lambda: "x", name="write.c", scopes=["write"])
        await idle()
        assert (len(able.notifications(TOOLS)), len(other.notifications(TOOLS))) == (4, 4)


@asynchronous
async def test_a_client_without_a_session_or_listen_stream_gets_no_notifications() -> None:
    hub = assorted_hub()
    async with connected(hub) as peer:
        await hub.notify_changed("tools")
        await idle()
        assert peer.received == []


@pytest.mark.parametrize(
    ("wants", "heard"),
    [
        ({"toolsListChanged": True}, [TOOLS]),
        ({"promptsListChanged": True}, [PROMPTS]),
        ({"resourcesListChanged": True}, [RESOURCES]),
        ({"resourceSubscriptions": ["docs://readme"]}, [UPDATED]),
        ({"toolsListChanged": False, "promptsListChanged": True, "resourceSubscriptions": []}, [PROMPTS]),
        ({}, []),
    ],
)
@asynchronous
async def test_a_listen_stream_gets_exactly_the_requested_notifications(wants: Json, heard: list[str]) -> None:
    hub = assorted_hub()
    async with connected(hub) as peer:
        await listen(peer, "l", **wants)
        kinds: tuple[ListKind, ...] = ("tools", "prompts", "resources")
        for kind in kinds:
            await hub.notify_changed(kind)
        await hub.notify_resource_updated("docs://readme")
        await hub.notify_resource_updated("docs://other")
        await idle()
        assert [message["method"] for message in peer.received] == [ACKNOWLEDGED, *heard]
        assert [tag(message["params"]) for message in peer.received] == ["l"] * (1 + len(heard))


@asynchronous
async def test_notifications_carry_the_id_of_their_stream_in_its_type() -> None:
    hub = assorted_hub()
    async with connected(hub) as peer:
        await listen(peer, 7, toolsListChanged=True)
        await listen(peer, "7", toolsListChanged=True)
        await listen(peer, 8, promptsListChanged=True)
        await hub.notify_changed("tools")
        answer = await peer.hears(TOOLS, 2)
        tags = [tag(params) for params in answer]
        assert sorted((type(value).__name__, value) for value in tags) == [("int", 7), ("str", "7")]
        assert [type(tag(params)) for params in peer.notifications(ACKNOWLEDGED)] == [int, str, int]


@asynchronous
async def test_only_subscribers_are_notified_of_an_updated_resource() -> None:
    hub = assorted_hub()
    async with in_session(hub) as subscriber, in_session(hub) as other:
        await subscriber.result(request(1, "resources/subscribe", {"uri": "docs://readme"}))
        await hub.notify_resource_updated("docs://readme")
        await hub.notify_resource_updated("docs://else")
        await idle()
        assert subscriber.notifications(UPDATED) == [{"uri": "docs://readme"}]
        assert other.notifications(UPDATED) == []
        await subscriber.result(request(2, "resources/unsubscribe", {"uri": "docs://readme"}))
        await hub.notify_resource_updated("docs://readme")
        await idle()
        assert len(subscriber.notifications(UPDATED)) == 1


@asynchronous
async def test_a_change_made_in_another_thread_is_sent_on_the_loop() -> None:
    hub = assorted_hub()
    async with in_session(hub) as peer:
        threads: list[int] = []
        peer_thread = threading.get_ident()
        original = peer.connection._write

        def write(data: bytes) -> None:
            threads.append(threading.get_ident())
            original(data)

        session = next(iter(hub.engine.sessions))
        session.attach(write)
        await asyncio.to_thread(hub.add, Kit)
        await peer.hears(TOOLS)
        await idle()
        assert threads == [peer_thread]


def test_changes_before_the_hub_starts_are_not_sent() -> None:
    hub = Hub("early", version="1")
    hub.engine.broadcast.list_changed("tools")
    hub.engine.broadcast.resource_updated("a://x")
    hub.add(Kit)
    assert len(hub.engine.broadcast) == 0


@asynchronous
async def test_closing_ends_every_listen_stream_with_its_result() -> None:
    hub = assorted_hub()
    async with connected(hub) as peer:
        await listen(peer, 1, toolsListChanged=True)
        await listen(peer, "two", toolsListChanged=True)
        await hub.notify_changed("tools")
        hub.engine.broadcast.close()
        first, second = await peer.response(1), await peer.response("two")
        assert [message.get("method") for message in peer.received].count(TOOLS) == 2
        for response, request_id in ((first, 1), (second, "two")):
            assert response["result"]["resultType"] == "complete"
            assert tag(response["result"]) == request_id
        await idle()
        assert len(hub.engine.broadcast) == 0
        await hub.notify_changed("tools")
        await idle()
        assert len(peer.notifications(TOOLS)) == 2


@asynchronous
async def test_a_session_and_a_listen_stream_on_one_connection_get_one_notification_each() -> None:
    hub = assorted_hub()
    async with connected(hub) as peer:
        await peer.result(initialization())
        await listen(peer, "l", toolsListChanged=True)
        hub.add(Kit)
        answer = await peer.hears(TOOLS, 2)
        await idle()
        assert len(peer.notifications(TOOLS)) == 2
        assert sorted("_meta" in params for params in answer) == [False, True]
