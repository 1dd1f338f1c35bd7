"""The files of a configuration: their content at one moment, and a watch for changes of files and folders."""

from __future__ import annotations

import asyncio
import errno
import glob
import logging
import os
import stat
import time
from contextlib import aclosing, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, TypeAlias

if TYPE_CHECKING:
    from collections.abc import AsyncGenerator, AsyncIterator, Callable, Iterable


MAX_FILE_BYTES = 4 * 1024 * 1024
TAIL_BYTES = 64
"""How much of a file's end is compared with what it was."""

_DOCUMENT_END = b"..."


@dataclass(frozen=True, slots=True)
class FileState:
    """A file at one moment: its content, at most one byte over the limit, or the `errno` that kept it from being read.

    A path that leads to no regular file has a mode and no content.
    """

    error: int = 0
    mode: int = 0
    inode: int = 0
    mtime_ns: int = 0
    size: int = 0
    content: bytes = b""

    @property
    def is_readable(self) -> bool:
        """Whether there is content, which may be empty."""
        return not self.error and stat.S_ISREG(self.mode)

    @property
    def is_blank(self) -> bool:
        """Whether it was read and holds only white space, comments and YAML's document markers."""
        lines = map(bytes.strip, self.content.removeprefix(b"\xef\xbb\xbf").splitlines())
        return self.is_readable and all(line in (b"", b"---", _DOCUMENT_END) or line[:1] == b"#" for line in lines)

    @property
    def has_document_end(self) -> bool:
        """Whether its last line is YAML's mark for the end of a document, which says that nothing is missing."""
        return self.content.rstrip().rpartition(b"\n")[2] == _DOCUMENT_END

    def ends_like(self, before: FileState) -> bool:
        """Whether nothing suggests that the end is missing: it is what it was, or is marked as the end."""
        return self.has_document_end or self.content.endswith(before.content[-TAIL_BYTES:])

    def is_beginning_of(self, before: FileState) -> bool:
        """Whether it is the first part of what the file was, or stops within a line, as half-written files do."""
        stops_in_line = before.content.endswith(b"\n") and not self.content.endswith(b"\n")
        is_prefix = len(self.content) < len(before.content) and before.content.startswith(self.content)
        return not self.has_document_end and (stops_in_line or is_prefix)

    def is_cut_short(self, before: FileState) -> bool:
        """Whether it may be the first part of any text: shorter than it was, and with another end."""
        is_shorter = len(self.content) < len(before.content)
        return self.is_beginning_of(before) or (is_shorter and not self.ends_like(before))


class Snapshot:
    """Files and the matches of patterns, as they were when they were first asked for, and the environment."""

    def __init__(self) -> None:
        self.environ = dict(os.environ)
        self.files: dict[Path, FileState] = {}
        self.matches: dict[tuple[str, str], tuple[str, ...]] = {}
        """The names that match a pattern in a folder."""

    def read(self, path: Path) -> FileState:
        """The state of a file, which is read from the disk only once."""
        path = Path(os.path.abspath(path))
        if path not in self.files:
            self.files[path] = read_file(path)
        return self.files[path]

    def find(self, pattern: str, folder: str) -> tuple[str, ...]:
        """The names of the files that match a pattern in a folder, sorted; directories are passed over."""
        asked = (pattern, os.path.abspath(folder))
        if asked not in self.matches:
            self.matches[asked] = _find_files(*asked)
        return self.matches[asked]

    def is_current(self) -> bool:
        """Whether nothing changed since: status and content of every file, every match, and the environment."""
        return (
            self.environ == os.environ
            # With their content: two writes within one tick of the clock have the same stamp.
            and all(read_file(path) == state for path, state in self.files.items())
            and all(_find_files(*asked) == names for asked, names in self.matches.items())
        )

    def looks_unfinished(self, before: Snapshot) -> bool:
        """Whether a file is gone, unreadable, emptied or cut short since `before`, as files are during a save."""
        for path, state in self.files.items():
            known = before.files.get(path, FileState())
            if state.is_blank and not known.is_blank:
                return True
            if known.is_readable and (not state.is_readable or state.is_cut_short(known)):
                return True
        return not all(path.is_file() for path, state in before.files.items() if state.is_readable)


def read_file(path: Path) -> FileState:
    """The state of a file on the disk."""
    try:
        mode = os.stat(path).st_mode
        if not stat.S_ISREG(mode):  # opening a pipe or a device could block for ever
            return FileState(mode=mode)
        with open(path, "rb") as stream:
            content = stream.read(MAX_FILE_BYTES + 1)
            # Of the open file, not of the path: an editor may have put another one there since.
            status = os.fstat(stream.fileno())
    except OSError as error:
        return FileState(error=error.errno or errno.EIO)
    except ValueError:  # a path with a NUL character
        return FileState(error=errno.EINVAL)
    return FileState(0, status.st_mode, status.st_ino, status.st_mtime_ns, status.st_size, content)


