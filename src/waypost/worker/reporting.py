"""What a worker tells the observers of its functions, sent a few at a time."""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable
from typing import Any, Final, NamedTuple, TypeAlias

from msgspec import Raw, Struct

from waypost.loops import running_loop
from waypost.worker.answers import Home

_log: Final = logging.getLogger(__name__)
MOST: Final = 10_000
"""Events that wait to be sent."""
MOST_BYTES: Final = 8 * 1024 * 1024
_AT_ONCE: Final = 256

Send: TypeAlias = Callable[[Struct], None]


class Reported(Struct, tag="invocationsobserved"):
    """Events, and the observers that they are for."""

    items: list[dict[str, Any]]


class Event(NamedTuple):
    """One event that waits to be sent."""

    item: dict[str, Any]
    size: int
    is_due: Callable[[], bool]
    """Whether the engine knows by now whose it is."""


class Reporting:
    """Events on their way; those that find no room are missed, and told of in the log."""

    def __init__(self, home: Home, send: Send) -> None:
        self._home = home
        self._send = send
        self._lock = threading.Lock()
        self._waiting: list[Event] = []
        self._bytes = 0
        self._missed = 0
        self._is_flushing = False
        """Whether `flush` is about to be called."""

    def put(self, item: dict[str, Any], event: Raw, is_due: Callable[[], bool]) -> None:
        """Send an event soon, or when the worker is connected; from any thread."""
        size = len(event)
        with self._lock:
            if len(self._waiting) >= MOST or self._bytes + size > MOST_BYTES:
                self._miss()
                return
            self._waiting.append(Event(item, size, is_due))
            self._bytes += size
            was_flushing, self._is_flushing = self._is_flushing, True
        if not was_flushing:
            self._home.soon(lambda: running_loop().call_soon(self.flush))

    def flush(self) -> None:
        """Send what the engine can take now."""
        with self._lock:
            self._is_flushing = False
            going: list[Event] = []
            staying: list[Event] = []
            for event in self._waiting:
                (going if event.is_due() else staying).append(event)
            self._waiting = staying
            self._bytes = sum(event.size for event in self._waiting)
        for start in range(0, len(going), _AT_ONCE):
            self._send(Reported([event.item for event in going[start : start + _AT_ONCE]]))

    def forget(self, function_id: str) -> None:
        """What waits about a function is for nobody any more."""
        with self._lock:
            self._waiting = [event for event in self._waiting if event.item["function_id"] != function_id]
            self._bytes = sum(event.size for event in self._waiting)

    def _miss(self) -> None:
        self._missed += 1
        if self._missed % 1000 == 1:
            _log.warning("%d events found no room to wait for the engine", self._missed)
