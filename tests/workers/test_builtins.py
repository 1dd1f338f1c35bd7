"""The built-in functions by which workers query each other and the hub."""

from __future__ import annotations

from typing import Any

import pytest

from tests.protocol.conftest import asynchronous
from tests.workers.wire import Wire, at_work, hub_for_workers, wired


async def functions(wire: Wire, **asked: Any) -> list[str]:
    """The ids of the functions that are listed."""
    return [one["function_id"] for one in (await wire.result("engine::functions::list", asked))["functions"]]


@asynchronous
async def test_functions_are_listed_as_they_were_offered() -> None:
    hub = hub_for_workers()
    async with at_work(hub), wired(hub) as worker:
        offered = {
            "description": "Adds",
            "request_format": {"type": "object"},
            "response_format": {"type": "number"},
            "metadata": {"team": "math"},
        }
        await worker.offer("math::add", name="calculator", **offered)
        (listed,) = (await worker.result("engine::functions::list", {"prefix": "math::"}))["functions"]
        assert listed == {**offered, "function_id": "math::add", "namespace": "default", "worker_name": "calculator"}


@asynchronous
async def test_lists_hide_plumbing_and_can_be_narrowed() -> None:
    hub = hub_for_workers()
    async with at_work(hub), wired(hub) as one, wired(hub) as two:
        await one.offer("a::x", "a::y", name="one", description="The First")
        await two.send("registerfunction", id="b::inside", metadata={"internal": True})
        await two.offer("b::x", name="two")
        mine = [name for name in await functions(one) if name.startswith(("a::", "b::"))]
        assert mine == ["a::x", "a::y", "b::x"]
        assert not any(name.startswith("engine::") for name in await functions(one))
        assert await functions(one, prefix="a::") == ["a::x", "a::y"]
        assert await functions(one, search="FIRST") == ["a::x", "a::y"]
        assert await functions(one, worker="two") == ["b::x"]
        assert await functions(one, workers=["one", "two"]) == ["a::x", "a::y", "b::x"]
        assert await functions(one, workers=["two"], include_internal=True) == ["b::inside", "b::x"]
        assert await functions(one, namespace="nowhere") == []
        assert "engine::functions::list" in await functions(one, include_internal=True)


@asynchronous
async def test_functions_are_listed_without_filters_and_invalid_filters_are_errors() -> None:
    hub = hub_for_workers()
    async with at_work(hub), wired(hub) as worker:
        nothing: list[Any] = [None, [], "x", {"prefix": None, "search": None, "workers": None}]
        for asked in nothing:
            assert "functions" in await worker.result("engine::functions::list", asked)
        nonsense: list[Any] = [{"prefix": 5}, {"search": [1]}, {"workers": 7}]
        for asked in nonsense:
            assert (await worker.error("engine::functions::list", asked))["code"] == "invocation_failed"


@asynchronous
async def test_workers_are_listed_with_the_data_of_their_introduction() -> None:
    hub = hub_for_workers()
    async with at_work(hub), wired(hub) as worker:
        await worker.send("registerfunction", id="a::b")
        await worker.introduce("mine", runtime="python", version="1", pid=7, features=["observe.v1"])
        (listed,) = (await worker.result("engine::workers::list", {}))["workers"]
        received = {"runtime": "python", "version": "1", "pid": 7, "id": worker.id, "name": "mine", "function_count": 1}
        assert received.items() <= listed.items()
        for sought in ({"worker_id": worker.id}, {"name": "mine"}):
            info = await worker.result("engine::workers::info", sought)
            assert info["worker"]["id"] == worker.id
            assert [one["function_id"] for one in info["functions"]] == ["a::b"]
        assert (await worker.error("engine::workers::info", {"name": "x"}))["code"] == "worker_not_found"


@asynchronous
async def test_bindings_are_made_listed_and_forgotten_by_calls_too() -> None:
    hub = hub_for_workers()
    async with at_work(hub), wired(hub) as worker, wired(hub) as other:
        await worker.introduce("mine")
        asked = {"trigger_type": "state", "function_id": "a::b", "config": {"scope": "s"}}
        made = (await worker.result("engine::register_trigger", asked))["id"]
        (listed,) = (await worker.result("engine::registered-triggers::list"))["registered_triggers"]
        assert (listed["id"], listed["state"], listed["config"]) == (made, "active", {"scope": "s"})
        assert (await worker.result("engine::registered-triggers::info", {"id": made}))["worker_name"] == "mine"
        kinds = {kind["id"]: kind for kind in (await worker.result("engine::triggers::list"))["triggers"]}
        assert kinds["state"]["worker_name"] == "waypost"
        assert (await worker.result("engine::triggers::info", {"id": "state"}))["id"] == "state"
        waiting = await worker.result("engine::register_trigger", {**asked, "trigger_type": "nobody's"})
        info = await worker.result("engine::registered-triggers::info", waiting)
        assert info["state"] == "pending"
        assert await other.result("engine::unregister_trigger", {"id": made}) == {"removed": False}
        assert await worker.result("engine::unregister_trigger", {"id": made}) == {"removed": True}
        assert (await worker.error("engine::registered-triggers::info", {"id": made}))["code"] == "trigger_not_found"


@pytest.mark.parametrize(
    ("function", "payload"),
    [
        ("engine::functions::info", {}),
        ("engine::functions::info", {"function_id": "no::such"}),
        ("engine::workers::info", []),
        ("engine::triggers::info", {"id": "none"}),
        ("engine::registered-triggers::info", None),
        ("engine::register_trigger", {"function_id": 5}),
        ("engine::register_trigger", "x"),
        ("engine::unregister_trigger", {}),
    ],
)
def test_an_invalid_call_is_an_error_with_a_message(function: str, payload: Any) -> None:
    @asynchronous
    async def scenario() -> None:
        hub = hub_for_workers()
        async with at_work(hub), wired(hub) as worker:
            error = await worker.error(function, payload)
            assert error["code"] in ("invocation_failed", "function_not_found", "trigger_type_not_found")
            assert error["message"]

    scenario()


@asynchronous
async def test_the_description_of_a_function_includes_its_bindings() -> None:
    hub = hub_for_workers()
    async with at_work(hub), wired(hub) as worker:
        await worker.send("registertrigger", id="t", trigger_type="state", function_id="a::b", config={})
        await worker.offer("a::b")
        info = await worker.result("engine::functions::info", {"function_id": "a::b"})
        assert [bound["id"] for bound in info["registered_triggers"]] == ["t"]


@asynchronous
async def test_lists_can_be_made_however_deep_the_messages_of_workers_are_nested() -> None:
    hub = hub_for_workers()
    async with at_work(hub), wired(hub) as worker, wired(hub) as other:
        await other.introduce("other")
        for depth in range(900, 1000):
            deep = "[" * depth + "]" * depth
            binding = f'"id":"b{depth}","trigger_type":"none","function_id":"a::b","config":{deep}'
            await other.raw(f'{{"type":"registertrigger",{binding}}}')
            await other.raw(f'{{"type":"registerfunction","id":"f{depth}","request_format":{deep}}}')
            await other.settled()
        await other.offer("a::b", name="other")
        assert "a::b" in await functions(worker)
        assert (await worker.result("engine::functions::info", {"function_id": "a::b"}))["worker_name"] == "other"
        assert "registered_triggers" in await worker.result("engine::registered-triggers::list")
