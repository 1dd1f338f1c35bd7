"""Workers on the `iii-sdk` of PyPI that observe each other."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from typing import Any

import iii
import pytest

from tests.protocol.conftest import until
from tests.worker.sdk import Sdk, sdk
from tests.workers.wire import Json, address, at_work, hub_for_workers
from waypost import Hub
from waypost.testing import TestClient


class Party:
    """A hub, a client of it, and workers with functions and observers."""

    def __init__(self, hub: Hub, client: TestClient, owner: Sdk, observer: Sdk) -> None:
        self.hub = hub
        self.client = client
        self.owner = owner
        self.observer = observer
        self.seen: list[Any] = []
        """What the observer's function was called with."""
        self.beside: list[Any] = []
        """What came along with it."""

    async def listen(self, function_id: str = "seer::see") -> None:
        """Register a function of the observer that records its calls."""

        async def see(data: Any, metadata: Any = None) -> str:
            self.seen.append(data)
            self.beside.append((metadata, self.observer.worker.current_invocation()))
            return "seen"

        await self.observer.offer(function_id, see)

    async def observe(self, source: Json | str, target: str = "seer::see", **options: Any) -> Any:
        """An observer that is active."""
        handle = self.start(source, target, **options)
        await asyncio.wait_for(handle.ready_async(), 60)
        return handle

    def start(self, source: Json | str, target: str = "seer::see", **options: Any) -> Any:
        """Start an observer without waiting for its state."""
        given = {"function_id": source} if isinstance(source, str) else source
        return self.observer.worker.observe(given, target, options)

    async def refusal(self, source: Json | str, **options: Any) -> str:
        """The error code of a refused observer."""
        with pytest.raises(iii.ObserveRejection) as caught:
            await self.observe(source, **options)
        code: str = caught.value.code
        return code

    async def until_seen(self, count: int) -> list[Any]:
        """Wait for a number of events and return them."""
        await until(lambda: len(self.seen) >= count, f"only {self.seen} was seen")
        return self.seen

    async def until_active(self, count: int) -> None:
        """Wait until the hub has this number of active observers."""

        def states() -> list[str]:
            return [one.state for one in self.hub.workers.observers]

        await until(lambda: states() == ["active"] * count, f"they are {states()}")

    async def wait_until_idle(self) -> None:
        """Wait until no call and no observer runs."""
        workers = self.hub.workers
        await until(lambda: workers.calls.running + workers.observers.running == 0, "something still runs")


async def until_state(handle: Any, state: str) -> Any:
    """Wait for a state of an observer and return its reason."""
    await until(lambda: handle.state == state, f"it is {handle.state}: {handle.reason}")
    return handle.reason


@asynccontextmanager
async def party(make: Callable[[], Hub] = hub_for_workers) -> AsyncIterator[Party]:
    """A hub with two workers."""
    hub = make()
    async with at_work(hub) as client, sdk(address(hub), "owner") as owner, sdk(address(hub), "seer") as observer:
        together = Party(hub, client, owner, observer)
        await together.listen()
        yield together


async def double(data: Any) -> Any:
    """Twice an amount; nothing can be had for less than nothing."""
    if data["amount"] < 0:
        raise ValueError("less than nothing")
    return {"total": data["amount"] * 2}
