"""Connections to the servers of the folder `servers`, and what is left of their processes."""

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
    """The server that misbehaves as told, and its diary."""

    def __init__(self, folder: Path, *habits: str) -> None:
        self._diary = folder / "diary"
        self.connection = program("rough", str(self._diary), *habits)

    @property
    def diary(self) -> list[str]:
        """What the server got so far, over all its processes."""
        return self._diary.read_text().splitlines() if self._diary.exists() else []

    def methods(self) -> list[str]:
        """The methods it was asked, in order; a start of the process is one as well."""
        return [line.partition(" ")[0] for line in self.diary]

    def numbers(self, kind: str = "started") -> list[int]:
        """The ids of its processes, or of their children."""
        return [int(line.split()[1]) for line in self.diary if line.startswith(kind)]


def is_running(number: int) -> bool:
    """Whether a process is there and is not just waiting to be forgotten."""
    with suppress(psutil.NoSuchProcess):
        return bool(psutil.Process(number).status() != psutil.STATUS_ZOMBIE)
    return False


@contextmanager
def nothing_left() -> Iterator[None]:
    """Whatever the block starts has to be gone at its end, zombies included."""
    before = {child.pid for child in psutil.Process().children(recursive=True)}
    yield
    assert {child.pid for child in psutil.Process().children(recursive=True)} - before == set()
