"""Calls that are made later: kept in the store, tried again when they fail, given up after a few times.

Where nobody offers the function, or its worker leaves before it answers, that is no failure: the call waits.
"""

from __future__ import annotations

import asyncio
import logging
import time
import uuid
from collections.abc import Awaitable, Callable
from contextlib import suppress
from typing import Any, Final, TypeAlias

import msgspec

from waypost.errors import InvocationFailed, StaleVersion, StoreError, WaypostError
from waypost.loops import running_loop
from waypost.queues import Delivery, StoreQueue
from waypost.stores.store import Store
from waypost.workers.failures import Unreached
from waypost.workers.frames import encode
from waypost.workers.functions import Call

_log: Final = logging.getLogger(__name__)
_NAME: Final = "workers"
_AT_ONCE: Final = 16
_WAIT: Final = 10.0
_LEASE: Final = 60.0
_KEEP_EVERY: Final = 20.0
_PAUSES: Final = (1.0, 5.0, 25.0, 120.0)
"""Seconds after which what failed is tried again."""
_SHORTEST_WAIT: Final = 1.0
_LONGEST_WAIT: Final = 300.0
"""Seconds after which somebody who offers the function is looked for again; between them, as long as it has waited."""
_MOST_WAITING: Final = 24 * 3600.0

Make: TypeAlias = Callable[[Call, str, str], Awaitable[Any]]
"""Makes a call in a namespace on behalf of a worker, by its name."""
_decode: Final = msgspec.json.Decoder(Call).decode


class Queueing:
    """One queue in the store for all calls that are made later."""

    def __init__(self, store: Store, make: Make) -> None:
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
        told = encode(call).decode()
        job = {"queue": queue, "call": told, "namespace": namespace, "sender": sender, "since": time.time()}
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
            self._queue = StoreQueue(self._store, _NAME, lease=_LEASE)
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
                await delivery.postpone(0.0, "The hub stopped.")
            raise
        except WaypostError as error:
            with suppress(StoreError):
                await _put_back(delivery, error)
        except Exception as error:
            _log.exception("a call that was enqueued crashed")
            with suppress(StoreError):
                await delivery.give_up(f"{type(error).__name__}: {error}")
        else:
            with suppress(StaleVersion):
                await delivery.done()
        finally:
            keeping.cancel()


async def _put_back(delivery: Delivery, error: WaypostError) -> None:
    """Have a call made again after a while, or never."""
    since = delivery.value.get("since")
    if isinstance(error, Unreached) and since is not None:
        waited = time.time() - since
        is_over = waited >= _MOST_WAITING
        if is_over:
            await delivery.give_up(error.message)
        else:
            await delivery.postpone(min(max(waited, _SHORTEST_WAIT), _LONGEST_WAIT), error.message)
    else:
        pause = _PAUSES[min(delivery.attempts, len(_PAUSES)) - 1]
        is_over = not await delivery.retry(pause, error.message)
    if is_over:
        what = (_decode(delivery.value["call"]).function_id, delivery.value["queue"], error.message)
        _log.warning("the call of %s in the queue %s was given up: %s", *what)


async def _kept(delivery: Delivery) -> None:
    with suppress(StoreError):
        while True:
            await asyncio.sleep(_KEEP_EVERY)
            await delivery.keep()
