"""Reading folders safely: what lies in them, what is wrong with it, and when it changes."""

from __future__ import annotations

import asyncio
import errno
import hashlib
import os
import stat
import time
from collections.abc import AsyncIterator, Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import aclosing, contextmanager, suppress
from pathlib import Path
from typing import Final, TypeAlias

import msgspec

from waypost.config.files import watch_folders
from waypost.config.findings import printable

# A directory that may be passed but not listed can be opened only where the system knows O_PATH.
_PASS: Final = getattr(os, "O_PATH", os.O_RDONLY) | os.O_DIRECTORY | os.O_CLOEXEC
# Without O_NONBLOCK, opening a pipe waits for somebody who writes to it.
_READ: Final = os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC


class LinkFound(OSError):
    """There is a link where none was."""


@contextmanager
def open_directory(root: Path, parts: Sequence[str], *, make: bool = False) -> Iterator[int]:
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


def read_beginning(directory: int, name: str, most: int) -> bytes | None:
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
            raise LinkFound(error.errno, os.strerror(error.errno)) from None
        raise


def _is_link(name: str, directory: int) -> bool:
    with suppress(OSError):
        return stat.S_ISLNK(os.stat(name, dir_fd=directory, follow_symlinks=False).st_mode)
    return False


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


MIB: Final = 1_048_576
LARGEST: Final = 16 * MIB
"""How many bytes a file, and all files of a skill together, may have."""
MOST_ENTRIES: Final = 50_000
"""How many files and folders are looked at in one folder."""
DEEPEST: Final = 32
_MARKDOWN: Final = ".md"
_GRAIN_NS: Final = 50_000_000
_LIST: Final = os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC

Place: TypeAlias = tuple[str, ...]
"""Where something lies in a folder, step by step."""
Stamp: TypeAlias = tuple[int, int, int, int]


class File(msgspec.Struct, frozen=True, eq=False):
    """What a file held when it was read; the same bytes are hashed and served."""

    data: bytes
    digest: str
    stamp: Stamp
    is_settled: bool
    """Whether a later change is sure to show in the stamp."""


def absolute(folder: str | os.PathLike[str]) -> Path:
    """Where a folder is, whatever the working directory becomes; links in it stay what they are."""
    return Path(os.path.abspath(folder))


def size_in(stamp: Stamp) -> int:
    """How many bytes a file had when it was looked at."""
    return stamp[2]


def is_markdown(name: str) -> bool:
    """Whether a file is called as Markdown is."""
    return name.lower().endswith(_MARKDOWN)


def stem(name: str) -> str:
    """The name of a Markdown file without its ending."""
    return name[: -len(_MARKDOWN)]


class Found(msgspec.Struct):
    """What lies in a folder, not read yet."""

    directories: set[Place] = msgspec.field(default_factory=set)
    files: dict[Place, Stamp] = msgspec.field(default_factory=dict)
    problems: list[Problem] = msgspec.field(default_factory=list)


class Look(msgspec.Struct, frozen=True, eq=False, kw_only=True):
    """A folder as it was read."""

    files: dict[Place, File] = {}
    directories: frozenset[Place] = frozenset()
    problems: tuple[Problem, ...] = ()

    def is_like(self, other: Look) -> bool:
        """Whether the folder has not changed from one look to the other."""
        return (
            self.files.keys() == other.files.keys()
            and all(file.data is other.files[place].data for place, file in self.files.items())
            and (self.directories, self.problems) == (other.directories, other.problems)
        )


