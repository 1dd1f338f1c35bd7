"""Memory: a client in the same process."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping
from typing import Final

from waypost.protocol.connection import Connection
from waypost.protocol.engine import Engine

NO_HEADERS: Final[Mapping[str, str]] = {}


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
