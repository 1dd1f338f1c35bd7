"""A worker whose engine goes away and comes back, or does not want it."""

from __future__ import annotations

import asyncio
import json
import logging
from typing import Any

import pytest

from tests.protocol.conftest import asynchronous, until
from tests.worker.engine import AT_ONCE, Scripted, failure, scripted, settled, working
from tests.workers.wire import address, at_work, hub_for_workers
from waypost import Hub
from waypost.worker import VOID, Reconnecting, Worker, register_worker
from waypost.worker.connection import MAX_OFFLINE_CALLS


def again(hub: Hub) -> Hub:
    """Another hub at the same port."""
    return hub_for_workers(workers={"port": int(address(hub).rpartition(":")[2])})


def worker_of(engine: Scripted, **options: Any) -> Worker:
    return register_worker(engine.url, name="one", **{"reconnecting": AT_ONCE, **options})


@asynchronous
async def test_after_a_restart_everything_is_there_again_and_waiting_calls_are_made() -> None:
    hub = hub_for_workers()
    received: list[Any] = []
    async with at_work(hub):
        worker = register_worker(address(hub), name="one", reconnecting=AT_ONCE)
        worker.register_function("a::b", lambda payload: [payload])
        worker.register_function("a::heard", received.append)
        worker.register_trigger_type("a::tick", "Ticks.")
        worker.register_trigger("state", "a::heard", {"scope": "s"})
        assert await worker.trigger("a::b", 1) == [1]
        other = again(hub)
    calls = [worker.trigger("a::b", number) for number in range(100)]
    async with at_work(other) as client:
        assert await asyncio.gather(*calls) == [[number] for number in range(100)]
        assert (await client.call_tool("a__b", {"n": 1}))["structuredContent"] == {"result": [{"n": 1}]}
        assert [kind.id for kind in other.workers.triggers.types if kind.worker] == ["a::tick"]
        await worker.trigger("state::set", {"scope": "s", "key": "k", "value": 1})
        await until(lambda: received)
        assert [one.name for one in other.workers.connected] == ["one"]
        await worker.shutdown()
        await until(lambda: other.workers.connected == [])


@asynchronous
async def test_a_call_on_its_way_when_the_connection_is_lost_ends_at_once() -> None:
    async with scripted() as engine:
        worker = worker_of(engine)
        visit = await engine.visits.get()
        await visit.greeted()
        call = worker.trigger("a::b", timeout_ms=60_000)
        await visit.next("invokefunction")
        await visit.socket.close()

        assert (await failure(call)).code == "invocation_stopped"
        await worker.shutdown()


@asynchronous
async def test_a_worker_reattaches_then_registers_then_introduces_itself() -> None:
    async with scripted() as engine:
        worker = worker_of(engine, description="Says things.")
        worker.register_function("a::b", lambda: None)
        worker.register_trigger_type("a::tick", "Ticks.")
        worker.register_trigger("b::tock", "a::b")
        first = await (visit := await engine.visits.get()).greeted()
        await visit.socket.close()
        second = await (await engine.visits.get()).greeted()

        kinds = ["registertriggertype", "registerfunction", "registertrigger", "invokefunction"]
        assert [message["type"] for message in first] == kinds
        assert [message["type"] for message in second] == ["reattach", *kinds]
        assert second[0] == {"type": "reattach", "previous_worker_id": "w1", "reattach_token": "t"}
        assert second[1:] == first
        assert first[0] == {"type": "registertriggertype", "id": "a::tick", "description": "Ticks."}
        assert first[1] == {"type": "registerfunction", "id": "a::b"}
        introduction = first[-1]
        assert introduction["action"] == {"type": "void"}
        assert "invocation_id" not in introduction
        assert (introduction["data"]["name"], introduction["data"]["description"]) == ("one", "Says things.")
        await worker.shutdown()


@asynchronous
async def test_calls_without_a_connection_wait_in_a_bounded_queue() -> None:
    async with scripted() as engine:
        await engine.close()
        worker = worker_of(engine)
        waiting = [worker.trigger("a::b", number, action=VOID) for number in range(MAX_OFFLINE_CALLS)]
        one_too_many = await failure(worker.trigger("a::b", action=VOID))
        assert (one_too_many.code, str(MAX_OFFLINE_CALLS) in one_too_many.message) == ("not_connected", True)
        await engine.open()
        visit = await engine.visits.get()
        await visit.greeted()
        sent = [(await visit.next("invokefunction"))["data"] for _ in range(MAX_OFFLINE_CALLS)]

        assert sent == list(range(MAX_OFFLINE_CALLS))
        await asyncio.gather(*waiting)
        await worker.shutdown()


@asynchronous
async def test_a_call_may_time_out_before_there_is_a_connection() -> None:
    async with scripted() as engine:
        await engine.close()
        worker = worker_of(engine)

        error = await failure(worker.trigger("a::b", timeout_ms=10))

        assert (error.code, "not connected" in error.message) == ("TIMEOUT", True)
        await worker.shutdown()


