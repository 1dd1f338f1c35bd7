"""The main program of a skill's process: limits, import, then one call after the other until the hub is gone."""

from __future__ import annotations

import inspect
import linecache
import sys
import traceback
from collections.abc import Callable
from types import ModuleType
from typing import TYPE_CHECKING, Any, Final

import msgspec

from waypost.skills.child import isolation
from waypost.skills.child.context import AsyncContext, BlockingContext, Connection, Result
from waypost.skills.child.isolation import Guard
from waypost.skills.child.messages import REFUSED, VALUES, Call, Done, Failed, Ready, Start, encode

if TYPE_CHECKING:
    import asyncio

_MAX_TEXT_CHARACTERS: Final = 10_000
_PAIR: Final = 2


def main(number: int) -> None:
    """Serve calls over the socket with this file descriptor."""
    connection = Connection(number)
    start = connection.receive()
    assert isinstance(start, Start)
    sys.stdout.reconfigure(line_buffering=True)  # type: ignore[union-attr]  # it is a plain one
    sys.argv[:] = [start.file]
    _serve(start, connection)


def _serve(start: Start, connection: Connection) -> None:
    isolation.apply_limits(start)
    cpu = isolation.CpuTime(start.cpu)
    cpu.grant()
    guard = Guard(start)
    guard.install()
    try:
        skill = Skill(start, connection)
        ready = skill.ready()
    except BaseException as error:  # any exception of an import is reported to the hub
        connection.send(describe_error(0, error))
        return
    connection.send(ready)
    while True:
        call = connection.receive()
        if not isinstance(call, Call):
            continue  # a late reply to a request of an earlier call
        # The kernel counts the time of the whole process; without this, later calls would pay for earlier ones.
        with guard.suspended():
            cpu.grant()
        guard.network = call.network
        connection.send_encoded(skill.answer(call))


class Skill:
    """The imported module of a skill."""

    def __init__(self, start: Start, connection: Connection) -> None:
        self._connection = connection
        self._max_bytes = start.result
        self._memory = start.memory
        self._module = _import(start)
        run = getattr(self._module, "run", None)
        if not callable(run):
            raise MissingRun("it has no function run(args, ctx)")
        self._run: Callable[..., Any] = run
        self._takes_context = _takes_context(run)
        self._is_async = inspect.iscoroutinefunction(run)
        self._runner: asyncio.Runner | None = None

    def ready(self) -> Ready:
        """Return the values that the module declares."""
        values, odd = {}, []
        for name in VALUES:
            if not hasattr(self._module, name):
                continue
            try:
                values[name] = msgspec.json.decode(encode(getattr(self._module, name)))
            except Exception:  # a value of any type may fail to encode in any way
                odd.append(name)
        return Ready(values, odd)

    def answer(self, call: Call) -> bytes:
        """Run the skill and return the encoded outcome."""
        try:
            value = self._run_async(call) if self._is_async else self._run_blocking(call)
            return self._encode(call, value)
        except MemoryError as error:
            message = str(error) or f"the skill reached its memory limit of {self._memory // 1024**2} MiB"
            return encode(describe_error(call.number, error, message))
        except BaseException as error:  # also SystemExit: a skill ends its call, not its process
            return encode(describe_error(call.number, error))

    def _encode(self, call: Call, value: Any) -> bytes:
        branch = None
        if type(value) is tuple and len(value) == _PAIR and isinstance(value[1], str):
            value, branch = value
        is_result = isinstance(value, Result)
        try:
            body = encode(Done(call.number, value.to_answer() if is_result else value, branch, is_result))
        except (TypeError, ValueError, OverflowError, RecursionError) as error:
            raise TypeError(f"the skill returned a value that cannot be sent as JSON: {error}") from None
        if len(body) > self._max_bytes:
            raise TooLarge(
                f"The skill's result takes {len(body):,} bytes, and skills.limits.resultBytes is {self._max_bytes:,}."
            )
        return body

    def _run_blocking(self, call: Call) -> Any:
        context = BlockingContext(call, self._connection)
        try:
            value = self._call(call, context)
            return self._loop().run(_await(value)) if inspect.isawaitable(value) else value
        finally:
            context.close()

    def _run_async(self, call: Call) -> Any:
        loop = self._loop()
        context = AsyncContext(call, self._connection, loop.get_loop())
        try:
            return loop.run(self._run_and_clean_up(call, context))
        finally:
            context.close()

    async def _run_and_clean_up(self, call: Call, context: AsyncContext) -> Any:
        try:
            return await self._call(call, context)
        finally:
            # They would go on in the next call, which may be of another principal.
            await _cancel_tasks()

    def _call(self, call: Call, context: Any) -> Any:
        return self._run(call.args, context) if self._takes_context else self._run(call.args)

    def _loop(self) -> asyncio.Runner:
        if self._runner is None:
            import asyncio

            self._runner = asyncio.Runner()
        return self._runner


