"""Channels: bytes and texts from one worker to another, beside the messages of the hub.

A channel has two ends, each a socket of its own, opened with the channel's key. Unread messages wait in the hub; when
there are too many, the hub stops reading from the writer, whose own socket then fills up.
"""

from __future__ import annotations

import asyncio
import hmac
import secrets
import uuid
from collections import deque
from typing import Any, Final, Literal, TypeAlias

from waypost.errors import InvocationFailed
from waypost.loops import running_loop
from waypost.workers.functions import Call, Function, hosted
from waypost.workers.sockets import Refusal, Socket

Direction: TypeAlias = Literal["read", "write"]
_DIRECTIONS: Final[dict[str, Direction]] = {"read": "read", "write": "write"}

MAX_CHANNELS: Final = 10_000
_DEFAULT_BUFFER_MESSAGES: Final = 64
_MAX_BUFFER_MESSAGES: Final = 10_000
_MAX_BUFFER_BYTES: Final = 8 * 1024 * 1024
"""The writer is not read from while more bytes wait; the message that exceeds the limit is still kept."""
_UNUSED_TIMEOUT_S: Final = 300.0
"""How long both ends may take to be opened."""


class Channel:
    """Messages on their way from one end to the other."""

    def __init__(self, channels: Channels, max_messages: int, maker: str) -> None:
        self.id = str(uuid.uuid4())
        self.maker = maker
        self.key = secrets.token_urlsafe(24)
        self.ends: dict[Direction, Socket] = {}
        self.taken: set[Direction] = set()
        self._unread: deque[tuple[bytes, bool]] = deque()
        self._unread_bytes = 0
        self._max_messages = max_messages
        self._is_ending = False
        self._channels = channels
        self._timer: asyncio.TimerHandle | None = running_loop().call_later(_UNUSED_TIMEOUT_S, self.close)

    def open(self, direction: Direction, socket: Socket) -> None:
        """Attach the socket of an end."""
        self.ends[direction] = socket
        if direction == "read":
            socket.on_drain = self._pump
        if len(self.ends) == 2 and self._timer is not None:
            self._timer.cancel()
            self._timer = None
        self._pump()

    def write(self, data: bytes, *, is_text: bool) -> None:
        """Add a message."""
        self._unread.append((data, is_text))
        self._unread_bytes += len(data)
        self._pump()

    def detach(self, direction: Direction) -> None:
        """The socket of an end was closed; what was written before can still be read."""
        self.ends.pop(direction, None)
        self._is_ending = True
        if direction == "read":
            self.close()
        else:
            self._pump()

    def close(self) -> None:
        """Close both ends."""
        if self._timer is not None:
            self._timer.cancel()
        self._channels.remove(self)
        for socket in self.ends.values():
            socket.close()

    def _pump(self) -> None:
        """Send what the reader can take, and read from the writer or not, depending on how much is left."""
        reader, writer = self.ends.get("read"), self.ends.get("write")
        while reader is not None and self._unread and not reader.is_full:
            data, is_text = self._unread.popleft()
            self._unread_bytes -= len(data)
            (reader.send if is_text else reader.send_bytes)(data)
        if self._is_ending and not self._unread and reader is not None:
            self.close()
        elif writer is not None:
            is_full = len(self._unread) >= self._max_messages or self._unread_bytes >= _MAX_BUFFER_BYTES
            (writer.pause if is_full else writer.resume)()


class ChannelEnd:
    """The receiver of one end's socket."""

    def __init__(self, channel: Channel, direction: Direction) -> None:
        self._channel = channel
        self._direction = direction

    def on_open(self, socket: Socket) -> None:
        """Attach the socket."""
        self._channel.open(self._direction, socket)

    def on_text(self, data: bytes) -> None:
        """Write a text; what a reader sends is discarded."""
        if self._direction == "write":
            self._channel.write(data, is_text=True)

    def on_binary(self, data: bytes) -> None:
        """Write bytes; what a reader sends is discarded."""
        if self._direction == "write":
            self._channel.write(data, is_text=False)

    def on_close(self) -> None:
        """Detach the socket."""
        self._channel.detach(self._direction)


class Channels:
    """All channels of a hub."""

    def __init__(self) -> None:
        self._channels: dict[str, Channel] = {}

    def __len__(self) -> int:
        return len(self._channels)

    def open_end(self, channel_id: str, key: str, direction: str) -> ChannelEnd:
        """Take an end of a channel; `Refusal` if the key is wrong or the end is taken."""
        channel = self._channels.get(channel_id)
        if channel is None or not hmac.compare_digest(key.encode(), channel.key.encode()):
            raise Refusal(404, "There is no such channel.")
        end = _DIRECTIONS.get(direction)
        if end is None:
            raise Refusal(404, "A channel is opened with dir=read or dir=write.")
        if end in channel.taken:
            raise Refusal(409, "That end of the channel is taken.")
        channel.taken.add(end)
        return ChannelEnd(channel, end)

    def remove(self, channel: Channel) -> None:
        """Remove a channel that was closed."""
        self._channels.pop(channel.id, None)

    def close_unused(self, worker_id: str) -> None:
        """Close the channels of a worker that disconnected, unless an end is in use."""
        for channel in [one for one in self._channels.values() if one.maker == worker_id and not one.taken]:
            channel.close()

    def close(self) -> None:
        """Close all channels."""
        for channel in list(self._channels.values()):
            channel.close()

    def function(self) -> Function:
        """The function that makes a channel."""
        return hosted("engine::channels::create", self._create, description="A channel from one worker to another.")

    async def _create(self, payload: Any, call: Call) -> Any:
        size = payload.get("buffer_size") if isinstance(payload, dict) else None
        if len(self._channels) >= MAX_CHANNELS:
            raise InvocationFailed(f"There are {MAX_CHANNELS} channels already; close some first.", "invocation_error")
        max_messages = min(max(size, 1), _MAX_BUFFER_MESSAGES) if type(size) is int else _DEFAULT_BUFFER_MESSAGES
        channel = Channel(self, max_messages, call.sender)
        self._channels[channel.id] = channel
        ref = {"channel_id": channel.id, "access_key": channel.key}
        return {"writer": {**ref, "direction": "write"}, "reader": {**ref, "direction": "read"}}
