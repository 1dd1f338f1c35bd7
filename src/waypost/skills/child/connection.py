"""The socket to the hub, as a skill's process sees it: waiting for messages by blocking, sending whole ones."""

from __future__ import annotations

import os
import socket
import threading
from typing import Final

import msgspec

from waypost.skills.child.messages import HEAD, FromHub, encode, framed

_CHUNK: Final = 64 * 1024
_decoder: Final[msgspec.json.Decoder[FromHub]] = msgspec.json.Decoder(FromHub)


class Connection:
    """Messages out and in; a process whose hub is gone ends."""

    def __init__(self, number: int) -> None:
        self._socket = socket.socket(fileno=number)
        self._socket.set_inheritable(False)
        self._buffer = bytearray()
        self._sending = threading.Lock()

    def fileno(self) -> int:
        """The number of the socket, for those who wait in another way."""
        return self._socket.fileno()

    def send(self, message: msgspec.Struct) -> None:
        """Send a message."""
        self.send_encoded(encode(message))

    def send_encoded(self, body: bytes) -> None:
        """Send a message that was encoded before."""
        try:
            with self._sending:
                self._socket.sendall(framed(body))
        except ConnectionError:
            os._exit(0)

    def receive(self) -> FromHub:
        """The next message, waited for."""
        while (message := self.next()) is None:
            self.read()
        return message

    def read(self) -> None:
        """Take in what has come, or wait until something comes."""
        try:
            data = self._socket.recv(_CHUNK)
        except ConnectionError:
            data = b""
        if not data:
            os._exit(0)
        self._buffer += data

    def next(self) -> FromHub | None:
        """A message that is here as a whole."""
        if len(self._buffer) < HEAD:
            return None
        end = HEAD + int.from_bytes(self._buffer[:HEAD], "big")
        if len(self._buffer) < end:
            return None
        body = bytes(self._buffer[HEAD:end])
        del self._buffer[:end]
        return _decoder.decode(body)
