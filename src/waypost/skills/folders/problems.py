"""What is wrong with a file or folder, so that it is not served."""

from __future__ import annotations

from pathlib import Path

import msgspec

from waypost.config.findings import printable


class Unfit(Exception):
    """Something cannot be served; the message is the end of a sentence that begins with its path."""

    def __init__(self, message: str) -> None:
        super().__init__(message)
        self.message = message


class Problem(msgspec.Struct, frozen=True, order=True):
    """One file or folder that is not served, and why."""

    path: str
    message: str

    def __str__(self) -> str:
        return f"{self.path} {self.message}."


def problem(path: Path, message: str) -> Problem:
    """A problem with whatever lies at a path."""
    return Problem(printable(str(path)), printable(message))
