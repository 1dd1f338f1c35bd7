"""Values of a configuration file that remember where they were written."""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum
from typing import TYPE_CHECKING, Final, TypeAlias

from waypost.config.findings import Finding, KeyPath, finding

if TYPE_CHECKING:
    from waypost.config.scalars import Scalar


class Unknown(Enum):
    """The value of a node that was already reported, so that nothing else is said about it."""

    UNKNOWN = "unknown"


UNKNOWN: Final = Unknown.UNKNOWN
Value: TypeAlias = "dict[str, Node] | list[Node] | Scalar | Unknown"


@dataclass(frozen=True, slots=True)
class Node:
    """A value, the line of its key, the line its text begins on, and whether its text may stand for something else.

    `spelt` is its key as the file has it, where that is not how the key is usually written.
    """

    value: Value
    file: str
    line: int
    text_line: int = 1
    plain: bool = False
    spelt: str | None = None

    def at(self, *path: str | int) -> Node | None:
        """The node at the end of a key path, if there is one."""
        node = self
        for part in path:
            child: Node | None = None
            if isinstance(node.value, dict) and isinstance(part, str):
                child = node.value.get(part)
            elif isinstance(node.value, list) and isinstance(part, int) and part < len(node.value):
                child = node.value[part]
            if child is None:
                return None
            node = child
        return node

    @property
    def is_implied(self) -> bool:
        """Whether the key has no value in the file and only stands for an empty section or list."""
        return self.plain and isinstance(self.value, dict | list) and not self.value

    def finding(self, path: KeyPath, message: str, code: str) -> Finding:
        """A finding about this node."""
        return finding(self.file, self.line, path, message, code)


class Refused(Exception):
    """The file cannot be used at all; carries the finding that says why."""

    def __init__(self, found: Finding) -> None:
        super().__init__(str(found))
        self.found = found
