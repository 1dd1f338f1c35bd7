from __future__ import annotations

import textwrap
from collections.abc import Collection
from pathlib import Path
from shutil import which

import pytest

from waypost.config import Finding, load
from waypost.workflows.checks import check_workflows


class Checker:
    """Checks the workflows of configurations that it writes into a folder."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder

    def __call__(self, text: str, known: Collection[str] | None = None) -> list[Finding]:
        file = self.folder / "waypost.yaml"
        file.write_text(textwrap.dedent(text))
        return check_workflows(load(file, {}), known)

    def codes(self, text: str, known: Collection[str] | None = None) -> list[str]:
        """The codes of all findings."""
        return [found.code for found in self(text, known)]

    def only(self, text: str, known: Collection[str] | None = None) -> Finding:
        """The only finding."""
        (found,) = self(text, known)
        return found


@pytest.fixture
def check(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Checker:
    """A checker on a machine that has every program but `definitely-not-here`."""

    def find(command: str, path: str | None = None) -> str | None:
        is_known = path is None and "/" not in command and command != "definitely-not-here"
        return command if is_known else which(command, path=path)

    monkeypatch.setattr("waypost.workflows.executors.cli.which", find)
    return Checker(tmp_path)
