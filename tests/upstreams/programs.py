"""Connections to the servers of the folder `servers`, and checks of their processes."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

import psutil  # type: ignore[import-untyped]

from waypost.config.models import McpConnection

SERVERS = Path(__file__).with_name("servers")
ROOT = Path(__file__).parents[2]


def program(name: str, *arguments: str) -> McpConnection:
    """A connection to a server of that folder, as a child process."""
    return McpConnection(
        command=sys.executable, args=[str(SERVERS / f"{name}.py"), *arguments], working_directory=str(ROOT)
    )


class Rough:
    """The misbehaving server, and its log."""

    def __init__(self, folder: Path, *habits: str) -> None:
        self._diary = folder / "diary"
        self.connection = program("rough", str(self._diary), *habits)

    @property
    def diary(self) -> list[str]:
        """The messages that all processes of the server received so far."""
        return self._diary.read_text().splitlines() if self._diary.exists() else []

    def methods(self) -> list[str]:
        """The requested methods in order, including the starts of the process."""
        return [line.partition(" ")[0] for line in self.diary]

    def numbers(self, kind: str = "started") -> list[int]:
        """The process ids of the server, or of its children."""
        return [int(line.split()[1]) for line in self.diary if line.startswith(kind)]


def is_running(number: int) -> bool:
    """Whether a process runs and is not a zombie."""
    with suppress(psutil.NoSuchProcess):
        return bool(psutil.Process(number).status() != psutil.STATUS_ZOMBIE)
    return False


@contextmanager
def nothing_left() -> Iterator[None]:
    """Fail if processes that the block started are left at its end, including zombies."""
    before = {child.pid for child in psutil.Process().children(recursive=True)}
    yield
    assert {child.pid for child in psutil.Process().children(recursive=True)} - before == set()
