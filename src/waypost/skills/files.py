"""Skill files: which may be named, how they are read, made and put back."""

from __future__ import annotations

import hashlib
import os
import re
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Final

import msgspec

from waypost.skills.limits import LARGEST_FILE
from waypost.skills.refusals import SkillRefused

SUFFIX: Final = ".py"
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
    """Where a file named relative to the directory is; it must lie inside, links followed."""
    outside = SkillRefused("path_traversal", f"{file[:200]!r} does not lie inside the skills directory.")
    given = Path(file)
    if not file or "\0" in file or "\\" in file or given.is_absolute() or ".." in given.parts:
        raise outside
    try:
        root = directory.resolve()
        path = (root / given).resolve()
    except (OSError, RuntimeError, ValueError):
        raise outside from None
    if root not in path.parents:
        raise outside
    return root / given


def read(directory: Path, file: str) -> Source:
    """The source in a file of the directory."""
    path = located(directory, file)
    if path.suffix != SUFFIX:
        raise SkillRefused("bad_name", f"{file[:200]!r} is not a Python file; a skill's file is called <name>.py.")
    name = checked_name(path.stem)
    try:
        if not path.is_file():
            raise SkillRefused("file_not_found", f"There is no file {file} in the skills directory.")
        with path.open("rb") as opened:
            data = opened.read(LARGEST_FILE + 1)
    except OSError as error:
        raise SkillRefused("file_not_found", f"{file[:200]} cannot be read: {error.strerror}.") from None
    if len(data) > LARGEST_FILE:
        raise SkillRefused("too_large", f"{file} is larger than {LARGEST_FILE} bytes, the most a skill may have.")
    try:
        return source(name, given_name(directory, path), data.decode())
    except UnicodeDecodeError as error:
        line = data.count(b"\n", 0, error.start) + 1
        raise SkillRefused("compilation_error", f"{file}, line {line}: the source is not UTF-8.") from None


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
    path = located(directory, new.file)
    former = path.read_bytes() if path.exists() else None
    _write(path, new.text.encode())
    try:
        yield
    except BaseException:
        if former is None:
            path.unlink(missing_ok=True)
        else:
            _write(path, former)
        raise


def _write(path: Path, data: bytes) -> None:
    """Write a file so that it is there as a whole or not at all."""
    path.parent.mkdir(parents=True, exist_ok=True)
    number, temporary = tempfile.mkstemp(prefix=".", dir=path.parent)
    try:
        with os.fdopen(number, "wb") as opened:
            opened.write(data)
        os.replace(temporary, path)
    except BaseException:
        os.unlink(temporary)
        raise
