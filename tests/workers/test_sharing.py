"""Functions of a worker that is connected to one replica are capabilities at all of them."""

from __future__ import annotations

import asyncio
import threading
from typing import Any

import pytest

from tests.nats import nats_url as nats_url
from tests.postgres import postgres_server as postgres_server
from tests.postgres import postgres_url as postgres_url
from tests.workers.replicas import replicas, run, until
from tests.workers.replicas import settings as settings
from tests.workers.wire import Json, wired
from waypost import Context
from waypost.buses.bus import MAX_MESSAGE_BYTES
from waypost.capabilities.context import DetachedCaller
from waypost.capabilities.principals import Chain, Principal
from waypost.settings import Bus, Settings, Workers
from waypost.workers.tools import find_schema_problem


def text_of(result: Json) -> str:
    """The text of a result that is an error."""
    assert result["isError"]
    return str(result["content"][0]["text"])


def test_a_function_of_one_replica_is_called_through_the_other(postgres_url: str, settings: Settings) -> None:
    async def scenario() -> None:
        async with replicas(postgres_url, settings) as (a, b), wired(a.hub) as worker:
            await worker.offer("math::add", name="desk", description="Adds.")
            await b.offers("math::add")
            calling = asyncio.create_task(b.client.call_tool("math__add", {"a": 1}))
            call = await worker.serve("math::add", {"sum": 2})
            assert call["data"] == {"a": 1}
            assert (await calling)["structuredContent"] == {"sum": 2}
            assert await a.client.list_tools() == await b.client.list_tools()

            await worker.send("unregisterfunction", id="math::add")
            await b.offers()
            assert "math__add" not in {tool["name"] for tool in await b.client.list_tools()}

    run(scenario())


def test_workers_of_two_replicas_call_and_see_each_other(postgres_url: str, settings: Settings) -> None:
    async def scenario() -> None:
        async with replicas(postgres_url, settings) as (a, b), wired(a.hub) as here, wired(b.hub) as there:
            await here.offer("desk::echo", name="desk", metadata={"v": 1})
            await b.offers("desk::echo")
            await there.introduce("till")
            asked = await there.ask("desk::echo", {"n": 1}, metadata={"trace": "x"})
            call = await here.next("invokefunction", function_id="desk::echo")
            # The handler calls on for its caller, whose worker is known at another replica only.
            nested = await here.ask("engine::workers::list", {}, baggage=call["baggage"])
            await here.next("invocationresult", invocation_id=nested)
            await here.answer(call, {"n": 2})
            assert (await there.next("invocationresult", invocation_id=asked))["result"] == {"n": 2}
            assert (call["data"], call["metadata"]) == ({"n": 1}, {"trace": "x"})

            listed = (await there.result("engine::functions::list", {"prefix": "desk::"}))["functions"]
            replica = a.hub.runtime.core.replica
            assert [(one["worker_name"], one["replica"]) for one in listed] == [("desk", replica)]
            known = (await there.result("engine::workers::list", {}))["workers"]
            assert {(one["name"], one.get("replica")) for one in known} == {("desk", replica), ("till", None)}

    run(scenario())


def test_a_call_carries_its_principal_chain_and_idempotency_key(postgres_url: str, settings: Settings) -> None:
    seen: list[tuple[str, int, list[str]]] = []

    async def scenario() -> None:
        async with replicas(postgres_url, settings) as (a, b), wired(a.hub) as worker:

            @a.hub.tool
            def who(ctx: Context) -> str:
                """Record the caller."""
                chain = ctx.caller.chain
                seen.append((ctx.caller.principal.id, chain.hops, [one.id for one in chain.behind]))
                return "noted"

            await worker.offer("desk::go", name="desk")
            await b.offers("desk::go")
            caller = DetachedCaller(Principal("alice"), Chain("mcp", "mcp", key="k-1"))
            calling = asyncio.create_task(b.hub.runtime.core.pipeline.call("desk__go", {}, caller))
            call = await worker.next("invokefunction", function_id="desk::go")
            assert call["metadata"] == {"idempotencyKey": "k-1"}
            assert await worker.result("who", {}, baggage=call["baggage"]) == "noted"
            await worker.answer(call, {})
            assert not (await calling).is_error
            assert seen == [("alice", 1, ["alice", "worker:desk"])]

    run(scenario())


