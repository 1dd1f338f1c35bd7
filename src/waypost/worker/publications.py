"""Skills and prompts that a worker publishes each time it connects, however late the registry comes up."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field
from typing import Any, Final, TypeAlias

from waypost.errors import InvocationFailed
from waypost.loops import running_loop
from waypost.worker.connection import Handshake

_log: Final = logging.getLogger(__name__)
_FINAL: Final = ("invocation_failed", "FORBIDDEN", "SHUTDOWN")
"""The codes of failures that asking again would not help; anything else means that the registry is not there."""

Call: TypeAlias = Callable[[str, Any, float], Awaitable[Any]]


@dataclass(eq=False, slots=True)
class Publication:
    """One skill or prompt."""

    name: str
    function_id: str
    payload: dict[str, Any]
    hurry: asyncio.Event = field(default_factory=asyncio.Event)
    going: asyncio.Task[bool] | None = None


class Publishing:
    """Everything that one worker publishes."""

    def __init__(self, call: Call, handshake: Handshake) -> None:
        self._call = call
        self._handshake = handshake
        self._all: dict[str, Publication] = {}

    async def publish(self, name: str, function_id: str, payload: dict[str, Any]) -> bool:
        """Publish it now and after every reconnection; whether the registry has it, or an error if it refuses it."""
        one = self._all.setdefault(name, Publication(name, function_id, payload))
        one.payload = payload
        one.hurry.set()
        if one.going is None or one.going.done():
            one.going = running_loop().create_task(self._published(one))
        try:
            return await asyncio.shield(one.going)
        except InvocationFailed:
            self._all.pop(name, None)
            raise

    def again(self) -> None:
        """The worker connected: publish everything that is not just being published, and hurry with that."""
        for one in self._all.values():
            if one.going is None or one.going.done():
                one.going = running_loop().create_task(self._republished(one))
            else:
                one.hurry.set()

    def stop(self) -> None:
        """Wait for nothing any more: there is no connection left to publish on."""
        for one in self._all.values():
            one.hurry.set()

    async def _republished(self, one: Publication) -> bool:
        try:
            return await self._published(one)
        except InvocationFailed as error:
            _log.warning("%s was refused: %s", one.name, error.message)
            return False

    async def _published(self, one: Publication) -> bool:
        shake, clock = self._handshake, running_loop().time
        begun, pause = clock(), shake.first
        while True:
            one.hurry.clear()
            payload = one.payload
            try:
                await self._call(one.function_id, payload, shake.within)
            except InvocationFailed as error:
                if error.code in _FINAL:
                    raise
                why = error.message
            else:
                if one.payload is not payload:  # there is a newer one by now
                    continue
                _log.info("%s is published", one.name)
                return True
            if clock() - begun + pause > shake.most:
                _log.warning("%s is not published, and it is given up: %s", one.name, why)
                return False
            _log.info("%s is not published yet: %s", one.name, why)
            pause = await self._rest(one, pause)

    async def _rest(self, one: Publication, pause: float) -> float:
        """Wait before another attempt; how long to wait before the next."""
        try:
            await asyncio.wait_for(one.hurry.wait(), pause)
        except TimeoutError:
            return min(pause * 2, self._handshake.longest)
        return self._handshake.first
