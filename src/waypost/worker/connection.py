"""The event loop of a worker, the connection to the engine in it, made again when it is lost, and calls over it.

A call is the one that a handler answers, or one that the worker makes.
"""

from __future__ import annotations

import asyncio
import concurrent.futures
import logging
import os
import random
import threading
import uuid
from collections.abc import Awaitable, Callable, Coroutine, Generator, Iterator, Mapping
from contextlib import contextmanager, nullcontext
from contextvars import ContextVar
from dataclasses import dataclass
from pathlib import Path
from sys import modules
from typing import Any, Final, Generic, TypeAlias, TypeVar, Union
from urllib.parse import urlsplit

import msgspec
from msgspec import UNSET, Raw, Struct
from websockets.asyncio.client import ClientConnection, connect
from websockets.exceptions import ConnectionClosed, InvalidStatus, InvalidURI, WebSocketException
from websockets.protocol import State
from websockets.uri import parse_uri

from waypost.capabilities.results import encode_json
from waypost.errors import DefinitionError, InvocationFailed
from waypost.execution import tracing
from waypost.loops import cancel_tasks, running_loop, start_task
from waypost.workers import frames
from waypost.workers.frames import (
    MAX_MESSAGE_BYTES,
    Action,
    Given,
    InvocationResult,
    InvokeFunction,
    Origin,
    WorkerRegistered,
)
from waypost.workers.functions import trace_here

T = TypeVar("T")


class Answer(Generic[T]):
    """`await` it in any event loop, or wait for its `result()` where there is none; the work has started either way."""

    def __init__(self, running: asyncio.Task[T] | concurrent.futures.Future[T]) -> None:
        self._running = running

    def __await__(self) -> Generator[Any, None, T]:
        if isinstance(self._running, asyncio.Task):
            return self._running.__await__()
        return asyncio.wrap_future(self._running).__await__()

    def result(self, timeout: float | None = None) -> T:
        """Wait for it, up to `timeout` seconds; not in the worker's own loop, which would wait for itself."""
        if isinstance(self._running, asyncio.Task):
            if not self._running.done():
                raise RuntimeError("This runs in the worker's event loop: await the answer instead.")
            return self._running.result()
        return self._running.result(timeout)


class WorkerLoop:
    """The event loop that runs where the worker is made, or else one in a thread of its own."""

    def __init__(self) -> None:
        self._thread: threading.Thread | None = None
        self._tasks: set[asyncio.Task[Any]] = set()
        self.is_stopped = False
        """Whether a loop of its own runs nothing any more."""
        try:
            self._loop = asyncio.get_running_loop()
        except RuntimeError:
            self._loop = asyncio.new_event_loop()
            # A daemon: a program that ends does not wait for its worker.
            self._thread = threading.Thread(target=self._run, name="waypost-worker", daemon=True)
            self._thread.start()

    @property
    def is_current(self) -> bool:
        """Whether the caller runs in this loop."""
        try:
            return asyncio.get_running_loop() is self._loop
        except RuntimeError:
            return False

    def start(self, work: Coroutine[Any, Any, T]) -> Answer[T]:
        """Start a coroutine, from any thread."""
        if self.is_current:
            return Answer(start_task(work, self._tasks))  # the caller may drop the answer
        if self.is_stopped or self._loop.is_closed():
            work.close()  # or Python warns that it was never awaited
            raise InvocationFailed("The worker was shut down.", "SHUTDOWN")
        return Answer(asyncio.run_coroutine_threadsafe(work, self._loop))

    def call(self, action: Callable[..., object], *arguments: Any) -> None:
        """Call a function in the loop, at once if this is it; calls keep their order."""
        if self.is_current:
            action(*arguments)
        elif not self.is_stopped:
            self._loop.call_soon_threadsafe(action, *arguments)

    def stop(self) -> None:
        """End a loop that was made for the worker; called in it, after everything else."""
        if self._thread is not None:
            self.is_stopped = True
            self._loop.stop()

    def _run(self) -> None:
        try:
            self._loop.run_forever()
            self._loop.run_until_complete(cancel_tasks(asyncio.all_tasks(self._loop)))
        finally:
            self._loop.close()


@dataclass(frozen=True, slots=True)
class Reconnecting:
    """Pauses between attempts to connect, in seconds: doubling, and with jitter to spread out many workers."""

    first: float = 1.0
    longest: float = 30.0
    jitter: float = 0.3
    """The share by which a pause may be shorter or longer."""

    def pause(self, failed: int) -> float:
        """The pause after so many failed attempts in a row."""
        pause = min(self.first * 2.0 ** min(failed, 30), self.longest)
        return pause * random.uniform(1 - self.jitter, 1 + self.jitter)  # noqa: S311  # no secret


_log: Final = logging.getLogger(__name__)
_MAX_FRAME_BYTES: Final = 16 * 1024 * 1024
_FRAGMENT_BYTES: Final = 1024 * 1024
_OPEN_TIMEOUT_S: Final = 10.0

FromEngine: TypeAlias = Union[  # noqa: UP007  # one union of messages, not of types
    WorkerRegistered,
    frames.InvokeFunction,
    frames.InvocationResult,
    frames.RegisterTrigger,
    frames.UnregisterTrigger,
    frames.TriggerRegistrationResult,
    frames.RegistrationRejected,
    frames.FunctionRegistered,
    frames.ObserverAdded,
    frames.ObserverRemoved,
    frames.ObserveResult,
    frames.ObserverStateChanged,
    frames.Ping,
]
_decode: Final = msgspec.json.Decoder(FromEngine).decode


