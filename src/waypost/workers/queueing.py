"""Calls that are made later: kept in the store, tried again when they fail, given up after a few times."""

from __future__ import annotations

import asyncio
import logging
import uuid
from collections.abc import Awaitable, Callable
from contextlib import suppress
from typing import Any, Final, TypeAlias

import msgspec

from waypost.errors import InvocationFailed, StaleVersion, StoreError, WaypostError
from waypost.loops import running_loop
from waypost.queues import Delivery, StoreQueue
from waypost.stores.store import Store
from waypost.workers.frames import encode
from waypost.workers.functions import Call

_log: Final = logging.getLogger(__name__)
_NAME: Final = "workers"
_AT_ONCE: Final = 16
_WAIT: Final = 10.0
_LEASE: Final = 60.0
_KEEP_EVERY: Final = 20.0
_PAUSES: Final = (1.0, 5.0, 25.0, 120.0)

Make: TypeAlias = Callable[[Call, str, str], Awaitable[Any]]
"""Makes a call in a namespace on behalf of a worker, by its name."""
_decode: Final = msgspec.json.Decoder(Call).decode


class Queueing:
    """One queue in the store for all calls that are made later."""

    def __init__(self, store: Callable[[], Store], make: Make) -> None:
        self._store = store
        self._make = make
        self._queue: StoreQueue | None = None
        self._running: asyncio.Task[None] | None = None
        self._jobs: set[asyncio.Task[None]] = set()

    async def put(self, queue: str, call: Call, namespace: str, sender: str) -> str:
        """Keep a call to be made later; its receipt."""
        if not queue.strip():
            raise InvocationFailed("A call that is enqueued needs the name of a queue.", "enqueue_error")
        receipt = str(uuid.uuid4())
        job = {"queue": queue, "call": encode(call).decode(), "namespace": namespace, "sender": sender}
        try:
            await self._here().put(receipt, job)
        except StoreError as error:
            raise InvocationFailed(f"The call cannot be kept: {error.message}", "enqueue_error") from None
        self.start()
        return receipt

    def start(self) -> None:
        """Make what waits, from now on."""
        if self._running is None or self._running.done():
            self._running = running_loop().create_task(self._run())

    async def stop(self) -> None:
        """Make nothing more; what is not done comes again."""
        tasks = [*self._jobs, *((self._running,) if self._running is not None else ())]
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
        self._running = None
        self._queue = None

    def _here(self) -> StoreQueue:
        if self._queue is None:
            self._queue = StoreQueue(self._store(), _NAME, lease=_LEASE)
        return self._queue

    async def _run(self) -> None:
        while True:
            try:
                taken = await self._here().take(_AT_ONCE, _WAIT)
            except StoreError as error:
                _log.warning("calls that were enqueued wait: %s", error.message)
                await asyncio.sleep(_WAIT)
                continue
            for delivery in taken:
                task = running_loop().create_task(self._do(delivery))
                self._jobs.add(task)
                task.add_done_callback(self._jobs.discard)
            if len(self._jobs) >= _AT_ONCE:
                await asyncio.wait(self._jobs, return_when=asyncio.FIRST_COMPLETED)

    async def _do(self, delivery: Delivery) -> None:
        keeping = running_loop().create_task(_kept(delivery))
        try:
            job = delivery.value
            await self._make(_decode(job["call"]), job["namespace"], job["sender"])
        except asyncio.CancelledError:
            with suppress(StoreError):
                await delivery.retry(0.0, "The hub stopped.")
            raise
        except WaypostError as error:
            pause = _PAUSES[min(delivery.attempts, len(_PAUSES)) - 1]
            with suppress(StoreError):
                await delivery.retry(pause, error.message)
        except Exception as error:
            _log.exception("a call that was enqueued crashed")
            with suppress(StoreError):
                await delivery.give_up(f"{type(error).__name__}: {error}")
        else:
            with suppress(StaleVersion):
                await delivery.done()
        finally:
            keeping.cancel()


async def _kept(delivery: Delivery) -> None:
    with suppress(StoreError):
        while True:
            await asyncio.sleep(_KEEP_EVERY)
            await delivery.keep()
