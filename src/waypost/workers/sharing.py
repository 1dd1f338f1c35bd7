"""What the workers of each replica offer, at all of them.

A replica writes what its workers offer to the store and announces that on the bus; the others read it then, or at the
next sweep. Rows of a replica that is gone do not count, and are removed.
"""

from __future__ import annotations

import asyncio
from bisect import insort
from collections.abc import Callable, Iterable, Iterator
from contextlib import suppress
from functools import partial
from itertools import count
from typing import TYPE_CHECKING, Final, NamedTuple

import msgspec
from msgspec import Raw

from waypost.buses import LocalBus
from waypost.errors import Busy, StoreError
from waypost.stores import schema
from waypost.stores.replicas import WorkerRecord, WorkerStore
from waypost.workers.channels import ChannelRelay, Direction
from waypost.workers.frames import NotStarted, RegisterFunction, encode, function_not_found
from waypost.workers.functions import Call, Function
from waypost.workers.remote import Offered, RemoteCalls, RemoteWorker
from waypost.workers.sockets import Receiver
from waypost.workers.worker import Worker

if TYPE_CHECKING:
    from waypost.runtime.core import Core
    from waypost.runtime.replicas import Replicas
    from waypost.workers.workers import Workers

Key = tuple[str, str]
"""A namespace, and an id in it."""
Place = tuple[str, str]
"""A replica, and the id of a worker of it."""
KIND: Final = schema.WORKERS.name
"""The kind of the changes that replicas announce when their workers offer something else."""
Announce = Callable[[str, str], None]
_read_offered: Final = msgspec.json.Decoder(Offered).decode


def share_workers(core: Core, replicas: Replicas, announce: Announce) -> SharedWorkers | None:
    """The workers of other replicas; none where there can be no other replica, or no call to it."""
    if not core.store.database.is_shared or isinstance(core.bus, LocalBus):
        return None
    shared = SharedWorkers(core, announce)
    replicas.on_gone(shared.forget)
    replicas.on_fenced(shared.write_again)
    return shared


class News(NamedTuple):
    """Workers of other replicas that came and went, and the functions that are offered otherwise now."""

    arrived: list[RemoteWorker]
    left: list[RemoteWorker]
    functions: set[Key]
    names: set[str]
    """The ids of all functions of the workers of which anything changed."""


