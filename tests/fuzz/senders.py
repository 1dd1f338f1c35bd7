"""Clients that send many messages over one connection and expect an answer to each, on time."""

from __future__ import annotations

import json
import os
import select
import socket
import struct
import subprocess
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any, Final, NamedTuple, Protocol

from tests.cli.shell import COMMAND, environment
from tests.fuzz.hub_under_test import ONE_ARENA, WORKER_TOKEN

HANG_S: Final = 1.0
PATIENCE_S: Final = 60.0
"""Only ends a test in which nothing moves; whether a message hangs is tried again alone."""


class Silent(Exception):
    """No answer in time."""


class Gone(Exception):
    """The other side closed the connection."""


class Answer(NamedTuple):
    """What came back for a message: an HTTP status, or 0, and the body."""

    status: int
    body: bytes


class Sender(Protocol):
    """One connection; `send` returns the answers in order, and raises `Gone` with those that came before the end."""

    def send(self, messages: Sequence[bytes]) -> list[Answer]: ...
    def close(self) -> None: ...


class _Socket:
    """A blocking socket with a buffer."""

    def __init__(self, port: int) -> None:
        self.socket = socket.create_connection(("127.0.0.1", port), PATIENCE_S)
        self.socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self._buffer = bytearray()

    def send(self, data: bytes) -> None:
        """Send everything; reads meanwhile, so that neither side waits for the other."""
        self.socket.setblocking(False)
        left, until = memoryview(data), time.monotonic() + PATIENCE_S
        try:
            while left:
                readable, writable, _ = select.select([self.socket], [self.socket], [], 1.0)
                if readable:
                    self._receive()
                if writable:
                    left = left[self.socket.send(left) :]
                if time.monotonic() > until:
                    raise Silent("the hub reads nothing")
        except OSError as error:
            raise Gone(str(error)) from None
        finally:
            self.socket.settimeout(PATIENCE_S)

    def _receive(self) -> None:
        part = self.socket.recv(1 << 18)
        if not part:
            raise Gone("closed")
        self._buffer += part

    def _more(self) -> None:
        try:
            self._receive()
        except TimeoutError:
            raise Silent("no answer") from None
        except OSError as error:
            raise Gone(str(error)) from None

    def read_until(self, mark: bytes) -> bytes:
        """Everything up to and including a mark."""
        start = 0
        while (found := self._buffer.find(mark, start)) < 0:
            start = max(0, len(self._buffer) - len(mark))
            self._more()
        return self.read(found + len(mark))

    def read(self, size: int) -> bytes:
        """So many bytes."""
        while len(self._buffer) < size:
            self._more()
        data = bytes(self._buffer[:size])
        del self._buffer[:size]
        return data

    def end(self) -> None:
        """Say that nothing more will be sent."""
        try:
            self.socket.shutdown(socket.SHUT_WR)
        except OSError as error:  # the hub was faster and closed the connection
            raise Gone(str(error)) from None

    def close(self) -> None:
        """Close the connection."""
        self.socket.close()


class HttpSender:
    """Whole HTTP requests, pipelined on one connection."""

    def __init__(self, port: int) -> None:
        self._socket = _Socket(port)
        self.answered: list[Answer] = []
        self.heads: list[bytes] = []

    def send(self, messages: Sequence[bytes]) -> list[Answer]:
        """Send requests and wait for all responses; `answered` holds those that came if the connection ends."""
        self.answered, self.heads = [], []
        self._socket.send(b"".join(messages))
        for _ in messages:
            self.answered.append(self._read())
        return self.answered

    def send_broken(self, data: bytes) -> Answer:
        """Send bytes that may be no request, close this side, and return the first response."""
        self._socket.send(data)
        self._socket.end()
        return self._read()

    def _read(self) -> Answer:
        self.heads.append(self._socket.read_until(b"\r\n\r\n"))
        head = self.heads[-1].lower()
        status = int(head[9:12])
        if b"transfer-encoding: chunked" in head:
            body = b""
            while size := int(self._socket.read_until(b"\r\n"), 16):
                body += self._socket.read(size + 2)[:-2]
            self._socket.read(2)
        else:
            _, found, rest = head.partition(b"content-length: ")
            body = self._socket.read(int(rest.partition(b"\r\n")[0]) if found else 0)
        return Answer(status, body)

    def close(self) -> None:
        """Close the connection."""
        self._socket.close()


