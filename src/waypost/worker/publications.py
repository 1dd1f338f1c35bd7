"""Skills and prompts that a worker publishes each time it connects, however late the registry comes up."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field
from typing import Any, Final, TypeAlias

from waypost.errors import InvocationFailed
from waypost.loops import running_loop

_log: Final = logging.getLogger(__name__)
_FINAL: Final = ("invocation_failed", "FORBIDDEN", "SHUTDOWN")
"""Failures after which another attempt would not help; any other means that the registry is not there."""


@dataclass(frozen=True, slots=True)
class Handshake:
    """How long a skill or prompt is offered to a registry that is not there yet, in seconds."""

    first: float = 5.0
    longest: float = 60.0
    """Pauses grow from the first to the longest, each twice as long as the one before."""
    most: float = 180.0
    """After which it is given up until the worker connects again."""
    within: float = 5.0
    """How long each attempt may take."""


Call: TypeAlias = Callable[[str, Any, float], Awaitable[Any]]


@dataclass(eq=False, slots=True)
class Publication:
    """One skill or prompt."""

    name: str
    function_id: str
    payload: dict[str, Any]
    retry_now: asyncio.Event = field(default_factory=asyncio.Event)
    running: asyncio.Task[bool] | None = None


class Publications:
    """Everything that one worker publishes, and does so again each time it connects."""

    def __init__(self, call: Call, handshake: Handshake) -> None:
        self._call = call
        self._handshake = handshake
        self._all: dict[str, Publication] = {}

    async def publish(self, name: str, function_id: str, payload: dict[str, Any]) -> bool:
        """Publish it now and after every reconnection; whether the registry has it, or an error if it refuses it."""
        one = self._all.setdefault(name, Publication(name, function_id, payload))
        one.payload = payload
        one.retry_now.set()
        if one.running is None or one.running.done():
            one.running = running_loop().create_task(self._publish(one))
        try:
            return await asyncio.shield(one.running)
        except InvocationFailed:
            self._all.pop(name, None)
            raise

    def publish_all(self) -> None:
        """The worker connected: publish everything again, without waiting for the next attempt."""
        for one in self._all.values():
            if one.running is None or one.running.done():
                one.running = running_loop().create_task(self._publish_again(one))
            else:
                one.retry_now.set()

    def stop(self) -> None:
        """Stop waiting: there is no connection left to publish on."""
        for one in self._all.values():
            one.retry_now.set()

    async def _publish_again(self, one: Publication) -> bool:
        try:
            return await self._publish(one)
        except InvocationFailed as error:
            _log.warning("%s was refused: %s", one.name, error.message)
            return False

    async def _publish(self, one: Publication) -> bool:
        handshake, clock = self._handshake, running_loop().time
        started, pause = clock(), handshake.first
        while True:
            one.retry_now.clear()
            payload = one.payload
            try:
                await self._call(one.function_id, payload, handshake.within)
            except InvocationFailed as error:
                if error.code in _FINAL:
                    raise
                why = error.message
            else:
                if one.payload is not payload:  # there is a newer one by now
                    continue
                _log.info("%s is published", one.name)
                return True
            if clock() - started + pause > handshake.most:
                _log.warning("%s is not published, and it is given up: %s", one.name, why)
                return False
            _log.info("%s is not published yet: %s", one.name, why)
            try:
                await asyncio.wait_for(one.retry_now.wait(), pause)
                pause = handshake.first
            except TimeoutError:
                pause = min(pause * 2, handshake.longest)
