"""Behaviour of only the Node SDK of the iii project."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.interop.iii_peers import peer
from tests.protocol.conftest import asynchronous, until
from tests.workers.wire import address, at_work, hub_for_workers, rows

pytestmark = pytest.mark.timeout(300)


def test_a_function_that_returns_nothing_answers_null(tmp_path: Path) -> None:
    @asynchronous
    async def scenario() -> None:
        hub = hub_for_workers()
        async with at_work(hub) as client, peer("node", address(hub), tmp_path) as worker:
            await worker.offer("peer::nothing", "nothing")
            assert await worker.call_until_found("peer::nothing") is None
            assert not (await client.call_tool("peer__nothing")).is_error

    scenario()


def test_a_second_owner_of_a_function_stays_connected_without_an_error(tmp_path: Path) -> None:
    @asynchronous
    async def scenario() -> None:
        hub = hub_for_workers()
        async with (
            at_work(hub),
            peer("node", address(hub), tmp_path, {"workerName": "first"}) as first,
            peer("node", address(hub), tmp_path, {"workerName": "second"}) as second,
        ):
            await first.offer("peer::echo")
            await until(lambda: rows(hub)["functions"] == 1)
            await second.offer("peer::echo")
            await second.call("peer::echo", "whose?")
            await first.wait_for_event("called", data="whose?")
            await second.offer("peer::other")
            await first.call_until_found("peer::other", "still there")
            await second.wait_for_event("called", data="still there")
            assert await second.logged_errors() == []

    scenario()


def test_a_token_in_the_headers_is_accepted(tmp_path: Path) -> None:
    @asynchronous
    async def scenario() -> None:
        hub = hub_for_workers(workers={"port": 0, "token": "s3cret"})
        async with at_work(hub):
            options = {"headers": {"Authorization": "Bearer s3cret"}, "otel": {"enabled": False}}
            async with peer("node", address(hub), tmp_path, options) as worker:
                await worker.offer("peer::read", "read")
                await until(lambda: rows(hub)["functions"] == 1)
                assert await worker.send_command("stream", size=100_000) == {"bytes": 100_000}

    scenario()