class StdioSender:
    """Lines for a hub on standard streams; a ping behind each batch shows that all of it was read."""

    def __init__(self, file: Path, data: Path) -> None:
        self.log = (data.parent / "stdio.log").open("w+b")
        self.process = subprocess.Popen(
            [COMMAND, "serve", str(file), "--stdio", "--data", str(data)],
            cwd=file.parent,
            env=environment(**ONE_ARENA),
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=self.log,
            bufsize=0,
        )
        self._number = 0
        self._buffer = b""

    def send(self, messages: Sequence[bytes]) -> list[Answer]:
        """Send lines, and read everything that comes until the ping is answered."""
        assert self.process.stdin is not None
        assert self.process.stdout is not None
        self._number += 1
        mark = f"probe-{self._number}"
        ping = json.dumps({"jsonrpc": "2.0", "id": mark, "method": "ping"}).encode()
        left = memoryview(b"".join(message.replace(b"\n", b" ") + b"\n" for message in (*messages, ping)))
        to, back = self.process.stdin.fileno(), self.process.stdout.fileno()
        os.set_blocking(to, False)
        answers: list[Answer] = []
        until = time.monotonic() + PATIENCE_S
        while time.monotonic() < until:
            readable, writable, _ = select.select([back], [to] if left else [], [], 1.0)
            if writable:
                try:
                    left = left[os.write(to, left) :]
                except BrokenPipeError:
                    raise Gone("stdin is closed") from None
            if readable:
                part = os.read(back, 1 << 18)
                if not part:
                    raise Gone("the process ended")
                *lines, self._buffer = (self._buffer + part).split(b"\n")
                answers += [Answer(0, line) for line in lines]
                if any(mark.encode() in line for line in lines):
                    return answers
        raise Silent("the ping behind the messages was not answered")

    def close(self) -> None:
        """End the process as a client does, by closing its input."""
        if self.log.closed:
            return
        assert self.process.stdin is not None
        assert self.process.stdout is not None
        self.log.close()
        self.process.stdin.close()
        try:
            assert self.process.wait(PATIENCE_S) == 0
        finally:
            self.process.stdout.close()
            self.process.kill()


class WorkerSender:
    """Messages of a worker as WebSocket frames, each as it is; a call behind each batch shows that it was read.

    The worker answers the calls of its functions with its next batch: those that it left open would wait for an hour.
    """

    def __init__(self, port: int) -> None:
        self._socket = _Socket(port)
        self._socket.send(
            f"GET / HTTP/1.1\r\nHost: 127.0.0.1:{port}\r\nUpgrade: websocket\r\nConnection: Upgrade\r\n"
            "Sec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==\r\nSec-WebSocket-Version: 13\r\n"
            f"Authorization: Bearer {WORKER_TOKEN}\r\n\r\n".encode()
        )
        head = self._socket.read_until(b"\r\n\r\n")
        assert head.startswith(b"HTTP/1.1 101"), head
        self._number = 0
        self._results: list[bytes] = []
        self.answered: list[Answer] = []

    def send(self, messages: Sequence[bytes]) -> list[Answer]:
        """Send text frames, and read messages until the call behind them is answered."""
        self.answered = []
        self._number += 1
        mark = f"probe-{self._number}"
        call = {"type": "invokefunction", "function_id": "engine::workers::list", "invocation_id": mark, "data": {}}
        self._socket.send(b"".join(map(frame, (*self._results, *messages, json.dumps(call).encode()))))
        self._results = []
        while True:
            opcode, payload = self._read()
            if opcode == 8:
                raise Gone(f"closed: {payload[:200]!r}")
            if mark.encode() in payload:
                return self.answered
            if payload.startswith(b'{"type":"invokefunction"'):
                called = json.loads(payload, parse_int=float).get("invocation_id")  # an integer may be of any length
                result = {"type": "invocationresult", "invocation_id": called, "result": None}
                self._results.append(json.dumps(result).encode())
            self.answered.append(Answer(0, payload))

    def send_raw(self, data: bytes) -> None:
        """Send bytes that may be no frames at all."""
        self._socket.send(data)

    def _read(self) -> tuple[int, bytes]:
        first, size = self._socket.read(2)
        if size == 126:
            (size,) = struct.unpack(">H", self._socket.read(2))
        elif size == 127:
            (size,) = struct.unpack(">Q", self._socket.read(8))
        return first & 15, self._socket.read(size)

    def close(self) -> None:
        """Close the connection."""
        self._socket.close()


def frame(payload: bytes, opcode: int = 1) -> bytes:
    """A masked frame as clients send it; the mask is zero."""
    size = len(payload)
    if size < 126:
        head = struct.pack(">BB", 0x80 | opcode, 0x80 | size)
    elif size < 65_536:
        head = struct.pack(">BBH", 0x80 | opcode, 0x80 | 126, size)
    else:
        head = struct.pack(">BBQ", 0x80 | opcode, 0x80 | 127, size)
    return head + b"\0\0\0\0" + payload


def http_request(method: str, path: str, headers: dict[str, str], body: bytes, port: int) -> bytes:
    """A request with correct framing around any body."""
    lines = [f"{method} {path} HTTP/1.1", f"Host: 127.0.0.1:{port}", *(f"{k}: {v}" for k, v in headers.items())]
    return "\r\n".join([*lines, f"Content-Length: {len(body)}", "", ""]).encode("latin-1", "replace") + body


def rpc(method: str, params: Any, request_id: int = 1) -> bytes:
    """A JSON-RPC request."""
    return json.dumps({"jsonrpc": "2.0", "id": request_id, "method": method, "params": params}).encode()
