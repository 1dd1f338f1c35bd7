"""Who finds and reads what: documents go by the names that rules know them by."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import TypeAlias

from waypost.skills.content.ports import Asker, Kind

Shows: TypeAlias = Callable[[str, Asker], bool]
"""Whether somebody finds a name in lists."""
Admit: TypeAlias = Callable[[Kind, str, Asker], None]
"""Refuses somebody to read a URI, or to get a prompt; whoever comes as a client of the hub was asked before."""


@dataclass(frozen=True, slots=True)
class Access:
    """Knows the rules; without any, everybody finds and reads everything."""

    shows: Shows = lambda name, by: True
    admit: Admit = lambda kind, name, by: None

    def shows_all(self, names: Iterable[str], by: Asker) -> bool:
        """Whether somebody finds what has all of these names; whoever looks after the hub finds everything."""
        return by is None or all(self.shows(name, by) for name in names)
