"""Who may change what: a skill or prompt belongs to whoever registered it, as long as they are there."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

from waypost.skills.content.ports import Data, IsThere, NamespaceOf, OwnerOf
from waypost.skills.content.records import Record
from waypost.skills.content.refusals import quoted, refused

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
