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
from collections.abc import Callable
from typing import Any, Final, Literal, Protocol, TypeAlias
from urllib.parse import SplitResult, parse_qs

from waypost.errors import InvocationFailed
from waypost.loops import running_loop
from waypost.workers.functions import Call, Function, hosted
from waypost.workers.sockets import Receiver, Refusal, Socket

Direction: TypeAlias = Literal["read", "write"]
_DIRECTIONS: Final[dict[str, Direction]] = {"read": "read", "write": "write"}

OpenElsewhere: TypeAlias = Callable[[str, str, str, Direction], Receiver | None]
"""Gets a replica, the id and the key of a channel, and an end; returns nothing if there is no such replica."""

_DEFAULT_BUFFER_MESSAGES: Final = 64
_MAX_BUFFER_MESSAGES: Final = 10_000
_MAX_BUFFER_BYTES: Final = 8 * 1024 * 1024
"""The writer is not read from while more bytes wait; the message that exceeds the limit is still kept."""
_UNUSED_TIMEOUT_S: Final = 300.0
"""How long both ends may take to be opened."""


class End(Protocol):
    """What a channel needs of the socket of an end."""

    is_full: bool
    on_drain: Callable[[], None]

    def send(self, data: bytes) -> None: ...
    def send_bytes(self, data: bytes) -> None: ...
    def pause(self) -> None: ...
    def resume(self) -> None: ...
    def close(self) -> None: ...


class Channel:
    """Messages on their way from one end to the other."""

    def __init__(self, channels: Channels, max_messages: int, maker: str, replica: str = "") -> None:
        # Workers open the other end at their own replica, which has to find the channel.
        self.id = f"{replica}.{uuid.uuid4()}" if replica else str(uuid.uuid4())
        self.maker = maker
        self.key = secrets.token_urlsafe(24)
        self.ends: dict[Direction, End] = {}
        self.taken: set[Direction] = set()
        self._unread: deque[tuple[bytes, bool]] = deque()
        self._unread_bytes = 0
        self._max_messages = max_messages
        self._is_ending = False
        self._channels = channels
        self._timer: asyncio.TimerHandle | None = running_loop().call_later(_UNUSED_TIMEOUT_S, self.close)

    def open(self, direction: Direction, socket: End) -> None:
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
        if direction == "read":  # nothing that is written can arrive any more
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


class ChannelEnd(Receiver):
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

    def __init__(self, limit: int, replica: str = "") -> None:
        self._limit = limit
        self._replica = replica
        self._channels: dict[str, Channel] = {}
        self.open_elsewhere: OpenElsewhere | None = None
        """Opens an end of a channel of another replica, where there can be any."""

    def __len__(self) -> int:
        return len(self._channels)

    def open_end(self, url: SplitResult) -> Receiver:
        """Take the end of a channel that a URL names; `Refusal` if the key is wrong or the end is taken."""
        query = parse_qs(url.query)
        channel_id, key = url.path.rsplit("/", 1)[-1], query.get("key", [""])[-1]
        end = _DIRECTIONS.get(query.get("dir", [""])[-1])
        if end is None:
            raise Refusal(404, "A channel is opened with dir=read or dir=write.")
        if channel_id not in self._channels and self.open_elsewhere is not None:
            elsewhere = self.open_elsewhere(channel_id.partition(".")[0], channel_id, key, end)
            if elsewhere is not None:
                return elsewhere
        return ChannelEnd(self.take_end(channel_id, key, end), end)

    def take_end(self, channel_id: str, key: str, end: Direction) -> Channel:
        """Take an end of a channel; `Refusal` if the key is wrong or the end is taken."""
        channel = self._channels.get(channel_id)
        if channel is None or not hmac.compare_digest(key.encode(), channel.key.encode()):
            raise Refusal(404, "There is no such channel.")
        if end in channel.taken:
            raise Refusal(409, "That end of the channel is taken.")
        # Taken for good: what the first socket of an end received is gone, so a second would see a stream with a gap.
        channel.taken.add(end)
        return channel

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
        if len(self._channels) >= self._limit:
            raise InvocationFailed(f"There are {self._limit} channels already; close some first.", "invocation_error")
        max_messages = min(max(size, 1), _MAX_BUFFER_MESSAGES) if type(size) is int else _DEFAULT_BUFFER_MESSAGES
        channel = Channel(self, max_messages, call.sender, self._replica)
        self._channels[channel.id] = channel
        ref = {"channel_id": channel.id, "access_key": channel.key}
        return {"writer": {**ref, "direction": "write"}, "reader": {**ref, "direction": "read"}}
