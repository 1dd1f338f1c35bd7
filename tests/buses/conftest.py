"""Every test of the contract runs over every adapter of the bus."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable, Coroutine
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from typing import Any, Final

import pytest

from waypost.buses import Bus, LocalBus

DEADLINE: Final = 20.0
PATIENCE: Final = 5.0

OpenBus = Callable[[], AbstractAsyncContextManager[Bus]]


@asynccontextmanager
async def local_bus() -> AsyncIterator[Bus]:
    """The bus of one process."""
    bus = LocalBus()
    try:
        yield bus
    finally:
        await bus.close()


ADAPTERS: Final[dict[str, OpenBus]] = {"local": local_bus}


@pytest.fixture(params=ADAPTERS)
def open_bus(request: pytest.FixtureRequest) -> OpenBus:
    """Opens a bus of each kind."""
    return ADAPTERS[request.param]


def on_bus(test: Callable[[Bus], Coroutine[Any, Any, None]]) -> Callable[[OpenBus], None]:
    """A test with a bus of each kind, on a loop of its own and under a deadline."""

    async def bounded(open_bus: OpenBus) -> None:
        async with asyncio.timeout(DEADLINE), open_bus() as bus:
            await test(bus)

    def run(open_bus: OpenBus) -> None:
        asyncio.run(bounded(open_bus))

    run.__name__, run.__doc__ = test.__name__, test.__doc__
    return run


async def echo(question: bytes) -> bytes:
    """Say it again."""
    return question


class Ears:
    """One who listens and remembers."""

    def __init__(self) -> None:
        self.heard: list[tuple[str, bytes]] = []
        self._news = asyncio.Event()

    def __call__(self, subject: str, message: bytes) -> None:
        self.heard.append((subject, message))
        self._news.set()

    async def have(self, number: int) -> list[tuple[str, bytes]]:
        """What was heard, when it is so much."""
        async with asyncio.timeout(PATIENCE):
            while len(self.heard) < number:
                self._news.clear()
                await self._news.wait()
        return self.heard
