"""Jobs by queue, and the audit in its chains."""

from __future__ import annotations

import asyncio

import pytest

from tests.contract.conftest import on_store
from tests.contract.samples import NOW, audited, checkpoint_of, head_of
from waypost.errors import StaleVersion
from waypost.stores.audit import FIRST, LAST
from waypost.stores.records import GIVEN_UP, WAITING, Job
from waypost.stores.store import Store


async def leased(store: Store, now: float = NOW, until: float = NOW + 30, limit: int = 10) -> list[Job]:
    return await store.jobs.lease("mail", now, until, limit)


@on_store
async def test_a_job_is_added_once(store: Store) -> None:
    assert await store.jobs.get("mail", "j1") is None
    assert await store.jobs.add("mail", "j1", {"to": "ada"}, NOW)
    assert not await store.jobs.add("mail", "j1", {"to": "bob"}, NOW + 9)
    assert await store.jobs.add("post", "j1", {"to": "bob"}, NOW)
    assert await store.jobs.get("mail", "j1") == Job(
        queue="mail", id="j1", version=1, status=WAITING, due_at=NOW, attempts=0, reason="", value={"to": "ada"}
    )


@on_store
async def test_due_jobs_are_leased_exclusively_with_the_longest_due_first(store: Store) -> None:
    for name, due_at in {"later": NOW + 1, "b": NOW, "a": NOW, "late": NOW - 5}.items():
        await store.jobs.add("mail", name, name, due_at)
    await store.jobs.add("post", "other", "other", NOW)

    first = await leased(store, limit=2)
    second = await leased(store)

    assert [(job.id, job.version, job.attempts, job.due_at) for job in first] == [
        ("late", 2, 1, NOW + 30),
        ("a", 2, 1, NOW + 30),
    ]
    assert [job.id for job in second] == ["b"]
    assert await leased(store) == []
    assert await store.jobs.get("mail", "late") == first[0]


@on_store
async def test_an_expired_lease_is_taken_over_and_its_old_holder_is_refused(store: Store) -> None:
    await store.jobs.add("mail", "j1", 1, NOW)
    (mine,) = await leased(store)
    (theirs,) = await leased(store, NOW + 30, NOW + 60)

    assert (theirs.version, theirs.attempts) == (3, 2)
    for late in (
        store.jobs.renew(mine, NOW + 90),
        store.jobs.put_back(mine, NOW, "late"),
        store.jobs.give_up(mine, NOW, "late"),
        store.jobs.remove(mine),
    ):
        with pytest.raises(StaleVersion, match="j1"):
            await late
    assert await store.jobs.get("mail", "j1") == theirs


@on_store
async def test_a_lease_is_kept_for_longer(store: Store) -> None:
    await store.jobs.add("mail", "j1", 1, NOW)
    (job,) = await leased(store)

    await store.jobs.renew(job, NOW + 90)

    assert await leased(store, NOW + 60) == []
    await store.jobs.remove(job)
    assert await store.jobs.get("mail", "j1") is None


@on_store
async def test_a_retried_job_is_leased_again_later(store: Store) -> None:
    await store.jobs.add("mail", "j1", 1, NOW)
    (job,) = await leased(store)

    await store.jobs.put_back(job, NOW + 5, "no answer")

    found = await store.jobs.get("mail", "j1")
    assert found is not None
    assert (found.status, found.due_at, found.attempts, found.reason) == (WAITING, NOW + 5, 1, "no answer")
    assert await leased(store) == []
    (again,) = await leased(store, NOW + 5)
    assert again.attempts == 2


@on_store
async def test_an_abandoned_job_is_kept_and_not_leased(store: Store) -> None:
    await store.jobs.add("mail", "j1", 1, NOW)
    (job,) = await leased(store)

    await store.jobs.give_up(job, NOW + 5, "too often")

    found = await store.jobs.get("mail", "j1")
    assert found is not None
    assert (found.status, found.reason) == (GIVEN_UP, "too often")
    assert await leased(store, NOW + 999) == []
    assert await store.jobs.next_due("mail") is None
    await store.jobs.put_back(found, NOW, "by hand")
    assert len(await leased(store)) == 1


