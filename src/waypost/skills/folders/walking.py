"""Looking through a folder and reading its files, none of them by way of a link."""

from __future__ import annotations

import hashlib
import os
import stat
import time
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from typing import Final, TypeAlias

import msgspec

from waypost.skills.directories import LinkMet, beginning, opened
from waypost.skills.folders.problems import Problem, problem

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
            with opened(root, place) as number:
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
        with opened(root, place[:-1]) as parent:
            data = beginning(parent, place[-1], LARGEST + 1)
    except LinkMet:
        return "is a link and not served; put the file itself there", None
    except OSError as error:
        return f"cannot be read: {error.strerror}", None
    if data is None:
        return "is not a regular file", None
    return (f"is larger than {LARGEST // MIB} MiB", None) if len(data) > LARGEST else ("", data)
