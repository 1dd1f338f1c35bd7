"""The other replicas, asked over the bus for what only they know, such as the sessions that are open there."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from typing import Any, Final, TypeVar

import msgspec

from waypost.buses.bus import Subscription
from waypost.errors import DeadlineExceeded, NoHolder, RemoteError
from waypost.runtime.component import Component
from waypost.runtime.core import Core
from waypost.runtime.replicas import Replicas

ANSWER_TIMEOUT_S: Final = 2.0
"""How long a person waits for a replica that is alive and does not answer."""

Answer = TypeVar("Answer")
Respond = Callable[[str, bytes], Awaitable[Any]]
"""Gets what a question is about, and the question as JSON; returns the answer."""

_encode: Final = msgspec.json.encode
_read_question: Final = msgspec.json.Decoder(tuple[str, msgspec.Raw]).decode


class Peers(Component):
    """Asks the other replicas, and answers them."""

    name = "peers"

    def __init__(self, core: Core, replicas: Replicas, respond: Respond) -> None:
        self._core = core
        self._replicas = replicas
        self._respond = respond
        self._serving: Subscription | None = None

    async def start(self, core: Core) -> None:
        """Answer the other replicas from now on."""
        if core.store.database.is_shared:
            self._serving = await core.bus.serve(_name(core.replica), self._answer)

    async def stop(self) -> None:
        """Answer no longer; the others know that at once."""
        serving, self._serving = self._serving, None
        if serving is not None:
            await serving.end()

    async def ask(self, subject: str, question: Any, answer: type[Answer]) -> tuple[list[Answer], list[str]]:
        """The answers of the other replicas that are alive, and the ids of those that did not answer."""
        message, others = _encode((subject, question)), list(self._replicas.others)
        found = await asyncio.gather(*(self._ask_one(replica, message, answer) for replica in others))
        silent = [replica for replica, one in zip(others, found, strict=True) if one is None]
        return [one for one in found if one is not None], silent

    async def _ask_one(self, replica: str, message: bytes, answer: type[Answer]) -> Answer | None:
        try:
            said = await self._core.bus.request(_name(replica), message, ANSWER_TIMEOUT_S)
            return msgspec.json.decode(said, type=answer)
        except (NoHolder, DeadlineExceeded, RemoteError, msgspec.DecodeError):
            return None

    async def _answer(self, message: bytes) -> bytes:
        subject, question = _read_question(message)
        return _encode(await self._respond(subject, bytes(question)))


def _name(replica: str) -> str:
    return f"operators.{replica}"
