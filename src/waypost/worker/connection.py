"""The connection to the engine, which is made again when it is lost, and the messages on it."""

from __future__ import annotations

import asyncio
import logging
import os
import random
from collections.abc import Awaitable, Callable, Mapping
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
    MAX_MESSAGE_BYTES,
    FunctionRegistered,
    InvocationResult,
    InvokeFunction,
    ObserverAdded,
    ObserveResult,
    ObserverRemoved,
    ObserverStateChanged,
    Ping,
    Reattach,
    RegisterTrigger,
    RegistrationRejected,
    TriggerRegistrationResult,
    UnregisterTrigger,
    WorkerRegistered,
)


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
    InvokeFunction,
    InvocationResult,
    RegisterTrigger,
    UnregisterTrigger,
    TriggerRegistrationResult,
    RegistrationRejected,
    FunctionRegistered,
    ObserverAdded,
    ObserverRemoved,
    ObserveResult,
    ObserverStateChanged,
    Ping,
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
        headers: Mapping[str, str],
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
                additional_headers=self._headers,
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
                await self.send(Reattach(self._registration.worker_id, self._registration.reattach_token))
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


def build_headers(token: str, more: Mapping[str, Any]) -> dict[str, str]:
    """The headers of the connection request."""
    headers = {name: str(value) for name, value in more.items()}
    if token and not any(name.lower() == "authorization" for name in headers):
        headers["Authorization"] = f"Bearer {token}"
    return headers
