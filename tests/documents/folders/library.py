"""Writes folders of skills for tests."""

from __future__ import annotations

from pathlib import Path

BODY = "# Title\n\nWhat to do.\n"


def text(name: str, description: str = "What it does and when to use it.", more: str = "", body: str = BODY) -> str:
    """A SKILL.md."""
    return f"---\nname: {name}\ndescription: {description}\n{more}---\n{body}"


def skill(folder: Path, path: str, files: dict[str, str | bytes] | None = None, more: str = "") -> Path:
    """Write a skill with the name of its directory."""
    home = folder / path
    put(home / "SKILL.md", text(home.name, more=more))
    for name, held in (files or {}).items():
        put(home / name, held)
    return home


def put(path: Path, held: str | bytes) -> None:
    """Write a file and create its parent folders."""
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(held.encode() if isinstance(held, str) else held)
