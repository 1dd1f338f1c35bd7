"""Functions whose names as tools would be the same: who is called what does not depend on who came first."""

from __future__ import annotations

import asyncio
import itertools
from collections.abc import Sequence
from contextlib import AsyncExitStack

import pytest

from tests.protocol.conftest import asynchronous, idle, in_session, until
from tests.workers.wire import Wire, at_work, hub_for_workers, rows, wired
from waypost import Hub
from waypost.capabilities.names import disambiguate
from waypost.workers.offers import find

CHANGED = "notifications/tools/list_changed"
OWNER = ("default", "pay::send")
GUESTS = [("default", "pay__send"), ("blue", "pay::send")]


async def offer(wire: Wire, namespace: str, function: str) -> None:
    """Offer a function in a namespace."""
    await wire.send("registerfunction", id=function)
    await wire.introduce(f"{namespace}/{function}", namespace=namespace)
    await wire.settled()


def named(hub: Hub) -> dict[tuple[str, str], str]:
    """The tools by the functions that they are."""
    functions = [one for one in hub.workers.functions if one.owner is not None]
    return {one.key: one.capability.id for one in functions if one.capability is not None}


@pytest.mark.parametrize("order", list(itertools.permutations([OWNER, *GUESTS])))
def test_the_name_is_the_plain_owners_whoever_came_first(order: Sequence[tuple[str, str]]) -> None:
    @asynchronous
    async def scenario() -> None:
        hub = hub_for_workers()
        async with at_work(hub) as client, AsyncExitStack() as stack:
            wires = {one: await stack.enter_async_context(wired(hub)) for one in order}
            for one in order:
                await offer(wires[one], *one)
            names = named(hub)
            assert names[OWNER] == "pay__send"
            for guest in GUESTS:
                assert names[guest] == disambiguate("/".join(guest), "pay__send")
            for one, name in names.items():
                called = asyncio.create_task(client.call_tool(name))
                await wires[one].serve(one[1], name)
                assert (await called).text == name
            assert rows(hub)["tools"] == 3
            listed = await client.list_tools()
            assert sum(tool["name"].startswith("pay__send") for tool in listed) == 3

    scenario()


@pytest.mark.parametrize("functions", list(itertools.permutations(["pay::send", "pay__send"])))
def test_so_it_is_with_functions_that_are_offered_at_once(functions: Sequence[str]) -> None:
    @asynchronous
    async def scenario() -> None:
        hub = hub_for_workers()
        async with at_work(hub), wired(hub) as worker:
            await worker.offer(*functions)
            assert named(hub)["default", "pay::send"] == "pay__send"
            assert rows(hub)["tools"] == 2

    scenario()


@asynchronous
async def test_a_name_is_a_guests_until_its_owner_comes_which_is_one_change() -> None:
    hub = hub_for_workers()
    async with at_work(hub), wired(hub) as guest, wired(hub) as owner:
        await offer(guest, "blue", "pay::send")
        assert named(hub) == {("blue", "pay::send"): "pay__send"}
        changes: list[int] = []
        hub.registry.subscribe(lambda _: changes.append(rows(hub)["tools"]))
        await offer(owner, *OWNER)
        assert changes == [2]
        assert named(hub)["blue", "pay::send"] == disambiguate("blue/pay::send", "pay__send")
        await owner.socket.close()
        await until(lambda: rows(hub)["tools"] == 1)
        assert named(hub) == {("blue", "pay::send"): "pay__send"}
        assert changes == [2, 1]


@asynchronous
async def test_a_guest_that_left_moves_nobody_and_a_function_that_moved_is_found() -> None:
    hub = hub_for_workers()
    async with at_work(hub), wired(hub) as owner, wired(hub) as other:
        async with wired(hub) as guest:
            await offer(guest, "blue", "pay::send")
        await until(lambda: rows(hub)["tools"] == 0)
        await offer(other, "default", "pay__send")
        await offer(owner, *OWNER)
        moved = find(hub.registry, "pay__send")
        assert moved is not None
        assert moved.id == named(hub)["default", "pay__send"] != "pay__send"
        await owner.socket.close()
        await until(lambda: rows(hub)["tools"] == 1)
        assert find(hub.registry, "pay__send") is hub.registry.tools.get("pay__send")


