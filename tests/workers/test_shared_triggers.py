"""Triggers, state and changes of skills reach the workers of every replica."""

from __future__ import annotations

from tests.nats import nats_url as nats_url
from tests.postgres import postgres_server as postgres_server
from tests.postgres import postgres_url as postgres_url
from tests.workers.replicas import Side, replicas, run, until
from tests.workers.replicas import settings as settings
from tests.workers.wire import Wire, wired
from waypost.settings import Settings


async def bound(side: Side, *ids: str) -> None:
    """Wait until these bindings of a worker of another replica are known at a replica."""
    await until(lambda: {one.id.rpartition("/")[2] for one in side.hub.workers.triggers.bindings} == set(ids))


async def assert_not_called_again(worker: Wire) -> None:
    """Check that the worker was not called again."""
    await worker.settled()
    assert not [message for message in worker.seen if message["type"] == "invokefunction"]


def test_a_change_of_state_at_one_replica_fires_at_the_other_once(postgres_url: str, settings: Settings) -> None:
    async def scenario() -> None:
        async with replicas(postgres_url, settings) as (a, b), wired(a.hub) as here, wired(b.hub) as there:
            await here.offer("desk::seen", name="desk")
            await here.send(
                "registertrigger", id="t", trigger_type="state", function_id="desk::seen", config={"scope": "s"}
            )
            await bound(b, "t")
            await b.offers("desk::seen")
            await there.introduce("till")
            await there.result("state::set", {"scope": "s", "key": "k", "value": 1})
            await there.result("state::set", {"scope": "other", "key": "k", "value": 1})
            call = await here.next("invokefunction", function_id="desk::seen")
            assert (call["data"]["event_type"], call["data"]["new_value"]) == ("state:created", 1)
            assert await here.result("state::get", {"scope": "s", "key": "k"}) == 1
            await assert_not_called_again(here)

            await here.result("state::update", {"scope": "s", "key": "k", "ops": [{"type": "increment"}]})
            call = await here.next("invokefunction", function_id="desk::seen")
            assert call["data"]["new_value"] == 2
            await assert_not_called_again(here)

    run(scenario())


def test_a_provider_of_one_replica_serves_the_bindings_of_the_other(postgres_url: str, settings: Settings) -> None:
    async def scenario() -> None:
        async with replicas(postgres_url, settings) as (a, b), wired(a.hub) as provider, wired(b.hub) as user:
            await provider.introduce("clock")
            await provider.send("registertriggertype", id="tick", description="Ticks.")
            await user.offer("desk::tick", name="desk")
            await user.send("registertrigger", id="t", trigger_type="tick", function_id="desk::tick", config={"s": 1})
            binding = await provider.next("registertrigger")
            assert (binding["function_id"], binding["config"]) == ("desk::tick", {"s": 1})
            await a.offers("desk::tick")
            ticked = await provider.ask("desk::tick", {"at": 1})
            assert (await user.serve("desk::tick", {}))["data"] == {"at": 1}
            await provider.next("invocationresult", invocation_id=ticked)
            await until(lambda: any(one.id == "tick" for one in b.hub.workers.triggers.types))
            listed = (await user.result("engine::registered-triggers::list", {}))["registered_triggers"]
            assert [(one["id"], one["state"]) for one in listed] == [("t", "active")]

            await user.send("unregistertrigger", id="t")
            assert (await provider.next("unregistertrigger"))["id"] == binding["id"]

            await user.send("registertrigger", id="u", trigger_type="tick", function_id="desk::tick", config={})
            refused = await provider.next("registertrigger")
            error = {"code": "no", "message": "not this one"}
            await provider.send("triggerregistrationresult", id=refused["id"], trigger_type="tick", error=error)
            assert (await user.next("triggerregistrationresult", id="u"))["error"] == error

    run(scenario())


def test_a_binding_has_one_provider_though_both_replicas_have_one(postgres_url: str, settings: Settings) -> None:
    async def scenario() -> None:
        async with (
            replicas(postgres_url, settings) as (a, b),
            wired(a.hub) as first,
            wired(b.hub) as second,
            wired(b.hub) as user,
        ):
            for provider in (first, second):
                await provider.introduce("clock")
                await provider.send("registertriggertype", id="tick", description="Ticks.")
                await provider.settled()
            await until(lambda: all(len(one.hub.workers.triggers._elsewhere) == 1 for one in (a, b)))
            await user.offer("desk::tick", name="desk")
            await user.send("registertrigger", id="t", trigger_type="tick", function_id="desk::tick")
            assert (await second.next("registertrigger"))["id"] == "t"
            await bound(a, "t")
            await first.settled()
            assert not [one for one in first.seen if one["type"] == "registertrigger"]

            await second.socket.close()
            assert (await first.next("registertrigger"))["function_id"] == "desk::tick"

    run(scenario())


def test_a_skill_that_is_published_at_one_replica_is_announced_to_workers_of_both(
    postgres_url: str, settings: Settings
) -> None:
    async def scenario() -> None:
        async with replicas(postgres_url, settings) as (a, b), wired(a.hub) as here, wired(b.hub) as there:
            for worker, name in ((here, "one"), (there, "two")):
                await worker.offer(f"{name}::heard", name=name)
                await worker.send(
                    "registertrigger", id=name, trigger_type="skills::on-change", function_id=f"{name}::heard"
                )
            await bound(a, "one", "two")
            await bound(b, "one", "two")
            await here.result("skills::register", {"id": "guide", "title": "Guide", "skill": "# Guide\n\nText."})
            for worker, name in ((here, "one"), (there, "two")):
                call = await worker.next("invokefunction", function_id=f"{name}::heard")
                assert call["data"] == {"op": "register", "id": "guide"}
                await assert_not_called_again(worker)
            assert "Text." in str(await there.result("skills::fetch_skill", {"uri": "iii://guide"}))

    run(scenario())
