"""A process that writes to PostgreSQL is killed, and PostgreSQL is killed while processes write."""

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
from tests.chaos.load import Acknowledgement, Load
from tests.chaos.writers import Orders, writing
from tests.postgres import run_sql
from waypost.stores.database import Point
from waypost.stores.postgres import PostgresDatabase
from waypost.stores.store import Store

RANDOM_ROUNDS: Final = 8
PASSINGS: Final = 4
MAX_ACKNOWLEDGED: Final = 300
SERVER_KILLS: Final = 3
PATIENCE: Final = 60.0


def check(url: str) -> list[str]:
    """Problems that the store's own check finds."""

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
    answer, seed = list[Acknowledgement](), random.randrange(1_000_000)
    chance = random.Random(seed)
    for number in range(rounds(RANDOM_ROUNDS)):
        with writing(Orders(postgres_url, f"r{number}")) as writer:
            writer.listen(chance.randrange(1, MAX_ACKNOWLEDGED))
            writer.kill()
            answer += writer.acknowledged
        assert findings.in_rows(rows_of(postgres_url), answer) == [], f"seed {seed}, round {number}"
    assert check(postgres_url) == []


@pytest.mark.parametrize("point", get_args(Point))
def test_nothing_acknowledged_is_missing_after_a_kill_at_each_passing_of(point: Point, postgres_url: str) -> None:
    answer: list[Acknowledgement] = []
    for number in range(1, rounds(PASSINGS) + 1):
        with writing(Orders(postgres_url, f"p{number}", die_at=(point, number))) as writer:
            writer.end()
            answer += writer.acknowledged
    assert findings.in_rows(rows_of(postgres_url), answer) == []
    assert check(postgres_url) == []


def test_processes_that_make_the_tables_at_once_and_are_killed_leave_whole_tables(postgres_url: str) -> None:
    answer: list[Acknowledgement] = []
    with ExitStack() as stack:
        writers = [stack.enter_context(writing(Orders(postgres_url, f"m{number}"))) for number in range(3)]
        writers[0].kill()
        assert writers[1].listen(20)
        writers[1].kill()
        assert writers[2].listen(20)
        writers[2].kill()
        answer += [one for writer in writers for one in writer.acknowledged]
    assert findings.in_rows(rows_of(postgres_url), answer) == []
    assert check(postgres_url) == []


async def more(answer: list[Acknowledgement], much: int, load: asyncio.Task[None]) -> None:
    """Wait until so much more was acknowledged."""
    until, enough = time.monotonic() + PATIENCE, len(answer) + much
    while len(answer) < enough:
        if load.done():
            load.result()
        assert time.monotonic() < until, f"only {len(answer)} of {enough} acknowledged"
        await asyncio.sleep(0.01)


def test_a_store_goes_on_by_itself_when_its_server_was_killed_and_is_back() -> None:
    answer: list[Acknowledgement] = []

    async def scenario(server: KillableServer, chance: random.Random) -> int:
        store = Store(PostgresDatabase(server.url))
        work = Load(store, "load", answer.append)
        load = asyncio.create_task(work.run())
        try:
            for _ in range(rounds(SERVER_KILLS)):
                await more(answer, chance.randrange(100, 400), load)
                await asyncio.to_thread(server.kill)
                await asyncio.to_thread(server.start)
                await more(answer, 100, load)
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
        assert findings.in_rows(rows_of(server.url), answer) == []
        assert check(server.url) == []


def test_writes_while_the_server_is_away_end_with_an_answer_and_later_ones_succeed() -> None:
    async def scenario(server: KillableServer) -> tuple[str, bool]:
        store = Store(PostgresDatabase(server.url, timeout=3))
        try:
            await store.state.put("s", "before", 1)
            await asyncio.to_thread(server.kill)
            answer = await store.health()
            await asyncio.to_thread(server.start)
            await store.state.put("s", "after", 1)
            return answer, await store.state.get("s", "before") is not None
        finally:
            await store.close()

    with ExitStack() as stack:
        answer, is_there = asyncio.run(scenario(KillableServer(stack)))
    assert answer == "unavailable"
    assert is_there
