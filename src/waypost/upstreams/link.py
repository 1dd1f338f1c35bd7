"""What carries the messages of a client."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Protocol


class Link(Protocol):
    """Carries messages to a server; what comes back is handed to the receiver given to `open`.

    On a link of round trips `send` lasts until everything that answers the message has come back.
    """

    @property
    def round_trips(self) -> bool: ...
    async def open(self, receive: Callable[[bytes], None]) -> None: ...
    async def send(
        self, data: bytes, version: str, method: str | None, name: str | None, extra: Mapping[str, str] = ...
    ) -> None: ...
    async def close(self) -> None: ...


class Sending(Protocol):
    """A message on its way, and what comes back for it."""

    def cancel(self) -> object: ...


Begin = Callable[
    [bytes, str, str | None, str | None, Mapping[str, str], Callable[[Exception | None], None]],
    Sending,
]
"""How a link of round trips may offer to send without a task for each message; the last one hears of the end."""
