from __future__ import annotations

import textwrap
from collections.abc import Collection
from pathlib import Path

import pytest

from waypost.config import Finding, load
from waypost.workflows.checks import check_workflows


class Checker:
    """Checks the workflows of configurations that are written into a folder."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder

    def __call__(self, text: str, known: Collection[str] | None = None) -> list[Finding]:
        file = self.folder / "waypost.yaml"
        file.write_text(textwrap.dedent(text))
        return check_workflows(load(file, {}), known)

    def codes(self, text: str, known: Collection[str] | None = None) -> list[str]:
        """The codes of what is found."""
        return [found.code for found in self(text, known)]

    def only(self, text: str, known: Collection[str] | None = None) -> Finding:
        """The one thing that is found."""
        (found,) = self(text, known)
        return found


@pytest.fixture
def check(tmp_path: Path) -> Checker:
    return Checker(tmp_path)
