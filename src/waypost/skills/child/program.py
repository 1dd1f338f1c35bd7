"""The life of a skill's process: limits, import, then one call after the other until the hub is gone."""

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
from waypost.skills.child.context import AsyncContext, BlockingContext, Connection
from waypost.skills.child.isolation import Guard
from waypost.skills.child.messages import REFUSED, VALUES, Call, Done, Failed, Ready, Start, encode

if TYPE_CHECKING:
    import asyncio

_LONGEST_TEXT: Final = 10_000
_PAIR: Final = 2


def main(number: int) -> None:
    """Serve calls over the socket with that number."""
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
    guard = Guard()
    guard.install()
    try:
        skill = Skill(start, connection)
        ready = skill.ready()
    except BaseException as error:  # whatever an import raises is the hub's to know
        connection.send(failed(0, error))
        return
    connection.send(ready)
    while True:
        call = connection.receive()
        if not isinstance(call, Call):
            continue  # the answer to a question of a call that is over
        with guard.aside():
            cpu.grant()
        guard.network = call.network
        connection.send_encoded(skill.answer(call))


class Skill:
    """The module of a skill and how its `run` is called."""

    def __init__(self, start: Start, connection: Connection) -> None:
        self._connection = connection
        self._largest = start.result
        self._memory = start.memory
        self._module = _imported(start)
        run = getattr(self._module, "run", None)
        if not callable(run):
            raise MissingRun("it has no function run(args, ctx)")
        self._run: Callable[..., Any] = run
        self._takes_context = _takes_context(run)
        self._is_async = inspect.iscoroutinefunction(run)
        self._runner: asyncio.Runner | None = None

    def ready(self) -> Ready:
        """What the module says about itself."""
        values, odd = {}, []
        for name in VALUES:
            if not hasattr(self._module, name):
                continue
            try:
                values[name] = msgspec.json.decode(encode(getattr(self._module, name)))
            except Exception:  # a value of any type may fail in any way
                odd.append(name)
        return Ready(values, odd)

    def answer(self, call: Call) -> bytes:
        """Run the skill and encode what came of it."""
        try:
            value = self._on_loop(call) if self._is_async else self._blocking(call)
            return self._encoded(call, value)
        except MemoryError as error:
            told = str(error) or f"the skill reached its memory limit of {self._memory // 1024**2} MiB"
            return encode(failed(call.number, error, told))
        except BaseException as error:  # also SystemExit: a skill ends its call, not its process
            return encode(failed(call.number, error))

    def _encoded(self, call: Call, value: Any) -> bytes:
        branch = None
        if type(value) is tuple and len(value) == _PAIR and isinstance(value[1], str):
            value, branch = value
        try:
            body = encode(Done(call.number, value, branch))
        except (TypeError, ValueError, OverflowError, RecursionError) as error:
            raise TypeError(f"the skill returned what cannot be sent as JSON: {error}") from None
        if len(body) > self._largest:
            raise TooLarge(
                f"The skill's result takes {len(body):,} bytes, and skills.limits.resultBytes is {self._largest:,}."
            )
        return body

    def _blocking(self, call: Call) -> Any:
        context = BlockingContext(call, self._connection)
        try:
            value = self._started(call, context)
            return self._loop().run(_awaited(value)) if inspect.isawaitable(value) else value
        finally:
            context.close()

    def _on_loop(self, call: Call) -> Any:
        loop = self._loop()
        context = AsyncContext(call, self._connection, loop.get_loop())
        try:
            return loop.run(self._settled(call, context))
        finally:
            context.close()

    async def _settled(self, call: Call, context: AsyncContext) -> Any:
        try:
            return await self._started(call, context)
        finally:
            await _settle()

    def _started(self, call: Call, context: Any) -> Any:
        return self._run(call.args, context) if self._takes_context else self._run(call.args)

    def _loop(self) -> asyncio.Runner:
        if self._runner is None:
            import asyncio

            self._runner = asyncio.Runner()
        return self._runner


class MissingRun(Exception):
    """The module has no `run` that can be called."""


class TooLarge(Exception):
    """The result is over its limit, which is no crash."""


async def _settle() -> None:
    """Stop what an async skill left running."""
    import asyncio

    left = [task for task in asyncio.all_tasks() if task is not asyncio.current_task()]
    for task in left:
        task.cancel()
    await asyncio.gather(*left, return_exceptions=True)


async def _awaited(value: Any) -> Any:
    return await value


def _imported(start: Start) -> ModuleType:
    module = ModuleType(f"skill_{start.name}")
    module.__file__ = start.file
    sys.modules[module.__name__] = module
    lines = start.source.decode(errors="replace").splitlines(keepends=True)
    linecache.cache[start.file] = (len(start.source), None, lines, start.file)
    exec(compile(start.source, start.file, "exec"), module.__dict__)  # noqa: S102  # to run it is what this is for
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


def failed(call: int, error: BaseException, message: str | None = None) -> Failed:
    """What the hub is told about an exception."""
    error = _first(error)
    try:
        text = str(error) if message is None else message
        trace = "".join(traceback.format_exception(error, limit=-20))
    except BaseException:  # an exception of the skill's own making that cannot be shown
        text, trace = "an error that cannot be shown", ""
    line = error.lineno if isinstance(error, SyntaxError) else None
    return Failed(
        call, type(error).__name__, _sendable(text), _sendable(trace[-_LONGEST_TEXT:]), line, told=_is_told(error)
    )


def _sendable(text: str) -> str:
    return text[:_LONGEST_TEXT].encode(errors="replace").decode()


def _is_told(error: BaseException) -> bool:
    """Whether it is the exception with which tools say what is wrong themselves, a refusal of the hub, or a limit's."""
    if isinstance(error, BaseExceptionGroup):
        return all(map(_is_told, error.exceptions))
    names = [(kind.__module__, kind.__name__) for kind in type(error).__mro__]
    is_refused = isinstance(error, TooLarge) or getattr(error, REFUSED, False) is True
    return is_refused or ("waypost.errors", "ToolError") in names


def _first(error: BaseException) -> BaseException:
    """An exception, or the first one of a group that says nothing but what cannot be done."""
    return _first(error.exceptions[0]) if isinstance(error, BaseExceptionGroup) and _is_told(error) else error
