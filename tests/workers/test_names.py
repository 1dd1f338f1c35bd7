"""Functions whose names as tools would be the same: who is called what does not depend on who came first."""

from __future__ import annotations

import asyncio
import itertools
from collections.abc import Sequence
from contextlib import AsyncExitStack

import pytest

from tests.protocol.conftest import asynchronous, until
from tests.workers.wire import Wire, at_work, hub_for_workers, rows, wired
from waypost import Hub
from waypost.capabilities.naming import told_apart
from waypost.workers.offers import find

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
                assert names[guest] == told_apart("/".join(guest), "pay__send")
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
        moved = named(hub)["blue", "pay::send"]
        await owner.socket.close()
        await until(lambda: rows(hub)["tools"] == 1)
        assert named(hub) == {("blue", "pay::send"): moved}


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
        assert find(hub.registry, "pay__send") is moved


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
