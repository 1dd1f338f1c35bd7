"""Noticing that something happened in folders."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable
from contextlib import aclosing, suppress
from pathlib import Path
from typing import Final

from waypost.config.watching import watch_folders

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
