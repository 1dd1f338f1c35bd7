"""Requests without a session that take a while, so that they can be ended from outside."""

from __future__ import annotations

import threading
from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING, Protocol
from weakref import WeakSet

from waypost.protocol.exchange import Exchange

if TYPE_CHECKING:
    from waypost.policy.keys import KeyChange


class Waiting(Protocol):
    """Whoever waits for the answer to a request."""

    @property
    def exchange(self) -> Exchange | None: ...


class _Here(threading.local):
    def __init__(self) -> None:
        self.waiting: WeakSet[Waiting] = WeakSet()


_here = _Here()
"""One loop runs in a thread at a time. Only what takes a while is put down, so that other requests cost nothing."""


def linger(waiting: Waiting) -> None:
    """A request takes a while; it is forgotten with whoever waits for it."""
    _here.waiting.add(waiting)


def lingering() -> list[Exchange]:
    """What runs on the loop of this thread, for whichever hub."""
    return [waiting.exchange for waiting in _here.waiting if waiting.exchange is not None]


def recognise(exchanges: Iterable[Exchange], changes: Mapping[int, KeyChange]) -> None:
    """End requests of who is let in no more, and go by the new rights of others; who sent them is told by identity."""
    for exchange in exchanges:
        change = changes.get(id(exchange.principal))
        if change is not None and change.ended:
            exchange.refuse()
        elif change is not None and change.now is not None:
            exchange.principal = change.now
