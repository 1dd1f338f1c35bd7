"""Who may see and change a document."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Final, TypeAlias

from waypost.documents.ports import Asker, Data, IsThere, Kind, NamespaceOf, OwnerOf, quoted, refused
from waypost.documents.records import Record

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


OPERATOR: Final = "operator"
"""A person who looks after the hub, and may change everything."""


@dataclass(frozen=True, slots=True)
class Owners:
    """Knows who calls and who is there; without that, nothing belongs to anybody."""

    owner_of: OwnerOf = lambda call: ""
    is_there: IsThere = lambda owner: False
    share: bool = False
    """Whether everybody may change what belongs to others."""
    namespace_of: NamespaceOf = lambda call: None

    def check(self, noun: str, record: Record | None, owner: str) -> None:
        """Refuse to change what belongs to somebody else who is there."""
        if self.share or record is None or not record.owner or owner in (record.owner, OPERATOR):
            return
        if not self._is_stale(record):
            raise refused(
                f"The {noun} {quoted(record.key)} belongs to {record.owner}; "
                f"only its owner or an operator may change or remove it"
            )

    def told(self, record: Record) -> Data:
        """What a listing adds to a record."""
        return {"owner": record.owner, "stale": self._is_stale(record)}

    def _is_stale(self, record: Record) -> bool:
        if not record.owner or record.owner == OPERATOR or record.borrowed:
            return False
        return not self.is_there(record.owner)
