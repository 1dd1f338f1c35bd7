"""The functions that a worker offers: how each is described to the engine, and how it is run."""

from __future__ import annotations

import asyncio
import contextvars
import inspect
from collections.abc import Callable
from concurrent.futures import Executor
from dataclasses import dataclass
from typing import Any, TypeAlias

from waypost.errors import DefinitionError
from waypost.loops import awaited
from waypost.worker.owned import Observer, Owned
from waypost.worker.shapes import Read, known_types, reader, request_format, response_format
from waypost.workers.frames import RegisterFunction

Function: TypeAlias = Callable[..., Any]
_POSITIONAL = (inspect.Parameter.POSITIONAL_ONLY, inspect.Parameter.POSITIONAL_OR_KEYWORD)
_MOST = 2


@dataclass(frozen=True, slots=True)
class Handler:
    """A function of the worker's program: plain or asynchronous, with the payload and perhaps its metadata."""

    frame: RegisterFunction
    function: Function
    takes: int
    read: Read | None
    is_async: bool

    async def run(self, payload: Any, metadata: Any, threads: Executor) -> Any:
        """What the function answers; a plain one is run in a thread."""
        given = (payload if self.read is None else self.read(payload), metadata)[: self.takes]
        if self.is_async:
            return await self.function(*given)
        call = contextvars.copy_context().run
        return await awaited(
            await asyncio.get_running_loop().run_in_executor(threads, call, self.function, *given),
        )


class FunctionRef:
    """A function that is offered; it can be called as before."""

    def __init__(self, function: Function, owned: Owned, unregister: Callable[[], None]) -> None:
        self.id = owned.function_id
        self.unregister = unregister
        self._function = function
        self._owned = owned

    def __call__(self, *given: Any, **named: Any) -> Any:
        """Call the function itself, without the engine."""
        return self._function(*given, **named)

    def is_observed(self) -> bool:
        """Whether anybody observes it."""
        return bool(self._owned.active)

    def observers(self) -> list[Observer]:
        """Those who observe it."""
        return list(self._owned.active)


def handler_of(function_id: str, function: Function, told: RegisterFunction) -> Handler:
    """The handler that a function makes; what is not told about it is taken from the function itself."""
    if not function_id.strip():
        raise DefinitionError("A function needs an id, such as demo::greet.")
    takes = _takes(function_id, function)
    types = known_types(function)
    first = next(iter(inspect.signature(function).parameters), "") if takes else ""
    hinted = types.get(first, Any)
    if told.request_format is None:
        told.request_format = request_format(hinted)
    if told.response_format is None:
        told.response_format = response_format(types.get("return", Any))
    if told.description is None:
        told.description = _described(function)
    return Handler(told, function, takes, reader(hinted), _is_async(function))


def _takes(function_id: str, function: Function) -> int:
    if not callable(function):
        raise DefinitionError(f"The handler of {function_id} is {function!r}, which cannot be called.")
    parameters = list(inspect.signature(function).parameters.values())
    required = [one for one in parameters if one.default is one.empty and one.kind in _POSITIONAL]
    named = [one for one in parameters if one.kind is one.KEYWORD_ONLY and one.default is one.empty]
    if len(required) > _MOST or named:
        raise DefinitionError(f"The handler of {function_id} takes (payload) or (payload, metadata).")
    if any(one.kind is one.VAR_POSITIONAL for one in parameters):
        return _MOST
    return min(sum(one.kind in _POSITIONAL for one in parameters), _MOST)


def _described(function: Function) -> str | None:
    lines = (inspect.getdoc(function) or "").strip().splitlines() if inspect.isroutine(function) else []
    return lines[0] if lines else None


def _is_async(function: Function) -> bool:
    return inspect.iscoroutinefunction(function) or inspect.iscoroutinefunction(getattr(function, "__call__", None))  # noqa: B004
