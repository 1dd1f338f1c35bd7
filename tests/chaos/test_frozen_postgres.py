"""A PostgreSQL server that is connected and answers nothing: what is in memory goes on, the rest is refused in time."""

from __future__ import annotations

import asyncio
import json
import time
from pathlib import Path
from typing import Any, Final

import aiohttp
import pytest

from tests.chaos.freezing_proxy import freezing_proxy
from tests.chaos.test_hub_killed import DEADLINE, desk_in
from tests.chaos.visitor import Refused, Visitor, eventually, visiting
from tests.contract.conftest import asynchronous, opened
from waypost.errors import StoreUnavailable
from waypost.stores.postgres import PostgresDatabase
from waypost.stores.store import Store

TIMEOUT_S: Final = 5.0
SLACK_S: Final = 10.0
"""Room for a loaded machine; before, such calls took 36 s."""


async def health(url: str) -> str:
    """The store's status in `/health`."""
    async with aiohttp.request("GET", url.replace("/mcp", "/health")) as response:
        found: dict[str, Any] = await response.json()
        return str(found["db"])


async def recall(visitor: Visitor, url: str) -> tuple[dict[str, Any], float]:
    """The values of the session, and the seconds that the call took which returned them.

    On a slow machine the lease of slots ends before the hub is cut off from the store for long enough to do without
    one; in between, calls are refused as busy.
    """
    while True:
        began = time.monotonic()
        text = await visitor.call(url, "recall")
        if not text.startswith("Busy: the store cannot be reached"):
            return json.loads(text), time.monotonic() - began
        await asyncio.sleep(0.5)


async def refusal(visitor: Visitor, url: str) -> Refused:
    """How a call that needs the store is refused."""
    began = time.monotonic()
    with pytest.raises(Refused) as refused:
        await visitor.start_task(url, "quick", text="x")
    assert time.monotonic() - began < TIMEOUT_S + SLACK_S
    return refused.value


def test_sessions_go_on_while_postgres_is_frozen_and_the_store_is_used_again_when_it_thaws(
    tmp_path: Path, postgres_url: str
) -> None:
    async def scenario() -> None:
        async with freezing_proxy(postgres_url) as (proxy, url), visiting() as visitor:
            desk = desk_in(tmp_path / "data", DESK_STORE=url)
            hub = await asyncio.to_thread(desk.__enter__)  # it starts through the proxy, which runs here
            try:
                await visitor.initialize(hub.url)
                await visitor.call(hub.url, "remember", key="one", value="before")
                proxy.freeze()
                assert (await recall(visitor, hub.url))[0] == {"one": "before"}  # which finds out
                seconds = 0.0
                for _ in range(20):
                    values, took = await recall(visitor, hub.url)
                    assert values == {"one": "before"}
                    seconds += took
                assert seconds < SLACK_S
                first, second = await asyncio.gather(refusal(visitor, hub.url), refusal(visitor, hub.url))
                for refused in (first, second):
                    assert "did not answer within 5 s" in refused.error["message"]
                    assert refused.error["message"].endswith("ry again later.")
                assert await health(hub.url) == "unavailable"
                proxy.thaw()

                async def is_ok() -> bool | None:
                    return await health(hub.url) == "ok" or None

                await eventually(is_ok, "the store is not used again")
                done = await visitor.start_task(hub.url, "quick", text="after")
                assert (await visitor.task_is(hub.url, done, "completed"))["result"]["content"][0]["text"] == "after"
                await visitor.call(hub.url, "remember", key="one", value="after")
                assert await visitor.recall(hub.url) == {"one": "after"}
            finally:
                await asyncio.to_thread(desk.__exit__, None, None, None)

    asyncio.run(asyncio.wait_for(scenario(), 2 * DEADLINE))


@asynchronous
async def test_a_read_that_is_given_up_frees_its_connection_at_once(postgres_url: str) -> None:
    async with freezing_proxy(postgres_url) as (proxy, url), opened(Store(PostgresDatabase(url, timeout=3.0))) as store:
        await store.skills.put("a", 1)
        assert await store.skills.get("a") is not None
        proxy.freeze()
        for _ in range(12):  # more than there are connections
            with pytest.raises(TimeoutError):
                await asyncio.wait_for(store.skills.get("a"), 0.05)
        with pytest.raises(StoreUnavailable, match=r"did not answer within 3 s.* Try again later\.$"):
            await store.skills.get("a")
        proxy.thaw()
        found = await store.skills.get("a")
        assert found is not None
        assert found.value == 1


@asynchronous
async def test_writes_behind_one_that_is_not_answered_do_not_wait_for_their_own_timeout_too(postgres_url: str) -> None:
    async with freezing_proxy(postgres_url) as (proxy, url), opened(Store(PostgresDatabase(url, timeout=5.0))) as store:
        await store.skills.put("a", 1)
        proxy.freeze()
        loop = asyncio.get_running_loop()
        began = loop.time()
        first = asyncio.ensure_future(store.skills.put("b", 1))
        await asyncio.sleep(0.5)
        second = asyncio.ensure_future(store.skills.put("c", 1))
        with pytest.raises(StoreUnavailable, match="whether the change was written is unknown"):
            await first
        with pytest.raises(StoreUnavailable, match="did not answer within 5 s; nothing was written"):
            await second
        assert loop.time() - began < 9.5  # twice the timeout is 10 s
        assert not store.database.is_responding
        proxy.thaw()
        async with asyncio.timeout(DEADLINE):
            while not store.database.is_responding:  # noqa: ASYNC110
                await asyncio.sleep(0.01)
        await store.skills.put("d", 1)
