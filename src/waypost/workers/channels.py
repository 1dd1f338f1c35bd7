"""Channels: bytes and texts from one worker to another, as they come, without being messages of the hub.

A channel has two ends, each a socket of its own, opened by whoever was given the end's key. What is written waits,
within bounds, until it is read; a writer that is faster than its reader is not read from for a while.
"""

from __future__ import annotations

import asyncio
import hmac
import secrets
import uuid
from collections import deque
from typing import Any, Final, Literal

from waypost.errors import InvocationFailed
from waypost.loops import running_loop
from waypost.workers.functions import Call, Function, hosted
from waypost.workers.sockets import Refusal, Socket

Direction = Literal["read", "write"]

MAX_CHANNELS: Final = 10_000
_DEFAULT_BUFFER_MESSAGES: Final = 64
_MAX_BUFFER_MESSAGES: Final = 10_000
_MAX_BUFFER_BYTES: Final = 8 * 1024 * 1024
"""What waits in a channel at most, beside the message that came last."""
_UNUSED_TIMEOUT_S: Final = 300.0
"""Seconds after which a channel goes that has not both its ends."""


class Channel:
    """What goes from one end to the other."""

    def __init__(self, channels: Channels, buffer: int, maker: str) -> None:
        self.id = str(uuid.uuid4())
        self.maker = maker
        self.key = secrets.token_urlsafe(24)
        self.ends: dict[Direction, Socket] = {}
        self.taken: set[Direction] = set()
        self._waiting: deque[tuple[bytes, bool]] = deque()
        self._bytes = 0
        self._most = buffer
        self._is_over = False
        self._channels = channels
        self._timer: asyncio.TimerHandle | None = running_loop().call_later(_UNUSED_TIMEOUT_S, self.end)

    def opened(self, direction: Direction, socket: Socket) -> None:
        """An end is there."""
        self.ends[direction] = socket
        if direction == "read":
            socket.drained = self._flow
        if len(self.ends) == 2 and self._timer is not None:
            self._timer.cancel()
            self._timer = None
        self._flow()

    def put(self, data: bytes, *, is_text: bool) -> None:
        """Something was written."""
        self._waiting.append((data, is_text))
        self._bytes += len(data)
        self._flow()

    def left(self, direction: Direction) -> None:
        """An end is gone; what was written before is still to be read."""
        self.ends.pop(direction, None)
        self._is_over = True
        if direction == "read":
            self.end()
        else:
            self._flow()

    def end(self) -> None:
        """Nothing goes through any more."""
        if self._timer is not None:
            self._timer.cancel()
        self._channels.forget(self)
        for socket in self.ends.values():
            socket.close()

    def _flow(self) -> None:
        reader, writer = self.ends.get("read"), self.ends.get("write")
        while reader is not None and self._waiting and not reader.is_full:
            data, is_text = self._waiting.popleft()
            self._bytes -= len(data)
            (reader.send if is_text else reader.send_bytes)(data)
        if self._is_over and not self._waiting and reader is not None:
            self.end()
        elif writer is not None:
            is_enough = len(self._waiting) >= self._most or self._bytes >= _MAX_BUFFER_BYTES
            (writer.pause if is_enough else writer.resume)()


class End:
    """One end of a channel, which is what its socket belongs to."""

    def __init__(self, channel: Channel, direction: Direction) -> None:
        self._channel = channel
        self._direction = direction

    def opened(self, socket: Socket) -> None:
        """The socket is there."""
        self._channel.opened(self._direction, socket)

    def text(self, data: bytes) -> None:
        """A text was written; what a reader says is not for anybody."""
        if self._direction == "write":
            self._channel.put(data, is_text=True)

    def binary(self, data: bytes) -> None:
        """Bytes were written."""
        if self._direction == "write":
            self._channel.put(data, is_text=False)

    def closed(self) -> None:
        """The socket is gone."""
        self._channel.left(self._direction)


class Channels:
    """All channels of a hub."""

    def __init__(self) -> None:
        self._channels: dict[str, Channel] = {}

    def __len__(self) -> int:
        return len(self._channels)

    def end_for(self, channel_id: str, key: str, direction: str) -> End:
        """The end that a socket is opened for; each is given once."""
        channel = self._channels.get(channel_id)
        if channel is None or not hmac.compare_digest(key.encode(), channel.key.encode()):
            raise Refusal(404, "There is no such channel.")
        if direction not in ("read", "write"):
            raise Refusal(404, "A channel is opened with dir=read or dir=write.")
        if direction in channel.taken:
            raise Refusal(409, "That end of the channel is taken.")
        channel.taken.add(direction)  # type: ignore[arg-type]  # looked at above
        return End(channel, direction)  # type: ignore[arg-type]

    def forget(self, channel: Channel) -> None:
        """A channel has ended."""
        self._channels.pop(channel.id, None)

    def leave(self, worker_id: str) -> None:
        """A worker is gone, and with it the channels it made that nobody uses."""
        for channel in [one for one in self._channels.values() if one.maker == worker_id and not one.taken]:
            channel.end()

    def close(self) -> None:
        """End all of them."""
        for channel in list(self._channels.values()):
            channel.end()

    def function(self) -> Function:
        """What workers call to have a channel."""
        return hosted("engine::channels::create", self._create, description="A channel from one worker to another.")

    async def _create(self, payload: Any, call: Call) -> Any:
        asked = payload.get("buffer_size") if isinstance(payload, dict) else None
        if len(self._channels) >= MAX_CHANNELS:
            raise InvocationFailed(f"There are {MAX_CHANNELS} channels already; close some first.", "invocation_error")
        buffer = min(max(asked, 1), _MAX_BUFFER_MESSAGES) if type(asked) is int else _DEFAULT_BUFFER_MESSAGES
        channel = Channel(self, buffer, call.sender)
        self._channels[channel.id] = channel
        both = {"channel_id": channel.id, "access_key": channel.key}
        return {"writer": {**both, "direction": "write"}, "reader": {**both, "direction": "read"}}
