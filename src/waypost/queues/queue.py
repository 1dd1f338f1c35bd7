"""The port for jobs that wait for a consumer: leased to one process, and redelivered when the lease expires.

A job is added once per id. A consumer leases it, renews the lease while it works, and then completes, retries,
postpones or gives up the job. A job whose lease expires is delivered again. So a job is done at least once, and one
that was delivered too often is given up.
"""

from __future__ import annotations

from typing import Any, Final, Protocol

LEASE: Final = 30.0
MAX_ATTEMPTS: Final = 5


class Delivery(Protocol):
    """A leased job; `StaleVersion` from any method means that the lease expired and another consumer has the job."""

    @property
    def id(self) -> str:
        """The job's id."""

    @property
    def value(self) -> Any:
        """The payload of the job."""

    @property
    def attempts(self) -> int:
        """Number of deliveries, including this one."""

    async def keep(self) -> None:
        """Renew the lease."""

    async def done(self) -> None:
        """Complete the job and remove it."""

    async def retry(self, delay: float, reason: str = "") -> bool:
        """Redeliver the job after `delay` seconds; false if it reached the maximum of attempts and is given up."""

    async def postpone(self, delay: float, reason: str = "") -> None:
        """Redeliver the job after `delay` seconds, without counting this attempt."""

    async def give_up(self, reason: str) -> None:
        """Stop delivering the job; it stays in the store for operators."""


class Queue(Protocol):
    """One queue by its name."""

    async def put(self, job_id: str, value: Any) -> bool:
        """Add a job; false if a job with that id exists, which stays."""

    async def take(self, limit: int = 1, within: float = 0.0) -> list[Delivery]:
        """Lease up to `limit` jobs; if there is none, wait up to `within` seconds for one."""
