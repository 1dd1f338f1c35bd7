"""The main program of a skill's process: limits, import, then one call after the other until the hub is gone."""

from __future__ import annotations

import builtins
import inspect
import itertools
import linecache
import os
import socket
import sys
import threading
import traceback
import warnings
from collections.abc import Callable
from types import ModuleType
from typing import TYPE_CHECKING, Any, Final, NamedTuple

import msgspec

from waypost.skills.child import isolation
from waypost.skills.child.isolation import Guard
from waypost.skills.child.messages import (
    REFUSED,
    VALUES,
    Ask,
    Call,
    Done,
    Failed,
    FromHub,
    Ready,
    Reply,
    Start,
    encode,
    frame,
    take_body,
)

if TYPE_CHECKING:
    import asyncio


_CHUNK_BYTES: Final = 64 * 1024
_decoder: Final[msgspec.json.Decoder[FromHub]] = msgspec.json.Decoder(FromHub)


class Connection:
    """The socket to the hub; a process whose hub is gone exits."""

    def __init__(self, number: int) -> None:
        self._socket = socket.socket(fileno=number)
        # Programs that the skill starts must not inherit it.
        self._socket.set_inheritable(False)
        self._buffer = bytearray()
        self._sending = threading.Lock()  # messages of threads that send at the same time must not mix

    def fileno(self) -> int:
        """The file descriptor, for an event loop."""
        return self._socket.fileno()

    def send(self, message: msgspec.Struct) -> None:
        """Send a message."""
        self.send_encoded(encode(message))

    def send_encoded(self, body: bytes) -> None:
        """Send an encoded message."""
        try:
            with self._sending:
                self._socket.sendall(frame(body))
        except ConnectionError:
            # At once: threads and exit handlers of the skill could keep the process alive.
            os._exit(0)

    def receive(self) -> FromHub:
        """Wait for the next message."""
        while (message := self.next()) is None:
            self.read()
        return message

    def read(self) -> None:
        """Read what has arrived, or wait for it."""
        try:
            data = self._socket.recv(_CHUNK_BYTES)
        except ConnectionError:
            data = b""
        if not data:
            os._exit(0)
        self._buffer += data

    def next(self) -> FromHub | None:
        """Return the next complete message, if there is one."""
        body = take_body(self._buffer)
        return None if body is None else _decoder.decode(body)


_ids: Final = itertools.count(1)


class Principal(NamedTuple):
    """The authenticated caller."""

    id: str
    roles: tuple[str, ...]


class Answer(dict[str, Any]):
    """An answer of the hub; its keys can be read as attributes too, `mimeType` as `mime_type`."""

    def __getattr__(self, name: str) -> Any:
        first, *rest = name.split("_")
        for key in (name, first + "".join(map(str.title, rest))):
            if key in self:
                return self[key]
        raise AttributeError(name)


class Result(Answer):
    """What a tool answered: `text`, `content`, `structured`, `is_error` and `meta`; a skill may return it as it is.

    As a dict it has `text`, `structured` and `isError`, as in earlier versions; to read it so is deprecated.
    """

    def __init__(self, answer: dict[str, Any]) -> None:
        self.content = [Answer(block) for block in answer["content"]]
        self.structured = answer["structured"]
        self.is_error: bool = answer["isError"]
        self.meta: dict[str, Any] | None = answer["meta"]
        self.text = "\n".join(block["text"] for block in self.content if block["type"] == "text")
        super().__init__(text=self.text, structured=self.structured, isError=self.is_error)

    def __getitem__(self, key: str) -> Any:
        warnings.warn(f"Read .{key} of the result, not [{key!r}].", DeprecationWarning, stacklevel=2)
        return super().__getitem__(key)

    def to_answer(self) -> dict[str, Any]:
        """The whole answer, as the hub reads it."""
        parts = {"content": self.content, "structured": self.structured}
        return {**parts, "isError": self.is_error, "meta": self.meta}


