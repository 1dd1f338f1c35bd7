"""Tampering with the audit is detected: entries cannot be changed, added or removed unnoticed."""

from __future__ import annotations

import asyncio
import hashlib
import hmac
import shutil
import stat
import time
from collections.abc import Callable
from contextlib import closing
from pathlib import Path

import apsw
import msgspec
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from tests.policy.records import SECRET, chains_in
from tests.policy.tampering import (
    AT,
    CAPABILITY,
    DIGEST,
    PRINCIPAL,
    SAID,
    Line,
    change,
    change_entry,
    change_outcome,
    copied,
    entries_in,
    forge,
    invert_decision,
    invert_decision_everywhere,
    remove_entries,
    rename,
    rewrite_chain,
    set_to,
    verdict,
    with_store,
    written_in,
)
from tests.protocol.conftest import asynchronous
from waypost.policy import audit as audits
from waypost.policy.audit import AuditChains, Mac, Record, Verdict, chained
from waypost.stores.audit import DEFAULT_RETENTION_S as RETENTION_S
from waypost.stores.directory import derive_key
from waypost.stores.sqlite import SqliteDatabase
from waypost.stores.store import Store

NOW = time.time()
MAC = Mac(derive_key(SECRET.read(), "audit chain"))
LAST = 7
"""The number of the last entry of each chain: its beginning and six calls."""


def record(number: int, at: float | None = None, apart: float = 1.0) -> Record:
    when = NOW - 1000 + number * apart if at is None else at
    return Record(when, "ann", "mcp", f"tool{number}", "deny" if number % 3 == 0 else "allow", outcome="ok")


def write(file: Path, *records: Record) -> None:
    """Write a chain as one process would."""
    with_store(file, lambda store: chains_in(store).write(list(records)))


