"""Channels: streams of bytes and texts from one worker to another, each on a socket of its own."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass
from typing import Any, ClassVar, Final, Literal, TypeAlias
from urllib.parse import quote

import msgspec
from msgspec import Struct
from websockets.asyncio.client import ClientConnection, connect
from websockets.exceptions import ConnectionClosed, InvalidStatus, WebSocketException

from waypost.errors import InvocationFailed
from waypost.worker.connection import Answer, WorkerLoop
from waypost.workers.frames import MAX_MESSAGE_BYTES

_log: Final = logging.getLogger(__name__)
_PIECE_BYTES: Final = 64 * 1024
_OPEN_TIMEOUT_S: Final = 10.0
_CLOSE_TIMEOUT_S: Final = 1.0
_NORMAL_CLOSURE: Final = 1000
_STATUS_REASONS: Final = {404: "there is no such channel any more", 409: "that end is in use already"}
CREATE_CHANNEL: Final = "engine::channels::create"

MessageCallback: TypeAlias = Callable[[str], object]
Create: TypeAlias = Callable[[Any], Awaitable[Any]]
"""Asks the engine for a channel."""


class StreamChannelRef(Struct, frozen=True):
    """A reference to one end of a channel, to be sent to the worker that shall have it."""

    channel_id: str
    access_key: str
    direction: Literal["read", "write"]


class _End:
    """One end of a channel; its socket is opened when it is first used."""

    direction: ClassVar[str]

    @classmethod
    def schema(cls) -> dict[str, Any]:
        """The schema of its reference in a payload."""
        properties = {"channel_id": {"type": "string"}, "access_key": {"type": "string"}}
        return {
            "type": "object",
            "properties": {**properties, "direction": {"const": cls.direction}},
            "required": ["channel_id", "access_key", "direction"],
        }

    @classmethod
    def __get_pydantic_core_schema__(cls, _source: Any, _handler: Any) -> Any:
        from pydantic_core import core_schema

        return core_schema.is_instance_schema(cls)

    @classmethod
    def __get_pydantic_json_schema__(cls, _schema: Any, _handler: Any) -> dict[str, Any]:
        return cls.schema()

    def __init__(self, channels: Channels, ref: StreamChannelRef) -> None:
        self._channels = channels
        self._ref = ref
        # In this order: `_order` keeps writes and the close after them in sequence; under it, or alone where a reader
        # reads, `_opening` keeps two users of a new end from opening a socket each.
        self._order = asyncio.Lock()
        self._opening = asyncio.Lock()
        self._socket: ClientConnection | None = None
        self._is_closed = False

    def close(self) -> Answer[None]:
        """Close it after everything that was started before; the other side learns of it."""
        return self._channels.loop.start(self._close())

    async def _close(self) -> None:
        async with self._order:
            await self._shut()

    async def _shut(self) -> None:
        """Close it; one that was never used is opened for that, so that the other side learns of it."""
        if self._socket is None and not self._is_closed:
            with suppress(InvocationFailed):
                await self._open()
        self._is_closed = True
        if self._socket is not None:
            await self._channels.shut(self._socket)

    async def _open(self) -> ClientConnection:
        async with self._opening:
            if self._socket is None:
                self._socket = await self._channels.open(self._ref)
            return self._socket


class ChannelWriter(_End):
    """The end of a channel that is written to."""

    direction = "write"

    def write(self, data: bytes) -> Answer[None]:
        """Write bytes; done when they are on their way, which is not before the reader keeps up."""
        return self._channels.loop.start(self._write(data))

    def send_message(self, message: str) -> Answer[None]:
        """Write a text, which goes to the reader's `on_message`."""
        return self._channels.loop.start(self._write(message))

    async def _write(self, data: bytes | str) -> None:
        async with self._order:
            if self._is_closed:
                raise InvocationFailed("The channel was closed.", "channel_closed")
            socket = await self._open()
            try:
                if isinstance(data, str):
                    await socket.send(data)
                    return
                for start in range(0, len(data), _PIECE_BYTES):
                    await socket.send(data[start : start + _PIECE_BYTES])
            except ConnectionClosed:
                await self._channels.shut(socket)
                raise InvocationFailed("The reader has closed the channel.", "channel_closed") from None