def test_a_section_of_a_skill_is_rendered_by_a_worker_of_another_replica(postgres_url: str) -> None:
    async def scenario() -> None:
        async with (
            replicas(postgres_url, Settings(workers=Workers(port=0))) as (a, b),
            wired(a.hub) as worker,
            wired(b.hub) as reader,
        ):
            await worker.offer("desk::guide", name="desk")
            await b.offers("desk::guide")
            asked = await reader.ask("skills::fetch_skill", {"uri": "iii://fn/desk/guide"})
            await worker.serve("desk::guide", "Open at nine.")
            assert "Open at nine." in str(await reader.next("invocationresult", invocation_id=asked))

    run(scenario())


def test_a_call_that_waits_while_its_worker_leaves_goes_to_another_replica(postgres_url: str) -> None:
    async def scenario() -> None:
        async with (
            replicas(postgres_url, Settings(workers=Workers(port=0))) as (a, b),
            wired(a.hub) as first,
            wired(b.hub) as second,
        ):
            for worker in (first, second):
                await worker.offer("desk::ask", name="desk")
            await until(lambda: all(len(one.hub.workers.everywhere) == 2 for one in (a, b)))
            capability = b.hub.registry.tools.get("desk__ask")  # as a call has it that waits for a slot
            assert capability is not None
            await second.socket.close()
            await until(lambda: not b.hub.workers.connected)
            caller = DetachedCaller(Principal("alice"), Chain("mcp", "mcp"))
            calling = asyncio.create_task(b.hub.runtime.core.pipeline.use(capability, {}, caller, 10))
            await first.serve("desk::ask", {"by": "first"})
            assert await calling is not None

    run(scenario())


def test_failures_keep_their_kind_on_the_way(postgres_url: str, settings: Settings) -> None:
    async def scenario() -> None:
        async with replicas(postgres_url, settings) as (a, b), wired(a.hub) as here, wired(b.hub) as there:
            await here.offer("desk::fail", name="desk")
            await b.offers("desk::fail")
            asked = await there.ask("desk::fail")
            call = await here.next("invokefunction", function_id="desk::fail")
            failure = {"code": "sold_out", "message": "nothing is left", "stacktrace": "line 1"}
            await here.send("invocationresult", invocation_id=call["invocation_id"], error=failure)
            assert (await there.next("invocationresult", invocation_id=asked))["error"] == failure

            asked = await there.ask("desk::fail")
            await here.next("invokefunction", function_id="desk::fail")
            await here.socket.close()
            error = (await there.next("invocationresult", invocation_id=asked))["error"]
            assert (error["code"], "disconnected" in error["message"]) == ("invocation_stopped", True)
            await b.offers()
            assert (await there.error("desk::fail"))["code"] == "function_not_found"

    run(scenario())


def test_large_arguments_and_results_go_through_the_store(postgres_url: str, settings: Settings) -> None:
    async def scenario() -> None:
        async with replicas(postgres_url, settings) as (a, b), wired(a.hub) as worker:
            await worker.offer("desk::copy", name="desk")
            await b.offers("desk::copy")
            large = "x" * (MAX_MESSAGE_BYTES + 1)
            calling = asyncio.create_task(b.client.call_tool("desk__copy", {"text": large}))
            call = await worker.serve("desk::copy", {"text": large})
            assert call["data"]["text"] == large
            assert (await calling)["structuredContent"]["text"] == large

    run(scenario())


def test_a_call_that_is_given_up_ends_at_the_other_replica(postgres_url: str, settings: Settings) -> None:
    async def scenario() -> None:
        async with replicas(postgres_url, settings) as (a, b), wired(a.hub) as worker:
            await worker.offer("desk::wait", name="desk")
            await b.offers("desk::wait")
            calling = asyncio.create_task(b.client.call_tool("desk__wait", {}))
            await worker.next("invokefunction", function_id="desk::wait")
            (connected,) = a.hub.workers.connected
            assert connected.unanswered == 1
            calling.cancel()
            await until(lambda: connected.unanswered == 0)

    run(scenario())


