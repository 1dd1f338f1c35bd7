"""The port of a bus: messages to all subscribers, and requests to one responder of a name.

A subject is words joined by dots. A subscription may have `*` for one word and `>` for all that follow. Each subscriber
gets a message at most once, in the order of publication; one that falls far behind loses the oldest. Of several
responders to one name, one gets a request; that there is none is known at once.

A bus may lose anything at any time: what must not be lost is in the store, and a message only says where to look.
"""

from __future__ import annotations

import re
from collections.abc import Awaitable, Callable
from typing import Final, Literal, Protocol

from waypost.errors import WaypostError

MAX_MESSAGE_BYTES: Final = 1_000_000
"""Below the 1 MiB of a NATS server, so that there is room for an envelope."""
MAX_WAITING_MESSAGES: Final = 1000
"""How many messages wait for one subscriber."""

Receive = Callable[[str, bytes], Awaitable[None] | None]
"""Gets a subject and a message."""
Respond = Callable[[bytes], Awaitable[bytes]]
"""Gets a request, returns the response."""
Health = Literal["ok", "degraded", "down"]
"""Connected; not connected, which is tried again; refused by the server, or not open."""

_WORD: Final = re.compile(r"[^\s.*>\x00-\x1f]+")


class Subscription(Protocol):
    """A subscription, or the promise to respond to a name."""

    async def end(self) -> None:
        """Receive nothing new, and wait until what arrived before is processed."""


class Bus(Protocol):
    """One bus, shared by everything that opens it under the same address."""

    @property
    def health(self) -> Health:
        """Whether messages reach other processes at the moment."""

    async def open(self) -> None:
        """Connect; a server that cannot be reached is tried again in the background.

        Raises `WaypostError` if the server refuses the credentials, or does not grant the permissions that it takes.
        """

    def on_reconnect(self, call: Callable[[], None]) -> None:
        """Call a function after messages from other processes may have been lost.

        That is after each connection but the first, and after messages were dropped because too many arrived.
        """

    async def publish(self, subject: str, message: bytes) -> None:
        """Send a message to all subscribers of a subject.

        Subscribers in this process get it in any case. It does not wait for a server and does not raise if there is
        none: the message is lost.
        """

    async def subscribe(self, subject: str, receive: Receive) -> Subscription:
        """Receive the messages of a subject or a pattern of subjects; failures of `receive` are logged."""

    async def serve(self, name: str, respond: Respond) -> Subscription:
        """Respond to requests to a name."""

    async def request(self, name: str, message: bytes, within: float) -> bytes:
        """Send a request to a responder of a name, one in this process first, and wait for the response.

        Raises `NoHolder` at once if none can be reached: the request was not sent. Raises `DeadlineExceeded` if there
        is no response within so many seconds, or the connection is lost before it: the responder may have acted.
        Raises `RemoteError` with the reason if the responder fails.
        """

    async def close(self) -> None:
        """End all subscriptions made here, and wait for what they are processing."""


def check_subject(subject: str, *, pattern: bool = False) -> str:
    """Return a valid subject; raises `WaypostError` for any other text."""
    words = subject.split(".")
    for place, word in enumerate(words):
        wild = pattern and (word == "*" or (word == ">" and place == len(words) - 1))
        if not wild and not _WORD.fullmatch(word):
            raise WaypostError(f"{subject!r} is not a subject: use words joined by dots, without spaces or wildcards.")
    return subject


def check_message(message: bytes) -> bytes:
    """Return a message that is not too large; raises `WaypostError` for any other."""
    if len(message) > MAX_MESSAGE_BYTES:
        raise WaypostError(f"A message of {len(message)} bytes is too large for the bus; at most {MAX_MESSAGE_BYTES}.")
    return message
