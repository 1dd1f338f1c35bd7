"""The pages, their fenced blocks, and the example files they show."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Final, NamedTuple

ROOT: Final = Path(__file__).parents[2]
DOCS: Final = ROOT / "docs"
EXAMPLES: Final = DOCS / "examples"
PAGES: Final = [
    *(ROOT / name for name in ("README.md", "CHANGELOG.md", "CONTRIBUTING.md", "SECURITY.md")),
    *sorted(DOCS.glob("*.md")),
]
EXAMPLE_FILES: Final = sorted(
    path for path in EXAMPLES.rglob("*") if path.suffix in (".py", ".yaml") and "__pycache__" not in path.parts
)
WORKER_FILES: Final = sorted(
    path for path in (ROOT / "examples" / "workers").iterdir() if path.suffix in (".py", ".yaml", ".mjs")
)

_FENCE: Final = re.compile(r"^```(?P<language>\w*)\n(?P<text>.*?)^```$", re.MULTILINE | re.DOTALL)


class Block(NamedTuple):
    """One fenced block of a page."""

    page: Path
    line: int
    language: str
    text: str

    @property
    def place(self) -> str:
        """Page and line, for the name of a test."""
        return f"{self.page.name}:{self.line}"


def blocks(*languages: str) -> list[Block]:
    """All fenced blocks in these languages, page by page."""
    return [
        Block(page, text.count("\n", 0, found.start()) + 1, found["language"], found["text"])
        for page in PAGES
        for text in [page.read_text()]
        for found in _FENCE.finditer(text)
        if found["language"] in languages
    ]


def name(path: Path) -> str:
    """The name of a file in the names of tests."""
    return str(path.relative_to(ROOT if path.suffix == ".md" else EXAMPLES))
