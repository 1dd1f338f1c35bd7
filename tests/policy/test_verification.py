"""Tampering with the audit shows: nothing can be changed, added or taken out of the file unseen."""

from __future__ import annotations

import asyncio
import shutil
import sqlite3
import time
from collections.abc import Callable
from contextlib import closing
from pathlib import Path
from typing import Any

import msgspec
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from waypost.policy.audit import Record, StoreWriter, chained
from waypost.policy.verification import Verdict, verify
from waypost.stores.audit import KEPT
from waypost.stores.sqlite import SqliteDatabase
from waypost.stores.store import Store

NOW = time.time()
LAST = 7
"""The number of the last entry of each chain: its beginning and six calls."""


def record(number: int, at: float | None = None) -> Record:
    when = NOW - 1000 + number if at is None else at
    return Record(when, "ann", "mcp", f"tool{number}", "deny" if number % 3 == 0 else "allow", outcome="ok")


def with_store(file: Path, work: Callable[[Store], Any]) -> Any:
    """Do something with the store in a file."""

    async def run() -> Any:
        store = Store(SqliteDatabase(file))
        try:
            return await work(store)
        finally:
            await store.close()

    return asyncio.run(run())


def write(file: Path, *records: Record) -> None:
    """Write a chain as one process would."""
    with_store(file, lambda store: StoreWriter(lambda: store).write(list(records)))


def verdict(file: Path) -> Verdict:
    found: Verdict = with_store(file, verify)
    return found


def change(file: Path, statement: str, *given: Any) -> int:
    """Do with the file what the hub would not."""
    with closing(sqlite3.connect(file)) as connection, connection:
        return connection.execute(statement, given).rowcount


def chains_in(file: Path) -> list[str]:
    """The chains of a file, the first written first."""
    with closing(sqlite3.connect(file)) as connection:
        return [row[0] for row in connection.execute("SELECT chain FROM audit GROUP BY chain ORDER BY min(rowid)")]