class Context:
    """One call: its principal, and the requests that the skill may make to the hub; an async skill awaits them."""

    def __init__(self, call: Call, connection: Connection) -> None:
        self.principal = Principal(call.principal, call.roles)
        self.request_id = call.request_id
        self._call = call.number
        self._connection = connection
        self._is_over = False

    def progress(self, value: float, total: float | None = None, message: str | None = None) -> Any:
        """Report progress to the client."""
        return self._ask("progress", value=value, total=total, message=message)

    def log(self, level: str, message: str, data: dict[str, Any] | None = None) -> Any:
        """Send a log message to the client."""
        return self._ask("log", level=level, message=message, data=data)

    def invoke(self, name: str, args: dict[str, Any] | None = None) -> Any:
        """Call another tool; returns its `Result`."""
        return self._ask("invoke", name=name, args=args or {})

    def sample(self, messages: Any, **options: Any) -> Any:
        """Ask the client's model; returns `text`, `content`, `role` and `model`."""
        return self._ask("sample", messages=messages, options=options)

    def elicit(self, message: str, schema: Any = None, **options: Any) -> Any:
        """Ask the person behind the client; returns `action` and `content`."""
        return self._ask("elicit", message=message, schema=schema, options=options)

    def state_get(self, key: str) -> Any:
        """Return a stored value of the skill, or None."""
        return self._ask("state_get", key=key)

    def state_put(self, key: str, value: Any) -> Any:
        """Store a value for later calls."""
        return self._ask("state_put", key=key, value=value)

    def state_delete(self, key: str) -> Any:
        """Delete a stored value."""
        return self._ask("state_delete", key=key)

    def read_resource(self, uri: str) -> Any:
        """Return the list of contents of a resource."""
        return self._ask("read_resource", uri=uri)

    def _ask(self, method: str, **params: Any) -> Any:
        raise NotImplementedError

    def _send(self, method: str, params: dict[str, Any]) -> int:
        if self._is_over:
            raise RuntimeError("the call is over")
        ask = Ask(self._call, next(_ids), method, params)
        self._connection.send(ask)
        return ask.id


class BlockingContext(Context):
    """For skills that are not async; threads of a skill ask one after the other."""

    # One for all calls: a thread that an earlier call left running must not take the reply to this one.
    _lock: Final = threading.Lock()

    def _ask(self, method: str, **params: Any) -> Any:
        with self._lock:
            asked = self._send(method, params)
            while True:
                reply = self._connection.receive()
                if isinstance(reply, Reply) and reply.id == asked:
                    return unwrap(method, reply)

    def close(self) -> None:
        """End the call, once no thread of the skill reads from the socket."""
        with self._lock:
            self._is_over = True


class AsyncContext(Context):
    """For async skills; several requests may be open at once."""

    def __init__(self, call: Call, connection: Connection, loop: asyncio.AbstractEventLoop) -> None:
        super().__init__(call, connection)
        self._loop = loop
        self._waiting: dict[int, asyncio.Future[Reply]] = {}
        self._is_listening = False

    async def _ask(self, method: str, **params: Any) -> Any:
        if not self._is_listening:  # a call that asks for nothing needs no reader
            self._is_listening = True
            self._loop.add_reader(self._connection.fileno(), self._readable)
        asked = self._send(method, params)
        waiter = self._waiting[asked] = self._loop.create_future()
        try:
            return unwrap(method, await waiter)
        finally:
            del self._waiting[asked]

    def _readable(self) -> None:
        self._connection.read()
        while (reply := self._connection.next()) is not None:
            if isinstance(reply, Reply) and (waiter := self._waiting.get(reply.id)) and not waiter.done():
                waiter.set_result(reply)

    def close(self) -> None:
        """End the call, and stop reading the socket on the loop."""
        self._is_over = True
        if self._is_listening:
            self._loop.remove_reader(self._connection.fileno())


def unwrap(method: str, reply: Reply) -> Any:
    """Return the hub's answer to a request, or raise its exception."""
    if reply.error is not None:
        error = getattr(builtins, reply.error, RuntimeError)(reply.message)
        setattr(error, REFUSED, reply.refused)
        raise error
    if isinstance(reply.value, dict):
        return Result(reply.value) if method == "invoke" else Answer(reply.value)
    return reply.value


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
        # Exactly a tuple: a named one is a value of its own.
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
            # Only here, so that processes of skills that are not async start faster.
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
