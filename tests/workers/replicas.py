"""Two hubs on one PostgreSQL that workers connect to, with the bus of the store and with NATS."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable, Coroutine
from contextlib import AsyncExitStack, asynccontextmanager
from typing import Any, Final

import pytest

from tests.workers.wire import at_work
from waypost import Hub
from waypost.runtime import runtime
from waypost.settings import Bus, Settings, WorkerLimits, Workers
from waypost.testing import TestClient

DEADLINE: Final = 120.0


class Side:
    """One of the hubs, and a client of it."""

    def __init__(self, hub: Hub, client: TestClient) -> None:
        self.hub = hub
        self.client = client

    async def offers(self, *functions: str) -> None:
        """Wait until exactly these functions of workers are offered, at this or another replica."""
        await until(lambda: {one.id for one in self.hub.workers.functions if one.owner is not None} == set(functions))


@pytest.fixture(params=["postgres", "nats"])
def settings(request: pytest.FixtureRequest) -> Settings:
    """With the bus of the store, and with NATS; two connections of a worker are two sockets."""
    bus = Bus() if request.param == "postgres" else Bus(url=request.getfixturevalue("nats_url"))
    return Settings(bus=bus, workers=Workers(port=0, limits=WorkerLimits()))


@asynccontextmanager
async def replicas(
    store: str, settings: Settings, number: int = 2, sweep_s: float = 3600.0, **options: Any
) -> AsyncIterator[list[Side]]:
    """Hubs that are stopped at the end; unless they sweep, one learns of changes at another by messages only."""
    async with AsyncExitStack() as stack:
        patch = stack.enter_context(pytest.MonkeyPatch.context())
        patch.setattr(runtime, "REFRESH_INTERVAL_S", sweep_s)
        sides = []
        for _ in range(number):
            hub = Hub("replica", version="1", store=store, settings=settings, **options)
            sides.append(Side(hub, await stack.enter_async_context(at_work(hub))))
        yield sides


async def until(holds: Callable[[], bool]) -> None:
    """Poll until a condition holds that no event announces."""
    while not holds():  # noqa: ASYNC110
        await asyncio.sleep(0.005)


def run(scenario: Coroutine[Any, Any, None]) -> None:
    """Run under a deadline."""
    asyncio.run(asyncio.wait_for(scenario, DEADLINE))