class SharedWorkers:
    """Writes what the workers here offer, and knows what those of other replicas do."""

    def __init__(self, core: Core, announce: Announce) -> None:
        self.replica = core.replica
        """The id of this replica."""
        self._core = core
        self._announce = announce
        self._rows = WorkerStore(core.store.database)
        self._calls: RemoteCalls | None = None
        self._channels: ChannelRelay | None = None
        self._workers: Workers | None = None
        self._versions = count(1)
        self._unwritten: dict[str, Worker] = {}
        self._writing: asyncio.Task[None] | None = None
        self._reading = asyncio.Lock()
        self._remote: dict[Place, RemoteWorker] = {}
        self._known: dict[Place, int] = {}
        """The versions that were read."""
        self._offers: dict[Key, list[Function]] = {}
        """The functions with a key, the one of the worker that connected first at the beginning."""

    def __iter__(self) -> Iterator[RemoteWorker]:
        return iter(self._remote.values())

    async def start(self, workers: Workers) -> None:
        """Call functions of workers here for other replicas, and refresh them when one of those is gone."""
        core = self._core
        self._workers = workers
        self._calls = RemoteCalls(workers.functions, workers.find, core.store, core.bus, core.replica, core.spawn)
        self._calls.deliver = workers.observers.deliver
        self._channels = ChannelRelay(workers.channels, core.bus, core.replica)
        workers.channels.open_elsewhere = self._open_channel
        self._reading = asyncio.Lock()
        await self._rows.remove_dead()
        await self._calls.start()
        await self._channels.start_serving()

    async def stop(self) -> None:
        """Withdraw what the workers here offer from other replicas."""
        self._unwritten.clear()
        if self._writing is not None:
            # A write that is under way would bring a row back after they are removed.
            await asyncio.wait({self._writing})
        self._remote.clear()
        self._known.clear()
        self._offers.clear()
        if self._calls is not None and self._channels is not None:
            await self._channels.stop()
            await self._calls.stop()
            self._calls = self._channels = None
            with suppress(StoreError):  # others remove them, when they find that this replica is gone
                await self._rows.remove_all(self.replica)
            self._announce(KIND, self.replica)

    def find(self, key: Key) -> Function | None:
        """The function of a worker of another replica."""
        offers = self._offers.get(key)
        return None if offers is None else offers[0]

    def list_offers(self, key: Key) -> Iterable[RemoteWorker]:
        """The workers of other replicas that offer a function."""
        for function in self._offers.get(key, ()):
            assert isinstance(function.owner, RemoteWorker)
            yield function.owner

    def write(self, workers: Iterable[Worker]) -> None:
        """Write, in the background, what workers here offer now, or that they are gone."""
        if self._calls is None:
            return
        self._unwritten.update((worker.id, worker) for worker in workers)
        # One writer at a time keeps the versions in the order of the writes.
        if self._unwritten and (self._writing is None or self._writing.done()):
            self._writing = self._core.spawn(self._write())

    def write_again(self) -> None:
        """Write what all workers here offer: others may have removed it, because this replica was declared dead."""
        if self._workers is not None:
            self.write(self._workers.connected)

    def forget(self, replica: str) -> None:
        """A replica is gone: the calls that it runs end, and its workers are removed."""
        if self._calls is not None and self._channels is not None and self._workers is not None:
            self._calls.forget(replica)
            self._channels.forget(replica)
            self._core.spawn(self._refresh(self._workers))

    async def _refresh(self, workers: Workers) -> None:
        with suppress(StoreError):  # the next sweep refreshes them too
            await workers.refresh()

    async def refresh(self) -> News | None:
        """Read what other replicas changed; `None` if that is nothing."""
        self.write(())  # what the store did not take before
        async with self._reading:
            # Those that are gone from now on may still be in what is read.
            gone = set() if self._calls is None else set(self._calls.gone)
            news = await self._read_news()
            if self._calls is not None:
                self._calls.gone -= gone
            return news

    async def _read_news(self) -> News | None:
        found = await self._rows.list_versions(self.replica)
        if found == self._known:
            return None
        # The versions of a replica grow with each write, so that its newest known one tells which rows are new.
        records = [
            record
            for replica in {place[0] for place, version in found.items() if self._known.get(place) != version}
            for record in await self._rows.list_newer(replica, self._newest(replica))
        ]
        left = [worker for place, worker in self._remote.items() if place not in found]
        if left:
            await self._rows.remove_dead()
        changed: set[Key] = set()
        names = {name for worker in left for name in worker.functions}
        for worker in left:
            worker.is_gone = True
            del self._remote[worker.replica, worker.id]
            changed |= self._withdraw(worker)
        arrived = [record for record in records if (record.replica, record.id) not in self._remote]
        for record in records:
            changed |= self._take(record)
            names.update(self._remote[record.replica, record.id].functions)
        names.update(function_id for _, function_id in changed)
        self._known = {place: version for place, version in self._known.items() if place in found}
        self._known |= {(record.replica, record.id): record.version for record in records}
        return News([self._remote[record.replica, record.id] for record in arrived], left, changed, names)

    def _open_channel(self, replica: str, channel: str, key: str, direction: Direction) -> Receiver | None:
        """An end of a channel that a worker of another replica made."""
        if self._channels is None or all(worker.replica != replica for worker in self):
            return None
        return self._channels.open_end(replica, channel, key, direction)

    def _newest(self, replica: str) -> int:
        return max((version for place, version in self._known.items() if place[0] == replica), default=0)

    def _take(self, record: WorkerRecord) -> set[Key]:
        """Keep what a worker offers now; returns the keys of its functions, old and new, if those are not the same."""
        assert self._calls is not None
        offered = _read_offered(record.body)
        worker = self._remote.get((record.replica, record.id))
        if worker is None:
            worker = RemoteWorker(record.replica, record.id, offered, self._calls)
            self._remote[record.replica, record.id] = worker
        elif _is_same_offer(worker.offered, offered):  # clients are not to read their lists again
            worker.offered = offered
            return set()
        changed = self._withdraw(worker)
        worker.offered = offered
        for frame in offered.functions:
            run = partial(self._call, (worker.namespace, frame.id))
            function = Function(frame, run, worker.namespace, worker, is_remote=True)
            worker.functions[frame.id] = function
            insort(self._offers.setdefault(function.key, []), function, key=_rank)
            changed.add(function.key)
        return changed

    def _withdraw(self, worker: RemoteWorker) -> set[Key]:
        for function in worker.functions.values():
            offers = self._offers[function.key]
            offers.remove(function)
            if not offers:
                del self._offers[function.key]
        changed = {function.key for function in worker.functions.values()}
        worker.functions = {}
        return changed

    async def _call(self, key: Key, call: Call) -> Raw:
        """Call a function at the first replica where that works."""
        problem: Exception = function_not_found(key[1], key[0])
        for function in list(self._offers.get(key, ())):
            assert isinstance(function.owner, RemoteWorker)
            assert self._calls is not None
            try:
                return await self._calls.call(function.owner, key[0], call)
            # Only errors that mean that the function was not called: it must not run twice.
            except (NotStarted, Busy) as error:
                problem = error
        raise problem

    async def _write(self) -> None:
        while self._unwritten:
            # Taken out first: a change during the write puts the worker back.
            worker = self._unwritten.pop(next(iter(self._unwritten)))
            try:
                if worker.is_gone:
                    await self._rows.remove(self.replica, worker.id)
                    is_written = True
                else:
                    record = WorkerRecord(self.replica, worker.id, next(self._versions), self._to_body(worker))
                    is_written = await self._rows.put(record)
            except StoreError:
                is_written = False
            if not is_written:  # the next refresh tries again
                self._unwritten.setdefault(worker.id, worker)
                return
        self._announce(KIND, self.replica)

    def _to_body(self, worker: Worker) -> str:
        assert self._workers is not None
        types, bindings = self._workers.triggers.list_frames(worker)
        offered = Offered(
            worker.name,
            worker.identity,
            worker.namespace,
            worker.connected_at,
            worker.about,
            [_without_url(function.frame) for function in worker.functions.values()],
            types,
            bindings,
            self._workers.observers.list_shared(worker),
            self._workers.observers.list_answers(worker),
        )
        return encode(offered).decode()


def _rank(function: Function) -> tuple[float, str, str]:
    worker = function.owner
    assert isinstance(worker, RemoteWorker)
    return worker.connected_at, worker.replica, worker.id


def _is_same_offer(before: Offered, after: Offered) -> bool:
    """Whether a worker offers the same functions under the same name."""
    return (before.name, before.identity, before.namespace, before.functions) == (
        after.name,
        after.identity,
        after.namespace,
        after.functions,
    )


def _without_url(frame: RegisterFunction) -> RegisterFunction:
    # A function at a URL is called by the replica of its worker, too; how, and with which credentials, stays there.
    return frame if frame.invocation is None else msgspec.structs.replace(frame, invocation=None)
