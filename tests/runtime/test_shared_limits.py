"""Limits of all replicas together on a real PostgreSQL: never more than the limit, and all of it at one replica."""

from __future__ import annotations

import asyncio
import random
import time
from collections.abc import AsyncIterator, Coroutine
from contextlib import AsyncExitStack, asynccontextmanager
from contextvars import ContextVar
from typing import Any, Final

import pytest

from tests.chaos.freezing_proxy import freezing_proxy
from tests.nats import nats_url as nats_url
from tests.postgres import postgres_server as postgres_server
from tests.postgres import postgres_url as postgres_url
from tests.postgres import run_sql
from waypost import Hub
from waypost.capabilities.context import DetachedCaller
from waypost.capabilities.principals import FROM_OUTSIDE, Principal
from waypost.errors import PolicyDenied
from waypost.execution import budgets, limits
from waypost.policy.rules import Rule
from waypost.runtime.core import Launch
from waypost.settings import Bus, Server, Settings, Store

DEADLINE: Final = 120.0


def run(scenario: Coroutine[Any, Any, None]) -> None:
    """Run under a deadline."""
    asyncio.run(asyncio.wait_for(scenario, DEADLINE))


@pytest.fixture(params=["postgres", "nats"])
def bus(request: pytest.FixtureRequest) -> Bus:
    """The bus of the store, and NATS."""
    return Bus() if request.param == "postgres" else Bus(url=request.getfixturevalue("nats_url"))


class Desk:
    """Replicas with one tool, and when it was called."""

    def __init__(self) -> None:
        self.hubs: list[Hub] = []
        self.calls: list[tuple[float, float]] = []
        """Of each admitted call, a time before it was admitted and one after it."""
        self.asked: ContextVar[float] = ContextVar("asked")
        self.running = 0
        self.most_running = 0
        self.go_on = asyncio.Event()
        self.go_on.set()

    async def work(self) -> str:
        """Record the call, and wait if the test requires it."""
        self.calls.append((self.asked.get(), time.monotonic()))
        self.running += 1
        self.most_running = max(self.most_running, self.running)
        try:
            await self.go_on.wait()
            await asyncio.sleep(0)
        finally:
            self.running -= 1
        return "done"

    async def call(self, replica: int, principal: str = "ada") -> bool:
        """Whether the call of a principal at a replica was admitted."""
        caller = DetachedCaller(Principal(principal), FROM_OUTSIDE)
        self.asked.set(time.monotonic())
        try:
            result = await self.hubs[replica].runtime.core.pipeline.call("work", {}, caller)
        except PolicyDenied as error:
            assert "rate limit" in error.message
            return False
        assert not result.is_error, result
        return True

    async def decide(self, replica: int) -> None:
        """Note the time of a call that the policy of a replica admits: that it begins may take longer."""
        core = self.hubs[replica].runtime.core
        caller = DetachedCaller(Principal("ada"), FROM_OUTSIDE)
        guard, work = core.guard, core.registry.tool("work")
        asked = time.monotonic()
        decision = guard.decide(work, "work", caller)
        if (await guard.wait_to_decide(decision, work, "work", caller)).allowed:
            self.calls.append((asked, time.monotonic()))

    async def forget(self, replica: int) -> None:
        """Stop a replica."""
        await self.hubs[replica].stop()

    def most_within(self, window: float) -> int:
        """The largest number of calls that were certainly admitted within one window, even if noted late."""
        return max(
            (sum(start <= asked and done < start + window for asked, done in self.calls) for start, _ in self.calls),
            default=0,
        )


@asynccontextmanager
async def replicas(
    store: str,
    number: int,
    *,
    bus: Bus | None = None,
    rules: tuple[Rule, ...] = (),
    max_running: int = 64,
    timeout_ms: int = 30_000,
) -> AsyncIterator[Desk]:
    """Several hubs on one store that know each other; they have to start within its timeout."""
    desk = Desk()
    settings = Settings(bus=bus or Bus(), server=Server(max_running=max_running), store=Store(timeout_ms=timeout_ms))
    async with AsyncExitStack() as stack:
        for _ in range(number):
            hub = Hub("desk", version="1", store=store, settings=settings, policies=list(rules))
            hub.tool(desk.work)
            hub.launch(Launch())
            await hub.start()
            stack.push_async_callback(hub.stop)
            desk.hubs.append(hub)
        for hub in desk.hubs:
            await hub.runtime.replicas.refresh()
            assert len(hub.runtime.replicas.others) == number - 1
        yield desk


