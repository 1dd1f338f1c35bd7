"""Skills as clients with the skills extension see them."""

from __future__ import annotations

from typing import Any, Final

import msgspec

DIRECTORY: Final = "inode/directory"
"""What kind of data a directory is."""


class SkillFile(msgspec.Struct, frozen=True):
    """One file of a skill: its digest and size are those of the bytes that a read gives."""

    uri: str
    digest: str
    size: int


class SkillEntry(msgspec.Struct, frozen=True):
    """A skill: the URI of its SKILL.md, that file's front matter as it stands there, and all of its files."""

    uri: str
    frontmatter: dict[str, Any]
    resources: list[SkillFile]
