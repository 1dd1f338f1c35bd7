"""Files in folders of skills and prompts: listed and read within limits, watched, and their front matter."""

from __future__ import annotations

import asyncio
import errno
import hashlib
import math
import os
import re
import stat
import time
from collections.abc import AsyncIterator, Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import aclosing, contextmanager, suppress
from pathlib import Path
from typing import Any, Final, NamedTuple, TypeAlias

import msgspec
import yaml

from waypost.config.files import watch_folders
from waypost.config.findings import Finding, KeyPath, printable
from waypost.config.nodes import Composer, Node, Refused, events
from waypost.loops import wait_for_event

# Without read permission a directory can be opened only with O_PATH.
_PASS: Final = getattr(os, "O_PATH", os.O_RDONLY) | os.O_DIRECTORY | os.O_CLOEXEC
# Without O_NONBLOCK, opening a pipe waits for a writer.
_READ: Final = os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC


class LinkFound(OSError):
    """A step of a path is a symbolic link."""


@contextmanager
def open_directory(root: Path, parts: Sequence[str], *, make: bool = False) -> Iterator[int]:
    """Open a directory below another without following links; with `make`, missing steps are created."""
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


def read_beginning(directory: int, name: str, size: int) -> bytes | None:
    """Return the beginning of a file in an open directory; None if it is not a regular file."""
    number = _open(name, _READ, directory)
    try:
        if not stat.S_ISREG(os.fstat(number).st_mode):
            return None
        with open(number, "rb", closefd=False) as file:
            return file.read(size)
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
    """A file cannot be served; the message completes a sentence that begins with its path."""

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
    """Return a problem with the file or folder at a path."""
    return Problem(printable(str(path)), printable(message))


MIB: Final = 1_048_576
MAX_FILE_BYTES: Final = 16 * MIB
"""The limit of a file, and of all files of a skill together."""
MAX_ENTRIES: Final = 50_000
"""The limit of files and folders in one folder."""
MAX_DEPTH: Final = 32
_MARKDOWN: Final = ".md"
_TIMESTAMP_GRAIN_NS: Final = 50_000_000
_LIST: Final = os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC

Place: TypeAlias = tuple[str, ...]
"""The relative path of a file or directory in a folder, as its steps."""


class Stamp(NamedTuple):
    """What shows that a file was written again; times are in nanoseconds."""

    modified: int
    changed: int
    size: int
    inode: int


class File(msgspec.Struct, frozen=True, eq=False):
    """A file as it was read; the same bytes are hashed and served."""

    data: bytes
    digest: str
    stamp: Stamp
    is_stamp_reliable: bool
    """Whether a later change is sure to change the stamp: timestamps are too coarse for two writes in one grain."""


def to_absolute(folder: str | os.PathLike[str]) -> Path:
    """Return the absolute path of a folder; links in it are not resolved."""
    return Path(os.path.abspath(folder))


def is_markdown(name: str) -> bool:
    """Return whether a file name has the suffix of Markdown."""
    return name.lower().endswith(_MARKDOWN)


def stem(name: str) -> str:
    """Return the name of a Markdown file without its suffix."""
    return name[: -len(_MARKDOWN)]


class Listing(msgspec.Struct):
    """The files and directories of a folder, not read yet."""

    directories: set[Place] = msgspec.field(default_factory=set)
    files: dict[Place, Stamp] = msgspec.field(default_factory=dict)
    problems: list[Problem] = msgspec.field(default_factory=list)


class FolderContents(msgspec.Struct, frozen=True, eq=False, kw_only=True):
    """A folder as it was read."""

    files: dict[Place, File] = {}
    directories: frozenset[Place] = frozenset()
    problems: tuple[Problem, ...] = ()

    def equals(self, other: FolderContents) -> bool:
        """Return whether two readings of a folder are the same."""
        return (
            self.files.keys() == other.files.keys()
            and all(file.data is other.files[place].data for place, file in self.files.items())
            and (self.directories, self.problems) == (other.directories, other.problems)
        )


def list_folder(root: Path) -> Listing:
    """List everything in a folder that can be served; the rest is among the problems."""
    found = Listing()
    pending: list[Place] = [()]
    seen = 0
    while pending:
        place = pending.pop()
        try:
            with open_directory(root, place) as number:
                listed = sorted(_list_directory(number))
        except OSError as error:
            found.problems.append(problem(root.joinpath(*place), f"cannot be listed: {error.strerror}"))
            continue
        found.directories.add(place)
        seen += len(listed)
        if seen > MAX_ENTRIES:
            found.problems.append(problem(root, f"holds more than {MAX_ENTRIES:,} files; not all of them are served"))
            break
        for name, status in listed:
            inner = (*place, name)
            reason = _find_obstacle(name, status, len(inner))
            if reason is not None:
                found.problems.append(problem(root.joinpath(*inner), reason))
            elif stat.S_ISDIR(status.st_mode):
                pending.append(inner)
            else:
                found.files[inner] = Stamp(status.st_mtime_ns, status.st_ctime_ns, status.st_size, status.st_ino)
    return found


