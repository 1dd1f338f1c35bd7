"""Streams of changes, and subscriptions of sessions."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from tests.upstreams.clients import ScriptedLink, opened, sample, silent
from tests.upstreams.conftest import DEADLINE, until
from waypost import Hub, RemoteError
from waypost.upstreams.client import Client
from waypost.upstreams.jsonrpc import Reply
from waypost.wire.params import SUBSCRIPTION_ID
from waypost.wire.versions import LATEST_LEGACY, V2026_07_28


def test_a_listen_stream_returns_the_subscriptions_that_the_server_accepted() -> None:
    hub = Hub("no prompts", version="1")

    async def scenario() -> None:
        async with opened(hub, V2026_07_28) as client:
            heard: list[Reply] = []
            client.listen_to(heard.append)
            async with client.listen(toolsListChanged=True, promptsListChanged=True) as honoured:
                assert honoured == {"toolsListChanged": True}
                await hub.notify_changed("prompts")
                await hub.notify_changed("tools")
                await until(lambda: len(heard) == 2)
            assert [note.method for note in heard] == [
                "notifications/subscriptions/acknowledged",
                "notifications/tools/list_changed",
            ]

    asyncio.run(scenario())


def test_resource_updates_arrive_on_the_stream_that_subscribed() -> None:
    hub = sample()

    async def scenario() -> None:
        async with opened(hub, V2026_07_28) as client:
            heard: list[Reply] = []
            async with client.listen(resourceSubscriptions=["docs://readme"]):
                client.listen_to(heard.append)
                await hub.notify_resource_updated("docs://other")
                await hub.notify_resource_updated("docs://readme")
                await until(lambda: heard)
            assert [note.params.uri for note in heard] == ["docs://readme"]

    asyncio.run(scenario())


def test_closing_a_stream_ends_it_at_the_server() -> None:
    hub = sample()

    async def scenario() -> None:
        async with opened(hub, V2026_07_28) as client:
            async with client.listen(toolsListChanged=True), client.listen(promptsListChanged=True):
                assert len(hub.engine.broadcast) == 2
            await until(lambda: len(hub.engine.broadcast) == 0)

    asyncio.run(scenario())


def test_a_session_cannot_listen_but_subscribes() -> None:
    hub = sample()

    async def scenario() -> None:
        async with opened(hub, LATEST_LEGACY) as client:
            with pytest.raises(RemoteError, match="subscriptions/listen"):
                async with client.listen(toolsListChanged=True):
                    pytest.fail("there is nothing to listen to")
            heard: list[Reply] = []
            client.listen_to(heard.append)
            await client.subscribe("docs://readme")
            await hub.notify_resource_updated("docs://readme")
            await client.unsubscribe("docs://readme")
            await hub.notify_resource_updated("docs://readme")
            await client.ping()
            assert [note.params.uri for note in heard] == ["docs://readme"]

    asyncio.run(scenario())


def test_a_server_that_never_acknowledges_a_stream_is_a_remote_error() -> None:
    async def scenario() -> None:
        link = ScriptedLink(silent)
        client = Client(link, patience=0.02)
        await link.open(client.receive)
        with pytest.raises(RemoteError, match=r"did not .* within 0\.02 s"):
            async with client.listen(toolsListChanged=True):
                pytest.fail("nobody acknowledged it")

    asyncio.run(scenario())


def acknowledging(*more: dict[str, Any]) -> ScriptedLink:
    """A link to a server that acknowledges a stream once for each of the further parameters."""

    def answer(message: dict[str, Any]) -> list[Any]:
        if message["method"] != "subscriptions/listen":
            return []
        meta = {"_meta": {SUBSCRIPTION_ID: message["id"]}}
        return [
            {"jsonrpc": "2.0", "method": "notifications/subscriptions/acknowledged", "params": {**meta, **one}}
            for one in more
        ]

    return ScriptedLink(answer)


@pytest.mark.parametrize(
    "more",
    [
        [{"notifications": {"toolsListChanged": True}}, {"notifications": {}}],
        [{}, {"notifications": {"toolsListChanged": True}}],
        [{"_meta": ["a", "list"]}, {"notifications": {"toolsListChanged": True}}],
        [{"notifications": "all"}, {"notifications": {"toolsListChanged": True}}],
    ],
    ids=["twice", "without notifications", "no object as _meta", "no object as notifications"],
)
def test_the_first_valid_acknowledgement_of_a_stream_counts(more: list[dict[str, Any]]) -> None:
    async def scenario() -> None:
        async with asyncio.timeout(DEADLINE):
            link = acknowledging(*more)
            client = Client(link)
            await link.open(client.receive)
            async with client.listen(toolsListChanged=True) as honoured:
                assert honoured == {"toolsListChanged": True}
            await client.close()

    asyncio.run(scenario())
