"""Workers come, offer functions, and go."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest
from websockets.asyncio.client import connect as dial
from websockets.exceptions import ConnectionClosed
from websockets.frames import CloseCode

from tests.protocol.conftest import asynchronous, until
from tests.workers.wire import at_work, hub_for_workers, rows, wired
from waypost.errors import InvocationFailed
from waypost.workers.calls import worker_caller

NOTHING = {
    "workers": 0,
    "functions": 0,
    "tools": 0,
    "kinds": 0,
    "bindings": 0,
    "channels": 0,
    "running": 0,
    "unanswered": 0,
}


@asynchronous
async def test_a_worker_gets_an_id_and_a_token_before_its_first_message() -> None:
    hub = hub_for_workers()
    async with at_work(hub), wired(hub) as one, wired(hub) as other:
        assert len(one.id) == 36
        assert one.id != other.id
        assert one.token
        assert one.token != other.token


@asynchronous
async def test_everything_of_a_worker_is_removed_when_it_disconnects() -> None:
    hub = hub_for_workers()
    async with at_work(hub):
        async with wired(hub) as worker:
            await worker.send("registertriggertype", id="tick", description="")
            await worker.send("registertrigger", id="b1", trigger_type="tick", function_id="a::b")
            await worker.send("registertrigger", id="b2", trigger_type="nobody's", function_id="a::b")
            await worker.offer("a::b", "a::c")
            assert rows(hub) == NOTHING | {"workers": 1, "functions": 2, "tools": 2, "kinds": 1, "bindings": 2}
        await until(lambda: rows(hub) == NOTHING)


@asynchronous
async def test_a_withdrawn_function_is_not_found() -> None:
    hub = hub_for_workers()
    async with at_work(hub) as client, wired(hub) as owner, wired(hub) as caller:
        await owner.offer("a::b", "a::c")
        await owner.send("unregisterfunction", id="a::b")
        await owner.settled()
        assert (await caller.error("a::b"))["code"] == "function_not_found"
        assert [tool["name"] for tool in await client.list_tools() if tool["name"].startswith("a__")] == ["a__c"]
        await owner.send("unregisterfunction", id="never::was")
        await owner.settled()


@asynchronous
async def test_a_function_that_another_worker_offers_is_refused_and_the_first_keeps_serving() -> None:
    hub = hub_for_workers()
    async with at_work(hub), wired(hub) as first, wired(hub) as second:
        await first.offer("a::b", name="first")
        await second.offer("a::b", "a::c", name="second")
        refusal = await second.next("registrationrejected")
        assert refusal == {
            "type": "registrationrejected",
            "code": "FUNCTION_NAMESPACE_CONFLICT",
            "namespace": "default",
            "owner_worker_id": first.id,
            "worker_name": "second",
            "function_id": "a::b",
        }
        asked = await second.ask("a::b", 1)
        await first.serve("a::b", "from the first")
        assert (await second.next("invocationresult", invocation_id=asked))["result"] == "from the first"
        own = await second.ask("a::c", 1)
        await second.serve("a::c", "from the second")
        assert (await second.next("invocationresult", invocation_id=own))["result"] == "from the second"


@asynchronous
async def test_a_function_of_the_hub_cannot_be_replaced() -> None:
    hub = hub_for_workers()
    async with at_work(hub), wired(hub) as worker:
        await worker.send("registerfunction", id="state::get")
        await worker.introduce("thief", namespace="elsewhere")
        refusal = await worker.next("registrationrejected")
        assert (refusal["function_id"], refusal["owner_worker_id"]) == ("state::get", "waypost")
        assert await worker.result("state::get", {"scope": "a", "key": "b"}) is None


@asynchronous
async def test_a_function_that_is_offered_again_is_the_newer_one() -> None:
    hub = hub_for_workers()
    async with at_work(hub) as client, wired(hub) as worker:
        await worker.offer("a::b", description="old")
        await worker.send("registerfunction", id="a::b", description="new")
        await worker.settled()
        received = {tool["name"]: tool.get("description") for tool in await client.list_tools()}
        assert received["a__b"] == "new"
        assert rows(hub)["functions"] == rows(hub)["tools"] == 1


@asynchronous
async def test_a_worker_that_comes_back_with_its_token_retires_its_old_connection() -> None:
    hub = hub_for_workers()
    async with at_work(hub), wired(hub) as old, wired(hub) as new, wired(hub) as caller:
        await old.offer("a::b", name="same")
        waiting = await caller.ask("a::b")
        await old.next("invokefunction")
        await new.send("reattach", previous_worker_id=old.id, reattach_token=old.token)
        await new.offer("a::b", name="same")
        assert (await caller.next("invocationresult", invocation_id=waiting))["error"]["code"] == "invocation_stopped"
        await old.socket.wait_closed()
        assert old.socket.close_code == 1000
        again = await caller.ask("a::b")
        await new.serve("a::b", "here again")
        assert (await caller.next("invocationresult", invocation_id=again))["result"] == "here again"
        assert not any(message["type"] == "registrationrejected" for message in new.seen)


@asynchronous
async def test_a_wrong_reattach_token_disconnects_no_worker() -> None:
    hub = hub_for_workers()
    async with at_work(hub), wired(hub) as old, wired(hub) as thief:
        await old.offer("a::b")
        for claim in (
            {"previous_worker_id": old.id, "reattach_token": "guessed"},
            {"previous_worker_id": old.id, "reattach_token": thief.token},
            {"previous_worker_id": old.id, "reattach_token": ""},
            {"previous_worker_id": old.id},
            {"previous_worker_id": "nobody", "reattach_token": old.token},
            {"previous_worker_id": thief.id, "reattach_token": thief.token},
        ):
            await thief.send("reattach", **claim)
        await thief.introduce("thief")
        await thief.settled()
        await old.settled()
        assert rows(hub)["workers"] == 2
        assert rows(hub)["functions"] == 1


@asynchronous
async def test_messages_of_a_replaced_connection_are_ignored() -> None:
    hub = hub_for_workers()
    async with at_work(hub), wired(hub) as new:
        await new.introduce("new")
        hub.workers.disconnect(hub.workers.connected[0])
        for message in (
            {"type": "registerfunction", "id": "a::b"},
            {"type": "registertrigger", "id": "b", "trigger_type": "t", "function_id": "f"},
            {"type": "registertriggertype", "id": "t", "description": ""},
            {"type": "invokefunction", "function_id": "state::get", "invocation_id": "i"},
        ):
            await new.send(**{"kind": message.pop("type"), **message})
        async with wired(hub) as other:
            await other.introduce("other")
            assert await other.result("engine::functions::list", {"prefix": "a::"}) == {"functions": []}
        assert {**rows(hub), "workers": 0} == NOTHING


@asynchronous
async def test_a_worker_that_introduces_itself_late_has_its_name_from_then_on() -> None:
    hub = hub_for_workers()
    async with at_work(hub), wired(hub) as worker:
        await worker.send("registerfunction", id="a::b")
        await until(lambda: rows(hub)["functions"] == 1, "nothing was taken without a name")
        await worker.introduce("late")
        (function,) = (await worker.result("engine::functions::list", {"prefix": "a::"}))["functions"]
        assert function["worker_name"] == "late"
        tool = hub.registry.find_tool("a__b")
        assert tool is not None
        assert tool.owner == "worker:late"
        await worker.introduce("late", namespace="elsewhere")
        (function,) = (await worker.result("engine::functions::list", {"prefix": "a::"}))["functions"]
        assert function["namespace"] == "elsewhere"
        assert rows(hub)["functions"] == rows(hub)["tools"] == 1


@asynchronous
async def test_an_introduction_with_invalid_data_is_accepted_with_defaults() -> None:
    hub = hub_for_workers()
    async with at_work(hub), wired(hub) as worker:
        nonsense: list[Any] = [None, 5, [], {"name": 5, "namespace": [], "features": 7}, {"name": " ", "namespace": ""}]
        for data in nonsense:
            await worker.send("invokefunction", function_id="engine::workers::register", invocation_id="x", data=data)
            assert (await worker.next("invocationresult", invocation_id="x"))["result"] == {"worker_id": worker.id}
        (known,) = hub.workers.connected
        assert (known.name, known.namespace) == (worker.id, "default")


@asynchronous
async def test_functions_of_one_namespace_are_not_found_from_another() -> None:
    hub = hub_for_workers()
    async with at_work(hub), wired(hub) as here, wired(hub) as there:
        for wire, namespace in ((here, "default"), (there, "blue")):
            await wire.send("registerfunction", id="a::b")
            await wire.introduce(namespace, namespace=namespace)
        assert rows(hub)["functions"] == rows(hub)["tools"] == 2
        asked = await here.ask("a::b", namespace="blue")
        await there.serve("a::b", "blue")
        assert (await here.next("invocationresult", invocation_id=asked))["result"] == "blue"
        asked = await there.ask("a::b")
        await here.serve("a::b", "default")
        assert (await there.next("invocationresult", invocation_id=asked))["result"] == "default"
        missing = await here.error("a::b", namespace="green")
        assert (missing["code"], missing["message"]) == (
            "function_not_found",
            "Function a::b not found in namespace green.",
        )
        assert (await here.error("a::b", namespace=" "))["code"] == "INVALID_NAMESPACE"
        assert await there.result("engine::workers::list", namespace="blue")


@asynchronous
async def test_triggers_fire_when_workers_and_functions_come_and_go() -> None:
    hub = hub_for_workers()
    async with at_work(hub), wired(hub) as watcher:
        await watcher.send(
            "registertrigger", id="w", trigger_type="engine::workers-available", function_id="see::workers"
        )
        await watcher.send(
            "registertrigger", id="f", trigger_type="engine::functions-available", function_id="see::functions"
        )
        await watcher.offer("see::workers", "see::functions", name="watcher")
        async with wired(hub) as other:
            await other.offer("a::b", name="other")
            while True:
                seen = (await watcher.next("invokefunction", function_id="see::functions"))["data"]
                if "a::b" in [function["function_id"] for function in seen["functions"]]:
                    break
        while True:
            received = (await watcher.next("invokefunction", function_id="see::workers"))["data"]
            if received["event"] == "worker_disconnected":
                break
        assert received == {"event": "worker_disconnected", "worker_id": other.id, "worker_name": "other"}


@asynchronous
async def test_a_worker_is_asked_to_connect_elsewhere_once_it_has_no_running_call() -> None:
    hub = hub_for_workers()
    async with at_work(hub), wired(hub) as idle, wired(hub) as busy, wired(hub) as calling:
        await busy.offer("a::b", name="busy")
        asked = await calling.ask("a::b")
        call = await busy.next("invokefunction", function_id="a::b")
        port = hub.workers.address
        hub.workers.stop_listening()
        assert hub.workers.address is None
        assert port is not None

        hub.workers.release_idle()
        with pytest.raises(ConnectionClosed) as closed:
            await idle.next("anything")
        assert closed.value.rcvd is not None
        assert closed.value.rcvd.code == CloseCode.SERVICE_RESTART
        with pytest.raises(OSError, match="Connect call failed"):
            await dial(port)

        await busy.answer(call, "done")
        assert (await calling.next("invocationresult", invocation_id=asked))["result"] == "done"
        await until(lambda: not hub.workers.release_idle())


@asynchronous
async def test_an_answer_that_the_hub_cannot_read_is_a_failure_of_the_function() -> None:
    hub = hub_for_workers()
    async with at_work(hub), wired(hub) as owner:
        await owner.offer("a::b")
        answering = asyncio.create_task(hub.workers.trigger("a::b", {}, worker_caller("hub"), 30.0))
        call = await owner.next("invokefunction")
        fields = f'"invocation_id":"{call["invocation_id"]}","function_id":"a::b","result":[1e999]'
        await owner.raw(f'{{"type":"invocationresult",{fields}}}')
        with pytest.raises(InvocationFailed, match="The answer of a::b cannot be read: "):
            await answering
