"""Calls between replicas whose messages cannot be read."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import pytest
from msgspec import Raw

from tests.protocol.conftest import asynchronous
from tests.workers.wire import at_work, hub_for_workers, wired
from waypost.buses.local import LocalBus
from waypost.stores.sqlite import SqliteDatabase
from waypost.stores.store import Store
from waypost.workers.calls import worker_caller
from waypost.workers.frames import NotStarted, RegisterFunction, RegisterTrigger, WorkerUnreachable
from waypost.workers.functions import Call, Function, Functions
from waypost.workers.remote import Offered, RemoteCalls, RemoteWorker

DEEP = Raw(b"[" * 100_000 + b"]" * 100_000)


async def answer_deeply(_: Call) -> Raw:
    """What a function at a URL may answer."""
    return DEEP


@asynccontextmanager
async def worker_elsewhere() -> AsyncIterator[RemoteWorker]:
    """A worker as its neighbour knows it, and its replica, which has one function of it."""
    store, bus, functions = Store(SqliteDatabase()), LocalBus(), Functions()
    here, there = (
        RemoteCalls(functions, lambda _: None, store, bus, replica, asyncio.ensure_future) for replica in ("a", "b")
    )
    worker = RemoteWorker("b", "w", Offered("wire", "wire", "default", 0.0), here)
    functions.put(Function(RegisterFunction("a::b"), answer_deeply, owner=worker))
    await there.start()
    try:
        yield worker
    finally:
        await there.stop()
        await store.close()


@asynchronous
async def test_a_call_that_its_replica_cannot_read_was_not_started() -> None:
    async with worker_elsewhere() as worker:
        call = Call("a::b", DEEP, caller=worker_caller("caller"))
        with pytest.raises(NotStarted, match="The call cannot be read"):
            await worker.calls.call(worker, "default", call)


@asynchronous
async def test_an_answer_of_another_replica_that_cannot_be_read_is_lost() -> None:
    async with worker_elsewhere() as worker:
        call = Call("a::b", caller=worker_caller("caller"))
        with pytest.raises(WorkerUnreachable, match="the answer of a::b was lost; it has run"):
            await worker.calls.call(worker, "default", call)


@asynchronous
async def test_a_binding_that_another_replica_should_have_refused_is_left_out() -> None:
    hub = hub_for_workers()
    async with at_work(hub), wired(hub) as here, worker_elsewhere() as worker:
        worker.offered.bindings = [
            RegisterTrigger("bad", "state", "a::b", Raw(b"1e999")),
            RegisterTrigger("good", "state", "a::b", Raw(b"{}")),
        ]
        hub.workers.triggers.update_remote([worker])
        hub.workers.triggers.update_remote([worker])
        assert [one.id for one in hub.workers.triggers.bindings] == ["b/good"]
        await here.result("state::set", {"scope": "s", "key": "k", "value": 1})
