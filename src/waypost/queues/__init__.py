"""Jobs that wait for a consumer in the store: leased to one process, and redelivered when the lease expires.

A job is added once per id. A consumer leases it, renews the lease while it works, and then completes, retries,
postpones or gives up the job. A job whose lease expires is delivered again. So a job is done at least once, and one
that was delivered too often is given up.
"""

from __future__ import annotations

import asyncio
import logging
import time
from contextlib import suppress
from typing import Any, Final

from waypost.errors import StaleVersion
from waypost.loops import wait_for_event
from waypost.stores.records import Job, Jobs
from waypost.stores.store import Store

LEASE: Final = 30.0
MAX_ATTEMPTS: Final = 5


_log: Final = logging.getLogger(__name__)
_POLL_S: Final = 1.0
"""Seconds between polls for jobs of other processes."""


class StoreQueue:
    """One queue by its name."""

    def __init__(self, store: Store, name: str, *, lease: float = LEASE, max_attempts: int = MAX_ATTEMPTS) -> None:
        self._store = store
        self._jobs = store.jobs
        self._name = name
        self._lease = lease
        self._max_attempts = max_attempts
        self._news = asyncio.Event()

    async def put(self, job_id: str, value: Any) -> bool:
        """Add a job; false if a job with that id exists, which stays."""
        is_new = await self._jobs.add(self._name, job_id, value, self._jobs.now())
        self._news.set()
        return is_new

    async def take(self, limit: int = 1, within: float = 0.0) -> list[Delivery]:
        """Lease up to `limit` jobs; if there is none, wait up to `within` seconds for one."""
        until = time.monotonic() + within
        while True:
            # Before the look into the store, so that a job that is put meanwhile ends the wait.
            self._news.clear()
            taken = await self._take(limit)
            left = until - time.monotonic()
            if taken or left <= 0:
                return taken
            await wait_for_event(self._news, min(left, await self._pause()))

    async def _take(self, limit: int) -> list[Delivery]:
        await self._store.open()  # only then the clock of the database is known
        now = self._jobs.now()
        jobs = await self._jobs.lease(self._name, now, now + self._lease, limit)
        taken: list[Delivery] = []
        for job in jobs:
            if job.attempts > self._max_attempts:
                with suppress(StaleVersion):
                    await self._jobs.give_up(job, now, job.reason or "Every lease expired.")
                    _log.warning("the job %s was given up: it was taken %d times", job.id, self._max_attempts)
            else:
                taken.append(Delivery(self._jobs, job, self._lease, self._max_attempts, self._news))
        return taken

    async def _pause(self) -> float:
        due_at = await self._jobs.next_due(self._name)
        # At least 10 ms: a job that is due, but was just leased by another process, must not be polled without pause.
        return _POLL_S if due_at is None else min(max(due_at - self._jobs.now(), 0.01), _POLL_S)


class Delivery:
    """A leased job; `StaleVersion` from any method means that the lease expired and another consumer has the job."""

    def __init__(self, jobs: Jobs, job: Job, lease: float, max_attempts: int, news: asyncio.Event) -> None:
        self.id = job.id
        self.value = job.value
        self.attempts = job.attempts
        """Number of deliveries, including this one."""
        self._jobs = jobs
        self._job = job
        self._lease = lease
        self._max_attempts = max_attempts
        self._news = news

    async def keep(self) -> None:
        """Renew the lease."""
        await self._jobs.renew(self._job, self._jobs.now() + self._lease)

    async def done(self) -> None:
        """Complete the job and remove it."""
        await self._jobs.remove(self._job)

    async def retry(self, delay: float, reason: str = "") -> bool:
        """Redeliver the job after `delay` seconds; false if it reached the maximum of attempts and is given up."""
        if self.attempts >= self._max_attempts:
            await self.give_up(reason)
            return False
        await self._jobs.put_back(self._job, self._jobs.now() + delay, reason)
        self._news.set()
        return True

    async def postpone(self, delay: float, reason: str = "") -> None:
        """Redeliver the job after `delay` seconds, without counting this attempt."""
        await self._jobs.put_back(self._job, self._jobs.now() + delay, reason, is_counted=False)
        self._news.set()

    async def give_up(self, reason: str) -> None:
        """Stop delivering the job; it stays in the store for operators."""
        await self._jobs.give_up(self._job, self._jobs.now(), reason)
