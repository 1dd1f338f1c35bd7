"""The files of a skills directory: found, read without following links, replaced, and why one is refused."""

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

from waypost.documents.folders.files import LinkFound, open_directory, read_beginning
from waypost.errors import DefinitionError, UnknownCapability, shorten
from waypost.suggestions import did_you_mean


class SkillRefused(DefinitionError):
    """A skill is refused; `code` says why, for programs."""

    def __init__(self, code: str, message: str) -> None:
        super().__init__(message)
        self.code = code


class SkillNotFound(SkillRefused, UnknownCapability):
    """There is no such skill."""

    def __init__(self, name: str, known: Iterable[str] = ()) -> None:
        hint = did_you_mean(name, known, "; ") or "."
        super().__init__("not_found", f"There is no dynamic skill {shorten(name)}{hint}")


MAX_FILE_BYTES: Final = 1024 * 1024
SUFFIX: Final = ".py"
_NO_FILE: Final = (errno.ENOENT, errno.ENOTDIR, errno.ENXIO)
"""The errors that mean that there is no such file."""
_NAME: Final = re.compile(r"[A-Za-z_][A-Za-z0-9_]{0,63}")

TEMPLATE: Final = '''"""The skill {name}."""

description = "Gives back what it was given."
version = "1.0.0"
permissions = []


def run(args, ctx):
    return args["input"]
'''


class Source(msgspec.Struct, frozen=True):
    """The source in a skill's file."""

    name: str
    file: str
    text: str
    sha256: str


def make_source(name: str, file: str, text: str) -> Source:
    """Return a source with its checksum."""
    return Source(name, file, text, hashlib.sha256(text.encode()).hexdigest())


def check_name(name: str) -> str:
    """Return the name if it is a valid name of a skill."""
    if not _NAME.fullmatch(name):
        raise SkillRefused(
            "bad_name",
            f"{name[:80]!r} cannot be the name of a skill: it takes up to 64 letters, digits and _, not a digit first.",
        )
    return name


def resolve_path(directory: Path, file: str) -> Path:
    """Return the real path of a file named relative to the directory, links followed; it must lie inside."""
    given = Path(file)
    if not file or "\0" in file or "\\" in file or given.is_absolute() or ".." in given.parts:
        raise _outside_error(file)
    try:
        root = directory.resolve()
        path = (root / given).resolve()
    except (OSError, RuntimeError, ValueError):
        raise _outside_error(file) from None
    if root not in path.parents:
        raise _outside_error(file)
    return path


def _outside_error(file: str) -> SkillRefused:
    return SkillRefused("path_traversal", f"{shorten(file)!r} does not lie inside the skills directory.")


def read_source(directory: Path, file: str) -> Source:
    """Return the source in a file of the directory."""
    path = resolve_path(directory, file)
    given = Path(file)
    if given.suffix != SUFFIX:
        raise SkillRefused("bad_name", f"{shorten(file)!r} is not a Python file; a skill's file is called <name>.py.")
    name = check_name(given.stem)
    try:
        data = _read_bytes(directory, file, path, MAX_FILE_BYTES + 1)
    except OSError as error:
        raise SkillRefused("file_not_found", f"{shorten(file)} cannot be read: {error.strerror}.") from None
    if data is None:
        raise SkillRefused("file_not_found", f"There is no file {shorten(file)} in the skills directory.")
    if len(data) > MAX_FILE_BYTES:
        raise SkillRefused("too_large", f"{file} is larger than {MAX_FILE_BYTES} bytes, the most a skill may have.")
    try:
        return make_source(name, given.as_posix(), data.decode())
    except UnicodeDecodeError as error:
        line = data.count(b"\n", 0, error.start) + 1
        raise SkillRefused("compilation_error", f"{file}, line {line}: the source is not UTF-8.") from None


def _read_bytes(directory: Path, file: str, path: Path, size: int = -1) -> bytes | None:
    """Return what a resolved file holds, None if it is missing.

    Every step is opened without following links: one may have taken the place of a folder since the path was resolved.
    """
    root = directory.resolve()
    if root not in path.parents:
        raise _outside_error(file)
    try:
        with open_directory(root, path.parent.relative_to(root).parts) as parent:
            return read_beginning(parent, path.name, size)
    except LinkFound:
        raise _outside_error(file) from None
    except OSError as error:
        if error.errno in _NO_FILE:
            return None
        raise


def relative_name(directory: Path, path: Path) -> str:
    """Return the name of a file relative to the directory."""
    return path.relative_to(directory.resolve()).as_posix()


def list_files(directory: Path) -> list[str]:
    """Return the files of the directory that may be skills, in order; names with a leading _ or . are left out."""
    root = directory.resolve()
    return sorted(
        relative_name(directory, path)
        for path in root.rglob(f"*{SUFFIX}")
        if not any(part.startswith(("_", ".")) for part in path.relative_to(root).parts)
    )


def create_file(directory: Path, name: str) -> Path:
    """Write a new file with a skill to start from."""
    path = directory.resolve() / f"{check_name(name)}{SUFFIX}"
    path.parent.mkdir(parents=True, exist_ok=True)
    try:
        with path.open("x", encoding="utf-8") as opened:
            opened.write(TEMPLATE.format(name=name))
    except FileExistsError:
        raise SkillRefused("already_exists", f"There is a file {path.name} already.") from None
    return path


@contextmanager
def replace_file(directory: Path, new: Source) -> Iterator[None]:
    """Replace what a file holds; if the body of the `with` statement fails, restore it."""
    former = _read_bytes(directory, new.file, resolve_path(directory, new.file))
    with _open_parent(directory, new.file) as (parent, name):
        _write_atomically(parent, name, new.text.encode())
        try:
            yield
        except BaseException:
            if former is not None:
                _write_atomically(parent, name, former)
            else:
                with suppress(FileNotFoundError):
                    os.unlink(name, dir_fd=parent)
            raise


@contextmanager
def _open_parent(directory: Path, file: str) -> Iterator[tuple[int, str]]:
    """Open the directory that a file is written into, made if missing, and yield it with the file's name."""
    given = Path(file)
    parent = resolve_path(directory, given.parent.as_posix()) if given.parent.parts else directory.resolve()
    root = directory.resolve()
    if root not in (parent, *parent.parents):
        raise _outside_error(file)
    root.mkdir(parents=True, exist_ok=True)
    with ExitStack() as stack:
        try:
            number = stack.enter_context(open_directory(root, parent.relative_to(root).parts, make=True))
        except LinkFound:
            raise _outside_error(file) from None
        yield number, given.name


def _write_atomically(directory: int, name: str, data: bytes) -> None:
    """Write a file of an open directory as a whole or not at all."""
    temporary = f".{secrets.token_hex(8)}"
    number = os.open(temporary, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600, dir_fd=directory)
    try:
        with os.fdopen(number, "wb") as opened:
            opened.write(data)
        os.replace(temporary, name, src_dir_fd=directory, dst_dir_fd=directory)
    except BaseException:
        os.unlink(temporary, dir_fd=directory)
        raise
