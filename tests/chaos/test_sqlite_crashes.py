"""A process that writes to a SQLite file is killed: at random, at every commit point, and at every statement."""

from __future__ import annotations

import asyncio
import random
import time
from collections.abc import Sequence
from contextlib import closing
from itertools import accumulate
from pathlib import Path
from typing import Final, get_args

import apsw
import pytest

from tests.chaos import findings
from tests.chaos.conftest import rounds
from tests.chaos.load import Acknowledgement
from tests.chaos.writers import Orders, writing
from waypost.stores.database import Point
from waypost.stores.schema import MIGRATIONS
from waypost.stores.sqlite import SqliteDatabase
from waypost.stores.store import Store

RANDOM_ROUNDS: Final = 25
PASSINGS: Final = 12
MAX_ACKNOWLEDGED: Final = 400
STATEMENTS_TO_OPEN: Final = range(1, 56)
AFTER_EACH_STEP: Final = list(accumulate((step.script.count("CREATE TABLE") for step in MIGRATIONS), initial=1))[1:]
"""How many tables there are then, with that of the steps themselves."""


def check(path: Path) -> list[str]:
    """Problems that the store's own check finds."""

    async def look() -> list[str]:
        store = Store(SqliteDatabase(path))
        try:
            return await store.check()
        finally:
            await store.close()

    return asyncio.run(look())


def kill_at_random(path: Path, name: str, chance: random.Random, *, tidy: bool = False) -> Sequence[Acknowledgement]:
    """Let a writer write, kill it at a random moment, and return the writes it acknowledged."""
    with writing(Orders(path, name, tidy=tidy)) as writer:
        writer.listen(chance.randrange(MAX_ACKNOWLEDGED))
        time.sleep(chance.uniform(0, 0.01))  # so that it is not always killed between two batches
        writer.kill()
        return writer.acknowledged


def test_nothing_acknowledged_is_missing_after_kills_at_random_moments(tmp_path: Path) -> None:
    path, acknowledged, seed = tmp_path / "store.db", list[Acknowledgement](), random.randrange(1_000_000)
    chance = random.Random(seed)
    for number in range(rounds(RANDOM_ROUNDS)):
        acknowledged += kill_at_random(path, f"r{number}", chance, tidy=number % 5 == 4)
        look = findings.in_file if number % 2 else findings.in_copy
        assert look(path, acknowledged) == [], f"seed {seed}, round {number}"
    assert findings.in_file(path, acknowledged) == []
    assert check(path) == []
    assert len(acknowledged) > RANDOM_ROUNDS


@pytest.mark.parametrize("point", get_args(Point))
def test_nothing_acknowledged_is_missing_after_a_kill_at_each_passing_of(point: Point, tmp_path: Path) -> None:
    path, acknowledged = tmp_path / "store.db", list[Acknowledgement]()
    for number in range(1, rounds(PASSINGS) + 1):
        with writing(Orders(path, f"p{number}", die_at=(point, number))) as writer:
            writer.end()
            acknowledged += writer.acknowledged
        assert findings.in_copy(path, acknowledged) == [], f"{point} {number}"
    assert findings.in_file(path, acknowledged) == []
    assert check(path) == []
    assert acknowledged


def test_an_unacknowledged_commit_is_kept(tmp_path: Path) -> None:
    path = tmp_path / "store.db"
    with writing(Orders(path, "only", die_at=("committed", 1))) as writer:
        writer.end()
        assert writer.acknowledged == []
    with closing(apsw.Connection(str(path))) as connection:
        assert connection.execute("SELECT count(*) FROM history").get > 0


@pytest.mark.parametrize("point", ["begun", "written"])
def test_nothing_is_there_of_a_transaction_that_was_not_committed(point: Point, tmp_path: Path) -> None:
    path = tmp_path / "store.db"
    with writing(Orders(path, "only", die_at=(point, 1))) as writer:
        writer.end()
        assert writer.acknowledged == []
    with closing(apsw.Connection(str(path))) as connection:
        assert connection.execute("SELECT count(*) FROM history").get == 0


def test_a_process_killed_while_it_makes_the_tables_leaves_a_file_that_the_next_one_finishes(tmp_path: Path) -> None:
    halves = 0
    for number in STATEMENTS_TO_OPEN:
        path = tmp_path / f"{number}.db"
        with writing(Orders(path, "first", die_at_statement=number)) as writer:
            writer.end()
            acknowledged = list(writer.acknowledged)
        made = tables(path)
        halves += made == 0
        with writing(Orders(path, "second", die_at=("committed", 2))) as writer:
            writer.end()
            acknowledged += writer.acknowledged
        assert findings.in_file(path, acknowledged) == [], f"statement {number}"
        assert tables(path) == AFTER_EACH_STEP[-1]
        assert made in (0, *AFTER_EACH_STEP), f"statement {number}: a step was half taken"
    assert 30 < halves < len(STATEMENTS_TO_OPEN), "the statements counted are not those that make the tables"


def tables(path: Path) -> int:
    """How many tables a reader of the file sees."""
    copy = path.with_suffix(".look")
    for ending in ("", "-wal"):
        source = path.with_name(path.name + ending)
        copy.with_name(copy.name + ending).write_bytes(source.read_bytes() if source.exists() else b"")
    with closing(apsw.Connection(str(copy))) as connection:
        return int(connection.execute("SELECT count(*) FROM sqlite_master WHERE type = 'table'").get)


def test_one_of_two_processes_on_a_file_is_killed_and_the_other_goes_on(tmp_path: Path) -> None:
    path, acknowledged = tmp_path / "store.db", list[Acknowledgement]()
    chance = random.Random(17)
    with writing(Orders(path, "survivor")) as survivor:
        for number in range(rounds(6)):
            acknowledged += kill_at_random(path, f"victim{number}", chance)
            before = len(survivor.acknowledged)
            assert survivor.listen(50), "the other process died too"
            assert len(survivor.acknowledged) == before + 50
        survivor.kill()
        acknowledged += survivor.acknowledged
    assert findings.in_file(path, acknowledged) == []
    assert check(path) == []
