"""Functions whose names as tools would be the same: a live name never changes what it calls."""

from __future__ import annotations

import asyncio
import itertools
from collections.abc import Sequence
from contextlib import AsyncExitStack

import pytest

from tests.protocol.conftest import asynchronous, idle, in_session, until
from tests.workers.wire import Wire, at_work, hub_for_workers, rows, wired
from waypost import Hub
from waypost.capabilities.capability import disambiguate
from waypost.workers.tools import find_function_tool

CHANGED = "notifications/tools/list_changed"
PLAIN = ("default", "pay::send")
OTHERS = [("default", "pay__send"), ("blue", "pay::send")]


async def offer(wire: Wire, namespace: str, function: str) -> None:
    """Offer a function in a namespace."""
    await wire.send("registerfunction", id=function)
    await wire.introduce(f"{namespace}/{function}", namespace=namespace)
    await wire.settled()


def named(hub: Hub) -> dict[tuple[str, str], str]:
    """The tools by the functions that they are."""
    functions = [one for one in hub.workers.functions if one.owner is not None]
    return {one.key: one.capability.id for one in functions if one.capability is not None}


@asynchronous
async def test_a_later_worker_does_not_take_a_live_name() -> None:
    hub = hub_for_workers()
    async with at_work(hub) as client, wired(hub) as first, wired(hub) as second:
        await offer(first, "default", "inj::a__b")
        await offer(second, "default", "inj::a::b")
        called = asyncio.create_task(client.call_tool("inj__a__b"))
        await first.serve("inj::a__b", "the first")
        assert (await called).text == "the first"
        assert named(hub)["default", "inj::a::b"] == disambiguate("default/inj::a::b", "inj__a__b")


@pytest.mark.parametrize("order", list(itertools.permutations([PLAIN, *OTHERS])))
def test_the_first_has_the_name_and_the_others_a_suffix_of_their_own(order: Sequence[tuple[str, str]]) -> None:
    @asynchronous
    async def scenario() -> None:
        hub = hub_for_workers()
        async with at_work(hub) as client, AsyncExitStack() as stack:
            wires = {one: await stack.enter_async_context(wired(hub)) for one in order}
            for one in order:
                await offer(wires[one], *one)
            names = named(hub)
            first, *later = order
            assert names[first] == "pay__send"
            for other in later:
                assert names[other] == disambiguate("/".join(other), "pay__send")
            for one, name in names.items():
                called = asyncio.create_task(client.call_tool(name))
                await wires[one].serve(one[1], name)
                assert (await called).text == name
            assert rows(hub)["tools"] == 3
            listed = await client.list_tools()
            assert sum(tool["name"].startswith("pay__send") for tool in listed) == 3

    scenario()


@pytest.mark.parametrize("functions", list(itertools.permutations(["pay::send", "pay__send"])))
def test_of_functions_that_are_registered_together_the_plain_one_has_the_name(functions: Sequence[str]) -> None:
    @asynchronous
    async def scenario() -> None:
        hub = hub_for_workers()
        async with at_work(hub), wired(hub) as worker:
            await worker.offer(*functions)
            assert named(hub)["default", "pay::send"] == "pay__send"
            assert rows(hub)["tools"] == 2

    scenario()


@asynchronous
async def test_a_worker_that_reconnects_has_its_name_again_and_no_other_had_it_meanwhile() -> None:
    hub = hub_for_workers()
    async with at_work(hub), wired(hub) as other:
        async with wired(hub) as plain:
            await offer(plain, *PLAIN)
            await offer(other, "blue", "pay::send")
        suffixed = disambiguate("blue/pay::send", "pay__send")
        await until(lambda: named(hub) == {("blue", "pay::send"): suffixed})
        assert hub.registry.find_tool("pay__send") is None
        async with wired(hub) as plain:
            await offer(plain, *PLAIN)
            assert named(hub) == {PLAIN: "pay__send", ("blue", "pay::send"): suffixed}


@pytest.mark.parametrize("other", OTHERS)
@pytest.mark.parametrize("was_there", [True, False])
@asynchronous
async def test_the_name_of_a_function_that_is_away_never_calls_another(other: tuple[str, str], was_there: bool) -> None:
    hub = hub_for_workers()
    suffixed = disambiguate("/".join(other), "pay__send")
    async with at_work(hub):
        async with wired(hub) as plain, wired(hub) as second:
            await offer(plain, *PLAIN)
            if was_there:
                await offer(second, *other)
        await until(lambda: not named(hub))
        async with wired(hub) as second, wired(hub) as plain:
            await offer(second, *other)
            assert named(hub) == {other: suffixed}
            assert hub.registry.find_tool("pay__send") is None
            await offer(plain, *PLAIN)
            assert named(hub) == {PLAIN: "pay__send", other: suffixed}


@asynchronous
async def test_a_function_is_found_by_its_id_under_any_tool_name() -> None:
    hub = hub_for_workers()
    async with at_work(hub), wired(hub) as plain, wired(hub) as other:
        await offer(plain, *PLAIN)
        await offer(other, "default", "pay__send")
        found = find_function_tool(hub.registry, "pay__send")
        assert found is not None
        assert found.id == named(hub)["default", "pay__send"] != "pay__send"
        await plain.socket.close()
        await until(lambda: rows(hub)["tools"] == 1)
        assert find_function_tool(hub.registry, "pay__send") is found


@asynchronous
async def test_a_worker_that_gives_itself_another_name_keeps_those_of_its_functions() -> None:
    hub = hub_for_workers()
    async with at_work(hub), wired(hub) as first, wired(hub) as second:
        await offer(first, "blue", "pay::send")
        await offer(second, "red", "pay::send")
        assert named(hub)["blue", "pay::send"] == "pay__send"
        await first.introduce("another name", namespace="blue")
        await first.settled()
        assert named(hub)["blue", "pay::send"] == "pay__send"


@pytest.mark.parametrize("order", list(itertools.permutations([PLAIN, *OTHERS])))
def test_a_name_that_a_tool_of_the_hub_leaves_is_the_functions_that_had_it(order: Sequence[tuple[str, str]]) -> None:
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
            received = len(peer.notifications(CHANGED))
            hub.registry.remove([hub.registry.tool("pay__send")])
            await peer.hears(CHANGED, received + 1)
            await idle()
            assert len(peer.notifications(CHANGED)) == received + 1
            first, *later = order
            assert named(hub)[first] == "pay__send"
            for other in later:
                assert named(hub)[other] == disambiguate("/".join(other), "pay__send")

    scenario()


@asynchronous
async def test_a_function_that_leaves_while_the_hub_has_its_name_does_not_get_it_back() -> None:
    hub = hub_for_workers()
    async with at_work(hub):
        async with wired(hub) as worker:
            await offer(worker, *PLAIN)

            @hub.tool(name="pay__send")
            async def mine() -> None:
                """A tool of the hub."""

        await until(lambda: named(hub) == {})
        hub.registry.remove([hub.registry.tool("pay__send")])
        assert hub.registry.find_tool("pay__send") is None


@asynchronous
async def test_a_function_is_not_confused_with_one_of_another_namespace() -> None:
    hub = hub_for_workers()
    async with at_work(hub), wired(hub) as guest:
        await offer(guest, "blue", "pay::send")
        assert hub.registry.find_tool("pay__send") is not None
        assert find_function_tool(hub.registry, "pay::send") is None
        assert find_function_tool(hub.registry, "pay::send", "blue") is hub.registry.find_tool("pay__send")
