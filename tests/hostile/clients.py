"""A hostile client with a key of its own: `python -m tests.hostile.clients PORT SEED`, until it is killed."""

from __future__ import annotations

import random
import socket
import sys
from collections.abc import Callable
from contextlib import suppress
from typing import Any, Final

from tests.fuzz.hub_under_test import ALICE
from tests.fuzz.senders import Gone, HttpSender, Silent, http_request, rpc
from tests.fuzz.test_messages import session_headers
from tests.hostile.neighbour import call_request
from tests.hostile.payloads import hostile_arguments, hostile_schema, nested_union
from waypost.wire.versions import V2025_11_25

SIZES: Final = (100, 10_000, 100_000, 1_000_000, 3_500_000)


class HostileClient:
    """Attacks on one port, each in endless variations."""

    def __init__(self, port: int, seed: int) -> None:
        self._port = port
        self._chance = random.Random(seed)
        self._held: list[socket.socket] = []

    def run(self) -> None:
        """Attack for ever."""
        attacks: tuple[Callable[[], None], ...] = (
            self.send_unions,
            self.send_long_ids,
            self.open_sessions,
            self.start_tasks,
            self.flood_threads,
            self.abandon_results,
            self.flood_logs,
            self.send_big_headers,
            self.send_slowly,
            self.send_large_bodies,
            self.send_schemas,
        )
        while True:
            with suppress(Gone, Silent, OSError, ValueError):
                self._chance.choice(attacks)()

    def _send(self, requests: list[bytes]) -> None:
        sender = HttpSender(self._port)
        try:
            sender.send(requests)
        finally:
            sender.close()

    def _call(self, tool: str, arguments: Any, count: int = 1, **params: Any) -> None:
        self._send([call_request(self._port, ALICE, tool, arguments, **params)] * count)

    def _abandon(self, request: bytes, count: int) -> None:
        """Send a request on many connections and read nothing."""
        opened = []
        for _ in range(count):
            one = socket.create_connection(("127.0.0.1", self._port), 5)
            one.sendall(request)
            opened.append(one)
        for one in opened:
            one.close()

    def send_unions(self) -> None:
        """A1: nested unions with an invalid leaf."""
        self._call("book", {"order": nested_union(self._chance)}, 5)

    def send_long_ids(self) -> None:
        """A3: very long ids and words where near names are suggested or terms are searched."""
        text = self._chance.choice(("add", "x", "gateway.", "ab ", "é")) * (self._chance.choice(SIZES) // 3)
        tool, key = self._chance.choice(
            (
                ("gateway.describe", "id"),
                ("gateway.search", "query"),
                ("workflow.start", "definitionId"),
                ("workflow.get", "workflowId"),
                ("workflow.explain", "definitionId"),
                (text[:100_000], "id"),
            )
        )
        self._call(tool.encode("ascii", "ignore").decode()[:60_000] or "x", {key: text})

    def open_sessions(self) -> None:
        """A5: very many sessions."""
        about = {
            "protocolVersion": V2025_11_25,
            "capabilities": {},
            "clientInfo": {"name": "n" * 5_000, "version": "1"},
        }
        self._send([http_request("POST", "/mcp", session_headers(ALICE), rpc("initialize", about), self._port)] * 200)

    def start_tasks(self) -> None:
        """A5: very many tasks."""
        self._call("later", {"text": "x" * 1_000}, 50, task={})

    def flood_threads(self) -> None:
        """A5: all threads at once."""
        request = call_request(self._port, ALICE, "sleepy", {"seconds": 0.3})
        self._abandon(request, 100)

    def abandon_results(self) -> None:
        """A7: large results that are never read."""
        self._abandon(call_request(self._port, ALICE, "big", {"size": self._chance.choice(SIZES)}), 20)

    def flood_logs(self) -> None:
        """A7: very many log messages, read or not."""
        chatty = {"count": self._chance.choice((10, 200, 1_000)), "size": self._chance.choice((100, 100_000))}
        request = call_request(self._port, ALICE, "chatty", chatty, "debug")
        if self._chance.random() < 0.5:
            self._abandon(request, self._chance.choice((5, 20)))
        else:
            self._send([request])

    def send_big_headers(self) -> None:
        """A11: headers beyond every limit, before any authentication."""
        size = self._chance.choice((60_000, 1_000_000, 20_000_000))
        self._abandon(b"GET / HTTP/1.1\r\nHost: x\r\nX: " + b"h" * size, 2)

    def send_slowly(self) -> None:
        """A11: half a request, held open; the oldest are given up again."""
        one = socket.create_connection(("127.0.0.1", self._port), 5)
        one.sendall(
            self._chance.choice(
                (b"POST /mcp HTTP/1.1\r\nHost: 127", b"POST /mcp HTTP/1.1\r\nContent-Length: 9\r\n\r\n{")
            )
        )
        self._held.append(one)
        while len(self._held) > 400:
            self._held.pop(0).close()

    def send_large_bodies(self) -> None:
        """Large and deeply nested arguments."""
        self._call(self._chance.choice(("add", "remember", "book")), hostile_arguments(self._chance), 3)

    def send_schemas(self) -> None:
        """Schemas where values are expected."""
        self._call("remember", {"key": "k", "value": hostile_schema(self._chance)})


if __name__ == "__main__":
    HostileClient(int(sys.argv[1]), int(sys.argv[2])).run()
