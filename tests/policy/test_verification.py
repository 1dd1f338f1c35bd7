"""Tampering with the audit shows: nothing can be changed, added or taken out of the file unseen."""

from __future__ import annotations

import asyncio
import shutil
import time
from collections.abc import Callable
from contextlib import closing
from pathlib import Path

import apsw
import msgspec
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from tests.policy.tampering import (
    AT,
    CAPABILITY,
    DIGEST,
    PRINCIPAL,
    SAID,
    Line,
    chains_in,
    change,
    copied,
    entries_in,
    file_anew,
    forge,
    rename,
    say_otherwise,
    set_to,
    spoil,
    take_out,
    turn,
    turn_altogether,
    verdict,
    with_store,
)
from waypost.policy.audit import Record, StoreWriter, Verdict, chained
from waypost.stores.audit import RETENTION_S
from waypost.stores.store import Store

NOW = time.time()
LAST = 7
"""The number of the last entry of each chain: its beginning and six calls."""


def record(number: int, at: float | None = None, apart: float = 1.0) -> Record:
    when = NOW - 1000 + number * apart if at is None else at
    return Record(when, "ann", "mcp", f"tool{number}", "deny" if number % 3 == 0 else "allow", outcome="ok")


def write(file: Path, *records: Record) -> None:
    """Write a chain as one process would."""
    with_store(file, lambda store: StoreWriter(store).write(list(records)))


