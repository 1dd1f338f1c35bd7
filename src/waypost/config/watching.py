"""Noticing that files have changed, or that something happened in folders."""

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
LONGEST_BURST_MS = 1_000
LOOK_EVERY_MS = 1_000
CLOCK_GRAIN_NS = 50_000_000

_Stamps: TypeAlias = dict[Path, tuple[int, int, int]]


def changes(files: Callable[[], Iterable[Path]], stop: asyncio.Event) -> AsyncIterator[frozenset[Path]]:
    """Yield, once per burst, the files that changed since this call, until `stop` is set.

    `files` is asked again after each burst; YAML files that appear beside them, or in folders among them, count too.
    """
    paths = frozenset(files())
    return _bursts(files, stop, _stamps(paths))


def happenings(folders: Iterable[Path], stop: asyncio.Event, look_every_ms: int) -> AsyncGenerator[object]:
    """Wake up after something happened right in one of the folders, and every so often, until `stop` is set.

    A folder that cannot be watched is an `OSError` at the first step.
    """
    from watchfiles import awatch

    # It tells of every change, which is one more where the log is in the same folder.
    logging.getLogger("watchfiles").setLevel(logging.WARNING)
    return awatch(
        *folders,
        watch_filter=None,
        step=QUIET_MS,
        debounce=LONGEST_BURST_MS,
        rust_timeout=look_every_ms,
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
        async with aclosing(_stirrings(paths, stop)) as stirrings:
            async for _ in stirrings:
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
    """Set when the caller's event is; cancelled watches set this one, and the caller's must stay as it is."""

    def __init__(self, given: asyncio.Event) -> None:
        super().__init__()
        self.given = given

    def is_set(self) -> bool:
        return super().is_set() or self.given.is_set()


def _carry_over(seen: _Stamps, paths: frozenset[Path], current: _Stamps, asked: int) -> _Stamps:
    """What counts as seen when other files are wanted: new ones that were there when the last burst was told."""
    before = asked - CLOCK_GRAIN_NS
    kept = {path: stamp for path, stamp in seen.items() if path in paths}
    known = {path: seen.get(path, stamp) for path, stamp in current.items() if path in seen or stamp[0] < before}
    return {**kept, **known}


async def _stirrings(paths: frozenset[Path], stop: asyncio.Event) -> AsyncGenerator[None]:
    """Wake up after something happened near the files, and every second.

    A notification only says when to look: what changed is decided by the stamps, so one that is lost while
    the watched folders change, or on a file system that sends none, does no harm.
    """
    with suppress(FileNotFoundError):  # a folder vanished before it could be watched
        async for _ in happenings(await asyncio.to_thread(_folders, paths), stop, LOOK_EVERY_MS):
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
