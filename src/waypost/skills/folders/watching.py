"""Noticing that something happened in folders."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable
from contextlib import aclosing, suppress
from pathlib import Path
from typing import Final

QUIET_MS: Final = 100
LONGEST_BURST_MS: Final = 1_000
LOOK_EVERY_MS: Final = 2_000


async def stirrings(directories: Callable[[], frozenset[Path]], stop: asyncio.Event) -> AsyncIterator[None]:
    """Wake up after something happened in one of the directories, and every two seconds, until `stop` is set.

    The directories are watched one by one: a watch of a whole tree would follow links out of it.
    """
    from watchfiles import awatch

    while not stop.is_set():
        watched = directories()
        with suppress(OSError):  # a folder vanished before it could be watched, or there are too many
            happenings = awatch(
                *watched,
                watch_filter=None,
                step=QUIET_MS,
                debounce=LONGEST_BURST_MS,
                rust_timeout=LOOK_EVERY_MS,
                yield_on_timeout=True,
                recursive=False,
                stop_event=stop,
            )
            async with aclosing(happenings):
                async for _ in happenings:
                    yield
                    if directories() != watched:
                        break
            continue
        with suppress(TimeoutError):
            await asyncio.wait_for(stop.wait(), LOOK_EVERY_MS / 1000)
        yield
