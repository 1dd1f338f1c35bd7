"""A queue in the store: whoever shares the store shares the queue."""

from __future__ import annotations

import asyncio
import logging
import time
from contextlib import suppress
from typing import Any, Final

from waypost.errors import StaleVersion
from waypost.queues.queue import LEASE, MOST_ATTEMPTS, Delivery
from waypost.stores.jobs import Job, Jobs
from waypost.stores.store import Store

_log: Final = logging.getLogger(__name__)
_LOOK_AGAIN: Final = 1.0
"""Seconds until a queue is looked at again for what other processes put there."""


class StoreQueue:
    """One queue by its name."""

    def __init__(self, store: Store, name: str, *, lease: float = LEASE, most_attempts: int = MOST_ATTEMPTS) -> None:
        self._jobs = store.jobs
        self._name = name
        self._lease = lease
        self._most_attempts = most_attempts
        self._news = asyncio.Event()

    async def put(self, job_id: str, value: Any) -> bool:
        """Add a job; false when there is one with that id already, which stays."""
        is_new = await self._jobs.add(self._name, job_id, value, time.time())
        self._news.set()
        return is_new

    async def take(self, limit: int = 1, within: float = 0.0) -> list[Delivery]:
        """Take jobs, up to so many; when there is none, wait up to so many seconds for one."""
        until = time.monotonic() + within
        while True:
            self._news.clear()
            taken = await self._take(limit)
            left = until - time.monotonic()
            if taken or left <= 0:
                return taken
            with suppress(TimeoutError):
                async with asyncio.timeout(min(left, await self._pause())):
                    await self._news.wait()

    async def _take(self, limit: int) -> list[Delivery]:
        now = time.time()
        jobs = await self._jobs.lease(self._name, now, now + self._lease, limit)
        taken: list[Delivery] = []
        for job in jobs:
            if job.attempts > self._most_attempts:
                with suppress(StaleVersion):
                    await self._jobs.give_up(job, now, job.reason or "Whoever took it fell silent each time.")
                    _log.warning("the job %s was given up: it was taken %d times", job.id, self._most_attempts)
            else:
                taken.append(_Delivery(self._jobs, job, self._lease, self._most_attempts, self._news))
        return taken

    async def _pause(self) -> float:
        due_at = await self._jobs.next_due(self._name)
        return _LOOK_AGAIN if due_at is None else min(max(due_at - time.time(), 0.01), _LOOK_AGAIN)


class _Delivery:
    """A job in the hands of one who took it."""

    def __init__(self, jobs: Jobs, job: Job, lease: float, most_attempts: int, news: asyncio.Event) -> None:
        self.id = job.id
        self.value = job.value
        self.attempts = job.attempts
        self._jobs = jobs
        self._job = job
        self._lease = lease
        self._most_attempts = most_attempts
        self._news = news

    async def keep(self) -> None:
        """Have it for another lease."""
        await self._jobs.renew(self._job, time.time() + self._lease)

    async def done(self) -> None:
        """It is done and forgotten."""
        await self._jobs.remove(self._job)

    async def retry(self, delay: float, reason: str = "") -> bool:
        """Let it be taken again after so many seconds, or give it up when it was taken too often."""
        if self.attempts >= self._most_attempts:
            await self.give_up(reason)
            return False
        await self._jobs.put_back(self._job, time.time() + delay, reason)
        self._news.set()
        return True

    async def postpone(self, delay: float, reason: str = "") -> None:
        """Let it be taken again after so many seconds, as if it had not been taken this time."""
        await self._jobs.put_back(self._job, time.time() + delay, reason, is_counted=False)
        self._news.set()

    async def give_up(self, reason: str) -> None:
        """Nobody is to try it again."""
        await self._jobs.give_up(self._job, time.time(), reason)
