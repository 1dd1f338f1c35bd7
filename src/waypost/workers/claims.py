"""What workers offer in vain because others offer it already; who has waited longest takes over."""

from __future__ import annotations

from typing import Generic, TypeAlias, TypeVar

from waypost.workers.worker import Worker

Key: TypeAlias = tuple[str, str]
"""A namespace, and an id in it."""
Claim = TypeVar("Claim")


class Claims(Generic[Claim]):
    """What every connected worker would offer if it could."""

    def __init__(self) -> None:
        self._at: dict[Key, dict[Worker, Claim]] = {}
        self._of: dict[Worker, dict[Key, None]] = {}

    def __len__(self) -> int:
        return sum(map(len, self._at.values()))

    def count(self, worker: Worker) -> int:
        """How much a worker waits for."""
        return len(self._of.get(worker, ()))

    def has(self, worker: Worker, key: Key) -> bool:
        """Whether a worker waits for something."""
        return worker in self._at.get(key, ())

    def put(self, worker: Worker, key: Key, claim: Claim) -> None:
        """A worker offers what is another's; it keeps its place when it says so again."""
        self._at.setdefault(key, {})[worker] = claim
        self._of.setdefault(worker, {})[key] = None

    def pop(self, worker: Worker, key: Key) -> Claim | None:
        """A worker waits for something no longer; what it had offered."""
        waiting = self._at.get(key, {})
        claim = waiting.pop(worker, None)
        if claim is None:
            return None
        if not waiting:
            del self._at[key]
        mine = self._of[worker]
        del mine[key]
        if not mine:
            del self._of[worker]
        return claim

    def leave(self, worker: Worker) -> list[Claim]:
        """A worker waits for nothing any more; what it had offered."""
        return [claim for key in list(self._of.get(worker, ())) if (claim := self.pop(worker, key)) is not None]

    def clear(self) -> None:
        """Nobody takes over anything any more."""
        self._at.clear()
        self._of.clear()

    def heir(self, key: Key) -> tuple[Worker, Claim] | None:
        """Who takes over what is offered no longer, and how it offers it; it is its own from now on."""
        for worker, claim in self._at.get(key, {}).items():
            self.pop(worker, key)
            return worker, claim
        return None
