"""Opening what lies inside a directory step by step, so that no link put there in the meantime leads out of it."""

from __future__ import annotations

import errno
import os
import stat
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Final

# A directory that may be passed but not listed can be opened only where the system knows O_PATH.
_PASS: Final = getattr(os, "O_PATH", os.O_RDONLY) | os.O_DIRECTORY | os.O_CLOEXEC
# Without O_NONBLOCK, opening a pipe waits for somebody who writes to it.
_READ: Final = os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC


class LinkMet(OSError):
    """There is a link where none was."""


@contextmanager
def opened(root: Path, parts: Sequence[str], *, make: bool = False) -> Iterator[int]:
    """A directory below another, none of the steps to it a link; with `make`, steps that are not there are made."""
    number = os.open(root, _PASS)
    try:
        for part in parts:
            if make:
                with suppress(FileExistsError):
                    os.mkdir(part, dir_fd=number)
            inner = _open(part, _PASS | os.O_NOFOLLOW, number)
            os.close(number)
            number = inner
        yield number
    finally:
        os.close(number)


def beginning(directory: int, name: str, most: int) -> bytes | None:
    """Up to so many bytes of a file in an open directory; none, if it is something else."""
    number = _open(name, _READ, directory)
    try:
        if not stat.S_ISREG(os.fstat(number).st_mode):
            return None
        with open(number, "rb", closefd=False) as file:
            return file.read(most)
    finally:
        os.close(number)


def _open(name: str, flags: int, directory: int) -> int:
    try:
        return os.open(name, flags, dir_fd=directory)
    except OSError as error:
        if error.errno in (errno.ELOOP, errno.ENOTDIR) and _is_link(name, directory):
            raise LinkMet(error.errno, os.strerror(error.errno)) from None
        raise


def _is_link(name: str, directory: int) -> bool:
    with suppress(OSError):
        return stat.S_ISLNK(os.stat(name, dir_fd=directory, follow_symlinks=False).st_mode)
    return False