def test_each_replica_calls_its_own_worker_and_the_other_one_when_that_leaves(
    postgres_url: str, settings: Settings
) -> None:
    async def scenario() -> None:
        async with replicas(postgres_url, settings) as (a, b), wired(a.hub) as first, wired(b.hub) as second:
            await first.offer("desk::ask", name="desk")
            await b.offers("desk::ask")
            await second.offer("desk::ask", name="desk")
            await until(lambda: all(len(list(one.hub.workers.everywhere)) == 2 for one in (a, b)))
            for side, worker in ((a, first), (b, second)):
                calling = asyncio.create_task(side.client.call_tool("desk__ask", {}))
                await worker.serve("desk::ask", {"by": "own"})
                assert (await calling)["structuredContent"] == {"by": "own"}

            await second.socket.close()
            await until(lambda: not b.hub.workers.connected)
            calling = asyncio.create_task(b.client.call_tool("desk__ask", {}))
            await first.serve("desk::ask", {"by": "other"})
            assert (await calling)["structuredContent"] == {"by": "other"}

    run(scenario())


def test_a_call_that_did_not_start_goes_to_another_worker(postgres_url: str, settings: Settings) -> None:
    async def scenario() -> None:
        async with (
            replicas(postgres_url, settings, 3) as (a, b, c),
            wired(a.hub) as first,
            wired(b.hub) as second,
        ):
            await first.offer("desk::ask", name="desk")
            await c.offers("desk::ask")
            await second.offer("desk::ask", name="desk")
            await until(lambda: len(c.hub.workers.everywhere) == 2)
            # Replica c does not know yet that the worker it asks first has gone.
            a.hub.workers.shared = None
            await first.socket.close()
            await until(lambda: not a.hub.workers.connected)
            assert len(c.hub.workers.everywhere) == 2
            for _ in range(2):
                calling = asyncio.create_task(c.client.call_tool("desk__ask", {}))
                await second.serve("desk::ask", {"by": "second"})
                assert (await calling)["structuredContent"] == {"by": "second"}

    run(scenario())


def test_a_replica_that_cannot_be_reached_is_known_at_once(postgres_url: str, settings: Settings) -> None:
    async def scenario() -> None:
        async with replicas(postgres_url, settings) as (a, b), wired(a.hub) as worker:
            await worker.offer("desk::ask", name="desk")
            await b.offers("desk::ask")
            calls: Any = a.hub.workers.shared
            await calls._calls.stop()
            assert "cannot be reached" in text_of(await b.client.call_tool("desk__ask", {}))

    run(scenario())


