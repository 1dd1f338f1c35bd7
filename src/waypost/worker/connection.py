"""The way to the engine: connects, connects again when it is lost, and carries messages both ways."""

from __future__ import annotations

import asyncio
import logging
import os
import random
from collections.abc import Awaitable, Callable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any, Final, TypeAlias, Union

import msgspec
from msgspec import Struct
from websockets.asyncio.client import ClientConnection, connect
from websockets.exceptions import ConnectionClosed, InvalidStatus, InvalidURI, WebSocketException
from websockets.protocol import State
from websockets.uri import parse_uri

from waypost.capabilities.results import encode_json
from waypost.errors import DefinitionError, InvocationFailed
from waypost.workers.frames import (
    MOST,
    InvocationResult,
    InvokeFunction,
    Ping,
    Reattach,
    RegisterTrigger,
    RegistrationRejected,
    TriggerRegistrationResult,
    UnregisterTrigger,
    WorkerRegistered,
)
from waypost.workers.observing.messages import ObserveResult, ObserverStateChanged


class Known(Struct):
    """An observer, as the engine tells of it to the owner of the function."""

    id: str
    args: dict[str, Any] = {}
    filters: Any = None
    target: str = ""
    capture: list[str] = []
    on: str = "success"
    legacy: dict[str, Any] | None = None


class Announced(Struct, tag="functionregistered"):
    """The engine has a function, and these are its observers."""

    id: str
    revision: int
    namespace: str | None = None
    observers: list[Known] = []


class Added(Struct, tag="observeradded"):
    """A function has one more observer."""

    function_id: str
    revision: int
    observer: Known
    namespace: str | None = None


class Removed(Struct, tag="observerremoved"):
    """A function has one observer less."""

    function_id: str
    revision: int
    id: str
    namespace: str | None = None


News: TypeAlias = Announced | Added | Removed


@dataclass(frozen=True, slots=True)
class Reconnecting:
    """Pauses between attempts to connect, in seconds: each twice as long as the one before, none alike."""

    first: float = 1.0
    longest: float = 30.0
    jitter: float = 0.3
    """By which part a pause may be shorter or longer."""

    def pause(self, failed: int) -> float:
        """How long to wait after so many attempts in a row."""
        pause = min(self.first * 2.0 ** min(failed, 30), self.longest)
        return pause * random.uniform(1 - self.jitter, 1 + self.jitter)  # noqa: S311  # no secret


@dataclass(frozen=True, slots=True)
class Handshake:
    """How a skill or prompt is published when the registry is not there yet, in seconds."""

    first: float = 5.0
    longest: float = 60.0
    """Pauses grow from the first to the longest, each twice as long as the one before."""
    most: float = 180.0
    """After which it is given up, until the worker connects again."""
    within: float = 5.0
    """How long each attempt may take."""


_log: Final = logging.getLogger(__name__)
_WHOLE: Final = 16 * 1024 * 1024
_PIECE: Final = 1024 * 1024
_OPEN_WITHIN: Final = 10.0

FromEngine: TypeAlias = Union[  # noqa: UP007  # one union of messages, not of types
    WorkerRegistered,
    InvokeFunction,
    InvocationResult,
    RegisterTrigger,
    UnregisterTrigger,
    TriggerRegistrationResult,
    RegistrationRejected,
    Announced,
    Added,
    Removed,
    ObserveResult,
    ObserverStateChanged,
    Ping,
]
Take: TypeAlias = Callable[[FromEngine], None]
_decode: Final = msgspec.json.Decoder(FromEngine).decode


def check_url(url: str) -> str:
    """The address itself, if it is one of a WebSocket."""
    try:
        parse_uri(url)
    except InvalidURI:
        raise DefinitionError(f"{url} is not the address of an engine; it looks like ws://127.0.0.1:49134.") from None
    return url


class Connection:
    """One worker's connection, whichever socket it is at the moment."""

    def __init__(
        self,
        url: str,
        headers: Mapping[str, str],
        pauses: Reconnecting,
        *,
        arrived: Callable[[], Awaitable[None]],
        take: Take,
        lost: Callable[[], None],
    ) -> None:
        self._url = check_url(url)
        self._headers = headers
        self._pauses = pauses
        self._arrived = arrived
        self._take = take
        self._lost = lost
        self._socket: ClientConnection | None = None
        self._known_as: WorkerRegistered | None = None

    @property
    def worker_id(self) -> str | None:
        """What the engine calls the worker, once it has said so."""
        return None if self._known_as is None else self._known_as.worker_id

    async def stay(self) -> None:
        """Be connected until cancelled."""
        failed = -1
        while True:
            known = self._known_as
            why = await self._visit()
            failed = 0 if self._known_as is not known else failed + 1
            pause = self._pauses.pause(failed)
            _log.warning("not connected to %s: %s; trying again in %.1f s", self._url, why, pause)
            await asyncio.sleep(pause)

    async def send(self, message: Struct) -> bool:
        """Send a message; false where there is no connection to send it on."""
        socket = self._socket
        if socket is None or socket.state is not State.OPEN:
            return False
        data = encode_json(message)
        if len(data) > MOST:
            raise InvocationFailed(
                f"The message has {len(data)} bytes, and a message has at most {MOST}.", "payload_too_large"
            )
        try:
            await socket.send(data if len(data) <= _WHOLE else _pieces(data), text=True)
        except ConnectionClosed:
            _log.debug("a message was under way when the connection was lost")
        return True

    async def _visit(self) -> str:
        """Connect and take what comes, to the end; why it ended."""
        try:
            async with connect(
                self._url,
                additional_headers=self._headers,
                max_size=MOST,
                compression=None,
                proxy=None,
                open_timeout=_OPEN_WITHIN,
            ) as socket:
                await self._listen(socket)
        except ConnectionClosed as closed:
            return str(closed)
        except InvalidStatus as refused:
            return _told(refused)
        except OSError as error:
            return os.strerror(error.errno) if error.errno and error.errno > 0 else str(error) or type(error).__name__
        except WebSocketException as error:
            return str(error) or type(error).__name__
        return "it ended"

    async def _listen(self, socket: ClientConnection) -> None:
        self._socket = socket
        try:
            if self._known_as is not None:
                await self.send(Reattach(self._known_as.worker_id, self._known_as.reattach_token))
            await self._arrived()
            while True:
                self._sort(await socket.recv(decode=False))
        finally:
            self._socket = None
            self._lost()

    def _sort(self, data: bytes) -> None:
        try:
            frame: FromEngine = _decode(data)
        except (msgspec.MsgspecError, RecursionError) as error:
            _log.debug("a message of the engine was ignored: %s", error)
            return
        if isinstance(frame, WorkerRegistered):
            self._known_as = frame
        try:
            self._take(frame)
        except Exception:  # one message must not end the connection
            _log.exception("a message of the engine was not understood")


def _pieces(data: bytes) -> Iterator[bytes]:
    """A long message in fragments, because some engines take no longer frames."""
    return (data[start : start + _PIECE] for start in range(0, len(data), _PIECE))


def _told(refused: InvalidStatus) -> str:
    status = refused.response.status_code
    hint = ", which wants a token: set III_TOKEN" if status in (401, 403) else ""
    return f"the server answered with the status {status}{hint}"


def headers_of(token: str, more: Mapping[str, Any]) -> dict[str, str]:
    """What the worker shows when it connects."""
    shown = {name: str(value) for name, value in more.items()}
    if token and not any(name.lower() == "authorization" for name in shown):
        shown["Authorization"] = f"Bearer {token}"
    return shown
