"""Every test of the contract runs over every adapter of the bus, within one process and across two connections."""

from __future__ import annotations

import asyncio
import secrets
from collections.abc import AsyncIterator, Callable, Coroutine
from contextlib import AbstractAsyncContextManager, AsyncExitStack, asynccontextmanager
from typing import Any, Final

import pytest

from tests.nats import nats_url as nats_url
from tests.postgres import postgres_server as postgres_server
from tests.postgres import postgres_url as postgres_url
from waypost.buses import Bus, LocalBus, Subscription, create_bus
from waypost.buses.bus import Health, Receive, Respond, check_message, check_subject

DEADLINE: Final = 120.0
PATIENCE: Final = 60.0

OpenBus = Callable[[], AbstractAsyncContextManager[Bus]]


@asynccontextmanager
async def opened(bus: Bus) -> AsyncIterator[Bus]:
    """A bus that is connected, and closed afterwards."""
    await bus.open()
    try:
        yield bus
    finally:
        await bus.close()


class Across:
    """Two connections as one bus: messages sent on `near` arrive on `far`."""

    def __init__(self, far: Bus, near: Bus) -> None:
        self._far = far
        self._near = near
        self._witness = Recorder()
        self._published = 0

    @property
    def health(self) -> Health:
        """The health of the sending connection."""
        return self._near.health

    async def open(self) -> None:
        """Record every message that arrives on the receiving connection."""
        await self._far.subscribe(">", self._witness)

    def on_reconnect(self, call: Callable[[], None]) -> None:
        """Register a callback on the sending connection."""
        self._near.on_reconnect(call)

    async def publish(self, subject: str, message: bytes) -> None:
        """Send, and wait until the message has arrived, so that a later subscriber does not get it."""
        check_subject(subject)
        check_message(message)
        await self._near.publish(subject, message)
        self._published += 1
        await self._witness.have(self._published)

    async def subscribe(self, subject: str, receive: Receive) -> Subscription:
        """Subscribe on the receiving connection."""
        return await self._far.subscribe(subject, receive)

    async def serve(self, name: str, respond: Respond) -> Subscription:
        """Respond on the receiving connection."""
        return await self._far.serve(name, respond)

    async def request(self, name: str, message: bytes, within: float) -> bytes:
        """Send a request on the sending connection."""
        return await self._near.request(name, message, within)

    async def close(self) -> None:
        """Close the receiving connection; the sending one waits for its responses."""
        await self._far.close()


@pytest.fixture(params=["local", "postgres", "postgres across", "nats", "nats across"])
def open_bus(request: pytest.FixtureRequest) -> OpenBus:
    """Opens a bus of each kind; each test has a cluster of its own."""
    server, _, across = request.param.partition(" ")
    if server == "local":
        return lambda: opened(LocalBus())
    url = request.getfixturevalue("postgres_server" if server == "postgres" else "nats_url")

    @asynccontextmanager
    async def open_remote() -> AsyncIterator[Bus]:
        cluster = secrets.token_hex(4)
        async with AsyncExitStack() as stack:
            first = await stack.enter_async_context(opened(create_bus(url, cluster)))
            assert first.health == "ok"
            if not across:
                yield first
                return
            second = await stack.enter_async_context(opened(create_bus(url, cluster)))
            yield await stack.enter_async_context(opened(Across(first, second)))

    return open_remote


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
    """Respond with the request."""
    return question


class Recorder:
    """A subscriber that records the messages it receives."""

    def __init__(self) -> None:
        self.received: list[tuple[str, bytes]] = []
        self._news = asyncio.Event()

    def __call__(self, subject: str, message: bytes) -> None:
        self.received.append((subject, message))
        self._news.set()

    async def have(self, number: int) -> list[tuple[str, bytes]]:
        """Wait until `number` messages arrived, and return them."""
        async with asyncio.timeout(PATIENCE):
            while len(self.received) < number:
                self._news.clear()
                await self._news.wait()
        return self.received
