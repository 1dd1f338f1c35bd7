"""A process that writes to PostgreSQL is killed, and PostgreSQL itself is killed under those who write."""

from __future__ import annotations

import asyncio
import random
import time
from collections.abc import Callable, Sequence
from contextlib import ExitStack, suppress
from functools import partial
from typing import Any, Final, get_args

import pytest

from tests.chaos import findings
from tests.chaos.cluster import KillableServer
from tests.chaos.conftest import rounds
from tests.chaos.load import Load, Told
from tests.chaos.writers import Orders, writing
from tests.postgres import run_sql
from waypost.stores.database import Point
from waypost.stores.postgres import PostgresDatabase
from waypost.stores.store import Store

RANDOM_ROUNDS: Final = 8
PASSINGS: Final = 4
MOST_HEARD: Final = 300
SERVER_KILLS: Final = 3
PATIENCE: Final = 60.0


def check(url: str) -> list[str]:
    """What the store itself finds."""

    async def look() -> list[str]:
        store = Store(PostgresDatabase(url))
        try:
            return await store.check()
        finally:
            await store.close()

    return asyncio.run(look())


def rows_of(url: str) -> Callable[[str], Sequence[Sequence[Any]]]:
    """Reads rows without the store."""
    return partial(run_sql, url)


def test_nothing_acknowledged_is_missing_after_kills_at_random_moments(postgres_url: str) -> None:
    told, seed = list[Told](), random.randrange(1_000_000)
    chance = random.Random(seed)
    for number in range(rounds(RANDOM_ROUNDS)):
        with writing(Orders(postgres_url, f"r{number}")) as writer:
            writer.listen(chance.randrange(1, MOST_HEARD))
            writer.kill()
            told += writer.told
        assert findings.in_rows(rows_of(postgres_url), told) == [], f"seed {seed}, round {number}"
    assert check(postgres_url) == []


@pytest.mark.parametrize("point", get_args(Point))
def test_nothing_acknowledged_is_missing_after_a_kill_at_each_passing_of(point: Point, postgres_url: str) -> None:
    told: list[Told] = []
    for number in range(1, rounds(PASSINGS) + 1):
        with writing(Orders(postgres_url, f"p{number}", die_at=(point, number))) as writer:
            writer.end()
            told += writer.told
    assert findings.in_rows(rows_of(postgres_url), told) == []
    assert check(postgres_url) == []


def test_processes_that_make_the_tables_at_once_and_are_killed_leave_whole_tables(postgres_url: str) -> None:
    told: list[Told] = []
    with ExitStack() as stack:
        writers = [stack.enter_context(writing(Orders(postgres_url, f"m{number}"))) for number in range(3)]
        writers[0].kill()
        assert writers[1].listen(20)
        writers[1].kill()
        assert writers[2].listen(20)
        writers[2].kill()
        told += [one for writer in writers for one in writer.told]
    assert findings.in_rows(rows_of(postgres_url), told) == []
    assert check(postgres_url) == []


async def more(told: list[Told], much: int, load: asyncio.Task[None]) -> None:
    """Wait until so much more was acknowledged."""
    until, enough = time.monotonic() + PATIENCE, len(told) + much
    while len(told) < enough:
        if load.done():
            load.result()
        assert time.monotonic() < until, f"only {len(told)} of {enough} acknowledged"
        await asyncio.sleep(0.01)


def test_a_store_goes_on_by_itself_when_its_server_was_killed_and_is_back() -> None:
    told: list[Told] = []

    async def scenario(server: KillableServer, chance: random.Random) -> int:
        store = Store(PostgresDatabase(server.url))
        work = Load(store, "load", told.append)
        load = asyncio.create_task(work.run())
        try:
            for _ in range(rounds(SERVER_KILLS)):
                await more(told, chance.randrange(100, 400), load)
                await asyncio.to_thread(server.kill)
                await asyncio.to_thread(server.start)
                await more(told, 100, load)
                assert await store.health() == "ok"
        finally:
            load.cancel()
            with suppress(asyncio.CancelledError):
                await load
            await store.close()
        return work.unknown

    with ExitStack() as stack:
        server = KillableServer(stack)
        asyncio.run(scenario(server, random.Random(23)))
        assert findings.in_rows(rows_of(server.url), told) == []
        assert check(server.url) == []


def test_writes_while_the_server_is_away_end_with_an_answer_and_later_ones_succeed() -> None:
    async def scenario(server: KillableServer) -> tuple[str, bool]:
        store = Store(PostgresDatabase(server.url, timeout=0.5, open_timeout=0.5))
        try:
            await store.state.put("s", "before", 1)
            await asyncio.to_thread(server.kill)
            told = await store.health()
            await asyncio.to_thread(server.start)
            await store.state.put("s", "after", 1)
            return told, await store.state.get("s", "before") is not None
        finally:
            await store.close()

    with ExitStack() as stack:
        told, is_there = asyncio.run(scenario(KillableServer(stack)))
    assert told == "unavailable"
    assert is_there
