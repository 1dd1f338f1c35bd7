"""What is kept of a skill and of a prompt."""

from __future__ import annotations

from collections.abc import Iterable
from datetime import UTC, datetime
from typing import TypeVar

import msgspec

from waypost.skills.content.ports import Data
from waypost.skills.content.uris import skill_uri


class Skill(msgspec.Struct, frozen=True):
    """A markdown document under an id."""

    id: str
    skill: str
    registered_at: str
    owner: str | None = None
    borrowed: bool = False
    """Whether it stands elsewhere and is only shown here too."""
    home: str = ""
    """The URI where it stands, if that is elsewhere."""

    @property
    def key(self) -> str:
        """What it is kept under."""
        return self.id

    @property
    def names(self) -> tuple[str, ...]:
        """What rules know it by."""
        here = skill_uri(self.id)
        return (here, self.home) if self.home else (here,)


class Argument(msgspec.Struct, frozen=True):
    """One argument of a prompt."""

    name: str
    description: str | None = None
    required: bool = False


class Prompt(msgspec.Struct, frozen=True):
    """A slash command, and the function that writes it."""

    name: str
    description: str
    arguments: list[Argument]
    function_id: str
    registered_at: str
    owner: str | None = None
    borrowed: bool = False
    namespace: str | None = None
    """Where the worker that registered it offers its functions, if that is not the default."""

    @property
    def key(self) -> str:
        """What it is kept under."""
        return self.name

    @property
    def names(self) -> tuple[str, ...]:
        """What rules know it by."""
        return (self.name,)


Record = Skill | Prompt
R = TypeVar("R", Skill, Prompt)


def read(data: object, kind: type[R]) -> R | None:
    """A record from what was kept; nothing where it is none."""
    try:
        return msgspec.convert(data, kind)
    except msgspec.ValidationError:
        return None


def read_all(rows: Iterable[object], kind: type[R]) -> list[R]:
    """Every record among what was kept, by id or name."""
    found = (read(row, kind) for row in rows)
    return sorted((record for record in found if record is not None), key=lambda record: record.key)


def kept(record: Record) -> Data:
    """A record as it is kept."""
    written: Data = msgspec.to_builtins(record)
    for elsewhere in ("borrowed", "home"):
        written.pop(elsewhere, None)
    return {name: value for name, value in written.items() if value is not None}


def now() -> str:
    """This moment, in UTC."""
    return datetime.now(UTC).isoformat(timespec="microseconds")
