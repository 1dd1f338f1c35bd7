"""What is said to somebody whose skill is not taken."""

from __future__ import annotations

from collections.abc import Iterable

from waypost.errors import DefinitionError, UnknownCapability, shorten
from waypost.suggestions import did_you_mean


class SkillRefused(DefinitionError):
    """The skill is refused."""

    def __init__(self, code: str, message: str) -> None:
        super().__init__(message)
        self.code = code


class SkillNotFound(SkillRefused, UnknownCapability):
    """There is no such skill."""

    def __init__(self, name: str, known: Iterable[str] = ()) -> None:
        hint = did_you_mean(name, known, "; ") or "."
        super().__init__("not_found", f"There is no dynamic skill {shorten(name)}{hint}")
