"""Functions that are tools under other names than their own, and wait until those are free."""

from __future__ import annotations

from collections.abc import Callable, Iterator

from waypost.workers.functions import Function


class Aside:
    """Who waits for which name; of several with equal right, whoever has waited longest is the next."""

    def __init__(self, is_guest: Callable[[Function], bool]) -> None:
        self._is_guest = is_guest
        self._at: dict[str, dict[Function, None]] = {}

    def __len__(self) -> int:
        """How many names are waited for."""
        return len(self._at)

    def put(self, name: str, function: Function) -> None:
        """A function waits for its name; it keeps its place when that is said again."""
        self._at.setdefault(name, {})[function] = None

    def pop(self, name: str, function: Function) -> None:
        """A function waits no longer: it has its name, or is gone."""
        waiting = self._at.get(name)
        if waiting is None or function not in waiting:
            return
        del waiting[function]
        if not waiting:
            del self._at[name]

    def next(self) -> Iterator[tuple[str, Function]]:
        """Every name that is waited for, and whose it is when it is free: its owner's, else a guest's."""
        for name, waiting in list(self._at.items()):
            yield name, min(waiting, key=self._is_guest)