def check_url(url: str) -> str:
    """The address itself; a `DefinitionError` if it is not one of a WebSocket."""
    try:
        parse_uri(url)
    except InvalidURI:
        raise DefinitionError(f"{url} is not the address of an engine; it looks like ws://127.0.0.1:49134.") from None
    return url


class Connection:
    """One worker's connection, over one socket after the other."""

    def __init__(
        self,
        url: str,
        headers: Callable[[], Mapping[str, str]],
        pauses: Reconnecting,
        *,
        on_connect: Callable[[], Awaitable[None]],
        on_message: Callable[[FromEngine], None],
        on_lost: Callable[[], None],
    ) -> None:
        self._url = check_url(url)
        self._headers = headers
        self._pauses = pauses
        self._on_connect = on_connect
        self._on_message = on_message
        self._on_lost = on_lost
        self._socket: ClientConnection | None = None
        self._registration: WorkerRegistered | None = None

    @property
    def worker_id(self) -> str | None:
        """The id that the engine gave the worker, once it has."""
        return None if self._registration is None else self._registration.worker_id

    async def stay_connected(self) -> None:
        """Connect, and again whenever the connection is lost, until cancelled."""
        failed = -1
        while True:
            before = self._registration
            reason = await self._connect()
            # A new registration shows that the connection worked, so that the pauses begin again with the shortest.
            failed = 0 if self._registration is not before else failed + 1
            pause = self._pauses.pause(failed)
            _log.warning("not connected to %s: %s; trying again in %.1f s", self._url, reason, pause)
            await asyncio.sleep(pause)

    async def send(self, message: Struct) -> bool:
        """Send a message; false where there is no connection."""
        socket = self._socket
        if socket is None or socket.state is not State.OPEN:
            return False
        data = encode_json(message)
        if len(data) > MAX_MESSAGE_BYTES:
            too_large = f"The message has {len(data)} bytes, and a message has at most {MAX_MESSAGE_BYTES}."
            raise InvocationFailed(too_large, "payload_too_large")
        # Some engines accept no frame above 16 MiB, so a long message is sent in fragments.
        fragments = (data[start : start + _FRAGMENT_BYTES] for start in range(0, len(data), _FRAGMENT_BYTES))
        try:
            await socket.send(data if len(data) <= _MAX_FRAME_BYTES else fragments, text=True)
        except ConnectionClosed:
            # A part may have arrived. It counts as sent, so that its call fails and is not made a second time.
            _log.debug("the connection was lost while a message was sent")
        return True

    async def _connect(self) -> str:
        """Connect and receive until the connection is lost; the reason for that."""
        try:
            async with connect(
                self._url,
                additional_headers=self._headers(),
                max_size=MAX_MESSAGE_BYTES,
                compression=None,
                proxy=None,
                open_timeout=_OPEN_TIMEOUT_S,
            ) as socket:
                await self._receive(socket)
        except ConnectionClosed as closed:
            return str(closed)
        except InvalidStatus as refused:
            status = refused.response.status_code
            hint = ", which wants a token: set III_TOKEN" if status in (401, 403) else ""
            return f"the server answered with the status {status}{hint}"
        except OSError as error:
            return os.strerror(error.errno) if error.errno and error.errno > 0 else str(error) or type(error).__name__
        except WebSocketException as error:
            return str(error) or type(error).__name__
        return "it ended"

    async def _receive(self, socket: ClientConnection) -> None:
        self._socket = socket
        try:
            if self._registration is not None:
                # With its token the engine knows the worker again, and keeps what was bound to its id.
                await self.send(frames.Reattach(self._registration.worker_id, self._registration.reattach_token))
            await self._on_connect()
            while True:
                self._handle(await socket.recv(decode=False))
        finally:
            self._socket = None
            self._on_lost()

    def _handle(self, data: bytes) -> None:
        try:
            message: FromEngine = _decode(data)
        except (msgspec.MsgspecError, RecursionError) as error:
            _log.debug("a message of the engine was ignored: %s", error)
            return
        if isinstance(message, WorkerRegistered):
            self._registration = message
        try:
            self._on_message(message)
        except Exception:  # one message must not end the connection
            _log.exception("a message of the engine could not be handled")


class _HubFile(Struct, rename="camel"):
    """What a worker needs of the file that a hub leaves in its data directory."""

    workers: str | None = None
    worker_token: str | None = None


def find_token(url: str) -> str:
    """The token that the hub at an address left in its data directory on this machine; empty if there is none.

    The directory is `WAYPOST_DATA`, else `.waypost` in the current directory. A token is sent to no other address.
    """
    try:
        file = Path(os.environ.get("WAYPOST_DATA") or ".waypost", "hub.json")
        hub = msgspec.json.decode(file.read_bytes(), type=_HubFile)
    except (OSError, msgspec.MsgspecError):
        return ""
    is_same = hub.workers is not None and _address(hub.workers) == _address(url)
    return hub.worker_token or "" if is_same else ""


def _address(url: str) -> tuple[str, int | None]:
    parts = urlsplit(url)
    return "127.0.0.1" if parts.hostname in (None, "localhost") else parts.hostname, parts.port


def build_headers(url: str, token: str, more: Mapping[str, Any]) -> dict[str, str]:
    """The headers of a request to connect; without a token, with the one that a hub on this machine left."""
    headers = {name: str(value) for name, value in more.items()}
    if not any(name.lower() == "authorization" for name in headers) and (token := token or find_token(url)):
        headers["Authorization"] = f"Bearer {token}"
    return headers


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
    """Its origin: `worker_id`, `worker_name`, and the `function_id` and `invocation_id` that it was made from."""
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
                # Before it is sent: the answer may arrive before `send` returns.
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
