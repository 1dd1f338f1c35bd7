"""The event loop of a worker, and the connection to the engine in it, which is made again when it is lost."""

from __future__ import annotations

import asyncio
import concurrent.futures
import logging
import os
import random
import threading
from collections.abc import Awaitable, Callable, Coroutine, Generator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final, Generic, TypeAlias, TypeVar, Union
from urllib.parse import urlsplit

import msgspec
from msgspec import Struct
from websockets.asyncio.client import ClientConnection, connect
from websockets.exceptions import ConnectionClosed, InvalidStatus, InvalidURI, WebSocketException
from websockets.protocol import State
from websockets.uri import parse_uri

from waypost.capabilities.results import encode_json
from waypost.errors import DefinitionError, InvocationFailed
from waypost.loops import cancel_tasks, start_task
from waypost.workers import frames
from waypost.workers.frames import MAX_MESSAGE_BYTES, WorkerRegistered

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
            work.close()
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
