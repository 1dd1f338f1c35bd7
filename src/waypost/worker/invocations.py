"""Calls of functions: the one that a handler answers, and those that the worker makes."""

from __future__ import annotations

import asyncio
import uuid
from collections.abc import Awaitable, Callable, Iterator
from contextlib import contextmanager, nullcontext
from contextvars import ContextVar
from dataclasses import dataclass
from sys import modules
from typing import Any, Final, TypeAlias

import msgspec
from msgspec import UNSET, Raw, Struct

from waypost.capabilities.results import encode_json
from waypost.errors import InvocationFailed
from waypost.execution import tracing
from waypost.loops import running_loop
from waypost.workers import frames
from waypost.workers.frames import Action, Given, InvocationResult, InvokeFunction, Origin
from waypost.workers.functions import trace_here

MAX_OFFLINE_CALLS: Final = 1000
"""Calls that may wait for a connection."""
VOID: Final = Action("void")
"""The caller does not wait for an answer."""

Send: TypeAlias = Callable[[Struct], Awaitable[bool]]
"""Sends a message; false when there is no connection for it."""

current: Final[ContextVar[InvokeFunction | None]] = ContextVar("invocation", default=None)
"""The call that is being answered here."""


@dataclass(frozen=True, slots=True)
class InvocationContext:
    """A call that is being answered."""

    function_id: str
    invocation_id: str
    observe_depth: int = 0
    """How many observers in a row caused it."""
    caller: dict[str, Any] | None = None
    """Who made it: `worker_id`, `worker_name`, and the `function_id` and `invocation_id` that it was made from."""
    activation: dict[str, Any] | None = None
    """The `observer_id` and `activation_id`, where it is made for an observer."""
    traceparent: str | None = None
    baggage: str | None = None


def current_invocation() -> InvocationContext | None:
    """The call that this code runs for, in threads of handlers too; nothing outside of handlers."""
    call = current.get()
    if call is None:
        return None
    return InvocationContext(
        call.function_id,
        call.invocation_id or "",
        max(call.observe_depth or 0, 0),
        _to_dict(call.caller),
        _to_dict(call.activation),
        call.traceparent,
        frames.split_baggage(call.baggage)[0],
    )


@contextmanager
def run_as_handler(call: InvokeFunction) -> Iterator[None]:
    """Run a handler as that of a call, with a span of its trace where OpenTelemetry is in use."""
    if call.invocation_id is None:  # its caller does not wait, but calls that it causes refer to it
        call = msgspec.structs.replace(call, invocation_id=str(uuid.uuid4()))
    token = current.set(call)
    try:
        with _span(call) if tracing.SDK in modules else nullcontext():
            yield
    finally:
        current.reset(token)


@contextmanager
def _span(call: InvokeFunction) -> Iterator[None]:
    from opentelemetry import context, propagate

    carrier = {"traceparent": call.traceparent or "", "baggage": call.baggage or ""}
    token = context.attach(propagate.extract(carrier))  # a span alone would leave the baggage behind
    try:
        with tracing.span(f"execute {call.function_id}", {"waypost.function": call.function_id}):
            yield
    finally:
        context.detach(token)


def trace_context() -> tuple[frames.Text, frames.Text]:
    """The `traceparent` and `baggage` of what happens here: the current span's, else those of the call."""
    here = trace_here()
    if here[0] is not None:
        return here
    call = current.get()
    return (None, None) if call is None else (call.traceparent, call.baggage)


def add_origin(frame: InvokeFunction, is_observed: bool) -> InvokeFunction:
    """A call with its trace, and if the engine knows observers, with the call that it is made from."""
    frame.traceparent, frame.baggage = trace_context()
    outer = current.get()
    if outer is not None and is_observed:
        frame.caller = Origin(function_id=outer.function_id, invocation_id=outer.invocation_id, parent=parent_of(outer))
        frame.observe_depth = outer.observe_depth
    return frame


def parent_of(call: InvokeFunction) -> Origin | None:
    """The origin of a call, without the origins behind it."""
    return None if call.caller is None else msgspec.structs.replace(call.caller, parent=None)


