"""The port: work that waits for somebody to do it, and is given to another when they fall silent.

A job is put once by its id. Whoever takes it has it for the queue's lease and says from time to time that it goes on;
then it is done, or tried again after a while, or postponed, or given up. A job that is taken and neither settled nor
kept alive comes back. So a job is done at least once, and one that was taken too often is given up.
"""

from __future__ import annotations

from typing import Any, Final, Protocol

LEASE: Final = 30.0
MOST_ATTEMPTS: Final = 5


class Delivery(Protocol):
    """A job in the hands of one who took it; `StaleVersion` from any of these means that another has it by now."""

    @property
    def id(self) -> str:
        """The job's id."""

    @property
    def value(self) -> Any:
        """What is to be done, as it was put."""

    @property
    def attempts(self) -> int:
        """How often it was taken, this time included."""

    async def keep(self) -> None:
        """Have it for another lease."""

    async def done(self) -> None:
        """It is done and forgotten."""

    async def retry(self, delay: float, reason: str = "") -> bool:
        """Let it be taken again after so many seconds; false when it was taken too often and is given up instead."""

    async def postpone(self, delay: float, reason: str = "") -> None:
        """Let it be taken again after so many seconds, as if it had not been taken this time."""

    async def give_up(self, reason: str) -> None:
        """Nobody is to try it again; it stays for people to look at."""


class Queue(Protocol):
    """One queue by its name."""

    async def put(self, job_id: str, value: Any) -> bool:
        """Add a job; false when there is one with that id already, which stays."""

    async def take(self, limit: int = 1, within: float = 0.0) -> list[Delivery]:
        """Take jobs, up to so many; when there is none, wait up to so many seconds for one."""