@pytest.fixture(scope="module", params=[1.0, 0.1, 0.001], ids=["an entry a block", "three a block", "one block"])
def sound(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A file with two chains, of which the second begins where the first ends."""
    file = tmp_path_factory.mktemp("sound") / "store.db"
    for first in (1, 11):
        write(file, *(record(number, apart=request.param) for number in range(first, first + 6)))
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
    "spoilt",
    [
        set_to(AT, NOW - 998.7654),
        set_to(PRINCIPAL, "mallory"),
        set_to(CAPABILITY, "other"),
        set_to(DIGEST, "0" * 64),
        set_to(SAID, {}),
        set_to(SAID, None),
        turn,
        turn_altogether,
        say_otherwise,
        rename,
        forge,
    ],
)
def test_a_change_of_any_part_of_any_entry_is_found(file: Path, spoilt: Callable[[Line], None], number: int) -> None:
    for chain in chains_in(file):
        changed = copied(file, chain)
        spoil(changed, chain, number, spoilt)
        assert verdict(changed).problems, f"entry {number} of {chain}"


@pytest.mark.parametrize(
    ("column", "value"),
    [
        ("chain", "'elsewhere'"),
        ("number", "number + 100"),
        ("at", "at + 1"),
        ("at", "1.0"),
        ("size", "size + 1"),
        ("denials", "denials + 1"),
        ("denials", "-1"),
        ("entries", "''"),
        ("entries", "'nonsense'"),
        ("entries", "entries || entries"),
        ("entries", "char(10) || entries"),
        ("entries", "replace(entries, '[', '{')"),
    ],
)
def test_a_change_of_any_column_of_any_block_is_found(file: Path, column: str, value: str) -> None:
    for chain in chains_in(file):
        for number in {block for block, _, _ in entries_in(file, chain)}:
            changed = copied(file, f"{chain}-{number}")
            where = "WHERE chain = ? AND number = ?"
            assert change(changed, f"UPDATE audit SET {column} = {value} {where}", chain, number) == 1
            assert verdict(changed).problems, f"{column} of block {number} of {chain}"


@settings(max_examples=60, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(st.integers(0, LAST - 1), st.integers(0, 4000), st.integers(32, 126))
def test_a_change_of_any_character_of_a_block_is_found(file: Path, which: int, place: int, character: int) -> None:
    [chain, _] = chains_in(file)
    blocks = sorted({block for block, _, _ in entries_in(file, chain)})
    number = blocks[which % len(blocks)]
    with closing(apsw.Connection(str(file))) as connection, connection:
        where = "WHERE chain = ? AND number = ?"
        text = connection.execute(f"SELECT entries FROM audit {where}", (chain, number)).get
        place %= len(text)
        spoilt = text[:place] + chr(character) + text[place + 1 :]
        connection.execute(f"UPDATE audit SET entries = ? {where}", (spoilt, chain, number))
    try:
        if not _same(text, spoilt):
            assert verdict(file).problems
    finally:
        change(file, f"UPDATE audit SET entries = ? {where}", text, chain, number)


def _same(one: str, other: str) -> bool:
    """Whether two texts say the same, so that nothing was changed but its writing."""
    try:
        return [*map(msgspec.json.decode, one.splitlines())] == [*map(msgspec.json.decode, other.splitlines())]
    except msgspec.DecodeError:
        return False


@pytest.mark.parametrize("number", range(2, LAST + 1))
def test_an_entry_that_was_taken_out_of_an_older_chain_is_missed(file: Path, number: int) -> None:
    older, _ = chains_in(file)
    take_out(file, older, [number])

    assert verdict(file).problems


@pytest.mark.parametrize("number", range(2, LAST))
def test_an_entry_that_was_taken_out_of_the_newest_chain_is_missed(file: Path, number: int) -> None:
    _, newest = chains_in(file)
    take_out(file, newest, [number])

    assert verdict(file).problems


@pytest.mark.parametrize("number", range(1, LAST))
def test_an_entry_is_missed_though_those_behind_it_moved_up(file: Path, number: int) -> None:
    for chain in chains_in(file):
        changed = copied(file, chain)
        left = [entry for entry in entries_in(file, chain) if entry[1] != number]
        moved = [(min(block, place), place, line) for place, (block, _, line) in enumerate(left, 1)]
        file_anew(changed, chain, moved)

        assert verdict(changed).problems


def test_the_beginning_of_a_chain_cannot_be_taken_out_before_its_time(file: Path) -> None:
    for chain in chains_in(file):
        changed = copied(file, chain)
        take_out(changed, chain, [1, 2, 3])

        assert verdict(changed).problems


def test_a_whole_chain_cannot_be_taken_out_before_its_time(file: Path) -> None:
    older, _ = chains_in(file)
    change(file, "DELETE FROM audit WHERE chain = ?", older)

    assert verdict(file).problems


@pytest.mark.parametrize("left", range(1, LAST))
def test_an_older_chain_that_was_cut_off_is_found(file: Path, left: int) -> None:
    older, newer = chains_in(file)
    take_out(file, older, range(left + 1, LAST + 1))

    assert verdict(file).problems == [f"Chain {older} ended at 7 when chain {newer} began; now it ends at {left}."]


def test_an_older_chain_that_was_written_anew_is_found(file: Path) -> None:
    older, _ = chains_in(file)
    entries = entries_in(file, older)
    change(file, "DELETE FROM audit WHERE chain = ?", older)

    async def forge(store: Store) -> None:
        digest, at = "", 0.0
        for _, number, line in entries:
            record = msgspec.convert(line[SAID], Record)
            if number == 4:
                record = msgspec.structs.replace(record, decision="allow", principal="mallory")
            forged = chained(older, number, record, digest, at)
            digest, at = forged.digest, forged.at
            await store.audit.append(forged)

    with_store(file, forge)
    assert verdict(file).problems


def test_an_entry_that_was_put_in_is_found(file: Path) -> None:
    older, _ = chains_in(file)
    forged = chained(older, LAST + 1, record(99), "0" * 64)
    with_store(file, lambda store: store.audit.append(forged))

    assert verdict(file).problems


@pytest.mark.parametrize("number", range(1, LAST))
def test_two_entries_that_changed_places_are_found(file: Path, number: int) -> None:
    for chain in chains_in(file):
        changed = copied(file, chain)
        entries = entries_in(file, chain)
        lines = [line for _, _, line in entries]
        lines[number - 1], lines[number] = lines[number], lines[number - 1]
        file_anew(changed, chain, [(block, own, line) for (block, own, _), line in zip(entries, lines, strict=True)])

        assert verdict(changed).problems


def test_entries_of_one_chain_are_no_good_in_another(file: Path) -> None:
    older, newer = chains_in(file)
    foreign = entries_in(file, newer)[3][2]
    spoil(file, older, 4, lambda line: line.__setitem__(slice(None), foreign))

    assert verdict(file).problems


def test_a_problem_is_one_sentence_that_says_where(file: Path) -> None:
    older, _ = chains_in(file)
    spoil(file, older, 4, set_to(PRINCIPAL, "mallory"))

    [problem] = verdict(file).problems
    assert problem == f"Entry 4 of chain {older} was changed: what it is found by differs from what it says."


def test_a_block_that_is_filed_wrongly_is_one_sentence_that_says_where(file: Path) -> None:
    older, _ = chains_in(file)
    change(file, "UPDATE audit SET denials = denials + 1 WHERE chain = ? AND number = 1", older)

    [problem] = verdict(file).problems
    assert problem == (
        f"Entry 1 of chain {older} and those written with it were changed: "
        "what they are found by differs from what they say."
    )


@pytest.mark.parametrize("old", range(1, 6))
def test_what_was_let_go_in_its_time_is_not_missed(tmp_path: Path, old: int) -> None:
    file = tmp_path / "store.db"
    over = NOW - RETENTION_S - 1000
    write(file, *(record(number, over + number) for number in range(3)))
    write(file, *(record(number, over + number if number < old else None) for number in range(6)))
    write(file, record(9))
    assert verdict(file).problems == []

    with_store(file, lambda store: store.sweep())
    assert verdict(file) == Verdict(2, 2 + 6 - old, [])


def test_what_is_left_after_some_was_let_go_is_still_watched(tmp_path: Path) -> None:
    file = tmp_path / "store.db"
    over = NOW - RETENTION_S - 1000
    write(file, *(record(number, over + number if number < 4 else None) for number in range(8)))
    with_store(file, lambda store: store.sweep())
    with closing(apsw.Connection(str(file))) as connection:
        left = [row[0] for row in connection.execute("SELECT number FROM audit ORDER BY number")]
    assert left == [6, 7, 8, 9]

    for number in left:
        changed = copied(file, number)
        spoil(changed, chains_in(file)[0], number, say_otherwise)
        assert verdict(changed).problems, number


def test_entries_wait_for_the_last_of_their_block_to_be_let_go(tmp_path: Path) -> None:
    file = tmp_path / "store.db"
    limit = time.time() - RETENTION_S + 0.05
    write(file, *(record(number, limit + 0.001 * number) for number in range(-100, 100)))
    before = verdict(file)
    with_store(file, lambda store: store.audit.sweep(limit))
    assert verdict(file) == before == Verdict(1, 201, [])

    with_store(file, lambda store: store.audit.sweep(limit + 1))
    assert verdict(file) == Verdict(0, 0, [])


def test_all_chains_are_looked_at_however_many_there_are(tmp_path: Path) -> None:
    file = tmp_path / "store.db"

    async def fill(store: Store) -> None:
        await asyncio.gather(
            *(store.audit.append(chained(f"chain{number:04}", 1, record(number), "")) for number in range(1050))
        )

    with_store(file, fill)
    assert verdict(file) == Verdict(1050, 1050, [])
    spoil(file, "chain1049", 1, set_to(PRINCIPAL, "mallory"))
    assert len(verdict(file).problems) == 1