@asynchronous
async def test_a_refused_worker_does_not_reconnect_and_a_refused_function_is_only_logged(
    caplog: pytest.LogCaptureFixture,
) -> None:
    async with scripted() as engine:
        worker = worker_of(engine)
        visit = await engine.visits.get()
        refused = {"namespace": "default", "owner_worker_id": "w0"}
        await visit.send("registrationrejected", code="FUNCTION_NAMESPACE_CONFLICT", function_id="a::b", **refused)
        await visit.send("ping")
        await visit.next("pong")
        assert "a::b was not accepted" in caplog.text
        call = worker.trigger("a::b")
        await visit.next("invokefunction")
        await visit.send("registrationrejected", code="WORKER_NAMESPACE_CONFLICT", worker_name="one", **refused)

        assert (await failure(worker.closed())).code == "WORKER_NAMESPACE_CONFLICT"
        assert (await failure(worker.ready())).code == "WORKER_NAMESPACE_CONFLICT"
        assert (await failure(call)).code == "WORKER_NAMESPACE_CONFLICT"
        assert (await failure(worker.trigger("a::b"))).code == "WORKER_NAMESPACE_CONFLICT"
        assert engine.visits.empty()
        await worker.shutdown()


@asynchronous
async def test_unknown_messages_are_ignored() -> None:
    async with scripted() as engine:
        worker = worker_of(engine)
        worker.register_function("a::b", lambda payload: payload)
        visit = await engine.visits.get()
        await visit.greeted()
        for garbage in ("{", '{"type": "dance"}', "[]", b"\x00\x01", '{"type": "invokefunction"}'):
            await visit.socket.send(garbage)
        await visit.send("invocationresult", invocation_id="nobody's", result=1)
        await visit.send("invokefunction", function_id="a::b", invocation_id="i1", data={"ä": None})
        await visit.send("invokefunction", function_id="a::unknown", invocation_id="i2")

        answers = {answer["invocation_id"]: answer for answer in [await visit.next("invocationresult") for _ in "12"]}
        assert answers["i1"]["result"] == {"ä": None}
        assert answers["i2"]["error"]["code"] == "function_not_found"
        await worker.shutdown()


@asynchronous
async def test_a_token_is_sent_and_a_wrong_one_is_logged(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    hub = hub_for_workers(workers={"port": 0, "token": "sesame"})
    async with at_work(hub):
        async with working(hub, token="sesame") as worker:
            await settled(worker)
        monkeypatch.setenv("III_TOKEN", "sesame")
        monkeypatch.setenv("III_WORKER_NAME", "named-outside")
        async with working(hub, "named-inside") as worker:
            await settled(worker)
            assert [one.name for one in hub.workers.connected] == ["named-outside"]
        stranger = register_worker(address(hub), token="mustard", reconnecting=AT_ONCE)
        await until(lambda: "III_TOKEN" in caplog.text)
        await stranger.shutdown()


@asynchronous
async def test_waiting_calls_end_when_the_worker_is_shut_down() -> None:
    async with scripted() as engine:
        worker = worker_of(engine)
        visit = await engine.visits.get()
        await visit.greeted()
        call = worker.trigger("a::b")
        await visit.next("invokefunction")
        publishing = worker.publish_skill("a", "# A")
        await visit.next("invokefunction")
        await worker.shutdown()

        assert [(await failure(one)).code for one in (call, publishing, worker.trigger("a::b"))] == ["SHUTDOWN"] * 3
        await worker.shutdown()


@asynchronous
async def test_a_handler_may_shut_its_worker_down() -> None:
    hub = hub_for_workers()
    async with at_work(hub), working(hub, "two") as caller:
        worker = register_worker(address(hub), name="one")
        worker.register_function("a::stop", lambda: worker.shutdown())
        await settled(worker)

        assert (await failure(caller.trigger("a::stop"))).code == "invocation_stopped"
        await worker.closed()
        await until(lambda: [one.name for one in hub.workers.connected] == ["two"])


def test_pauses_grow_to_a_limit_and_are_never_alike() -> None:
    pauses = Reconnecting()
    for failed, expected in [(0, 1), (1, 2), (4, 16), (5, 30), (10_000, 30)]:
        found = [pauses.pause(failed) for _ in range(50)]
        assert expected * 0.7 <= min(found) < max(found) <= expected * 1.3


@asynchronous
async def test_the_pause_begins_small_again_after_a_connection(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.WARNING)
    async with scripted() as engine:
        worker = worker_of(engine, reconnecting=Reconnecting(first=0.01, longest=0.04, jitter=0))
        for _ in range(3):
            visit = await engine.visits.get()
            await visit.greeted()
            await visit.socket.close()
        await engine.visits.get()
        pauses = [record.getMessage().rpartition("in ")[2] for record in caplog.records]
        assert pauses == ["0.0 s"] * 3, json.dumps(pauses)
        await worker.shutdown()


@asynchronous
async def test_a_worker_without_an_engine_logs_it_and_retries_after_growing_pauses(
    caplog: pytest.LogCaptureFixture,
) -> None:
    async with scripted() as engine:
        url = engine.url
    with caplog.at_level(logging.WARNING):
        worker = register_worker(url, reconnecting=Reconnecting(first=0.1, longest=10.0, jitter=0.0))
        await until(lambda: len(caplog.messages) == 2)
        await worker.shutdown()
    assert caplog.messages == [
        f"not connected to {url}: Connection refused; trying again in {pause} s" for pause in (0.1, 0.2)
    ]
