"""The files of a skills directory, the limits of their processes, and why one is refused."""

from __future__ import annotations

import errno
import hashlib
import os
import re
import secrets
from collections.abc import Iterable, Iterator
from contextlib import ExitStack, contextmanager, suppress
from pathlib import Path
from typing import Final

import msgspec

from waypost.documents.folders.files import LinkMet, beginning, opened
from waypost.errors import DefinitionError, UnknownCapability, shorten
from waypost.suggestions import did_you_mean


class SkillRefused(DefinitionError):
    """The skill is refused."""

    def __init__(self, code: str, message: str) -> None:
        super().__init__(message)
        self.code = code


class SkillNotFound(SkillRefused, UnknownCapability):
    """There is no such skill."""

    def __init__(self, name: str, known: Iterable[str] = ()) -> None:
        hint = did_you_mean(name, known, "; ") or "."
        super().__init__("not_found", f"There is no dynamic skill {shorten(name)}{hint}")


MIB: Final = 1024 * 1024

LARGEST_FILE: Final = MIB
"""The most bytes of a skill's file."""


class Limits(msgspec.Struct, frozen=True, kw_only=True):
    """What the processes of all dynamic skills, one process, and one call may take; times are seconds, sizes bytes."""

    processes: int = 16
    waiting: int = 10_000
    idle: float = 60.0
    start: float = 10.0
    cpu: int = 60
    memory: int = 512 * MIB
    files: int = 64
    file_size: int = 64 * MIB
    result: int = 64 * MIB
    output: int = MIB // 16


SUFFIX: Final = ".py"
_NO_FILE: Final = (errno.ENOENT, errno.ENOTDIR, errno.ENXIO)
"""Errors that say that there is nothing to be read under a name."""
_NAME: Final = re.compile(r"[A-Za-z_][A-Za-z0-9_]{0,63}")

TEMPLATE: Final = '''"""The skill {name}."""

description = "Gives back what it was given."
version = "1.0.0"
permissions = []


def run(args, ctx):
    return args["input"]
'''


class Source(msgspec.Struct, frozen=True):
    """What a skill's file holds."""

    name: str
    file: str
    text: str
    sha256: str


def source(name: str, file: str, text: str) -> Source:
    """A source with its checksum."""
    return Source(name, file, text, hashlib.sha256(text.encode()).hexdigest())


def checked_name(name: str) -> str:
    """The name, if a skill can be called that."""
    if not _NAME.fullmatch(name):
        raise SkillRefused(
            "bad_name",
            f"{name[:80]!r} cannot be the name of a skill: it takes up to 64 letters, digits and _, not a digit first.",
        )
    return name


def located(directory: Path, file: str) -> Path:
    """Where a file named relative to the directory really is, links followed; it must lie inside."""
    given = Path(file)
    if not file or "\0" in file or "\\" in file or given.is_absolute() or ".." in given.parts:
        raise _outside(file)
    try:
        root = directory.resolve()
        path = (root / given).resolve()
    except (OSError, RuntimeError, ValueError):
        raise _outside(file) from None
    if root not in path.parents:
        raise _outside(file)
    return path


def _outside(file: str) -> SkillRefused:
    return SkillRefused("path_traversal", f"{shorten(file)!r} does not lie inside the skills directory.")


def read(directory: Path, file: str) -> Source:
    """The source in a file of the directory."""
    path = located(directory, file)
    given = Path(file)
    if given.suffix != SUFFIX:
        raise SkillRefused("bad_name", f"{shorten(file)!r} is not a Python file; a skill's file is called <name>.py.")
    name = checked_name(given.stem)
    try:
        data = _data(directory, file, path, LARGEST_FILE + 1)
    except OSError as error:
        raise SkillRefused("file_not_found", f"{shorten(file)} cannot be read: {error.strerror}.") from None
    if data is None:
        raise SkillRefused("file_not_found", f"There is no file {shorten(file)} in the skills directory.")
    if len(data) > LARGEST_FILE:
        raise SkillRefused("too_large", f"{file} is larger than {LARGEST_FILE} bytes, the most a skill may have.")
    try:
        return source(name, given.as_posix(), data.decode())
    except UnicodeDecodeError as error:
        line = data.count(b"\n", 0, error.start) + 1
        raise SkillRefused("compilation_error", f"{file}, line {line}: the source is not UTF-8.") from None


def _data(directory: Path, file: str, path: Path, most: int = -1) -> bytes | None:
    """What a file that was located holds, if it is one; whatever took its place since then is not followed."""
    root = directory.resolve()
    if root not in path.parents:
        raise _outside(file)
    try:
        with opened(root, path.parent.relative_to(root).parts) as parent:
            return beginning(parent, path.name, most)
    except LinkMet:
        raise _outside(file) from None
    except OSError as error:
        if error.errno in _NO_FILE:
            return None
        raise


def given_name(directory: Path, path: Path) -> str:
    """How a file of the directory is named in it."""
    return path.relative_to(directory.resolve()).as_posix()


def found(directory: Path) -> list[str]:
    """The files of the directory that could be skills, in order; those with a leading _ or . are none."""
    root = directory.resolve()
    return sorted(
        given_name(directory, path)
        for path in root.rglob(f"*{SUFFIX}")
        if not any(part.startswith(("_", ".")) for part in path.relative_to(root).parts)
    )


def create(directory: Path, name: str) -> Path:
    """A new file with a skill to start from."""
    path = directory.resolve() / f"{checked_name(name)}{SUFFIX}"
    path.parent.mkdir(parents=True, exist_ok=True)
    try:
        with path.open("x", encoding="utf-8") as opened:
            opened.write(TEMPLATE.format(name=name))
    except FileExistsError:
        raise SkillRefused("already_exists", f"There is a file {path.name} already.") from None
    return path


@contextmanager
def exchanged(directory: Path, new: Source) -> Iterator[None]:
    """Have the file hold another source; if what is done meanwhile fails, it holds the former one again."""
    former = _data(directory, new.file, located(directory, new.file))
    with _home(directory, new.file) as (parent, name):
        _write(parent, name, new.text.encode())
        try:
            yield
        except BaseException:
            if former is not None:
                _write(parent, name, former)
            else:
                with suppress(FileNotFoundError):
                    os.unlink(name, dir_fd=parent)
            raise


@contextmanager
def _home(directory: Path, file: str) -> Iterator[tuple[int, str]]:
    """The open directory that a file is written into, made if need be, and the file's name there."""
    given = Path(file)
    parent = located(directory, given.parent.as_posix()) if given.parent.parts else directory.resolve()
    root = directory.resolve()
    if root not in (parent, *parent.parents):
        raise _outside(file)
    root.mkdir(parents=True, exist_ok=True)
    with ExitStack() as stack:
        try:
            number = stack.enter_context(opened(root, parent.relative_to(root).parts, make=True))
        except LinkMet:
            raise _outside(file) from None
        yield number, given.name


def _write(directory: int, name: str, data: bytes) -> None:
    """Write a file of an open directory so that it is there as a whole or not at all."""
    temporary = f".{secrets.token_hex(8)}"
    number = os.open(temporary, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600, dir_fd=directory)
    try:
        with os.fdopen(number, "wb") as opened:
            opened.write(data)
        os.replace(temporary, name, src_dir_fd=directory, dst_dir_fd=directory)
    except BaseException:
        os.unlink(temporary, dir_fd=directory)
        raise
