"""Changes at run time: what is added and removed, and which clients are notified."""

from __future__ import annotations

import asyncio
import threading
from typing import Any, Literal

import pytest

from tests.hub.samples import ERAS, Arithmetic, Greet, Readme, Shout, empty, hearing, ids, names, resource_at
from waypost import DefinitionError, Hub, RemoteError
from waypost.capabilities.capability import Kind
from waypost.testing import connect
from waypost.wire.versions import LATEST_LEGACY

ListMethod = Literal["tools", "prompts", "resources"]


@pytest.mark.parametrize("version", ERAS)
def test_adding_a_kit_at_run_time_is_one_notification(version: str) -> None:
    hub = empty()

    async def scenario() -> None:
        async with hearing(hub, version) as client:
            assert await client.list_tools() == []
            hub.add(Arithmetic)
            await client.assert_notification("tools/list_changed")
            await client.refute_notification("tools/list_changed")
            assert names(await client.list_tools()) == ["add", "maths.power", "multiply", "subtract"]
            assert (await client.call_tool("add", {"a": 1, "b": 2})).structured == {"result": 3}

    asyncio.run(scenario())


@pytest.mark.parametrize("version", ERAS)
@pytest.mark.parametrize(("source", "kind"), [(Shout, "tools"), (Greet, "prompts"), (Readme, "resources")])
def test_each_kind_has_a_change_of_its_own(source: Any, kind: ListMethod, version: str) -> None:
    hub = empty().add(Greet, name="first").add(resource_at("docs://first"))

    async def scenario() -> None:
        async with hearing(hub, version) as client:
            hub.add(source)
            await client.assert_notification(f"{kind}/list_changed")
            for other in {"tools", "prompts", "resources"}:
                await client.refute_notification(f"{other}/list_changed", within=0.02)

    asyncio.run(scenario())


@pytest.mark.parametrize("version", ERAS)
def test_removing_tools_is_one_notification(version: str) -> None:
    hub = empty().add(Arithmetic)

    async def scenario() -> None:
        async with hearing(hub, version) as client:
            hub.remove("add", "maths.power")
            await client.assert_notification("tools/list_changed")
            await client.refute_notification("tools/list_changed")
            assert names(await client.list_tools()) == ["multiply", "subtract"]
            with pytest.raises(RemoteError, match="Unknown tool: add") as caught:
                await client.call_tool("add", {"a": 1, "b": 2})
            assert caught.value.code == -32602

    asyncio.run(scenario())


@pytest.mark.parametrize("version", ERAS)
def test_a_tool_renamed_by_a_hidden_one_is_notified(version: str) -> None:
    hub = Hub("changing", version="1", names="portable").add(Shout, name="a.b")

    def hidden() -> str:
        """Only for some."""
        return "hidden"

    async def scenario() -> None:
        async with hearing(hub, version) as client:
            assert names(await client.list_tools()) == ["a_b"]
            hub.tool(hidden, name="a_b", scopes=["more"])
            await client.assert_notification("tools/list_changed")
            await client.refute_notification("tools/list_changed")
            (moved,) = names(await client.list_tools())
            assert moved.startswith("a_b_")

    asyncio.run(scenario())


@pytest.mark.parametrize("version", ERAS)
def test_removing_an_unknown_tool_changes_and_notifies_nothing(version: str) -> None:
    hub = empty().add(Shout)

    async def scenario() -> None:
        async with hearing(hub, version) as client:
            hub.remove("whisper")
            await client.refute_notification("tools/list_changed")
            assert names(await client.list_tools()) == ["shout"]

    asyncio.run(scenario())


def test_resources_and_prompts_are_removed_by_uri_and_name() -> None:
    hub = empty().add(Readme).add(Greet)

    hub.remove("docs://readme", kind=Kind.RESOURCE)
    hub.remove("greet", kind=Kind.PROMPT)

    assert ids(hub, "resources") == ids(hub, "prompts") == []


@pytest.mark.parametrize("version", ERAS)
def test_a_name_given_twice_is_refused_and_nothing_is_half_added(version: str) -> None:
    hub = empty()

    @hub.tool
    def multiply(a: int, b: int) -> str:
        return "mine"

    async def scenario() -> None:
        async with hearing(hub, version) as client:
            with pytest.raises(DefinitionError, match="'multiply' already"):
                hub.add(Arithmetic)
            await client.refute_notification("tools/list_changed")
            assert names(await client.list_tools()) == ["multiply"]
            assert (await client.call_tool("multiply", {"a": 2, "b": 3})).text == "mine"

    asyncio.run(scenario())
    assert ids(hub) == ["multiply"]


def test_two_resources_at_one_uri_are_refused() -> None:
    hub = empty().add(Readme)

    with pytest.raises(DefinitionError, match="docs://readme"):
        hub.add(resource_at("docs://readme"))


@pytest.mark.parametrize("version", ERAS)
def test_a_change_can_be_notified_by_hand(version: str) -> None:
    hub = empty().add(Shout)

    async def scenario() -> None:
        async with hearing(hub, version) as client:
            await hub.notify_changed("tools")
            await client.assert_notification("tools/list_changed")
            await client.refute_notification("tools/list_changed")

    asyncio.run(scenario())


@pytest.mark.parametrize("version", ERAS)
def test_a_change_in_another_thread_reaches_clients(version: str) -> None:
    hub = empty().add(Readme)

    def meanwhile() -> None:
        hub.add(Shout)
        asyncio.run(hub.notify_changed("resources"))

    async def scenario() -> None:
        async with hearing(hub, version) as client:
            thread = threading.Thread(target=meanwhile)
            thread.start()
            await client.assert_notification("tools/list_changed")
            await client.assert_notification("resources/list_changed")
            assert names(await client.list_tools()) == ["shout"]
            await asyncio.to_thread(thread.join)

    asyncio.run(scenario())


def test_an_update_in_another_thread_reaches_subscribers_only() -> None:
    hub = empty().add(Readme)

    async def scenario() -> None:
        async with connect(hub, LATEST_LEGACY) as reader, connect(hub, LATEST_LEGACY) as other:
            await reader.subscribe("docs://readme")
            await asyncio.to_thread(lambda: asyncio.run(hub.notify_resource_updated("docs://readme")))
            await reader.assert_notification("resources/updated", uri="docs://readme")
            await other.refute_notification("resources/updated")

    asyncio.run(scenario())
