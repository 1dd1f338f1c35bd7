from __future__ import annotations

import textwrap
from pathlib import Path

import pytest

from waypost.config import Finding, Loaded, check, load


class Folder:
    """A folder of configuration files to try things in."""

    def __init__(self, path: Path) -> None:
        self.path = path

    def write(self, name: str, text: str | bytes) -> Path:
        path = self.path / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(text if isinstance(text, bytes) else textwrap.dedent(text).encode())
        return path

    def check(self, text: str | bytes, **environ: str) -> list[Finding]:
        return check(self.write("waypost.yaml", text), environ)

    def only(self, text: str | bytes, **environ: str) -> Finding:
        (found,) = self.check(text, **environ)
        return found

    def load(self, text: str, **environ: str) -> Loaded:
        return load(self.write("waypost.yaml", text), environ)


@pytest.fixture
def folder(tmp_path: Path) -> Folder:
    return Folder(tmp_path)
