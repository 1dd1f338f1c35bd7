"""A client in memory, for testing your own hub: `async with connect(hub) as client: ...`."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable, Mapping
from contextlib import asynccontextmanager
from typing import Any, Final
from weakref import WeakKeyDictionary

from waypost.hub import Hub
from waypost.protocol.connection import Connection
from waypost.protocol.engine import Engine
from waypost.upstreams.client import Client
from waypost.upstreams.jsonrpc import Answerer, Reply
from waypost.wire.versions import V2026_07_28

NO_HEADERS: Final[Mapping[str, str]] = {}
_started: Final[WeakKeyDictionary[Hub, int]] = WeakKeyDictionary()
"""The hubs that a block started, and how many blocks use each now."""


class MemoryLink:
    """Carries messages between a client and an engine."""

    round_trips: Final = False

    def __init__(self, engine: Engine) -> None:
        self._engine = engine
        self._connection: Connection | None = None

    async def open(self, receive: Callable[[bytes], None]) -> None:
        """Connect."""
        loop = asyncio.get_running_loop()

        def write(message: bytes) -> None:
            # In the next turn, as over a network: a message must not arrive within the call that sends it.
            loop.call_soon(receive, message)

        self._connection = Connection(self._engine, write)

    async def send(
        self, data: bytes, version: str, method: str | None, name: str | None, extra: Mapping[str, str] = NO_HEADERS
    ) -> None:
        """Hand a message to the server; it needs no headers."""
        assert self._connection is not None
        self._connection.receive(data)

    async def close(self) -> None:
        """Disconnect."""
        if self._connection is not None:
            await self._connection.close()


PROGRESS: Final = "progress"


class TestClient(Client):
    """An MCP client that keeps every notification until a test asks for it."""

    __test__ = False

    def __init__(self, *args: Any, **options: Any) -> None:
        super().__init__(*args, **options)
        self.notifications: list[Reply] = []
        self._news = asyncio.Event()
        self.listen_to(self._keep)

    def _keep(self, note: Reply) -> None:
        self.notifications.append(note)
        self._news.set()

    async def assert_notification(self, method: str, *, within: float = 30.0, **params: Any) -> Reply:
        """The first kept notification of that method with these parameters, taken out; waits for it if need be."""
        try:
            async with asyncio.timeout(within):
                while True:
                    for note in self.notifications:
                        if _fits(note, method, params):
                            self.notifications.remove(note)
                            return note
                    self._news.clear()
                    await self._news.wait()
        except TimeoutError:
            seen = [note["method"] for note in self.notifications]
            raise AssertionError(f"no {_full(method)} came within {within:g} s; seen: {seen}") from None

    async def refute_notification(self, method: str, *, within: float = 0.05, **params: Any) -> None:
        """Fail if such a notification is there or comes in the given time."""
        try:
            note = await self.assert_notification(method, within=within, **params)
        except AssertionError:
            return
        raise AssertionError(f"unexpected notification: {note}")

    async def call_with_progress(self, name: str, arguments: dict[str, Any] | None = None) -> Reply:
        """Call a tool and ask for its progress, to be checked with `assert_progress`."""
        return await self.call_tool(name, arguments, meta={"progressToken": PROGRESS})

    async def assert_progress(self, *values: float) -> None:
        """Fail unless progress was reported with exactly these values, in this order."""
        seen = []
        for value in values:
            note = await self.assert_notification("progress")
            seen.append(note["params"]["progress"])
            assert seen[-1] == value, f"progress {seen}, expected {list(values)}"
        await self.refute_notification("progress")


def _full(method: str) -> str:
    return method if method.startswith("notifications/") else f"notifications/{method}"


def _fits(note: Reply, method: str, params: dict[str, Any]) -> bool:
    return note["method"] == _full(method) and all(note["params"].get(key) == value for key, value in params.items())


@asynccontextmanager
async def _run(hub: Hub) -> AsyncIterator[None]:
    """Start a hub that does not run; the last block that uses it then stops it."""
    counts = hub in _started or not hub.runtime.is_running
    if counts:
        _started[hub] = _started.get(hub, 0) + 1
    try:
        await hub.start()
        yield
    finally:
        if counts:
            _started[hub] -= 1
            if not _started[hub]:
                del _started[hub]
                await hub.stop()


@asynccontextmanager
async def connect(
    hub: Hub,
    version: str = V2026_07_28,
    *,
    name: str = "waypost",
    capabilities: dict[str, Any] | None = None,
    elicitation: Answerer | None = None,
    sampling: Answerer | None = None,
    roots: Answerer | None = None,
    patience: float = 30.0,
) -> AsyncIterator[TestClient]:
    """Talk to the hub in memory, in `version`. A hub that does not run is started, and stopped after the last block.

    `elicitation`, `sampling` and `roots` answer what tools ask the client: parameters in, the result out.
    """
    given = {"elicitation/create": elicitation, "sampling/createMessage": sampling, "roots/list": roots}
    async with _run(hub):
        client = TestClient(
            MemoryLink(hub.engine),
            version=version,
            name=name,
            capabilities=capabilities,
            patience=patience,
            answers={method: answerer for method, answerer in given.items() if answerer is not None},
        )
        try:
            await client.open()
            yield client
        finally:
            await client.close()
