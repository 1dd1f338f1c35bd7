"""A blocking HTTP/1.1 client for single requests: sessions, listings, the first answer of a new process."""

from __future__ import annotations

import socket
from dataclasses import dataclass

from benchmarks import wire


class BadAnswer(Exception):
    """An answer that does not fit the request."""


@dataclass(frozen=True)
class Answer:
    status: int
    head: bytes
    body: bytes

    def header(self, name: bytes) -> str | None:
        for line in self.head.split(b"\r\n")[1:]:
            key, _, value = line.partition(b":")
            if key.strip().lower() == name:
                return value.strip().decode()
        return None


class Client:
    """One keep-alive connection."""

    def __init__(self, port: int, timeout: float = 30.0) -> None:
        self.port = port
        self.socket = socket.create_connection(("127.0.0.1", port), timeout=timeout)
        self.socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)

    def __enter__(self) -> Client:
        return self

    def __exit__(self, *_: object) -> None:
        self.socket.close()

    def send(self, request: bytes) -> Answer:
        self.socket.sendall(request)
        return self.read()

    def read(self) -> Answer:
        """The answer to a request that was sent."""
        data = self._receive()
        while (end := data.find(b"\r\n\r\n")) < 0:
            data += self._receive()
        head = data[:end]
        answer = Answer(int(head[9:12]), head, b"")
        length = int(answer.header(b"content-length") or 0)
        chunks = [data[end + 4 :]]
        missing = length - len(chunks[0])
        while missing > 0:
            chunks.append(self._receive())
            missing -= len(chunks[-1])
        return Answer(answer.status, head, b"".join(chunks))

    def expect(self, request: bytes, part: bytes) -> Answer:
        """Send a request whose answer must be a 200 that holds `part`."""
        answer = self.send(request)
        if answer.status != 200 or part not in answer.body:
            raise BadAnswer(f"status {answer.status}: {answer.body[:200]!r}")
        return answer

    def open_session(self) -> str:
        """The handshake of 2025-11-25; a server without sessions gets a placeholder id."""
        answer = self.expect(wire.initialize(self.port), b"jsonrpc")
        session = answer.header(b"mcp-session-id") or "none"
        self.send(wire.in_session(self.port, session, wire.initialized()))
        return session

    def _receive(self) -> bytes:
        data = self.socket.recv(1 << 20)
        if not data:
            raise BadAnswer("connection closed")
        return data
