"""The audit gives the same answers for any division of its entries into blocks."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from random import Random
from typing import Any

import pytest

from tests.contract.conftest import on_store
from tests.contract.samples import NOW, audited, checkpoint_of, head_of
from waypost.errors import StaleVersion
from waypost.stores.audit import LAST, AuditEntry, Place
from waypost.stores.database import Query, Row
from waypost.stores.schema import AUDIT
from waypost.stores.store import Store


async def filled(store: Store, chance: Random) -> list[AuditEntry]:
    """Three chains over the same seconds, each written some entries at a time; the entries, latest first."""
    entries: list[AuditEntry] = []
    for chain in ("a", "B", "ä\u2028"):
        at, number = NOW, 0
        for _ in range(30):
            some = []
            for _ in range(chance.choice((1, 1, 2, 7, 30))):
                number += 1
                at += chance.choice((0.0, 0.0, 0.001, 0.1, 0.9, -0.3))
                decision = chance.choice(("allow", "allow", "allow", "deny"))
                value = {"n": number, "text": "line\u2028 \x85\n\r end"}
                digest = f"{chain}{number}"
                some.append(audited(chain=chain, number=number, at=at, decision=decision, value=value, digest=digest))
            await store.audit.append(*some, head=head_of)
            entries += some
    return sorted(entries, key=lambda entry: entry.place, reverse=True)


@on_store
async def test_the_latest_entries_come_in_their_order_from_any_place_on(store: Store) -> None:
    chance = Random(1)
    entries = await filled(store, chance)
    for decision in (None, "deny", "allow"):
        wanted = [entry for entry in entries if decision in (None, entry.decision)]
        for limit in (1, 7, 100, 10_000):
            assert await store.audit.latest(limit, LAST, decision) == wanted[:limit]
            before = chance.choice(entries)
            older = [entry for entry in wanted if entry.place < before.place]
            assert await store.audit.latest(limit, before.place, decision) == older[:limit]


@on_store
async def test_page_by_page_every_entry_comes_once(store: Store) -> None:
    entries = await filled(store, Random(2))
    found: list[AuditEntry] = []
    while page := await store.audit.latest(37, found[-1].place if found else LAST):
        found += page
    assert found == entries


def _divides(divisor: int, entry: AuditEntry) -> bool:
    return entry.number % divisor == 0


@on_store
async def test_a_filter_is_read_in_bounded_steps_that_lose_nothing_and_end(store: Store) -> None:
    entries = await filled(store, Random(4))
    for divisor in (1, 3, 50, 10_000):
        found: list[AuditEntry] = []
        place: Place | None = LAST
        while place is not None:
            keeps = partial(_divides, divisor)
            page, place = await store.audit.scan(10, place, None, keeps, max_blocks=1)
            assert len(page) <= 10
            found += page
        assert found == [entry for entry in entries if entry.number % divisor == 0]


@on_store
async def test_entries_without_the_words_are_left_out_and_no_other(store: Store) -> None:
    people = ("ada", "grace", 'q"uote\\', "zoë\u2028", "a")
    entries = [
        audited(number=number, at=NOW + number / 10, principal=people[number % 5], capability=f"tool-{number % 3}")
        for number in range(1, 200)
    ]
    await store.audit.append(*entries, head=head_of)
    entries.reverse()
    for who in people:
        for tool in ("", "tool-1"):

            def keeps(entry: AuditEntry, who: str = who, tool: str = tool) -> bool:
                return entry.principal == who and tool in entry.capability

            words = [word for word in (who, tool) if word]
            found, end = await store.audit.scan(1000, LAST, None, keeps, words=words)
            assert (found, end) == ([entry for entry in entries if keeps(entry)], None)


@on_store
async def test_the_first_page_reads_few_blocks(store: Store, monkeypatch: pytest.MonkeyPatch) -> None:
    entries = [audited(number=number, at=NOW + number / 100) for number in range(1, 2_000)]
    await store.audit.append(*entries, head=head_of)
    read, blocks = store.database.read, 0

    async def count(query: Query, *given: Any) -> Sequence[Row]:
        nonlocal blocks
        rows = await read(query, *given)
        blocks += len(rows)
        return rows

    monkeypatch.setattr(store.database, "read", count)
    assert await store.audit.latest(40) == entries[:-41:-1]
    assert blocks <= 6  # of 80


@on_store
async def test_a_chain_is_read_from_any_number_on(store: Store) -> None:
    entries = await filled(store, Random(3))
    chain = [entry for entry in reversed(entries) if entry.chain == "B"]
    chain.sort(key=lambda entry: entry.number)
    for after in (0, 1, 5, 40, len(chain) - 1, len(chain), len(chain) + 100):
        for limit in (1, 3, 1000):
            assert await store.audit.chain("B", after, limit) == chain[after : after + limit]
    assert await store.audit.last("B") == chain[-1]
    assert await store.audit.last("nobody") is None


@on_store
async def test_a_chain_with_swept_beginning_is_read_from_its_first_remaining_entry(store: Store) -> None:
    for number in range(1, 60):
        await store.audit.append(audited(number=number, at=NOW + number), head=head_of)
    assert await store.audit.sweep(NOW + 40, checkpoint_of) == 39

    assert [entry.number for entry in await store.audit.chain("hub-1", 0, 3)] == [40, 41, 42]
    assert [entry.number for entry in await store.audit.chain("hub-1", 20, 3)] == [40, 41, 42]
    assert [entry.number for entry in await store.audit.chain("hub-1", 57)] == [58, 59]


@on_store
async def test_entries_are_swept_to_within_half_a_second_and_counted(store: Store) -> None:
    entries = await filled(store, Random(4))
    limit = NOW + 3
    swept = await store.audit.sweep(limit, checkpoint_of)

    left = await store.audit.latest(10_000)
    assert swept == len(entries) - len(left)
    assert [entry for entry in entries if entry.at >= limit] == [entry for entry in left if entry.at >= limit]
    assert all(entry.at > limit - 0.5 for entry in left)
    assert await store.audit.sweep(limit, checkpoint_of) == 0


@on_store
async def test_entries_appended_together_are_few_rows(store: Store) -> None:
    await store.audit.append(
        *(audited(number=number, at=NOW + number / 10_000) for number in range(1, 2501)), head=head_of
    )
    await store.audit.append(audited(number=2501, at=NOW + 60), audited(number=2502, at=NOW + 61), head=head_of)

    blocks = await store.audit.blocks("hub-1")
    assert [(block.number, block.size, block.denials) for block in blocks] == [
        (1, 1000, 0),
        (1001, 1000, 0),
        (2001, 500, 0),
        (2501, 1, 0),
        (2502, 1, 0),
    ]
    assert not any(block.is_misfiled for block in blocks)
    assert len(await store.audit.blocks("hub-1", 1500, 2)) == 2
    assert tuple(AUDIT.columns) == ("chain", "number", "at", "size", "denials", "entries")


@on_store
async def test_a_block_is_written_once(store: Store) -> None:
    block = [audited(number=number) for number in range(1, 4)]
    await store.audit.append(*block, head=head_of)
    with pytest.raises(StaleVersion):
        await store.audit.append(*block, head=head_of)
    with pytest.raises(StaleVersion):
        await store.audit.append(*block, audited(number=4), head=head_of)
    assert await store.audit.chain("hub-1") == block


@on_store
async def test_the_oldest_blocks_of_a_store_that_is_too_large_are_deleted(store: Store) -> None:
    for chain in ("a", "b"):
        for number in range(1, 11):
            entry = audited(chain=chain, number=number, at=NOW + number * 10, value="x" * 1000)
            await store.audit.append(entry, head=head_of)

    assert await store.audit.prune(100_000, lambda chain, number: [chain, number]) == 0
    freed = await store.audit.prune(15_000, lambda chain, number: [chain, number])
    left = {chain: [entry.number for entry in await store.audit.chain(chain)] for chain in ("a", "b")}
    assert freed > 7000
    assert left == {"a": [5, 6, 7, 8, 9, 10], "b": [5, 6, 7, 8, 9, 10]}
    assert await store.audit.checkpoints() == {"a": (4, ["a", 4]), "b": (4, ["b", 4])}
    assert await store.audit.heads() == {"a": 10, "b": 10}
