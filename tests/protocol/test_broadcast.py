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
    heard = len(peer.told(ACKNOWLEDGED))
    peer.send(stateless(request_id, "subscriptions/listen", {"notifications": wants}))
    await peer.hears(ACKNOWLEDGED, heard + 1)


def tag(params: Json) -> Any:
    return params["_meta"][SUBSCRIPTION_ID]


@asynchronous
async def test_one_registration_of_many_tools_is_told_once() -> None:
    hub = assorted_hub()
    async with in_session(hub) as peer:
        hub.add(Kit)
        await idle()
        assert peer.told(TOOLS) == [{}]
        hub.remove("one", "two")
        await idle()
        assert len(peer.told(TOOLS)) == 2
        assert peer.told(PROMPTS) == peer.told(RESOURCES) == []


@asynchronous
async def test_resources_and_templates_changed_together_are_one_list() -> None:
    hub = assorted_hub()
    async with in_session(hub) as peer:
        rows = [*hub.registry[Kind.RESOURCE], *hub.registry[Kind.TEMPLATE], *hub.registry[Kind.PROMPT]]
        hub.registry.remove(rows)
        await idle()
        assert len(peer.told(RESOURCES)) == 1
        assert len(peer.told(PROMPTS)) == 1
        assert peer.told(TOOLS) == []


@asynchronous
async def test_every_session_hears_of_a_change() -> None:
    hub = assorted_hub()
    async with in_session(hub) as first, in_session(hub) as second:
        await hub.notify_changed("prompts")
        await idle()
        assert len(first.told(PROMPTS)) == len(second.told(PROMPTS)) == 1


@asynchronous
async def test_a_change_is_told_to_those_who_can_see_it() -> None:
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
        assert (len(able.told(TOOLS)), other.told(TOOLS)) == (2, [])
        hub.tool(lambda: "x", name="read.a")
        await idle()
        assert (len(able.told(TOOLS)), len(other.told(TOOLS))) == (3, 2)

        hub.on("list_tools")(lambda cursor, ctx: [])
        hub.tool(lambda: "x", name="write.c", scopes=["write"])
        await idle()
        assert (len(able.told(TOOLS)), len(other.told(TOOLS))) == (4, 4)


@asynchronous
async def test_a_client_without_a_session_hears_nothing_unless_it_listens() -> None:
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
async def test_a_listen_stream_hears_exactly_what_it_asked_for(wants: Json, heard: list[str]) -> None:
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
async def test_several_streams_are_told_apart_by_ids_that_keep_their_type() -> None:
    hub = assorted_hub()
    async with connected(hub) as peer:
        await listen(peer, 7, toolsListChanged=True)
        await listen(peer, "7", toolsListChanged=True)
        await listen(peer, 8, promptsListChanged=True)
        await hub.notify_changed("tools")
        told = await peer.hears(TOOLS, 2)
        tags = [tag(params) for params in told]
        assert sorted((type(value).__name__, value) for value in tags) == [("int", 7), ("str", "7")]
        assert [type(tag(params)) for params in peer.told(ACKNOWLEDGED)] == [int, str, int]


@asynchronous
async def test_an_updated_resource_is_told_to_subscribers_only() -> None:
    hub = assorted_hub()
    async with in_session(hub) as subscriber, in_session(hub) as other:
        await subscriber.result(request(1, "resources/subscribe", {"uri": "docs://readme"}))
        await hub.notify_resource_updated("docs://readme")
        await hub.notify_resource_updated("docs://else")
        await idle()
        assert subscriber.told(UPDATED) == [{"uri": "docs://readme"}]
        assert other.told(UPDATED) == []
        await subscriber.result(request(2, "resources/unsubscribe", {"uri": "docs://readme"}))
        await hub.notify_resource_updated("docs://readme")
        await idle()
        assert len(subscriber.told(UPDATED)) == 1


@asynchronous
async def test_a_change_made_in_another_thread_is_told_on_the_loop() -> None:
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


def test_changes_before_the_hub_serves_go_nowhere() -> None:
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
        assert len(peer.told(TOOLS)) == 2


@asynchronous
async def test_a_session_and_a_listen_stream_on_one_connection_are_each_told_once() -> None:
    hub = assorted_hub()
    async with connected(hub) as peer:
        await peer.result(initialization())
        await listen(peer, "l", toolsListChanged=True)
        hub.add(Kit)
        told = await peer.hears(TOOLS, 2)
        await idle()
        assert len(peer.told(TOOLS)) == 2
        assert sorted("_meta" in params for params in told) == [False, True]
