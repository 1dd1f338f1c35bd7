"""Calls that a worker makes: those that wait for an answer, and those that wait for a connection."""

from __future__ import annotations

import asyncio
import uuid
from collections.abc import Awaitable, Callable, Mapping
from typing import Any, Final, TypeAlias

import msgspec
from msgspec import UNSET, Raw, Struct

from waypost.capabilities.results import encode_json
from waypost.errors import InvocationFailed
from waypost.loops import running_loop
from waypost.workers.frames import Action, Given, InvocationResult, InvokeFunction, failed

MOST_OFFLINE: Final = 1000
"""Calls that may wait for a connection."""
VOID: Final = Action("void")
"""Nobody waits for what the call comes to."""

Send: TypeAlias = Callable[[Struct], Awaitable[bool]]
"""Sends a message; false when there is no connection for it."""


def enqueue(queue: str) -> Action:
    """The call is kept in a queue and made later; its answer is a receipt."""
    return Action("enqueue", queue)


def invocation(
    function_id: str, metadata: Any, action: Action | Mapping[str, Any] | None, namespace: str | None
) -> InvokeFunction:
    """A call, as the engine is told of it, without its payload."""
    return InvokeFunction(
        function_id,
        metadata=given(metadata),
        action=action if isinstance(action, Action | None) else msgspec.convert(action, Action),
        namespace=namespace,
    )


def given(value: Any) -> Given:
    """A value on its way; nothing is none."""
    return UNSET if value is None else Raw(encode_json(value))


class Calls:
    """Every call of one worker that is not settled yet."""

    def __init__(self, send: Send) -> None:
        self._send = send
        self._unanswered: dict[str, asyncio.Future[Any]] = {}
        self._online = asyncio.Event()
        self._offline = 0
        self._ended: InvocationFailed | None = None

    @property
    def is_online(self) -> bool:
        """Whether calls go out at once."""
        return self._online.is_set()

    async def make(self, frame: InvokeFunction, within: float) -> Any:
        """Make a call and wait so many seconds for its answer; one that nobody waits for is done when it is sent."""
        try:
            async with asyncio.timeout(within):
                if frame.action is not None and frame.action.type == "void":
                    await self._deliver(frame)
                    return None
                return await self._answered(frame)
        except TimeoutError:
            where = "" if self.is_online else "; the worker is not connected"
            message = f"Invocation timeout after {within * 1000:g} ms: {frame.function_id}{where}"
            raise InvocationFailed(message, "TIMEOUT") from None

    def settle(self, answer: InvocationResult) -> None:
        """Hand an answer to whoever waits for it; nobody waits for one that comes too late."""
        future = self._unanswered.pop(answer.invocation_id or "", None)
        if future is None or future.done():
            return
        problem = failed(answer)
        if problem is not None:
            future.set_exception(problem)
            return
        try:
            future.set_result(None if answer.result is UNSET else msgspec.json.decode(answer.result))
        except (msgspec.MsgspecError, RecursionError) as error:
            future.set_exception(InvocationFailed(f"The answer cannot be read: {error}", "serialization_error"))

    def open(self) -> None:
        """There is a connection: what waits for one goes out."""
        self._online.set()

    def lose(self) -> None:
        """The connection is gone, and with it the answers to whatever was sent."""
        self._online.clear()
        self._fail(
            InvocationFailed(
                "Invocation stopped: the connection was lost before the answer came.", "invocation_stopped"
            )
        )

    def end(self, why: InvocationFailed) -> None:
        """There will be no connection any more."""
        self._ended = why
        self._fail(why)
        self._online.set()

    def _fail(self, why: InvocationFailed) -> None:
        for future in self._unanswered.values():
            if not future.done():
                future.set_exception(InvocationFailed(why.message, why.code))
        self._unanswered.clear()

    async def _answered(self, frame: InvokeFunction) -> Any:
        invocation = frame.invocation_id = str(uuid.uuid4())
        try:
            while True:
                await self._until_online(frame)
                future = self._unanswered[invocation] = running_loop().create_future()
                if await self._send(frame):
                    return await future
                self._online.clear()
                future.cancel()
        finally:
            self._unanswered.pop(invocation, None)

    async def _deliver(self, frame: InvokeFunction) -> None:
        await self._until_online(frame)
        while not await self._send(frame):
            self._online.clear()
            await self._until_online(frame)

    async def _until_online(self, frame: InvokeFunction) -> None:
        if not self.is_online:
            await self._in_line(frame)
        if self._ended is not None:
            raise InvocationFailed(self._ended.message, self._ended.code)

    async def _in_line(self, frame: InvokeFunction) -> None:
        if self._offline >= MOST_OFFLINE:
            raise InvocationFailed(
                f"{frame.function_id} was not called: the worker is not connected, and {MOST_OFFLINE} calls wait.",
                "not_connected",
            )
        self._offline += 1
        try:
            await self._online.wait()
        finally:
            self._offline -= 1
