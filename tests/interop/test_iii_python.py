"""Behaviour of only the Python SDK of the iii project."""

from __future__ import annotations

from contextlib import AsyncExitStack
from pathlib import Path

import pytest

from tests.interop.iii_peers import Failed, peer
from tests.protocol.conftest import asynchronous, until
from tests.workers.wire import address, at_work, hub_for_workers, rows
from waypost.workers.sockets import Refusal

pytestmark = pytest.mark.timeout(300)


def test_a_second_owner_of_a_function_gets_an_error_and_serves_its_other_functions(tmp_path: Path) -> None:
    @asynchronous
    async def scenario() -> None:
        hub = hub_for_workers()
        async with (
            at_work(hub),
            peer("python", address(hub), tmp_path, {"worker_name": "first"}) as first,
            peer("python", address(hub), tmp_path, {"worker_name": "second"}) as second,
        ):
            await first.offer("peer::echo")
            await until(lambda: rows(hub)["functions"] == 1)
            await second.offer("peer::echo")
            await second.offer("peer::other")
            logs = await second.send_command("wait_for_log", text="FUNCTION_NAMESPACE_CONFLICT")
            assert any("'peer::echo' already owned" in line for line in logs)
            await second.call("peer::echo", "whose?")
            await first.wait_for_event("called", data="whose?")
            await first.call_until_found("peer::other", "still there")
            await second.wait_for_event("called", data="still there")

    scenario()


@pytest.mark.parametrize("can", [True, False])
def test_a_worker_can_observe_only_if_the_hub_supports_it(can: bool, tmp_path: Path) -> None:
    @asynchronous
    async def scenario() -> None:
        hub = hub_for_workers(workers={"port": 0, "observe": can})
        async with at_work(hub), peer("python", address(hub), tmp_path) as worker:
            await worker.offer("peer::echo")
            await worker.offer("peer::seen")
            await worker.call_until_found("peer::seen")
            assert await worker.send_command("observe") == {"code": None if can else "UNSUPPORTED"}

    scenario()


def test_a_worker_in_a_namespace_calls_its_own_and_the_hubs_functions(tmp_path: Path) -> None:
    @asynchronous
    async def scenario() -> None:
        hub = hub_for_workers()
        async with (
            at_work(hub),
            peer("python", address(hub), tmp_path, {"worker_name": "blue", "namespace": "blue"}) as blue,
            peer("python", address(hub), tmp_path, {"worker_name": "plain"}) as plain,
        ):
            await blue.offer("peer::echo")
            assert (await blue.call_until_found("peer::echo", 1))["echo"] == 1
            for worker in (blue, plain):
                await worker.call("engine::workers::list", {})
                await worker.call("state::set", {"scope": "s", "key": "k", "value": 1})
            with pytest.raises(Failed, match="function_not_found"):
                await plain.call("peer::echo", 1)
            assert (await plain.call("peer::echo", 1, namespace="blue"))["echo"] == 1
            listed = (await plain.call("engine::functions::list", {"prefix": "peer::"}))["functions"]
            assert [(one["namespace"], one["worker_name"]) for one in listed] == [("blue", "blue")]

    scenario()


def test_nan_and_lone_surrogates_of_python_are_replaced(tmp_path: Path) -> None:
    @asynchronous
    async def scenario() -> None:
        hub = hub_for_workers()
        async with at_work(hub) as client, peer("python", address(hub), tmp_path) as worker:
            await worker.offer("peer::odd", "nan")
            assert await worker.call_until_found("peer::odd") == [None, "?"]
            assert (await client.call_tool("peer__odd"))["structuredContent"] == {"result": [None, "?"]}

    scenario()


def test_a_worker_without_the_token_is_refused_and_connects_once_it_is_accepted(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    refusals: list[int] = []

    class Counted(Refusal):
        def __init__(self, status: int, message: str) -> None:
            super().__init__(status, message)
            refusals.append(status)

    monkeypatch.setattr("waypost.workers.sockets.Refusal", Counted)

    @asynchronous
    async def scenario() -> None:
        closed = hub_for_workers(workers={"port": 0, "token": "s3cret"})
        async with AsyncExitStack() as stack:
            async with at_work(closed):
                port = int(address(closed).rpartition(":")[2])
                worker = await stack.enter_async_context(peer("python", address(closed), tmp_path, is_accepted=False))
                await until(lambda: refusals and set(refusals) == {401}, "nobody was refused")
                assert rows(closed)["workers"] == 0
            opened = hub_for_workers(workers={"port": port})
            async with at_work(opened):
                await worker.wait_for_event("ready")
                await worker.offer("peer::echo")
                await worker.call_until_found("peer::echo", 1)

    scenario()