@pytest.fixture(scope="module", params=[1.0, 0.1, 0.001], ids=["an entry a block", "three a block", "one block"])
def sound(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A file with two chains, of which the second begins where the first ends."""
    file = tmp_path_factory.mktemp("sound") / "store.db"
    for first in (1, 11):
        write(file, *(record(number, apart=request.param) for number in range(first, first + 6)))
    return file


@pytest.fixture
def file(sound: Path, tmp_path: Path) -> Path:
    """A copy of the file to tamper with."""
    return Path(shutil.copy(sound, tmp_path / "store.db"))


def test_an_unchanged_audit_has_no_problems(sound: Path) -> None:
    assert verdict(sound) == Verdict(2, 14, [])


def test_an_empty_audit_has_no_problems(tmp_path: Path) -> None:
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
        invert_decision,
        invert_decision_everywhere,
        change_outcome,
        rename,
        forge,
    ],
)
def test_a_change_of_any_field_of_any_entry_is_detected(
    file: Path, spoilt: Callable[[Line], None], number: int
) -> None:
    for chain in written_in(file):
        changed = copied(file, chain)
        change_entry(changed, chain, number, spoilt)
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
def test_a_change_of_any_column_of_any_block_is_detected(file: Path, column: str, value: str) -> None:
    for chain in written_in(file):
        for number in {block for block, _, _ in entries_in(file, chain)}:
            changed = copied(file, f"{chain}-{number}")
            where = "WHERE chain = ? AND number = ?"
            assert change(changed, f"UPDATE audit SET {column} = {value} {where}", chain, number) == 1
            assert verdict(changed).problems, f"{column} of block {number} of {chain}"


@settings(max_examples=60, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(st.integers(0, LAST - 1), st.integers(0, 4000), st.integers(32, 126))
def test_a_change_of_any_character_of_a_block_is_detected(file: Path, which: int, place: int, character: int) -> None:
    [chain, _] = written_in(file)
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
    """Whether two texts hold the same JSON, so that only the notation differs."""
    try:
        return [*map(msgspec.json.decode, one.splitlines())] == [*map(msgspec.json.decode, other.splitlines())]
    except msgspec.DecodeError:
        return False


@pytest.mark.parametrize("number", range(2, LAST + 1))
def test_an_entry_removed_from_an_older_chain_is_detected(file: Path, number: int) -> None:
    older, _ = written_in(file)
    remove_entries(file, older, [number])

    assert verdict(file).problems


@pytest.mark.parametrize("number", range(2, LAST))
def test_an_entry_removed_from_the_newest_chain_is_detected(file: Path, number: int) -> None:
    _, newest = written_in(file)
    remove_entries(file, newest, [number])

    assert verdict(file).problems


@pytest.mark.parametrize("number", range(1, LAST))
def test_a_removed_entry_is_detected_although_later_entries_are_renumbered(file: Path, number: int) -> None:
    for chain in written_in(file):
        changed = copied(file, chain)
        left = [entry for entry in entries_in(file, chain) if entry[1] != number]
        moved = [(min(block, place), place, line) for place, (block, _, line) in enumerate(left, 1)]
        rewrite_chain(changed, chain, moved)

        assert verdict(changed).problems


def test_removing_the_beginning_of_a_chain_before_its_retention_ends_is_detected(file: Path) -> None:
    for chain in written_in(file):
        changed = copied(file, chain)
        remove_entries(changed, chain, [1, 2, 3])

        assert verdict(changed).problems


def test_removing_a_whole_chain_before_its_retention_ends_is_detected(file: Path) -> None:
    older, _ = written_in(file)
    change(file, "DELETE FROM audit WHERE chain = ?", older)

    assert verdict(file).problems


@pytest.mark.parametrize("left", range(1, LAST))
def test_a_truncated_older_chain_is_detected(file: Path, left: int) -> None:
    older, _ = written_in(file)
    remove_entries(file, older, range(left + 1, LAST + 1))

    missing = "Entry 7 of" if left == 6 else f"Entries {left + 1} to 7 of"
    verb = "is" if left == 6 else "are"
    assert verdict(file).problems == [f"{missing} chain {older} {verb} missing: the head of the chain names 7."]


def test_a_rewritten_older_chain_is_detected(file: Path) -> None:
    older, _ = written_in(file)
    entries = entries_in(file, older)
    change(file, "DELETE FROM audit WHERE chain = ?", older)

    async def forge(store: Store) -> None:
        digest, at = "", 0.0
        for _, number, line in entries:
            record = msgspec.convert(line[SAID], Record)
            if number == 4:
                record = msgspec.structs.replace(record, decision="allow", principal="mallory")
            forged = chained(older, number, record, digest, at, MAC)
            digest, at = forged.digest, forged.at
            await store.audit.append(forged, head=chains_in(store)._sign)

    with_store(file, forge)
    assert verdict(file).problems


def test_an_added_entry_is_detected(file: Path) -> None:
    older, _ = written_in(file)
    forged = chained(older, LAST + 1, record(99), "0" * 64, NOW, MAC)
    with_store(file, lambda store: store.audit.append(forged, head=chains_in(store)._sign))

    assert verdict(file).problems


@pytest.mark.parametrize("number", range(1, LAST))
def test_two_swapped_entries_are_detected(file: Path, number: int) -> None:
    for chain in written_in(file):
        changed = copied(file, chain)
        entries = entries_in(file, chain)
        lines = [line for _, _, line in entries]
        lines[number - 1], lines[number] = lines[number], lines[number - 1]
        rewrite_chain(
            changed, chain, [(block, own, line) for (block, own, _), line in zip(entries, lines, strict=True)]
        )

        assert verdict(changed).problems


def test_an_entry_copied_from_another_chain_is_detected(file: Path) -> None:
    older, newer = written_in(file)
    foreign = entries_in(file, newer)[3][2]
    change_entry(file, older, 4, lambda line: line.__setitem__(slice(None), foreign))

    assert verdict(file).problems


def test_a_problem_names_the_entry_and_the_chain(file: Path) -> None:
    older, _ = written_in(file)
    change_entry(file, older, 4, set_to(PRINCIPAL, "mallory"))

    [problem] = verdict(file).problems
    assert problem == f"Entry 4 of chain {older} was changed: what it is found by differs from what it says."


def test_a_problem_with_the_index_of_a_block_names_the_block_and_the_chain(file: Path) -> None:
    older, _ = written_in(file)
    change(file, "UPDATE audit SET denials = denials + 1 WHERE chain = ? AND number = 1", older)

    [problem] = verdict(file).problems
    assert problem == (
        f"Entry 1 of chain {older} and those written with it were changed: "
        "what they are found by differs from what they say."
    )


@pytest.mark.parametrize("old", range(1, 6))
def test_entries_deleted_after_their_retention_are_not_reported(tmp_path: Path, old: int) -> None:
    file = tmp_path / "store.db"
    over = NOW - RETENTION_S - 1000
    write(file, *(record(number, over + number) for number in range(3)))
    write(file, *(record(number, over + number if number < old else None) for number in range(6)))
    write(file, record(9))
    assert verdict(file).problems == []

    with_store(file, lambda store: AuditChains(store, SECRET).sweep())
    assert verdict(file) == Verdict(2, 2 + 6 - old, [])


def test_entries_deleted_under_a_shorter_retention_are_not_reported_later(tmp_path: Path) -> None:
    file = tmp_path / "store.db"
    days = 86_400.0
    write(file, *(record(number, NOW - 10 * days + number) for number in range(3)))
    write(file, *(record(number, NOW - 8 * days + number if number < 3 else None) for number in range(6)))
    before = verdict(file)
    with_store(file, lambda store: AuditChains(store, SECRET, retention=30 * days).sweep())
    assert verdict(file) == before

    with_store(file, lambda store: AuditChains(store, SECRET, retention=7 * days).sweep())
    left = verdict(file)
    assert left.problems == []
    assert left.entries < before.entries
    with_store(file, lambda store: AuditChains(store, SECRET, retention=365 * days).sweep())
    assert verdict(file) == left


def test_changes_are_detected_in_the_entries_that_remain_after_a_sweep(tmp_path: Path) -> None:
    file = tmp_path / "store.db"
    over = NOW - RETENTION_S - 1000
    write(file, *(record(number, over + number if number < 4 else None) for number in range(8)))
    with_store(file, lambda store: AuditChains(store, SECRET).sweep())
    with closing(apsw.Connection(str(file))) as connection:
        left = [row[0] for row in connection.execute("SELECT number FROM audit ORDER BY number")]
    assert left == [6, 7, 8, 9]

    for number in left:
        changed = copied(file, number)
        change_entry(changed, written_in(file)[0], number, change_outcome)
        assert verdict(changed).problems, number


def test_a_block_is_deleted_when_its_last_entry_is_past_its_retention(tmp_path: Path) -> None:
    file = tmp_path / "store.db"
    limit = time.time() - RETENTION_S + 0.05
    write(file, *(record(number, limit + 0.001 * number) for number in range(-100, 100)))
    before = verdict(file)
    with_store(file, lambda store: store.audit.sweep(limit, chains_in(store)._make_checkpoint))
    assert verdict(file) == before == Verdict(1, 201, [])

    with_store(file, lambda store: store.audit.sweep(limit + 1, chains_in(store)._make_checkpoint))
    assert verdict(file) == Verdict(0, 0, [])


def test_all_of_a_thousand_chains_are_verified(tmp_path: Path) -> None:
    file = tmp_path / "store.db"

    async def fill(store: Store) -> None:
        sign = chains_in(store)._sign
        await asyncio.gather(
            *(
                store.audit.append(chained(f"chain{number:04}", 1, record(number), "", 0.0, MAC), head=sign)
                for number in range(1050)
            )
        )

    with_store(file, fill)
    assert verdict(file) == Verdict(1050, 1050, [])
    change_entry(file, "chain1049", 1, set_to(PRINCIPAL, "mallory"))
    assert len(verdict(file).problems) == 1


@pytest.mark.parametrize("left", range(LAST))
def test_a_truncated_newest_chain_is_detected(file: Path, left: int) -> None:
    _, newest = written_in(file)
    remove_entries(file, newest, range(left + 1, LAST + 1))

    missing = "Entry 7 of" if left == 6 else f"Entries {left + 1} to 7 of"
    verb = "is" if left == 6 else "are"
    assert verdict(file).problems == [f"{missing} chain {newest} {verb} missing: the head of the chain names 7."]


def test_a_removed_or_changed_head_is_detected(file: Path) -> None:
    _, newest = written_in(file)
    remove_entries(file, newest, [LAST])
    digest = entries_in(file, newest)[-1][2][DIGEST]

    moved = copied(file, "moved")
    set_head = "UPDATE state SET value = json_set(value, '$.number', ?, '$.digest', ?) WHERE key = ?"
    change(moved, set_head, 6, digest, newest)
    assert verdict(moved).problems == [
        f"The head of chain {newest} was changed: its signature is wrong.",
        f"The head of chain {newest} is missing; entries may have been cut off its end.",
    ]
    for value in ("null", "[]", '{"chain": 1}'):
        change(moved, "UPDATE state SET value = ? WHERE key = ?", value, newest)
        assert verdict(moved).problems[0] == f"The head of chain {newest} cannot be read: it was changed."
    change(file, "DELETE FROM state WHERE key = ?", newest)
    assert verdict(file).problems == [f"The head of chain {newest} is missing; entries may have been cut off its end."]


@pytest.mark.parametrize("key", [None, b"another" * 5])
def test_a_chain_that_is_rewritten_without_the_secret_is_detected(file: Path, key: bytes | None) -> None:
    """The newest chain is forged from entry 4 on, with everything in the database except the secret."""
    _, newest = written_in(file)
    entries = entries_in(file, newest)
    before = entries[2][2]
    for _, number, line in entries[3:]:
        if number == 4:
            line[PRINCIPAL] = line[SAID]["principal"] = "mallory"
        line[SAID] |= {"previous": before[DIGEST], "previousAt": before[AT]}
        text = b"%b %d %b" % (newest.encode(), number, msgspec.json.encode(line[SAID]))
        line[DIGEST] = hashlib.sha256(text).hexdigest() if key is None else hmac.digest(key, text, "sha256").hex()
        before = line
    rewrite_chain(file, newest, entries)
    change(file, "UPDATE state SET value = json_set(value, '$.digest', ?) WHERE key = ?", before[DIGEST], newest)

    problems = verdict(file).problems
    expected = "was written without the hub's secret." if key is None else "was changed: its digest is wrong."
    assert f"Entry 4 of chain {newest} {expected}" in problems


def write_unkeyed(file: Path, chain: str, count: int) -> None:
    """A chain as versions before 0.2 wrote it."""
    lines: list[Line] = []
    for number in range(1, count + 1):
        said = msgspec.to_builtins(record(number)) if number > 1 else {**msgspec.to_builtins(record(1)), "reason": "{}"}
        said |= {"previous": lines[-1][DIGEST], "previousAt": lines[-1][AT]} if lines else {"action": "begin"}
        text = b"%b %d %b" % (chain.encode(), number, msgspec.json.encode(said))
        columns = [said[name] for name in ("at", "principal", "capability", "decision")]
        lines.append([*columns, said, hashlib.sha256(text).hexdigest()])
    with_store(file, lambda store: store.open())
    rewrite_chain(file, chain, [(number, number, line) for number, line in enumerate(lines, 1)])


def test_chains_of_earlier_versions_verify_and_changes_to_them_are_detected(tmp_path: Path) -> None:
    file = tmp_path / "store.db"
    write_unkeyed(file, "older", 5)
    write_unkeyed(file, "old", 3)
    write(file, record(20))
    [switch] = [
        line for _, _, line in entries_in(file, written_in(file)[-1]) if line[SAID].get("action") == "audit.keyed"
    ]
    assert {name: end[0] for name, end in msgspec.json.decode(switch[SAID]["reason"]).items()} == {"old": 3, "older": 5}
    assert verdict(file) == Verdict(3, 5 + 3 + 3, [])

    for number in range(1, 6):
        changed = copied(file, f"changed{number}")
        change_entry(changed, "older", number, change_outcome)
        assert verdict(changed).problems, number
    grown = copied(file, "grown")
    write_unkeyed(grown, "older", 6)
    assert verdict(grown).problems == ["Entry 6 of chain older was written without the hub's secret."]
    cut = copied(file, "cut")
    remove_entries(cut, "older", [5])
    assert verdict(cut).problems
    put_in = copied(file, "put in")
    write_unkeyed(put_in, "forged", 1)
    write(put_in, record(30))
    assert verdict(put_in).problems == ["Entry 1 of chain forged was written without the hub's secret."]


def test_a_restored_older_database_is_detected_by_the_heads_in_files(tmp_path: Path) -> None:
    file = tmp_path / "store.db"

    def write_with_files(*records: Record) -> None:
        with_store(file, lambda store: AuditChains(store, SECRET, tmp_path).write(list(records)))

    def problems() -> list[str]:
        found: Verdict = with_store(file, lambda store: AuditChains(store, SECRET, tmp_path).verify())
        return found.problems

    write_with_files(record(1))
    earlier = copied(file, "earlier")
    write_with_files(record(2), record(3))
    assert problems() == []
    newest = written_in(file)[-1]
    shutil.copy(earlier, file)
    assert problems() == [f"Entries 1 to 3 of chain {newest} are missing: the head of the chain names 3."]

    [directory] = (tmp_path / "audit-heads").iterdir()
    for head in directory.iterdir():
        assert stat.S_IMODE(head.stat().st_mode) == 0o600
        head.write_text("")  # as after a loss of power
    assert problems() == []


@given(st.binary(max_size=64), st.binary(max_size=300))
def test_a_mac_equals_that_of_the_standard_library(key: bytes, message: bytes) -> None:
    assert Mac(key).hexdigest(message) == hmac.digest(key, message, "sha256").hex()


def test_an_oversized_audit_loses_its_oldest_entries_and_still_verifies(tmp_path: Path) -> None:
    file = tmp_path / "store.db"
    write(file, *(record(number) for number in range(50)))
    write(file, *(record(number) for number in range(100, 400)))
    older, newer = written_in(file)
    with closing(apsw.Connection(str(file))) as connection:
        total = connection.execute("SELECT sum(octet_length(entries)) FROM audit").get

    async def prune(store: Store) -> int:
        chains = chains_in(store)
        assert await store.audit.prune(total, chains._make_checkpoint) == 0
        return await store.audit.prune(total // 2, chains._make_checkpoint)

    freed = with_store(file, prune)
    assert total * 0.55 <= freed < total * 0.6
    left = [number for _, number, _ in entries_in(file, newer)]
    assert written_in(file) == [newer]
    assert left[-1] == 301
    assert verdict(file) == Verdict(1, len(left), [])

    for spoilt, sentence in (
        (
            lambda copy: remove_entries(copy, newer, [left[0]]),
            f"Entry {left[1]} of chain {newer} is the first that is left",
        ),
        (lambda copy: remove_entries(copy, newer, [301]), f"Entry 301 of chain {newer} is missing"),
        (lambda copy: change(copy, "DELETE FROM audit"), f"Entries {left[0]} to 301 of chain {newer} are missing"),
        (
            lambda copy: change(copy, "UPDATE state SET version = version + 1 WHERE scope = 'audit pruned'"),
            f"The checkpoint of chain {older} was changed",
        ),
        (lambda copy: change(copy, "DELETE FROM state WHERE scope = 'audit pruned'"), f"chain {newer} is the first"),
    ):
        changed = copied(file, "changed")
        spoilt(changed)
        assert any(sentence in problem for problem in verdict(changed).problems), sentence


@asynchronous
async def test_a_hub_keeps_its_audit_within_its_size(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(audits, "PRUNE_INTERVAL_S", 0.0)
    store = Store(SqliteDatabase())
    chains = AuditChains(store, SECRET, max_bytes=50_000)
    for number in range(60):
        await chains.write([record(number) for _ in range(10)])
    verdict = await chains.verify()

    assert 50 < verdict.entries < 250
    assert verdict.problems == []
    await store.close()
