"""Workers of replicas: only a replica that is alive has any."""

from __future__ import annotations

from tests.contract.conftest import on_store
from tests.contract.samples import NOW
from waypost.stores.replicas import Replica, ReplicaStore, WorkerRecord, WorkerStore
from waypost.stores.store import Store


def replica(replica_id: str) -> Replica:
    """A replica that is alive."""
    return Replica(
        id=replica_id, address="", version="1", config_digest="d", started_at=NOW, last_seen_at=NOW, status="ready"
    )


@on_store
async def test_a_replica_that_was_declared_dead_writes_no_workers_and_has_none(store: Store) -> None:
    replicas, workers = ReplicaStore(store.database), WorkerStore(store.database)
    assert not await workers.put(WorkerRecord("a", "w", 1, "{}"))
    await replicas.register(replica("a"))
    assert await workers.put(WorkerRecord("a", "w", 1, "{}"))
    assert await workers.list_versions("b") == {("a", "w"): 1}
    assert await workers.list_versions("a") == {}
    assert await replicas.declare_dead(replica("a"))
    assert await workers.list_versions("b") == {}
    assert not await workers.put(WorkerRecord("a", "w", 2, "{}"))
    await workers.remove_dead()
    await replicas.register(replica("a"))
    assert await workers.list_versions("b") == {}


@on_store
async def test_workers_are_replaced_and_removed_each_for_itself(store: Store) -> None:
    replicas, workers = ReplicaStore(store.database), WorkerStore(store.database)
    for one in ("a", "b"):
        await replicas.register(replica(one))
        for number, worker in enumerate(("v", "w"), 1):
            assert await workers.put(WorkerRecord(one, worker, number, worker))
    assert await workers.put(WorkerRecord("a", "v", 3, "new"))
    assert await workers.list_newer("a", 2) == [WorkerRecord("a", "v", 3, "new")]
    await workers.remove("a", "v")
    await workers.remove_all("b")
    await workers.remove_dead()
    assert await workers.list_versions("") == {("a", "w"): 2}
