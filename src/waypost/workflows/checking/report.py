"""Where the checks write down what they found."""

from __future__ import annotations

from waypost.config import Loaded
from waypost.config.findings import Finding, KeyPath


class Report:
    """Findings about one configuration, each once."""

    def __init__(self, loaded: Loaded) -> None:
        self._root = loaded.root
        self._found: dict[Finding, None] = {}

    def add(self, path: KeyPath, message: str, code: str) -> None:
        """Note something about the key at `path`; one that is not written has the line of what it belongs to."""
        node = self._root
        for part in path:
            child = node.at(part)
            if child is None:
                break
            node = child
        self._found[node.finding(path, message, code)] = None

    @property
    def findings(self) -> list[Finding]:
        """Everything noted so far, in the order of the file."""
        return sorted(self._found, key=lambda found: (found.file, found.line))
