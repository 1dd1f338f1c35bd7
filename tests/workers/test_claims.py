"""A function that was refused to a worker passes to it when the owner disconnects or withdraws it."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

from tests.protocol.conftest import asynchronous, until
from tests.workers.watchers import agree, introduce_with_observers, observe
from tests.workers.wire import Wire, at_work, hub_for_workers, rows, wired
from waypost import Hub
from waypost.testing import TestClient


class Queue:
    """A hub, and workers that all want to offer the same function, in the order of their names."""

    def __init__(self, hub: Hub, client: TestClient, *workers: Wire) -> None:
        self.hub = hub
        self.client = client
        self.first, self.second, self.third = workers

    def owner(self, function: str = "a::b") -> str | None:
        """The name of the worker that offers the function."""
        found = self.hub.workers.functions.get("default", function)
        return None if found is None or found.owner is None else found.owner.name

    async def until_owned_by(self, name: str | None) -> None:
        """Wait until it has an owner."""
        await until(lambda: self.owner() == name, f"it is {self.owner()}'s")


@asynccontextmanager
async def queue() -> AsyncIterator[Queue]:
    """Three workers; the first offers, the others wait."""
    hub = hub_for_workers()
    async with at_work(hub) as client, wired(hub) as first, wired(hub) as second, wired(hub) as third:
        for name, wire in (("first", first), ("second", second), ("third", third)):
            await wire.offer("a::b", name=name, description=f"by the {name}")
            await wire.settled()
        for wire in (second, third):
            assert (await wire.next("registrationrejected"))["owner_worker_id"] == first.id
        yield Queue(hub, client, first, second, third)


@asynchronous
async def test_the_longest_waiting_worker_takes_over_when_the_owner_disconnects() -> None:
    async with queue() as q:
        await q.first.socket.close()
        await q.until_owned_by("second")
        asked = await q.third.ask("a::b", 1)
        await q.second.serve("a::b", "from the second")
        assert (await q.third.next("invocationresult", invocation_id=asked))["result"] == "from the second"
        await q.second.socket.close()
        await q.until_owned_by("third")
        await q.third.socket.close()
        await q.until_owned_by(None)
        await until(lambda: rows(q.hub)["tools"] == 0)


@asynchronous
async def test_the_longest_waiting_worker_takes_over_when_the_owner_withdraws_the_function() -> None:
    async with queue() as q:
        await q.first.send("unregisterfunction", id="a::b")
        await q.first.settled()
        assert q.owner() == "second"
        (tool,) = [tool for tool in await q.client.list_tools() if tool["name"] == "a__b"]
        assert tool["description"] == "by the second"
        await q.first.send("registerfunction", id="a::b")
        await q.first.settled()
        assert (await q.first.next("registrationrejected"))["owner_worker_id"] == q.second.id


@asynchronous
async def test_from_outside_it_is_one_change() -> None:
    async with queue() as q:
        seen: list[list[str]] = []
        q.hub.registry.subscribe(lambda _: seen.append([one.id for one in q.hub.registry.tools if one.id == "a__b"]))
        await q.first.send("unregisterfunction", id="a::b")
        await q.first.settled()
        assert seen == [["a__b"]]


@asynchronous
async def test_a_withdrawn_claim_takes_nothing_over() -> None:
    async with queue() as q:
        await q.second.send("unregisterfunction", id="a::b")
        await q.second.settled()
        await q.third.socket.close()
        await until(lambda: rows(q.hub)["workers"] == 2)
        await q.first.socket.close()
        await q.until_owned_by(None)
        assert rows(q.hub)["functions"] == rows(q.hub)["tools"] == 0
        assert (await q.second.error("a::b"))["code"] == "function_not_found"


@asynchronous
async def test_a_repeated_claim_keeps_its_place_and_its_latest_content() -> None:
    async with queue() as q:
        await q.second.send("registerfunction", id="a::b", description="newer")
        await q.second.settled()
        await q.first.socket.close()
        await q.until_owned_by("second")
        (tool,) = [tool for tool in await q.client.list_tools() if tool["name"] == "a__b"]
        assert tool["description"] == "newer"


@asynchronous
async def test_an_heir_that_withdraws_a_function_does_not_get_it_again() -> None:
    async with queue() as q:
        await q.first.socket.close()
        await q.until_owned_by("second")
        await q.second.send("unregisterfunction", id="a::b")
        await q.second.settled()
        assert q.owner() == "third"
        await q.third.send("unregisterfunction", id="a::b")
        await q.third.settled()
        assert q.owner() is None


@asynchronous
async def test_a_claim_moves_to_another_namespace_with_its_worker() -> None:
    async with queue() as q:
        await q.second.introduce("second", namespace="blue")
        await q.second.settled()
        found = q.hub.workers.functions.get("blue", "a::b")
        assert found is not None
        assert found.owner is not None
        assert found.owner.name == "second"
        await q.first.socket.close()
        await q.until_owned_by("third")


@asynchronous
async def test_observers_follow_a_function_to_its_next_owner() -> None:
    hub = hub_for_workers()
    async with at_work(hub), wired(hub) as first, wired(hub) as second, wired(hub) as seer:
        await introduce_with_observers(first, "a::b", name="first")
        await second.send("registerfunction", id="a::b")
        await second.introduce("second", features=["observe.v1"])
        await second.next("registrationrejected")
        await introduce_with_observers(seer, "s::see", name="seer")
        await observe(seer, "a::b", "s::see")
        await agree(first, "a::b")
        await seer.next("observerstatechanged", state="active")
        await first.socket.close()
        received = await second.next("functionregistered", id="a::b")
        assert [one["id"] for one in received["observers"]] == ["o"]
        await second.send("observerack", function_id="a::b", id="o", revision=received["revision"])
        await seer.next("observerstatechanged", state="active")
        asked = await seer.ask("a::b", 1)
        await second.serve("a::b", 2)
        assert (await seer.next("invocationresult", invocation_id=asked))["result"] == 2
        seen: Any = (await seer.next("invokefunction", function_id="s::see"))["data"]
        assert (seen["input"], seen["output"]) == (1, 2)


@asynchronous
async def test_waiting_claims_count_as_offered_functions() -> None:
    hub = hub_for_workers(workers={"port": 0, "limits": {"functions": 2}})
    async with at_work(hub), wired(hub) as first, wired(hub) as second:
        await first.offer("a::b", "a::c", name="first")
        await second.offer("a::b", "a::c", name="second")
        await second.send("registerfunction", id="a::d")
        await second.settled()
        assert rows(hub)["functions"] == 2
        await first.socket.close()
        await until(lambda: rows(hub)["workers"] == 1)
        assert sorted(hub.workers.connected[0].functions) == ["a::b", "a::c"]
