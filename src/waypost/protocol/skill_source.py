"""Where skills come from, as far as the protocol needs to know."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final, Protocol

from waypost.wire.definitions import ResourceDefinition
from waypost.wire.skills import SkillEntry

SKILLS_EXTENSION: Final = "io.modelcontextprotocol/skills"
SETTINGS: Final = {"directoryRead": True}


class SkillSource(Protocol):
    """Skills whose files are resources of the registry."""

    def entries(self) -> Sequence[SkillEntry]:
        """Every skill, in the order of the URIs."""

    def entry(self, uri: str) -> SkillEntry | None:
        """The skill whose SKILL.md has this URI."""

    def children(self, uri: str) -> Sequence[ResourceDefinition] | None:
        """What lies in a directory, in the order of the URIs; nothing where there is no such directory."""
