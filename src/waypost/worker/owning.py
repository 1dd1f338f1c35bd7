"""The functions of a worker, as those who observe them see it."""

from __future__ import annotations

import logging
from typing import Final

from waypost.worker.announcing import Added, Announced, News, Removed
from waypost.worker.hooks import ObserveHooks
from waypost.worker.owned import Owned, Ties

_log: Final = logging.getLogger(__name__)


class Owning:
    """Every function of a worker, and their observers."""

    def __init__(self, ties: Ties) -> None:
        self._ties = ties
        self._rows: dict[str, Owned] = {}

    def made(self, function_id: str, hooks: ObserveHooks) -> Owned:
        """A function that is about to be offered."""
        return Owned(function_id, hooks, self._ties)

    def put(self, owned: Owned) -> None:
        """A function is offered, in place of another of its name."""
        self.pop(owned.function_id)
        self._rows[owned.function_id] = owned

    def pop(self, function_id: str) -> None:
        """A function is offered no longer."""
        self.refuse(function_id)
        self._rows.pop(function_id, None)

    def refuse(self, function_id: str) -> None:
        """The engine does not take a function from this worker."""
        owned = self._rows.get(function_id)
        if owned is not None:
            owned.release()

    def connected(self, is_able: bool) -> None:
        """The engine says whether it knows of observers."""
        idle = [] if is_able else [one.function_id for one in self._rows.values() if one.hooks.is_active]
        if idle:
            _log.warning("the engine knows nothing of observers, so the hooks of %s are never called", ", ".join(idle))

    def lost(self) -> None:
        """There is no connection; what observers are to hear waits."""
        for owned in self._rows.values():
            owned.is_known = False

    def take(self, frame: News) -> None:
        """Hear of the observers of a function."""
        owned = self._rows.get(frame.id if isinstance(frame, Announced) else frame.function_id)
        if owned is None:
            return
        match frame:
            case Announced():
                owned.announced(frame)
            case Added():
                owned.added(frame)
            case Removed():
                owned.removed(frame)
