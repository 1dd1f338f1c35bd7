"""`ctx` in a skill's process, and the socket on which each of its methods asks the hub."""

from __future__ import annotations

import builtins
import itertools
import os
import socket
import threading
import warnings
from typing import TYPE_CHECKING, Any, Final, NamedTuple

import msgspec

from waypost.skills.child.messages import REFUSED, Ask, Call, FromHub, Reply, encode, frame, take_body

if TYPE_CHECKING:
    import asyncio


_CHUNK_BYTES: Final = 64 * 1024
_decoder: Final[msgspec.json.Decoder[FromHub]] = msgspec.json.Decoder(FromHub)


class Connection:
    """The socket to the hub; a process whose hub is gone exits."""

    def __init__(self, number: int) -> None:
        self._socket = socket.socket(fileno=number)
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
    """An answer of the hub; its keys can be read as attributes too."""

    def __getattr__(self, name: str) -> Any:
        try:
            return self[name]
        except KeyError:
            raise AttributeError(name) from None


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
