"""Whether a history of reads and compare-and-swaps on one register could have happened one after the other.

The register has a version, which each successful swap increments, and a writer: the last to swap. An operation
takes effect at one point between its invocation and its return. One of unknown outcome may have had its effect
at any time after its invocation, or never. The search is that of Wing and Gong: take any operation before
whose invocation no other returned, if the register allows it, and go on; failed states are remembered.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

Outcome = Literal["ok", "refused", "unknown"]
Register = tuple[int, str]
"""The version and its writer."""


@dataclass(frozen=True)
class Read:
    """A client read the register between two moments and saw this."""

    invoked: int
    returned: int
    seen: Register

    def effects(self, register: Register) -> list[Register]:
        """The possible registers after the operation; empty if it cannot have happened then."""
        return [register] if register == self.seen else []


@dataclass(frozen=True)
class Swap:
    """A client tried to swap the register at a version between two moments."""

    invoked: int
    returned: int
    expected: int
    writer: str
    outcome: Outcome

    def effects(self, register: Register) -> list[Register]:
        """The possible registers after the operation; empty if it cannot have happened then."""
        holds = register[0] == self.expected
        moved = [(self.expected + 1, self.writer)] if holds else []
        if self.outcome == "ok":
            return moved
        if self.outcome == "refused":
            return [] if holds else [register]
        return [*moved, register]


Operation = Read | Swap


def is_linearizable(history: Sequence[Operation], start: Register, end: Register | None = None) -> bool:
    """Whether some order of the operations explains every observation and the final register."""
    operations = sorted(history, key=lambda operation: operation.invoked)
    if end is not None:
        last = max((operation.returned for operation in operations), default=0) + 1
        operations.append(Read(last, last, end))
    return _Search(operations).from_state(start)


class _Search:
    def __init__(self, operations: Sequence[Operation]) -> None:
        self._operations = operations

    def from_state(self, start: Register) -> bool:
        """Depth first, without recursion: histories are longer than the stack is deep."""
        seen: set[tuple[frozenset[int], Register]] = set()
        pending = [(frozenset(range(len(self._operations))), start)]
        while pending:
            left, register = pending.pop()
            if all(self._may_never_happen(place) for place in left):
                return True
            for place in self._candidates(left):
                for after in self._operations[place].effects(register):
                    state = (left - {place}, after)
                    if state not in seen:
                        seen.add(state)
                        pending.append(state)
        return False

    def _candidates(self, left: frozenset[int]) -> list[int]:
        """The operations that began before any other of those left returned."""
        horizon = min(self._returned(place) for place in left)
        return [place for place in left if self._operations[place].invoked <= horizon]

    def _returned(self, place: int) -> float:
        return float("inf") if self._may_never_happen(place) else self._operations[place].returned

    def _may_never_happen(self, place: int) -> bool:
        operation = self._operations[place]
        return isinstance(operation, Swap) and operation.outcome == "unknown"


def count(history: Sequence[Operation], outcome: Outcome) -> int:
    """How many swaps ended that way."""
    return sum(isinstance(operation, Swap) and operation.outcome == outcome for operation in history)
