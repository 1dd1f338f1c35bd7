"""Watching files and folders for changes, by notifications and by polling."""

from __future__ import annotations

import asyncio
import logging
import os
import time
from contextlib import aclosing, suppress
from pathlib import Path
from typing import TYPE_CHECKING, TypeAlias

if TYPE_CHECKING:
    from collections.abc import AsyncGenerator, AsyncIterator, Callable, Iterable

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
