"""The port: messages to everybody who listens, questions to whoever holds a name.

A subject is words joined by dots. A subscription may put `*` for one word and `>` for all that follow. A message is
heard at most once by each who listens when it is published, and in order; one who falls far behind misses the oldest.
A name is held by one or several; a question goes to one of them, and when nobody holds it that is known at once.
"""

from __future__ import annotations

import re
from collections.abc import Awaitable, Callable
from typing import Final, Protocol

from waypost.errors import WaypostError

LARGEST: Final = 1024 * 1024
"""Bytes in a message."""
MOST_WAITING: Final = 1000
"""Messages that wait for one who listens."""

Heard = Callable[[str, bytes], Awaitable[None] | None]
"""Takes a subject and a message."""
Answers = Callable[[bytes], Awaitable[bytes]]
"""Takes a question, gives the answer."""

_WORD: Final = re.compile(r"[^\s.*>\x00-\x1f]+")


class Subscription(Protocol):
    """What can be ended."""

    async def end(self) -> None:
        """Hear and answer nothing any more; what arrived before is still dealt with."""


class Bus(Protocol):
    """One bus, shared by all who open it under the same address."""

    async def publish(self, subject: str, message: bytes) -> None:
        """Tell everybody who listens now."""

    async def subscribe(self, subject: str, heard: Heard) -> Subscription:
        """Listen to a subject or a pattern of subjects; a failure of `heard` is logged."""

    async def hold(self, name: str, answers: Answers) -> Subscription:
        """Answer questions to a name."""

    async def request(self, name: str, question: bytes, within: float) -> bytes:
        """Ask whoever holds a name.

        `NoHolder` at once when nobody does, `DeadlineExceeded` when the answer takes longer, `RemoteError` with what
        went wrong when it failed.
        """

    async def close(self) -> None:
        """End all subscriptions made here, and wait for what they are dealing with."""


def checked_subject(subject: str, *, pattern: bool = False) -> str:
    """The subject, if it is one."""
    words = subject.split(".")
    for place, word in enumerate(words):
        wild = pattern and (word == "*" or (word == ">" and place == len(words) - 1))
        if not wild and not _WORD.fullmatch(word):
            raise WaypostError(f"{subject!r} is no subject: words joined by dots, without spaces or wildcards.")
    return subject


def checked_message(message: bytes) -> bytes:
    """The message, if it is not too large."""
    if len(message) > LARGEST:
        raise WaypostError(f"A message of {len(message)} bytes is too large for the bus, which takes {LARGEST}.")
    return message
