"""The last messages between clients and the hub, for people who look at what happens on the wire.

A ring of fixed length in memory. A message costs one tuple and one `append` when it passes; everything else, such as
reading and masking it, is done when a person asks.
"""

from __future__ import annotations

import time
from collections import deque
from collections.abc import Callable, Iterator
from typing import Final, Literal, NamedTuple

MAX_MESSAGE_BYTES: Final = 16_384
"""How much of a message is kept."""

Direction = Literal["in", "out"]
Add = Callable[[Direction, str, str, bytes], None]


class LoggedMessage(NamedTuple):
    """A message as it was on the wire; `message` is its beginning where it has more `size` than that."""

    number: int
    """When it passed, in nanoseconds, which no other message has."""
    direction: Direction
    principal: str
    session: str
    """The id of its session; empty where it has none."""
    message: bytes
    size: int


class MessageLog:
    """Keeps so many messages, the oldest of which gives way; 0 keeps none."""

    def __init__(self, limit: int) -> None:
        self.limit = limit
        self._kept: deque[tuple[int, Direction, str, str, bytes, int]] = deque(maxlen=limit)
        self.add: Final = _make_add(self._kept) if limit else _drop
        """Keep a message: its direction, the id of its principal, that of its session, and the message."""

    def latest(self) -> Iterator[LoggedMessage]:
        """The messages, the last one first."""
        return (LoggedMessage(*one) for one in reversed(self._kept.copy()))


def _make_add(kept: deque[tuple[int, Direction, str, str, bytes, int]]) -> Add:
    # A function of its own, because it runs with every request: what it uses is in its closure.
    append, now = kept.append, time.time_ns

    def add(direction: Direction, principal: str, session: str, message: bytes) -> None:
        size = len(message)
        if size > MAX_MESSAGE_BYTES:
            message = message[:MAX_MESSAGE_BYTES]
        append((now(), direction, principal, session, message, size))

    return add


def _drop(direction: Direction, principal: str, session: str, message: bytes) -> None:
    """Keep nothing."""
