"""Unchanged workers of the iii SDK that are connected to different replicas."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import iii
import pytest

from tests.interop.iii_observing import Party, double
from tests.interop.iii_peers import Failed, peer
from tests.nats import nats_url as nats_url
from tests.postgres import postgres_server as postgres_server
from tests.postgres import postgres_url as postgres_url
from tests.worker.sdk import sdk
from tests.workers.replicas import replicas, run, until
from tests.workers.replicas import settings as settings
from tests.workers.wire import address
from waypost.settings import Settings

pytestmark = pytest.mark.timeout(120)


def test_workers_of_two_replicas_work_as_with_one_hub(postgres_url: str, settings: Settings, tmp_path: Path) -> None:
    async def scenario() -> None:
        async with (
            replicas(postgres_url, settings) as (a, b),
            peer("python", address(a.hub), tmp_path, {"worker_name": "one"}) as one,
            peer("python", address(b.hub), tmp_path, {"worker_name": "two"}) as two,
        ):
            await one.offer("peer::echo")
            assert (await two.call_until_found("peer::echo", {"n": 1}))["echo"] == {"n": 1}
            called = await b.client.call_tool("peer__echo", {"n": 2})
            assert called["structuredContent"]["echo"] == {"n": 2}

            await one.offer("peer::bad", "fail")
            with pytest.raises(Failed, match="it went wrong"):
                await two.call_until_found("peer::bad")

            await two.send_command("type", id="tick")
            await one.bind("b1", "tick", "peer::echo", {"every": 1})
            assert (await two.wait_for_event("bound"))["config"] == {"every": 1}

            await one.offer("peer::read", "read")
            await b.offers("peer::echo", "peer::bad", "peer::read")
            assert await two.send_command("stream", size=300_000) == {"bytes": 300_000}

            await one.bind("b2", "state", "peer::echo", {"scope": "s"})
            await until(lambda: any(binding.type == "state" for binding in b.hub.workers.triggers.bindings))
            await two.call("state::set", {"scope": "s", "key": "k", "value": 5})
            while (await one.wait_for_event("called", function="peer::echo"))["data"].get("new_value") != 5:
                pass

            await one.kill()
            await b.offers()
            with pytest.raises(Failed, match="function_not_found"):
                await two.call("peer::echo", {})

    run(scenario())


class Picky(iii.ObserveHooks):  # type: ignore[misc]  # the SDK has no types
    """Delivers by itself, and refuses some observers."""

    delivery = "owner"

    def on_observer_added(self, observer: Any) -> None:
        if observer.args["every"] < 1:
            raise iii.ObserveRejection("NEVER", "every has to be 1 or more")


def test_observers_of_one_replica_see_the_calls_of_functions_of_the_other(
    postgres_url: str, settings: Settings
) -> None:
    async def scenario() -> None:
        async with (
            replicas(postgres_url, settings) as (a, b),
            sdk(address(a.hub), "owner") as owner,
            sdk(address(b.hub), "seer") as seer,
        ):
            party = Party(b.hub, b.client, owner, seer)
            await party.listen()
            await owner.offer("shop::double", double)
            await party.observe({"function_id": "shop::double", "on": "complete"}, max_in_flight=1)
            await party.observe({"function_id": "shop::double", "filters": {"input.amount": {"$gte": 5}}}, max_fires=1)
            for amount, side in ((1, a), (2, b), (-3, a)):
                await side.client.call_tool("shop__double", {"amount": amount})
            seen = await party.until_seen(3)
            assert {one["input"]["amount"]: one["status"] for one in seen} == {1: "success", 2: "success", -3: "error"}

            assert await seer.trigger("shop::double", {"amount": 5}) == {"total": 10}
            assert await owner.trigger("shop::double", {"amount": 6}) == {"total": 12}
            seen = await party.until_seen(6)
            assert sorted(one["input"]["amount"] for one in seen[3:]) in ([5, 5, 6], [5, 6, 6])  # one fires once

            def nothing() -> None: ...

            ticks = owner.worker.register_function("clock::tick", nothing, observe=Picky())
            await b.offers("shop::double", "seer::see", "clock::tick")
            await party.observe({"function_id": "clock::tick", "args": {"every": 2}})
            refusal = await party.refusal({"function_id": "clock::tick", "args": {"every": 0}})
            assert refusal == "NEVER"
            (observer,) = ticks.observers()
            assert observer.emit({"second": 4})
            assert (await party.until_seen(7))[6]["input"] == {"second": 4}
            assert await observer.call_async({"second": 6}) == "seen"

    run(scenario())