def _list_directory(directory: int) -> Iterator[tuple[str, os.stat_result]]:
    """Yield the names in an open directory with their status."""
    # What was opened with O_PATH can be passed through, but not listed.
    number = os.open(".", _LIST, dir_fd=directory)
    try:
        for name in os.listdir(number):
            try:
                yield name, os.stat(name, dir_fd=number, follow_symlinks=False)
            except FileNotFoundError:
                continue
    finally:
        os.close(number)


def _find_obstacle(name: str, status: os.stat_result, depth: int) -> str | None:
    """Return why a file or directory is not served, or None."""
    if name.startswith("."):
        return "is hidden and not served"
    if "\\" in name or not name.isprintable():
        return "has a name that cannot stand in a URI; use letters, digits, `-`, `_` and `.`"
    if stat.S_ISLNK(status.st_mode):
        return "is a link and not served; put the file itself there"
    if stat.S_ISDIR(status.st_mode):
        return f"is nested more than {MAX_DEPTH} folders deep" if depth > MAX_DEPTH else None
    if not stat.S_ISREG(status.st_mode):
        return "is not a regular file"
    return f"is larger than {MAX_FILE_BYTES // MIB} MiB" if status.st_size > MAX_FILE_BYTES else None


def read_files(
    root: Path, found: Listing, wanted: Iterable[Place], before: Mapping[Place, File], problems: list[Problem]
) -> dict[Place, File]:
    """Read files; an unchanged one is the same object as before."""
    files: dict[Place, File] = {}
    for place in wanted:
        stamp, known = found.files[place], before.get(place)
        if known is not None and known.is_stamp_reliable and known.stamp == stamp:
            files[place] = known
            continue
        reason, data = _read_data(root, place)
        if data is None:
            problems.append(problem(root.joinpath(*place), reason))
            continue
        digest = hashlib.sha256(data).hexdigest()
        if known is not None and known.digest == digest:
            data = known.data  # the same object, by which an unchanged file is recognised everywhere else
        files[place] = File(data, digest, stamp, time.time_ns() - stamp.modified > _TIMESTAMP_GRAIN_NS)
    return files


def _read_data(root: Path, place: Place) -> tuple[str, bytes | None]:
    """Return the bytes of a file, or why it cannot be read."""
    try:
        with open_directory(root, place[:-1]) as parent:
            data = read_beginning(parent, place[-1], MAX_FILE_BYTES + 1)
    except LinkFound:
        return "is a link and not served; put the file itself there", None
    except OSError as error:
        return f"cannot be read: {error.strerror}", None
    if data is None:
        return "is not a regular file", None
    return (f"is larger than {MAX_FILE_BYTES // MIB} MiB", None) if len(data) > MAX_FILE_BYTES else ("", data)


POLL_INTERVAL_MS: Final = 2_000


async def watch_directories(directories: Callable[[], frozenset[Path]], stop: asyncio.Event) -> AsyncIterator[None]:
    """Yield after each change in one of the directories, and every two seconds, until `stop` is set.

    The directories are watched one by one: a watch of a whole tree would follow links out of it.
    """
    while not stop.is_set():
        watched = directories()
        with suppress(OSError):  # a folder vanished before it could be watched, or there are too many
            async with aclosing(watch_folders(watched, stop, POLL_INTERVAL_MS)) as happening:
                async for _ in happening:
                    yield
                    if directories() != watched:
                        break
            continue
        await wait_for_event(stop, POLL_INTERVAL_MS / 1000)
        yield


MAX_FRONT_MATTER_CHARACTERS: Final = 65_536
MAX_NAME_CHARACTERS: Final = 64
MAX_DESCRIPTION_CHARACTERS: Final = 1024
MAX_COMPATIBILITY_CHARACTERS: Final = 500
RESERVED: Final = "io.modelcontextprotocol/"
# Doubles, which JSON numbers are to many clients, are exact up to here.
_MAX_INTEGER: Final = 2**53
_BLOCK: Final = re.compile(
    r"\ufeff?---[ \t]*\r?\n(?P<yaml>.*?)^---[ \t]*(?:\r?\n|\Z)(?P<body>.*)", re.DOTALL | re.MULTILINE
)
_NAME: Final = re.compile(r"[a-z0-9]+(?:-[a-z0-9]+)*")