@asynchronous
async def test_of_guests_with_equal_right_the_first_has_the_name() -> None:
    hub = hub_for_workers()
    async with at_work(hub), wired(hub) as first, wired(hub) as second:
        await offer(first, "blue", "pay::send")
        await offer(second, "red", "pay::send")
        assert named(hub)["blue", "pay::send"] == "pay__send"
        await first.introduce("another name", namespace="blue")
        await first.settled()
        assert named(hub)["blue", "pay::send"] == "pay__send"


@asynchronous
async def test_a_name_that_its_owner_leaves_is_that_guests_who_has_waited_longest() -> None:
    hub = hub_for_workers()
    try:
        async with in_session(hub) as peer, wired(hub) as red, wired(hub) as blue:
            async with wired(hub) as owner:
                await offer(owner, *OWNER)
                await offer(red, "red", "pay::send")
                await offer(blue, "blue", "pay::send")
                await red.introduce("another name", namespace="red")
                heard = len(peer.told(CHANGED))
            await peer.hears(CHANGED, heard + 1)
            assert named(hub)["red", "pay::send"] == "pay__send"
            assert named(hub)["blue", "pay::send"] == disambiguate("blue/pay::send", "pay__send")
            await red.socket.close()
            await until(lambda: named(hub) == {("blue", "pay::send"): "pay__send"})
            await idle()
            assert len(peer.told(CHANGED)) == heard + 2
    finally:
        await hub.stop()


@pytest.mark.parametrize("order", list(itertools.permutations([OWNER, *GUESTS])))
def test_a_name_that_a_tool_of_the_hub_leaves_is_its_owners(order: Sequence[tuple[str, str]]) -> None:
    @asynchronous
    async def scenario() -> None:
        hub = hub_for_workers()
        async with in_session(hub) as peer, AsyncExitStack() as stack:
            stack.push_async_callback(hub.stop)
            for one in order:
                await offer(await stack.enter_async_context(wired(hub)), *one)

            @hub.tool(name="pay__send")
            async def mine() -> None:
                """A tool of the hub."""

            assert "pay__send" not in named(hub).values()
            heard = len(peer.told(CHANGED))
            hub.registry.remove([hub.registry.tool("pay__send")])
            await peer.hears(CHANGED, heard + 1)
            await idle()
            assert len(peer.told(CHANGED)) == heard + 1
            assert named(hub)[OWNER] == "pay__send"
            for guest in GUESTS:
                assert named(hub)[guest] == disambiguate("/".join(guest), "pay__send")

    scenario()


@asynchronous
async def test_whoever_waits_for_a_name_and_leaves_gets_it_no_more() -> None:
    hub = hub_for_workers()
    async with at_work(hub), wired(hub) as owner:
        await offer(owner, *OWNER)
        async with wired(hub) as guest:
            await offer(guest, "blue", "pay::send")
        await until(lambda: rows(hub)["tools"] == 1)
        await owner.socket.close()
        await until(lambda: rows(hub)["tools"] == 0)
        assert hub.registry.find_tool("pay__send") is None


@asynchronous
async def test_a_function_is_not_taken_for_one_of_another_namespace_that_has_its_name() -> None:
    hub = hub_for_workers()
    async with at_work(hub), wired(hub) as guest:
        await offer(guest, "blue", "pay::send")
        assert hub.registry.find_tool("pay__send") is not None
        assert find(hub.registry, "pay::send") is None
        assert find(hub.registry, "pay::send", "blue") is hub.registry.find_tool("pay__send")