class MissingRun(Exception):
    """The module has no callable `run`."""


class TooLarge(Exception):
    """The result is over its limit."""


async def _cancel_tasks() -> None:
    """Cancel tasks that an async skill left running."""
    import asyncio

    left = [task for task in asyncio.all_tasks() if task is not asyncio.current_task()]
    for task in left:
        task.cancel()
    await asyncio.gather(*left, return_exceptions=True)


async def _await(value: Any) -> Any:
    return await value


def _import(start: Start) -> ModuleType:
    module = ModuleType(f"skill_{start.name}")
    module.__file__ = start.file
    sys.modules[module.__name__] = module
    # The file may have changed since, or be out of reach: tracebacks show the lines of what was really run.
    lines = start.source.decode(errors="replace").splitlines(keepends=True)
    linecache.cache[start.file] = (len(start.source), None, lines, start.file)
    exec(compile(start.source, start.file, "exec"), module.__dict__)  # noqa: S102  # running a skill is the purpose
    return module


def _takes_context(run: Callable[..., Any]) -> bool:
    signature = inspect.signature(run)
    for count in (2, 1):
        try:
            signature.bind(*range(count))
        except TypeError:
            continue
        return count == _PAIR
    raise MissingRun("its run does not take (args, ctx) or (args)")


def describe_error(call: int, error: BaseException, message: str | None = None) -> Failed:
    """Return the message about an exception."""
    error = _unwrap_group(error)
    try:
        text = str(error) if message is None else message
        trace = "".join(traceback.format_exception(error, limit=-20))
    except BaseException:  # an exception class of the skill may fail in `__str__`
        text, trace = "an error that cannot be shown", ""
    line = error.lineno if isinstance(error, SyntaxError) else None
    return Failed(
        call,
        type(error).__name__,
        _to_sendable(text),
        _to_sendable(trace[-_MAX_TEXT_CHARACTERS:]),
        line,
        is_answer=_is_answer(error),
    )


def _to_sendable(text: str) -> str:
    return text[:_MAX_TEXT_CHARACTERS].encode(errors="replace").decode()


def _is_answer(error: BaseException) -> bool:
    """Return whether an exception is an answer: a ToolError, a refusal of the hub, or a result over its limit."""
    if isinstance(error, BaseExceptionGroup):
        return all(map(_is_answer, error.exceptions))
    names = [(kind.__module__, kind.__name__) for kind in type(error).__mro__]
    is_refused = isinstance(error, TooLarge) or getattr(error, REFUSED, False) is True
    return is_refused or ("waypost.errors", "ToolError") in names


def _unwrap_group(error: BaseException) -> BaseException:
    """Return an exception, or the first one of a group that holds only answers."""
    return _unwrap_group(error.exceptions[0]) if isinstance(error, BaseExceptionGroup) and _is_answer(error) else error