@pytest.fixture(scope="module")
def sound(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A file with two chains, of which the second begins where the first ends."""
    file = tmp_path_factory.mktemp("sound") / "store.db"
    for first in (1, 11):
        write(file, *(record(number) for number in range(first, first + 6)))
    return file


@pytest.fixture
def file(sound: Path, tmp_path: Path) -> Path:
    """A copy of it to spoil."""
    return Path(shutil.copy(sound, tmp_path / "store.db"))


def test_an_audit_nobody_touched_is_sound(sound: Path) -> None:
    assert verdict(sound) == Verdict(2, 14, [])


def test_an_empty_audit_is_sound(tmp_path: Path) -> None:
    assert verdict(tmp_path / "store.db") == Verdict(0, 0, [])


@pytest.mark.parametrize("number", range(1, LAST + 1))
@pytest.mark.parametrize(
    ("column", "value"),
    [
        ("at", 1.0),
        ("principal", "'mallory'"),
        ("capability", "'other'"),
        ("decision", "CASE decision WHEN 'deny' THEN 'allow' ELSE 'deny' END"),
        ("entry", "replace(entry, '\"ok\"', '\"error\"')"),
        ("entry", "replace(replace(entry, 'tool', 'fool'), 'audit', 'auditor')"),
        ("entry", "'{}'"),
        ("digest", "'0' || substr(digest, 1, 63)"),
        ("chain", "'elsewhere'"),
        ("number", "number + 100"),
    ],
)
def test_a_change_of_any_column_of_any_entry_is_found(file: Path, column: str, value: Any, number: int) -> None:
    for chain in chains_in(file):
        changed = Path(shutil.copy(file, file.parent / f"{chain}.db"))
        with closing(sqlite3.connect(changed)) as connection, connection:
            before = list(connection.execute("SELECT * FROM audit ORDER BY rowid"))
            connection.execute(f"UPDATE audit SET {column} = {value} WHERE chain = ? AND number = ?", (chain, number))
            if before == list(connection.execute("SELECT * FROM audit ORDER BY rowid")):
                continue
        assert verdict(changed).problems, f"{column} of entry {number} of {chain}"


@settings(max_examples=60, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(st.integers(1, LAST), st.integers(0, 400), st.integers(32, 126))
def test_a_change_of_any_character_of_an_entry_is_found(file: Path, number: int, place: int, character: int) -> None:
    [chain, _] = chains_in(file)
    with closing(sqlite3.connect(file)) as connection, connection:
        where = "WHERE chain = ? AND number = ?"
        text = connection.execute(f"SELECT entry FROM audit {where}", (chain, number)).fetchone()[0]
        place %= len(text)
        spoilt = text[:place] + chr(character) + text[place + 1 :]
        connection.execute(f"UPDATE audit SET entry = ? {where}", (spoilt, chain, number))
    try:
        if not _same(text, spoilt):
            assert verdict(file).problems
    finally:
        change(file, f"UPDATE audit SET entry = ? {where}", text, chain, number)


def _same(one: str, other: str) -> bool:
    """Whether two texts say the same, so that nothing was changed but its writing."""
    try:
        return bool(msgspec.json.decode(one) == msgspec.json.decode(other))
    except msgspec.DecodeError:
        return False


@pytest.mark.parametrize("number", range(2, LAST + 1))
def test_an_entry_that_was_taken_out_of_an_older_chain_is_missed(file: Path, number: int) -> None:
    older, _ = chains_in(file)
    assert change(file, "DELETE FROM audit WHERE chain = ? AND number = ?", older, number) == 1

    assert verdict(file).problems


@pytest.mark.parametrize("number", range(2, LAST))
def test_an_entry_that_was_taken_out_of_the_newest_chain_is_missed(file: Path, number: int) -> None:
    _, newest = chains_in(file)
    change(file, "DELETE FROM audit WHERE chain = ? AND number = ?", newest, number)

    assert verdict(file).problems


def test_the_beginning_of_a_chain_cannot_be_taken_out_before_its_time(file: Path) -> None:
    for chain in chains_in(file):
        changed = Path(shutil.copy(file, file.parent / f"{chain}.db"))
        change(changed, "DELETE FROM audit WHERE chain = ? AND number <= 3", chain)

        assert verdict(changed).problems


def test_a_whole_chain_cannot_be_taken_out_before_its_time(file: Path) -> None:
    older, _ = chains_in(file)
    change(file, "DELETE FROM audit WHERE chain = ?", older)

    assert verdict(file).problems


@pytest.mark.parametrize("left", range(1, LAST))
def test_an_older_chain_that_was_cut_off_is_found(file: Path, left: int) -> None:
    older, newer = chains_in(file)
    change(file, "DELETE FROM audit WHERE chain = ? AND number > ?", older, left)

    assert verdict(file).problems == [f"Chain {older} ended at 7 when chain {newer} began; now it ends at {left}."]


def test_an_older_chain_that_was_written_anew_is_found(file: Path) -> None:
    older, _ = chains_in(file)
    with closing(sqlite3.connect(file)) as connection:
        rows = list(connection.execute("SELECT number, entry FROM audit WHERE chain = ? ORDER BY number", (older,)))
    change(file, "DELETE FROM audit WHERE chain = ?", older)

    async def forge(store: Store) -> None:
        digest = ""
        for number, entry in rows:
            record = msgspec.json.decode(entry, type=Record, strict=False)
            if number == 4:
                record = msgspec.structs.replace(record, decision="allow", principal="mallory")
            forged = chained(older, number, record, digest)
            digest = forged.digest
            await store.audit.append(forged)

    with_store(file, forge)
    assert verdict(file).problems


def test_an_entry_that_was_put_in_is_found(file: Path) -> None:
    older, _ = chains_in(file)
    forged = chained(older, LAST + 1, record(99), "0" * 64)
    with_store(file, lambda store: store.audit.append(forged))

    assert verdict(file).problems


def test_two_entries_that_changed_places_are_found(file: Path) -> None:
    older, _ = chains_in(file)
    for was, becomes in ((3, 99), (4, 3), (99, 4)):
        change(file, "UPDATE audit SET number = ? WHERE chain = ? AND number = ?", becomes, older, was)

    assert verdict(file).problems


def test_entries_of_one_chain_are_no_good_in_another(file: Path) -> None:
    older, newer = chains_in(file)
    change(file, "DELETE FROM audit WHERE chain = ? AND number = 4", older)
    change(file, "UPDATE audit SET chain = ? WHERE chain = ? AND number = 4", older, newer)

    assert verdict(file).problems


def test_a_problem_is_one_sentence_that_says_where(file: Path) -> None:
    older, _ = chains_in(file)
    change(file, "UPDATE audit SET principal = 'mallory' WHERE chain = ? AND number = 4", older)

    [problem] = verdict(file).problems
    assert problem.startswith(f"Entry 4 of chain {older} ")
    assert problem.endswith(".")


@pytest.mark.parametrize("old", range(1, 6))
def test_what_was_let_go_in_its_time_is_not_missed(tmp_path: Path, old: int) -> None:
    file = tmp_path / "store.db"
    over = NOW - KEPT - 1000
    write(file, *(record(number, over + number) for number in range(3)))
    write(file, *(record(number, over + number if number < old else None) for number in range(6)))
    write(file, record(9))
    assert verdict(file).problems == []

    with_store(file, lambda store: store.sweep())
    assert verdict(file) == Verdict(2, 2 + 6 - old, [])


def test_what_is_left_after_some_was_let_go_is_still_watched(tmp_path: Path) -> None:
    file = tmp_path / "store.db"
    over = NOW - KEPT - 1000
    write(file, *(record(number, over + number if number < 4 else None) for number in range(8)))
    with_store(file, lambda store: store.sweep())
    with closing(sqlite3.connect(file)) as connection:
        left = [row[0] for row in connection.execute("SELECT number FROM audit ORDER BY number")]
    assert left == [6, 7, 8, 9]

    for number in left:
        changed = Path(shutil.copy(file, tmp_path / f"{number}.db"))
        change(changed, "UPDATE audit SET entry = replace(entry, '\"ok\"', '\"error\"') WHERE number = ?", number)
        assert verdict(changed).problems, number


def test_all_chains_are_looked_at_however_many_there_are(tmp_path: Path) -> None:
    file = tmp_path / "store.db"

    async def fill(store: Store) -> None:
        await asyncio.gather(
            *(store.audit.append(chained(f"chain{number:04}", 1, record(number), "")) for number in range(1050))
        )

    with_store(file, fill)
    assert verdict(file) == Verdict(1050, 1050, [])
    change(file, "UPDATE audit SET principal = 'mallory' WHERE chain = 'chain1049'")
    assert len(verdict(file).problems) == 1