class Parts(NamedTuple):
    """A Markdown file: its front matter as data, and the text after it."""

    fields: dict[str, Any]
    body: str


class _Strict(Composer):
    """Builds nodes of YAML without aliases."""

    def alias(self, event: yaml.AliasEvent, path: KeyPath, depth: int) -> Node:
        raise self.refusal(event, path, "an alias cannot be used in front matter; write the value out", "CFG009")


def split(data: bytes) -> Parts:
    """Split a Markdown file into its two parts."""
    try:
        text = data.decode()
    except UnicodeDecodeError:
        raise Unfit("is not UTF-8 text") from None
    found = _BLOCK.fullmatch(text)
    if found is None:
        raise Unfit("does not begin with front matter: a line `---`, YAML, and another line `---`")
    if len(found["yaml"]) > MAX_FRONT_MATTER_CHARACTERS:
        raise Unfit(f"has a front matter of more than {MAX_FRONT_MATTER_CHARACTERS:,} characters")
    # The line of the opening `---` is kept, so that lines are counted as an editor counts them.
    root = _parse("\n" + found["yaml"])
    if not isinstance(root.value, dict):
        raise Unfit("has a front matter that is not a mapping; give it at least `name` and `description`")
    return Parts({key: _to_data(child, key) for key, child in root.value.items()}, found["body"])


def _parse(text: str) -> Node:
    findings: list[Finding] = []
    try:
        root = _Strict("", findings).document(events(text, ""))
    except Refused as refused:
        findings.append(refused.found)
    if findings:
        raise Unfit(f"has a mistake in line {findings[0].line} of its front matter: {findings[0].message}")
    return root


def _to_data(node: Node, place: str) -> Any:
    """Return a node as data that JSON can carry without loss."""
    value = node.value
    if isinstance(value, dict):
        return {key: _to_data(child, f"{place}.{key}") for key, child in value.items()}
    if isinstance(value, list):
        return [_to_data(child, place) for child in value]
    if isinstance(value, float) and not math.isfinite(value):
        raise Unfit(f"has a number in its front matter that is not finite: `{place}`")
    if isinstance(value, int) and abs(value) > _MAX_INTEGER:
        raise Unfit(f"has a number in its front matter that is too large: `{place}`; put it in quotes")
    if isinstance(value, str):
        try:
            value.encode()
        except UnicodeEncodeError:
            raise Unfit(f"has half a character in its front matter: `{place}`") from None
    return value


def check_name(fields: dict[str, Any], expected: str) -> str:
    """Return the name; refuse one that is invalid or not the expected one."""
    name = fields.get("name")
    if not isinstance(name, str) or len(name) > MAX_NAME_CHARACTERS or not _NAME.fullmatch(name):
        raise Unfit(f"needs a `name` of 1 to {MAX_NAME_CHARACTERS} letters a-z, digits and single hyphens between them")
    if name != expected:
        raise Unfit(f"has the name `{name}`, which must be `{expected}`, as the folder or file is called")
    return name


def check_description(fields: dict[str, Any]) -> str:
    """Return the description; refuse a missing or too long one."""
    description = fields.get("description")
    if not isinstance(description, str) or not description.strip() or len(description) > MAX_DESCRIPTION_CHARACTERS:
        raise Unfit(f"needs a `description` of 1 to {MAX_DESCRIPTION_CHARACTERS} characters")
    return description


def check_skill(fields: dict[str, Any], directory: str) -> None:
    """Refuse what the Agent Skills format does not allow; unknown fields are allowed."""
    check_name(fields, directory)
    check_description(fields)
    for field in ("license", "allowed-tools"):
        if field in fields and not isinstance(fields[field], str):
            raise Unfit(f"has a `{field}` that is not text")
    compatibility = fields.get("compatibility", "any")
    if not isinstance(compatibility, str) or not 1 <= len(compatibility) <= MAX_COMPATIBILITY_CHARACTERS:
        raise Unfit(f"has a `compatibility` that is not text of 1 to {MAX_COMPATIBILITY_CHARACTERS} characters")
    metadata = fields.get("metadata", {})
    if not isinstance(metadata, dict):
        raise Unfit("has a `metadata` that is not a mapping")
    for key, value in metadata.items():
        if not isinstance(value, str):
            raise Unfit(f"has a `metadata.{key}` that is not text; put it in quotes")
        if key.startswith(RESERVED):
            raise Unfit(f"has a `metadata.{key}`, but names that begin with `{RESERVED}` are reserved")