class ChannelReader(_End):
    """The end of a channel that is read from: `async for` it, or `for` it where no event loop runs."""

    direction = "read"

    def __init__(self, channels: Channels, ref: StreamChannelRef) -> None:
        super().__init__(channels, ref)
        self._callbacks: list[MessageCallback] = []

    def on_message(self, callback: MessageCallback) -> None:
        """Call something with each text while the channel is read; it runs in the worker's loop."""
        self._callbacks.append(callback)

    def read_all(self) -> Answer[bytes]:
        """All bytes that are still to come."""
        return self._channels.loop.start(self._read_all())

    def close(self) -> Answer[None]:
        """Stop reading; the writer learns of it."""
        return self._channels.loop.start(self._shut())

    def __aiter__(self) -> AsyncIterator[bytes]:
        return self

    async def __anext__(self) -> bytes:
        loop = self._channels.loop
        piece = await (self._next() if loop.is_current else loop.start(self._next()))
        if piece is None:
            raise StopAsyncIteration
        return piece

    def __iter__(self) -> Iterator[bytes]:
        while (piece := self._channels.loop.start(self._next()).result()) is not None:
            yield piece

    async def _read_all(self) -> bytes:
        pieces = []
        while (piece := await self._next()) is not None:
            pieces.append(piece)
        return b"".join(pieces)

    async def _next(self) -> bytes | None:
        """The next bytes; nothing at the end."""
        while not self._is_closed:
            socket = await self._open()
            try:
                message = await socket.recv()
            except ConnectionClosed as closed:
                await self._ended(closed)
                break
            if isinstance(message, bytes):
                return message
            self._on_text(message)
        return None

    async def _ended(self, closed: ConnectionClosed) -> None:
        is_lost = not self._is_closed and (closed.rcvd is None or closed.rcvd.code != _NORMAL_CLOSURE)
        await self._shut()
        if is_lost:
            raise InvocationFailed("The channel was lost before its end.", "channel_closed")

    def _on_text(self, message: str) -> None:
        for callback in self._callbacks:
            try:
                callback(message)
            except Exception:
                _log.exception("the callback for a text of a channel failed")


@dataclass(frozen=True, slots=True)
class Channel:
    """A channel: keep one end, and send the reference of the other to another worker."""

    writer: ChannelWriter
    reader: ChannelReader
    writer_ref: StreamChannelRef
    reader_ref: StreamChannelRef


class Channels:
    """The channels of one worker."""

    def __init__(self, url: str, headers: Callable[[], Mapping[str, str]], loop: WorkerLoop, create: Create) -> None:
        self.loop = loop
        self._url = url
        self._headers = headers
        self._create = create
        self._sockets: set[ClientConnection] = set()
        self._is_closed = False

    async def create(self, buffer_size: int | None) -> Channel:
        """A new channel, which holds up to so many unread messages."""
        made = await self._create({"buffer_size": buffer_size})
        writer, reader = (msgspec.convert(made[end], StreamChannelRef) for end in ("writer", "reader"))
        return Channel(ChannelWriter(self, writer), ChannelReader(self, reader), writer, reader)

    def resolve(self, value: Any) -> Any:
        """A payload with the references in it replaced by ends of channels."""
        if isinstance(value, dict):
            if "access_key" in value:
                with suppress(msgspec.ValidationError):
                    ref = msgspec.convert(value, StreamChannelRef)
                    return ChannelReader(self, ref) if ref.direction == "read" else ChannelWriter(self, ref)
            return {key: self.resolve(one) for key, one in value.items()}
        return [self.resolve(one) for one in value] if isinstance(value, list) else value

    async def open(self, ref: StreamChannelRef) -> ClientConnection:
        """A socket for one end."""
        if self._is_closed:
            raise InvocationFailed("The worker was shut down.", "SHUTDOWN")
        is_writer = ref.direction == "write"
        try:
            socket = await connect(
                _build_url(self._url, ref),
                additional_headers=self._headers(),
                max_size=MAX_MESSAGE_BYTES,
                compression=None,
                proxy=None,
                open_timeout=_OPEN_TIMEOUT_S,
                # The engine stops reading from a writer that is too fast, its pings and its close frame included.
                ping_interval=None if is_writer else 20.0,
                close_timeout=None if is_writer else _CLOSE_TIMEOUT_S,
            )
        except (OSError, TimeoutError, WebSocketException) as error:
            raise InvocationFailed(f"The channel cannot be opened: {_explain(error)}.", "channel_closed") from None
        self._sockets.add(socket)
        return socket

    async def shut(self, socket: ClientConnection) -> None:
        """Close a socket."""
        await socket.close()
        self._sockets.discard(socket)

    async def close(self) -> None:
        """Close all of them at once."""
        self._is_closed = True
        for socket in self._sockets:
            # Writers have no limit otherwise: their close frame waits until the reader has caught up.
            socket.close_timeout = _CLOSE_TIMEOUT_S
        await asyncio.gather(*(self.shut(socket) for socket in list(self._sockets)), return_exceptions=True)


def _build_url(url: str, ref: StreamChannelRef) -> str:
    base, _, query = url.partition("?")
    mine = f"key={quote(ref.access_key, safe='')}&dir={ref.direction}"
    query = f"{query}&{mine}" if query else mine
    return f"{base.rstrip('/')}/ws/channels/{quote(ref.channel_id, safe='')}?{query}"


def _explain(error: Exception) -> str:
    if isinstance(error, InvalidStatus):
        status = error.response.status_code
        return _STATUS_REASONS.get(status, f"the server answered with the status {status}")
    return str(error) or type(error).__name__