def walk(root: Path) -> Found:
    """Everything in a folder that can be served; what cannot is among the problems."""
    found = Found()
    pending: list[Place] = [()]
    seen = 0
    while pending:
        place = pending.pop()
        try:
            with open_directory(root, place) as number:
                listed = sorted(_listed(number))
        except OSError as error:
            found.problems.append(problem(root.joinpath(*place), f"cannot be looked through: {error.strerror}"))
            continue
        found.directories.add(place)
        seen += len(listed)
        if seen > MOST_ENTRIES:
            found.problems.append(problem(root, f"holds more than {MOST_ENTRIES:,} files; not all of them are served"))
            break
        for name, status in listed:
            inner = (*place, name)
            reason = _unfit(name, status, len(inner))
            if reason is not None:
                found.problems.append(problem(root.joinpath(*inner), reason))
            elif stat.S_ISDIR(status.st_mode):
                pending.append(inner)
            else:
                found.files[inner] = (status.st_mtime_ns, status.st_ctime_ns, status.st_size, status.st_ino)
    return found


def _listed(directory: int) -> Iterator[tuple[str, os.stat_result]]:
    """The names in an open directory, each with what is there under it."""
    number = os.open(".", _LIST, dir_fd=directory)
    try:
        for name in os.listdir(number):
            try:
                yield name, os.stat(name, dir_fd=number, follow_symlinks=False)
            except FileNotFoundError:
                continue
    finally:
        os.close(number)


def _unfit(name: str, status: os.stat_result, depth: int) -> str | None:
    """Why something is not served, if it is not."""
    if name.startswith("."):
        return "is hidden and not served"
    if "\\" in name or not name.isprintable():
        return "has a name that cannot stand in a URI; use letters, digits, `-`, `_` and `.`"
    if stat.S_ISLNK(status.st_mode):
        return "is a link and not served; put the file itself there"
    if stat.S_ISDIR(status.st_mode):
        return f"is nested more than {DEEPEST} folders deep" if depth > DEEPEST else None
    if not stat.S_ISREG(status.st_mode):
        return "is not a regular file"
    return f"is larger than {LARGEST // MIB} MiB" if status.st_size > LARGEST else None


def read(
    root: Path, found: Found, wanted: Iterable[Place], before: Mapping[Place, File], problems: list[Problem]
) -> dict[Place, File]:
    """The files at these places; one that has not changed is what it was before."""
    files: dict[Place, File] = {}
    for place in wanted:
        stamp, known = found.files[place], before.get(place)
        if known is not None and known.is_settled and known.stamp == stamp:
            files[place] = known
            continue
        reason, data = _data(root, place)
        if data is None:
            problems.append(problem(root.joinpath(*place), reason))
            continue
        digest = hashlib.sha256(data).hexdigest()
        if known is not None and known.digest == digest:
            data = known.data
        files[place] = File(data, digest, stamp, time.time_ns() - stamp[0] > _GRAIN_NS)
    return files


def _data(root: Path, place: Place) -> tuple[str, bytes | None]:
    """The bytes of a file, or why there are none."""
    try:
        with open_directory(root, place[:-1]) as parent:
            data = read_beginning(parent, place[-1], LARGEST + 1)
    except LinkFound:
        return "is a link and not served; put the file itself there", None
    except OSError as error:
        return f"cannot be read: {error.strerror}", None
    if data is None:
        return "is not a regular file", None
    return (f"is larger than {LARGEST // MIB} MiB", None) if len(data) > LARGEST else ("", data)


LOOK_EVERY_MS: Final = 2_000


async def stirrings(directories: Callable[[], frozenset[Path]], stop: asyncio.Event) -> AsyncIterator[None]:
    """Wake up after something happened in one of the directories, and every two seconds, until `stop` is set.

    The directories are watched one by one: a watch of a whole tree would follow links out of it.
    """
    while not stop.is_set():
        watched = directories()
        with suppress(OSError):  # a folder vanished before it could be watched, or there are too many
            async with aclosing(watch_folders(watched, stop, LOOK_EVERY_MS)) as happening:
                async for _ in happening:
                    yield
                    if directories() != watched:
                        break
            continue
        with suppress(TimeoutError):
            await asyncio.wait_for(stop.wait(), LOOK_EVERY_MS / 1000)
        yield