def at_most(calls: int, seconds: float, **more: Any) -> Rule:
    """A rate limit."""
    return Rule(
        name=f"{calls} calls", type="rate_limit", config={"max_calls": calls, "window_seconds": seconds, **more}
    )


@pytest.mark.parametrize(("seed", "limit", "window", "skew"), [(0, 1, 0.3, 0), (1, 23, 0.7, 0), (2, 5, 0.5, 60)])
def test_replicas_with_random_traffic_never_admit_more_than_the_limit(
    postgres_url: str, seed: int, limit: int, window: float, skew: float, monkeypatch: pytest.MonkeyPatch
) -> None:
    chance, clock = random.Random(seed), time.time
    monkeypatch.setattr(time, "time", lambda: clock() + chance.choice([-skew, 0, skew]))  # no two clocks agree

    async def client(desk: Desk) -> None:
        """Ends only if leases are not used up, and calls of earlier windows no longer count."""
        until = time.monotonic() + 2.5
        while time.monotonic() < until or len(desk.calls) <= limit:
            await desk.decide(chance.randrange(3))
            await asyncio.sleep(chance.random() * 0.05)

    async def scenario() -> None:
        async with replicas(postgres_url, 3, rules=(at_most(limit, window),)) as desk:
            await asyncio.gather(*(client(desk) for _ in range(8)))
            assert desk.most_within(window) <= limit

    run(scenario())


def test_one_replica_may_use_all_of_a_limit_that_others_have_leased(postgres_url: str, bus: Bus) -> None:
    async def scenario() -> None:
        async with replicas(postgres_url, 3, bus=bus, rules=(at_most(10, 60),)) as desk:
            assert await desk.call(1)
            assert await desk.call(2)
            assert [await desk.call(0) for _ in range(10)] == [True] * 8 + [False] * 2
            assert not await desk.call(1)

    run(scenario())


def test_the_calls_of_a_replica_that_stopped_count_on_and_the_rest_is_returned(postgres_url: str) -> None:
    async def scenario() -> None:
        async with replicas(postgres_url, 2, rules=(at_most(6, 60),)) as desk:
            assert await desk.call(0)
            assert await desk.call(0)
            await desk.forget(0)
            assert [await desk.call(1) for _ in range(6)] == [True] * 4 + [False] * 2

    run(scenario())


