"""Channels: bytes and texts from one worker to another, beside the messages of the hub.

A channel has two ends, each a socket of its own, opened with the channel's key. Unread messages wait in the hub; when
there are too many, the hub stops reading from the writer, whose own socket then fills up.

Ends may be sockets at different replicas (`ChannelRelay`). A channel is at the replica that made it, and its id names
that. A worker opens an end at its own replica, which sends messages on to the other in requests, one after another:
each is answered when the receiver can take more, so that a slow reader slows the writer down, as within one replica.
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

import msgspec
from websockets.frames import CloseCode

from waypost.buses import Bus
from waypost.buses.bus import Subscription
from waypost.errors import DeadlineExceeded, InvalidRequest, InvocationFailed, NoHolder, RemoteError
from waypost.loops import cancel_tasks, running_loop, start_task
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
_LOST: Final = "the other end disconnected without closing the channel"


class End(Protocol):
    """What a channel needs of the socket of an end."""

    is_full: bool
    on_drain: Callable[[], None]

    def send(self, data: bytes) -> None: ...
    def send_bytes(self, data: bytes) -> None: ...
    def pause(self) -> None: ...
    def resume(self) -> None: ...
    def close(self, code: int = ..., reason: str = ...) -> None: ...


class Channel:
    """Messages on their way from one end to the other."""

    def __init__(self, channels: Channels, max_messages: int, maker: str, replica: str) -> None:
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
        self._is_lost = False
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

    def detach(self, direction: Direction, *, is_lost: bool) -> None:
        """The socket of an end was closed, or lost; what was written before can still be read."""
        self.ends.pop(direction, None)
        self._is_ending, self._is_lost = True, is_lost
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
            if self._is_lost:  # a reader must not take what was written so far for everything
                socket.close(CloseCode.GOING_AWAY, _LOST)
            else:
                socket.close()

    def _pump(self) -> None:
        """Send what the reader can take, and read from the writer or not, depending on how much is left."""
        reader, writer = self.ends.get("read"), self.ends.get("write")
        while reader is not None and self._unread and not reader.is_full:
            data, is_text = self._unread.popleft()
            self._unread_bytes -= len(data)
            (reader.send if is_text else reader.send_bytes)(data)
        # Only with a reader: one that connects later must find the end of the stream, not a missing channel.
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
        self._socket: Socket | None = None

    def on_open(self, socket: Socket) -> None:
        """Attach the socket."""
        self._socket = socket
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
        self._channel.detach(self._direction, is_lost=self._socket is not None and self._socket.is_lost)


class Channels:
    """All channels of a hub."""

    def __init__(self, limit: int, replica: str) -> None:
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
        # In constant time, and with the same answer for a wrong key and an unknown id: neither can be probed.
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


_OPEN_TIMEOUT_S: Final = 10.0
_TAKE_TIMEOUT_S: Final = 86_400.0
"""How long a reader may leave everything unread; that its replica is gone is known much sooner."""
_PART_BYTES: Final = 512 * 1024
"""About how much one request carries, and the longest part of a message."""
_FULL_BYTES: Final = 1024 * 1024
_POLICY_VIOLATION: Final = 1008
_MAX_REASON: Final = 100
"""Characters of the reason in a close frame, which has at most 123 bytes."""


class _Part(msgspec.Struct, array_like=True):
    """A message, or a part of a long one."""

    data: bytes
    is_text: bool
    is_last: bool


class _Request(msgspec.Struct, array_like=True):
    """A message between replicas about an end, whose id both have."""

    kind: Literal["open", "parts", "end"]
    end: str
    origin: str
    channel: str = ""
    key: str = ""
    direction: Direction = "read"
    parts: list[_Part] = []
    is_lost: bool = False


_encode: Final = msgspec.msgpack.Encoder().encode
_decode: Final = msgspec.msgpack.Decoder(_Request).decode


class _End:
    """One side of an end: what it sends to the other side, and what it takes from it."""

    def __init__(self, relay: ChannelRelay, end_id: str, peer: str) -> None:
        self.id = end_id
        self.peer = peer
        self.is_full = False
        self.on_drain: Callable[[], None] = lambda: None
        """Called when it can take more again."""
        self._relay = relay
        self._unsent: deque[_Part] = deque()
        self._unsent_bytes = 0
        self._has_news = asyncio.Event()
        self._is_ending = False
        self._is_lost = False
        self._begun = bytearray()
        """The first parts of a message whose last part did not arrive yet."""

    def put(self, data: bytes, *, is_text: bool) -> None:
        """Send a message to the other side."""
        # An empty message is a part too.
        for start in range(0, max(len(data), 1), _PART_BYTES):
            stop = start + _PART_BYTES
            self._unsent.append(_Part(bytes(data[start:stop]), is_text, stop >= len(data)))
        self._unsent_bytes += len(data)
        self.is_full = self._unsent_bytes >= _FULL_BYTES
        self._has_news.set()

    def finish(self, *, is_lost: bool = False) -> None:
        """Send what is left, and then that this side has ended, or was lost."""
        self._is_ending = True
        self._is_lost = self._is_lost or is_lost
        self._has_news.set()

    async def send_all(self) -> None:
        """Send what is put until this side ends."""
        while True:
            await self._has_news.wait()
            self._has_news.clear()
            while self._unsent:
                await self._relay.request(self, "parts", self._next_parts())
                if self.is_full and self._unsent_bytes < _FULL_BYTES:
                    self.is_full = False
                    self.on_drain()
            if self._is_ending:
                await self._relay.request(self, "end", is_lost=self._is_lost)
                return

    def _next_parts(self) -> list[_Part]:
        parts: list[_Part] = []
        size = 0
        while self._unsent and (not parts or size + len(self._unsent[0].data) <= _PART_BYTES):
            parts.append(self._unsent.popleft())
            size += len(parts[-1].data)
        self._unsent_bytes -= size
        return parts

    async def take_parts(self, parts: list[_Part]) -> None:
        """Take what the other side sent, and wait until there is room for more."""
        for part in parts:
            self._begun += part.data
            if part.is_last:
                data, self._begun = bytes(self._begun), bytearray()
                self.take(data, is_text=part.is_text)
        await self.wait_for_room()

    def take(self, data: bytes, *, is_text: bool) -> None:
        """Take a message of the other side."""
        raise NotImplementedError

    async def wait_for_room(self) -> None:
        """Wait until more can be taken."""
        raise NotImplementedError

    def end(self, *, is_lost: bool) -> None:
        """The other side has ended, or is lost."""
        raise NotImplementedError


class _SocketElsewhere(_End):
    """An end of a channel of this replica whose socket is at another one; to the channel it is a socket."""

    def __init__(self, relay: ChannelRelay, request: _Request) -> None:
        super().__init__(relay, request.end, request.origin)
        channel = relay.channels.take_end(request.channel, request.key, request.direction)
        self._channel = channel
        self._direction = request.direction
        self._has_room = asyncio.Event()
        self._has_room.set()
        self._is_closed = False

    def attach(self) -> None:
        """Attach it to its channel."""
        self._channel.open(self._direction, self)

    def send(self, data: bytes) -> None:
        """Send a text to the reader."""
        self.put(data, is_text=True)

    def send_bytes(self, data: bytes) -> None:
        """Send bytes to the reader."""
        self.put(data, is_text=False)

    def pause(self) -> None:
        """Take nothing from the writer for now."""
        if not self._is_closed:  # what still arrives then is discarded, and must not wait
            self._has_room.clear()

    def resume(self) -> None:
        """Take more from the writer."""
        self._has_room.set()

    def close(self, code: int = CloseCode.NORMAL_CLOSURE, _reason: str = "") -> None:
        """Close the socket at the other replica."""
        self._is_closed = True
        self._has_room.set()
        self.finish(is_lost=code != CloseCode.NORMAL_CLOSURE)

    def take(self, data: bytes, *, is_text: bool) -> None:
        if not self._is_closed:
            self._channel.write(data, is_text=is_text)

    async def wait_for_room(self) -> None:
        await self._has_room.wait()

    def end(self, *, is_lost: bool) -> None:
        self._is_closed = True
        self._has_room.set()
        self._channel.detach(self._direction, is_lost=is_lost)


class _ChannelElsewhere(_End, Receiver):
    """The receiver of a socket here that is an end of a channel of another replica."""

    def __init__(self, relay: ChannelRelay, replica: str, opening: _Request) -> None:
        super().__init__(relay, opening.end, replica)
        self._opening = opening
        self._socket: Socket | None = None
        self._drained = asyncio.Event()

    def on_open(self, socket: Socket) -> None:
        """Ask the replica of the channel for the end."""
        self._socket = socket
        self.on_drain = socket.resume
        socket.on_drain = self._drained.set
        self._relay.start(self, self._opening)

    def on_text(self, data: bytes) -> None:
        """Write a text."""
        self._write(data, is_text=True)

    def on_binary(self, data: bytes) -> None:
        """Write bytes."""
        self._write(data, is_text=False)

    def on_close(self) -> None:
        """The worker has closed its socket, or is gone."""
        self._drained.set()
        self.finish(is_lost=self._socket is not None and self._socket.is_lost)

    def refuse(self, why: str) -> None:
        """Close the socket: the replica of the channel refuses the end."""
        if self._socket is not None:
            self._socket.close(_POLICY_VIOLATION, why[:_MAX_REASON])

    def _write(self, data: bytes, *, is_text: bool) -> None:
        if self._opening.direction == "write":  # what a reader sends is discarded
            self.put(data, is_text=is_text)
            if self.is_full and self._socket is not None:
                self._socket.pause()

    def take(self, data: bytes, *, is_text: bool) -> None:
        if self._socket is not None:
            (self._socket.send if is_text else self._socket.send_bytes)(data)

    async def wait_for_room(self) -> None:
        # It may still be set from an earlier drain.
        self._drained.clear()
        if self._socket is not None and self._socket.is_full:
            await self._drained.wait()

    def end(self, *, is_lost: bool) -> None:
        self._drained.set()
        if self._socket is not None and is_lost:
            self._socket.close(CloseCode.GOING_AWAY, _LOST)
        elif self._socket is not None:
            self._socket.close()


class ChannelRelay:
    """The ends of channels that have a socket at one replica and the channel at another."""

    def __init__(self, channels: Channels, bus: Bus, replica: str) -> None:
        self.channels = channels
        self._bus = bus
        self._replica = replica
        self._ends: dict[str, _End] = {}
        self._tasks: set[asyncio.Task[None]] = set()
        self._serving: Subscription | None = None

    async def start_serving(self) -> None:
        """Take what other replicas send."""
        self._serving = await self._bus.serve(f"channels.{self._replica}", self._respond)

    async def stop(self) -> None:
        """Close all ends."""
        for end in list(self._ends.values()):
            self._lose(end)
        await cancel_tasks(self._tasks)
        if self._serving is not None:
            await self._serving.end()

    def forget(self, replica: str) -> None:
        """A replica is gone, with its side of each end."""
        for end in [one for one in self._ends.values() if one.peer == replica]:
            self._lose(end)

    def open_end(self, replica: str, channel: str, key: str, direction: Direction) -> Receiver:
        """The receiver of a socket for an end of another replica's channel; it is closed if that refuses."""
        opening = _Request("open", secrets.token_hex(16), self._replica, channel, key, direction)
        return _ChannelElsewhere(self, replica, opening)

    def start(self, end: _ChannelElsewhere, opening: _Request) -> None:
        """Open an end at the replica of its channel, and send what is written."""
        self._ends[end.id] = end
        start_task(self._open(end, opening), self._tasks)

    async def request(
        self, end: _End, kind: Literal["parts", "end"], parts: list[_Part] | None = None, *, is_lost: bool = False
    ) -> None:
        """Send something to the other side of an end, and wait until that has taken it."""
        message = _encode(_Request(kind, end.id, self._replica, parts=parts or [], is_lost=is_lost))
        await self._bus.request(f"channels.{end.peer}", message, _TAKE_TIMEOUT_S)

    async def _open(self, end: _ChannelElsewhere, opening: _Request) -> None:
        try:
            await self._bus.request(f"channels.{end.peer}", _encode(opening), _OPEN_TIMEOUT_S)
        except (NoHolder, DeadlineExceeded, RemoteError) as error:
            self._ends.pop(end.id, None)
            end.refuse(error.message)
            return
        await self._send_all(end)

    async def _send_all(self, end: _End) -> None:
        try:
            await end.send_all()
        except (NoHolder, DeadlineExceeded, RemoteError):
            self._lose(end)
        finally:
            self._ends.pop(end.id, None)

    def _lose(self, end: _End, *, is_lost: bool = True) -> None:
        if self._ends.pop(end.id, None) is not None:
            end.end(is_lost=is_lost)
            end.finish()

    async def _respond(self, message: bytes) -> bytes:
        request = _decode(message)
        if request.kind == "open":
            try:
                new = _SocketElsewhere(self, request)
            except Refusal as refusal:
                raise InvalidRequest(str(refusal)) from None
            # Before it is attached: the channel may send to it, or close it, at once.
            self._ends[new.id] = new
            start_task(self._send_all(new), self._tasks)
            new.attach()
            return b""
        end = self._ends.get(request.end)
        if end is None:
            raise NoHolder("There is no such end of a channel.")
        if request.kind == "parts":
            await end.take_parts(request.parts)
        else:
            self._lose(end, is_lost=request.is_lost)
        return b""