def _to_dict(part: Struct | None) -> dict[str, Any] | None:
    return None if part is None else dict(msgspec.to_builtins(part))


def enqueue(queue: str) -> Action:
    """Keep the call in a queue and make it later; its answer is a receipt."""
    return Action("enqueue", queue)


def to_raw(value: Any) -> Given:
    """A value as JSON; `None` is left out."""
    return UNSET if value is None else Raw(encode_json(value))


def from_raw(value: Given) -> Any:
    """A value out of JSON; what was left out is `None`."""
    return None if value is UNSET else msgspec.json.decode(value)


class Calls:
    """The calls of one worker that have no answer yet."""

    def __init__(self, send: Send) -> None:
        self._send = send
        self._unanswered: dict[str, asyncio.Future[Any]] = {}
        self._online = asyncio.Event()
        self._waiting = 0
        self._ended: InvocationFailed | None = None

    @property
    def is_online(self) -> bool:
        """Whether calls go out at once."""
        return self._online.is_set()

    async def make(self, frame: InvokeFunction, within: float) -> Any:
        """Make a call and wait so many seconds for its answer; a void one is done when it is sent."""
        try:
            async with asyncio.timeout(within):
                if frame.action is not None and frame.action.type == "void":
                    await self._send_void(frame)
                    return None
                return await self._send_and_wait(frame)
        except TimeoutError:
            where = "" if self.is_online else "; the worker is not connected"
            message = f"Invocation timeout after {within * 1000:g} ms: {frame.function_id}{where}"
            raise InvocationFailed(message, "TIMEOUT") from None

    def resolve(self, answer: InvocationResult) -> None:
        """Hand an answer to the call that waits for it; one that is too late is dropped."""
        future = self._unanswered.pop(answer.invocation_id or "", None)
        if future is None or future.done():
            return
        problem = frames.to_exception(answer)
        if problem is not None:
            future.set_exception(problem)
            return
        try:
            future.set_result(None if answer.result is UNSET else msgspec.json.decode(answer.result))
        except (msgspec.MsgspecError, RecursionError) as error:
            future.set_exception(InvocationFailed(f"The answer cannot be read: {error}", "serialization_error"))

    def connected(self) -> None:
        """There is a connection: send the calls that wait for one."""
        self._online.set()

    def disconnected(self) -> None:
        """The connection is lost, and with it the answers to all calls that were sent."""
        self._online.clear()
        stopped = "Invocation stopped: the connection was lost before the answer came."
        self._fail(InvocationFailed(stopped, "invocation_stopped"))

    def close(self, why: InvocationFailed) -> None:
        """There will be no connection any more."""
        self._ended = why
        # Calls that wait for a connection wake up and find that there will be none.
        self._fail(why)
        self._online.set()

    def _fail(self, why: InvocationFailed) -> None:
        for future in self._unanswered.values():
            if not future.done():
                # An error of its own for each call: a shared one would collect the tracebacks of all of them.
                future.set_exception(InvocationFailed(why.message, why.code))
        self._unanswered.clear()

    async def _send_and_wait(self, frame: InvokeFunction) -> Any:
        invocation = frame.invocation_id = str(uuid.uuid4())
        try:
            while True:
                await self._until_online(frame)
                future = self._unanswered[invocation] = running_loop().create_future()
                if await self._send(frame):
                    return await future
                self._online.clear()
                # The message did not go out, so it is safe to send it again.
                future.cancel()
        finally:
            self._unanswered.pop(invocation, None)

    async def _send_void(self, frame: InvokeFunction) -> None:
        await self._until_online(frame)
        while not await self._send(frame):
            self._online.clear()
            await self._until_online(frame)

    async def _until_online(self, frame: InvokeFunction) -> None:
        if not self.is_online:
            if self._waiting >= MAX_OFFLINE_CALLS:
                full = f"the worker is not connected, and {MAX_OFFLINE_CALLS} calls wait"
                raise InvocationFailed(f"{frame.function_id} was not called: {full}.", "not_connected")
            self._waiting += 1
            try:
                await self._online.wait()
            finally:
                self._waiting -= 1
        if self._ended is not None:
            raise InvocationFailed(self._ended.message, self._ended.code)