def test_a_lease_of_a_dead_replica_expires_by_the_clock_of_the_database(
    postgres_url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(budgets, "LEASE_S", 0.5)
    monkeypatch.setattr(budgets, "GRACE_S", 0.1)

    async def scenario() -> None:
        async with replicas(postgres_url, 2, rules=(at_most(2, 0.4),)) as desk:
            began = time.monotonic()  # before the lease begins
            assert await desk.call(0)
            dead = desk.hubs[0].runtime.core.budgets
            assert dead is not None
            assert dead._rounds is not None
            dead._rounds.cancel()
            dead._leases.clear()  # it answers no question, as a dead process does
            desk.hubs[1].runtime.core.budgets.others = ()  # type: ignore[union-attr]
            assert await desk.call(1)
            while not (await desk.call(1) and await desk.call(1)):  # noqa: ASYNC110
                await asyncio.sleep(0.45)
            assert time.monotonic() - began > 0.9
            assert desk.most_within(0.4) <= 2

    run(scenario())


def test_a_lease_that_was_not_renewed_in_time_admits_nothing(
    postgres_url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(budgets, "LEASE_S", 6.0)

    async def scenario() -> None:
        async with (
            freezing_proxy(postgres_url) as (proxy, url),
            replicas(url, 1, rules=(at_most(5, 60),), timeout_ms=3000) as desk,
        ):
            assert await desk.call(0)
            proxy.freeze()
            assert await desk.call(0)  # what is leased is used
            await asyncio.sleep(6.1)
            caller = DetachedCaller(Principal("ada"), FROM_OUTSIDE)
            pipeline = desk.hubs[0].runtime.core.pipeline
            for _ in range(2):
                with pytest.raises(PolicyDenied) as denied:
                    await pipeline.call("work", {}, caller)
                assert denied.value.message == (
                    "rate limit 5/60s: the store cannot be reached, and this replica has used its part; "
                    "try again later."
                )
            proxy.thaw()
            while not await desk.call(0):  # noqa: ASYNC110
                await asyncio.sleep(0.05)
            assert len(desk.calls) == 3

    run(scenario())


def test_a_call_that_waits_for_one_limit_is_not_counted_twice_by_another(postgres_url: str) -> None:
    first = Rule(name="all", type="rate_limit", config={"max_calls": 3, "window_seconds": 60, "per": []}, priority=5)

    async def scenario() -> None:
        async with replicas(postgres_url, 1, rules=(first, at_most(100, 60))) as desk:
            assert [await desk.call(0, name) for name in ("ada", "bob", "eve", "joe")] == [True, True, True, False]

    run(scenario())


def test_one_lease_serves_many_calls_without_the_database(postgres_url: str) -> None:
    async def scenario() -> None:
        async with replicas(postgres_url, 1, rules=(at_most(1000, 60),)) as desk:
            assert await desk.call(0)
            before = run_sql(postgres_url, "SELECT sum(version) FROM budgets")[0][0]
            assert all([await desk.call(0) for _ in range(200)])
            assert run_sql(postgres_url, "SELECT sum(version) FROM budgets")[0][0] == before

    run(scenario())


@pytest.mark.parametrize(("max_running", "number"), [(1, 2), (4, 3)])
def test_a_principal_has_its_slots_at_all_replicas_together(postgres_url: str, max_running: int, number: int) -> None:
    async def scenario() -> None:
        async with replicas(postgres_url, number, max_running=max_running) as desk:
            calls = [desk.call(one % number) for one in range(60)]
            assert all(await asyncio.gather(*calls))
            assert desk.most_running <= max_running

    run(scenario())


def test_one_replica_may_use_all_slots_and_another_gets_one_that_is_released(postgres_url: str, bus: Bus) -> None:
    async def scenario() -> None:
        async with replicas(postgres_url, 2, bus=bus, max_running=4) as desk:
            assert await desk.call(1)
            desk.go_on.clear()
            here = [asyncio.ensure_future(desk.call(0)) for _ in range(4)]
            while desk.running < 4:  # noqa: ASYNC110
                await asyncio.sleep(0.01)
            there = asyncio.ensure_future(desk.call(1))
            other = asyncio.ensure_future(desk.call(1, "bob"))
            while desk.running < 5:  # noqa: ASYNC110  # slots are those of a principal
                await asyncio.sleep(0.01)
            await asyncio.sleep(2 * budgets.RETRY_S)
            assert desk.running == 5
            desk.go_on.set()
            assert all(await asyncio.gather(*here, there, other))

    run(scenario())


def test_without_the_store_slots_are_those_leased_then_refused_then_an_equal_share(
    postgres_url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(budgets, "LEASE_S", 6.0)

    async def scenario() -> None:
        async with (
            freezing_proxy(postgres_url) as (proxy, url),
            replicas(url, 1, max_running=4, timeout_ms=3000) as desk,
        ):
            assert await desk.call(0)
            proxy.freeze()
            assert await desk.call(0)
            caller = DetachedCaller(Principal("bob"), FROM_OUTSIDE)
            pipeline = desk.hubs[0].runtime.core.pipeline
            refused = await pipeline.call("work", {}, caller)
            assert refused.is_error
            assert "this replica has no slots leased; try again later." in str(refused.content)
            shared = desk.hubs[0].runtime.core.budgets
            assert shared is not None
            while not shared.is_cut_off:  # noqa: ASYNC110
                await asyncio.sleep(0.05)
            assert await desk.call(0)
            assert await desk.call(0, "bob")
            proxy.thaw()

    run(scenario())


def test_a_hub_with_a_store_of_its_own_leases_nothing() -> None:
    hub = Hub("desk", version="1", policies=[at_most(5, 60)])
    core = hub.launch(Launch()).core
    assert core.budgets is None
    assert type(core.pipeline.slots) is limits.Bulkheads
