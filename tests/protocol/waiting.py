"""A hub whose tool waits, and calls of it."""

import asyncio

from tests.protocol.conftest import Json
from waypost import Hub


class Waiting:
    """A hub whose tool `wait` blocks until it is released."""

    def __init__(self) -> None:
        self.hub = Hub("waiting", version="1")
        self.entered = 0
        self.stopped = 0
        self.release = asyncio.Event()

        @self.hub.tool
        async def wait() -> str:
            """Wait."""
            self.entered += 1
            try:
                await self.release.wait()
            except asyncio.CancelledError:
                self.stopped += 1
                raise
            return "waited"

        @self.hub.tool
        async def quick() -> str:
            """Do not wait."""
            return "at once"


def call(name: str) -> Json:
    """The parameters of a call without arguments."""
    return {"name": name, "arguments": {}}