def test_a_replica_that_dies_ends_the_calls_it_runs(
    postgres_url: str, settings: Settings, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def scenario() -> None:
        async with replicas(postgres_url, settings) as (a, b), wired(a.hub) as worker:
            await worker.offer("desk::ask", name="desk")
            await b.offers("desk::ask")
            calling = asyncio.create_task(b.client.call_tool("desk__ask", {}))
            await worker.next("invokefunction", function_id="desk::ask")
            # Its heartbeat ends, as if it were frozen; the other one declares it dead.
            beating: Any = a.hub.runtime.replicas._beating
            beating.cancel()
            monkeypatch.setattr("waypost.runtime.replicas.DEAD_AFTER_S", 0.5)
            assert "it may have run" in text_of(await calling)
            await b.offers()

    run(scenario())


def test_a_call_that_begins_as_its_replica_dies_does_not_wait_for_it(
    postgres_url: str, settings: Settings, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def scenario() -> None:
        async with replicas(postgres_url, settings) as (a, b), wired(a.hub) as worker:
            await worker.offer("desk::ask", name="desk")
            await b.offers("desk::ask")
            shared = b.hub.workers.shared
            assert shared is not None
            read, reads = shared._rows.list_versions, asyncio.Event()

            async def read_later(replica: str) -> Any:
                await reads.wait()
                return await read(replica)

            monkeypatch.setattr(shared._rows, "list_versions", read_later)
            # It is frozen, and still connected to the bus.
            shared.forget(a.hub.runtime.core.replica)
            assert "cannot be reached" in text_of(await b.client.call_tool("desk__ask", {}))
            reads.set()
            await until(lambda: shared._calls is not None and not shared._calls.gone)
            # It was not dead: its functions are called again.
            calling = asyncio.create_task(b.client.call_tool("desk__ask", {}))
            await worker.serve("desk::ask", {"ok": 1})
            assert (await calling)["structuredContent"] == {"ok": 1}

    run(scenario())


def test_a_replica_that_was_declared_dead_offers_its_functions_again(postgres_url: str, settings: Settings) -> None:
    async def scenario() -> None:
        async with replicas(postgres_url, settings) as (a, b), wired(a.hub) as worker:
            await worker.offer("desk::ask", name="desk")
            await b.offers("desk::ask")
            presence = b.hub.runtime.replicas
            (dead,) = [one for one in await presence.rows.list() if one.id == a.hub.runtime.core.replica]
            while not await presence.rows.declare_dead(dead):
                (dead,) = [one for one in await presence.rows.list() if one.id == dead.id]
            await presence.refresh()
            await b.offers()
            await b.offers("desk::ask")  # once it has noticed, with its next heartbeat

    run(scenario())


def test_a_function_belongs_to_the_worker_that_has_it_at_another_replica(postgres_url: str) -> None:
    settings = Settings(bus=Bus(), workers=Workers(port=0, token="s3cret"))

    async def scenario() -> None:
        path = "?token=s3cret"
        async with (
            replicas(postgres_url, settings) as (a, b),
            wired(a.hub, path) as owner,
            wired(b.hub, path) as other,
            wired(b.hub, path) as same,
        ):
            await owner.offer("desk::ask", name="desk")
            await b.offers("desk::ask")
            await other.offer("desk::ask", name="thief")
            rejected = await other.next("registrationrejected")
            assert (rejected["function_id"], rejected["owner_worker_id"]) == ("desk::ask", owner.id)
            await same.offer("desk::ask", name="desk")
            calling = asyncio.create_task(b.client.call_tool("desk__ask", {}))
            await same.serve("desk::ask", {})
            await calling

    run(scenario())


def test_of_two_workers_that_take_a_function_at_once_the_first_keeps_it(postgres_url: str) -> None:
    settings = Settings(bus=Bus(), workers=Workers(port=0, token="s3cret"))

    async def scenario() -> None:
        path = "?token=s3cret"
        async with (
            replicas(postgres_url, settings) as (a, b),
            wired(a.hub, path) as owner,
            wired(b.hub, path) as other,
        ):
            shared: Any = b.hub.workers.shared
            async with shared._reading:  # replica b does not know yet what was registered at a
                await owner.offer("desk::ask", name="desk")
                await other.offer("desk::ask", name="thief")
            rejected = await other.next("registrationrejected")
            assert rejected["owner_worker_id"] == owner.id
            for side in (a, b):
                await until(lambda side=side: len(side.hub.workers.everywhere) == 2)  # type: ignore[misc]
                calling = asyncio.create_task(side.client.call_tool("desk__ask", {}))
                await owner.serve("desk::ask", {})
                await calling

    run(scenario())


def test_a_sweep_finds_unannounced_functions(postgres_url: str) -> None:
    async def scenario() -> None:
        settings = Settings(workers=Workers(port=0))
        async with replicas(postgres_url, settings, sweep_s=0.1) as (a, b), wired(a.hub) as worker:
            shared: Any = a.hub.workers.shared
            shared._announce = lambda kind, record: None
            await worker.offer("desk::ask", name="desk")
            await b.offers("desk::ask")

    run(scenario())


def test_schemas_of_another_replica_are_checked_outside_the_loop(
    postgres_url: str, settings: Settings, monkeypatch: pytest.MonkeyPatch
) -> None:
    threads: list[str] = []

    def note(schema: Json) -> str | None:
        threads.append(threading.current_thread().name)
        return find_schema_problem(schema)

    async def scenario() -> None:
        async with replicas(postgres_url, settings) as (a, b), wired(a.hub) as worker:
            monkeypatch.setattr("waypost.workers.tools.find_schema_problem", note)
            wide = {"type": "object", "properties": {"v": {"anyOf": [{"required": [f"p{n}"]} for n in range(1_000)]}}}
            await worker.offer("a::b", "a::c", request_format=wide)
            await b.offers("a::b", "a::c")

    run(scenario())
    assert len(threads) == 4  # each function at each replica
    assert "MainThread" not in threads