@on_store
async def test_the_time_of_the_next_due_job_is_found(store: Store) -> None:
    assert await store.jobs.next_due("mail") is None

    await store.jobs.add("mail", "a", 1, NOW + 5)
    await store.jobs.add("mail", "b", 1, NOW + 2)
    await store.jobs.add("post", "c", 1, NOW)

    assert await store.jobs.next_due("mail") == NOW + 2


@on_store
async def test_jobs_are_paged_by_queue(store: Store) -> None:
    for queue, job_id in (("mail", "b"), ("mail", "a"), ("mail", "C"), ("post", "d")):
        await store.jobs.add(queue, job_id, 1, NOW)

    assert [job.id for job in await store.jobs.page("mail")] == ["C", "a", "b"]
    assert [job.id for job in await store.jobs.page("mail", "C", 1)] == ["a"]
    assert await store.jobs.page("none") == []


@on_store
async def test_concurrent_leases_never_share_a_job(store: Store) -> None:
    await asyncio.gather(*(store.jobs.add("mail", f"j{number:03}", number, NOW) for number in range(60)))

    taken = [job.id for some in await asyncio.gather(*(leased(store) for _ in range(12))) for job in some]

    assert len(taken) == len(set(taken))
    while some := await leased(store):
        taken += [job.id for job in some]
    assert sorted(taken) == [f"j{number:03}" for number in range(60)]


@on_store
async def test_a_chain_grows_by_numbers_that_are_free(store: Store) -> None:
    first, second = audited(), audited(number=2, at=NOW + 1, digest="d2", value=None)
    await store.audit.append(first, head=head_of)
    await store.audit.append(second, head=head_of)

    with pytest.raises(StaleVersion, match="hub-1"):
        await store.audit.append(audited(number=2, decision="denied"), head=head_of)
    assert await store.audit.chain("hub-1") == [first, second]
    assert await store.audit.chain("hub-1", 1) == [second]
    assert await store.audit.chain("hub-1", 0, 1) == [first]
    assert await store.audit.chain("hub-2") == []


@on_store
async def test_entries_of_all_chains_are_read_from_the_latest_on_all_or_by_decision(store: Store) -> None:
    places = [("b", 1, NOW), ("a", 1, NOW), ("a", 2, NOW), ("b", 2, NOW + 1), ("B", 1, NOW)]
    for chain, number, at in places:
        decision = "denied" if chain == "a" else "allowed"
        await store.audit.append(audited(chain=chain, number=number, at=at, decision=decision), head=head_of)

    async def read(limit: int = 100, before: tuple[float, str, int] = LAST, decision: str | None = None) -> list[str]:
        return [f"{entry.chain}{entry.number}" for entry in await store.audit.latest(limit, before, decision)]

    assert await read() == ["b2", "b1", "a2", "a1", "B1"]
    assert await read(2) == ["b2", "b1"]
    assert await read(2, (NOW, "b", 1)) == ["a2", "a1"]
    assert await read(decision="denied") == ["a2", "a1"]
    assert await read(1, (NOW, "a", 2), "denied") == ["a1"]
    assert await read(before=FIRST) == await read(decision="none") == []
    assert await store.audit.chains() == ["B", "a", "b"]
    assert await store.audit.chains("B", 1) == ["a"]


@on_store
async def test_old_audit_entries_are_swept_on_request(store: Store) -> None:
    for number in range(1, 5):
        await store.audit.append(audited(number=number, at=NOW + number), head=head_of)

    assert await store.audit.sweep(NOW + 3, checkpoint_of) == 2
    assert [entry.number for entry in await store.audit.chain("hub-1")] == [3, 4]