def _find_files(pattern: str, folder: str) -> tuple[str, ...]:
    names = glob.glob(pattern, root_dir=folder, recursive=True)
    return tuple(sorted(name for name in names if not os.path.isdir(os.path.join(folder, name))))


QUIET_MS = 100
MAX_BURST_MS = 1_000
POLL_INTERVAL_MS = 1_000
CLOCK_GRAIN_NS = 50_000_000

_Stamps: TypeAlias = dict[Path, tuple[int, int, int]]


def changes(files: Callable[[], Iterable[Path]], stop: asyncio.Event) -> AsyncIterator[frozenset[Path]]:
    """Yield, once per burst, the files that changed since this call, until `stop` is set.

    `files` is asked again after each burst; YAML files that appear beside them, or in folders among them, count too.
    """
    paths = frozenset(files())
    return _bursts(files, stop, _stamps(paths))


def watch_folders(folders: Iterable[Path], stop: asyncio.Event, poll_interval_ms: int) -> AsyncGenerator[object]:
    """Yield after each burst of changes directly in one of the folders, and at every poll, until `stop` is set.

    The first step raises `OSError` for a folder that cannot be watched.
    """
    from watchfiles import awatch

    # It logs every change at level INFO, and writing that log is another change where its file is in the same folder.
    logging.getLogger("watchfiles").setLevel(logging.WARNING)
    return awatch(
        *folders,
        watch_filter=None,
        step=QUIET_MS,
        debounce=MAX_BURST_MS,
        rust_timeout=poll_interval_ms,
        yield_on_timeout=True,
        recursive=False,
        stop_event=_Stop(stop),
    )


async def _bursts(
    files: Callable[[], Iterable[Path]], stop: asyncio.Event, seen: _Stamps
) -> AsyncIterator[frozenset[Path]]:
    paths = frozenset(files())
    asked = time.time_ns()
    while not stop.is_set():
        async with aclosing(_wake_ups(paths, stop)) as wake_ups:
            async for _ in wake_ups:
                current = await asyncio.to_thread(_stamps, paths)
                changed = frozenset(path for path in {*seen, *current} if seen.get(path) != current.get(path))
                seen = current
                if changed:
                    asked = time.time_ns()
                    yield changed
                if (wanted := frozenset(files())) != paths:
                    paths = wanted
                    seen = _carry_over(seen, paths, await asyncio.to_thread(_stamps, paths), asked)
                    break


class _Stop(asyncio.Event):
    """An event that is set when the caller's is; a cancelled watch sets this one and leaves the caller's alone."""

    def __init__(self, given: asyncio.Event) -> None:
        super().__init__()
        self.given = given

    def is_set(self) -> bool:
        return super().is_set() or self.given.is_set()


def _carry_over(seen: _Stamps, paths: frozenset[Path], current: _Stamps, asked: int) -> _Stamps:
    """The stamps to compare with when other files are watched.

    A file that is new among them counts as seen if it was last written before the last burst was reported.
    """
    # File systems take their timestamps from a coarser clock.
    before = asked - CLOCK_GRAIN_NS
    kept = {path: stamp for path, stamp in seen.items() if path in paths}
    known = {path: seen.get(path, stamp) for path, stamp in current.items() if path in seen or stamp[0] < before}
    return {**kept, **known}


async def _wake_ups(paths: frozenset[Path], stop: asyncio.Event) -> AsyncGenerator[None]:
    """Yield when the files may have changed: after a notification about one of their folders, and every second.

    Only the stamps decide what changed, so that a lost notification, or a file system that sends none, does no harm.
    """
    with suppress(FileNotFoundError):  # a folder vanished before it could be watched
        async for _ in watch_folders(await asyncio.to_thread(_folders, paths), stop, POLL_INTERVAL_MS):
            yield


def _folders(paths: Iterable[Path]) -> set[Path]:
    """The existing folders that hold the paths; editors replace a file, so watching the file itself is not enough."""
    folders = {path if path.is_dir() else path.parent for path in paths}
    return {next(folder for folder in (path, *path.parents) if folder.is_dir()) for path in folders}


def _stamps(paths: Iterable[Path]) -> _Stamps:
    relevant = set(paths)
    for folder in _folders(paths):
        relevant.update(path for path in _listing(folder) if path.suffix in (".yaml", ".yml"))
    stamps: _Stamps = {}
    for path in relevant:
        try:
            status = os.stat(path)
        except OSError:
            continue
        if not path.is_dir():
            stamps[path] = (status.st_mtime_ns, status.st_size, status.st_ino)
    return stamps


def _listing(folder: Path) -> list[Path]:
    try:
        return list(folder.iterdir())
    except OSError:
        return []
