"""Mutated messages over HTTP, standard streams, the worker socket and the HTTP API: each is answered, on time.

`make test` sends 50,000, `make soak` as many as `WAYPOST_SOAK_MESSAGES` says. A failure names the seed and the input.
"""

from __future__ import annotations

import json
import os
import random
import re
import time
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from contextlib import closing, contextmanager, suppress
from functools import partial
from pathlib import Path
from typing import Final, NoReturn

import pytest

from tests.fuzz import corpus
from tests.fuzz.hub_under_test import ADMIN, ALICE, BOB, ONE_ARENA, HubUnderTest, build_hub, memory_of, opened_hub
from tests.fuzz.mutators import Mutator
from tests.fuzz.senders import (
    HANG_S,
    Answer,
    Gone,
    HttpSender,
    Sender,
    Silent,
    StdioSender,
    WorkerSender,
    frame,
    http_request,
    rpc,
)
from waypost.wire.versions import V2025_11_25, V2026_07_28

MESSAGES: Final = int(os.environ.get("WAYPOST_SOAK_MESSAGES", "50000"))
SEED: Final = int(os.environ.get("WAYPOST_FUZZ_SEED", str(random.randrange(1_000_000))))
BATCH: Final = 32
MAX_TURN_S: Final = 0.5
"""CPU time of a turn of the event loop: a message must hang no client for a second, also where cores are shared."""
MAX_GROWTH: Final = 1.1
SLACK_BYTES: Final = 4 * 1024 * 1024
"""Allowed besides: a page of the allocator more or less is no leak."""
_CODE: Final = re.compile(rb'"code":"?([\w-]+)')
pytestmark = pytest.mark.timeout(60 + MESSAGES // 100)


class Run:
    """One run over one transport: sends batches, and looks into each message that was slow or closed a connection."""

    def __init__(self, connect: Callable[[], Sender], memory: Callable[[], int], kept: Path, control: bytes) -> None:
        self._connect = connect
        self._control = control
        self._memory = memory
        self._kept = kept
        self._sender = connect()
        self.kinds: Counter[str] = Counter()
        """How many answers of each kind came, to see that mutated messages get further than the parser."""
        self.answered = 0
        self.closed = 0
        """Messages that ended their connection instead of being answered."""

    def send(self, count: int, make: Callable[[], bytes], check: Callable[[Answer], str | None]) -> None:
        """Send `count` messages; memory is compared with that after two thirds, when caches are full.

        Those of instances, streams and heads of requests are full after some 300,000 messages.
        """
        warm = 0
        for number in range(0, count, BATCH):
            messages = [make() for _ in range(BATCH)]
            began = time.monotonic()
            answers = self._send_batch(messages)
            if time.monotonic() - began > HANG_S:
                self._find_slow(messages)
            for answer in answers:
                self.kinds[kind_of(answer)] += 1
                if wrong := check(answer):
                    self.fail(wrong, messages)
            if not warm and number > count * 2 // 3:
                warm = self._memory()
        print(dict(self.kinds), f"closed {self.closed}", f"memory {warm >> 20} to {self._memory() >> 20} MiB")  # noqa: T201
        memory = self._memory()
        self._sender.close()
        assert memory < warm * MAX_GROWTH + SLACK_BYTES, f"seed {SEED}: {warm} to {memory} bytes"

    def _send_batch(self, messages: Sequence[bytes]) -> list[Answer]:
        try:
            answers = self._sender.send(messages)
        except (Gone, Silent):
            return self._send_each(messages)
        self.answered += len(messages)
        return answers

    def _send_each(self, messages: Sequence[bytes]) -> list[Answer]:
        """Send messages one by one, on a new connection; only one that closes it by itself may have closed it."""
        answers = []
        for message in messages:
            self._reconnect()
            answers += self._send_alone(message)
        self._reconnect()
        return answers

    def _send_alone(self, message: bytes) -> list[Answer]:
        try:
            answers = self._sender.send([message])
        except Gone:
            self.closed += 1
            self._reconnect()
            return []
        except Silent as error:
            self.fail(str(error), [message])
        self.answered += 1
        return answers

    def _reconnect(self) -> None:
        with suppress(OSError):
            self._sender.close()
        self._sender = self._connect()

    def _find_slow(self, messages: Sequence[bytes]) -> None:
        """Fail if a message is slow whenever it is sent, and others are not: other programs use the machine too."""
        for message in messages:
            if all(self._time(message) > HANG_S and self._time(self._control) < HANG_S / 2 for _ in range(3)):
                self.fail(f"took over {HANG_S} s three times", [message])

    def _time(self, message: bytes) -> float:
        began = time.monotonic()
        self._send_alone(message)
        return time.monotonic() - began

    def fail(self, why: str, messages: Sequence[bytes]) -> NoReturn:
        """Keep the input and fail."""
        self._kept.mkdir(exist_ok=True)
        for number, message in enumerate(messages):
            (self._kept / f"{SEED}-{number}").write_bytes(message)
        shown = [message[:300] for message in messages[:3]]
        pytest.fail(f"seed {SEED}: {why}; kept in {self._kept}: {shown}")


def kind_of(answer: Answer) -> str:
    """The status, the code of an error, or `result`."""
    found = _CODE.search(answer.body)
    return f"{answer.status} {found[1].decode() if found else 'result' if b'result' in answer.body else ''}"


@contextmanager
def checked_hub(folder: Path) -> Iterator[HubUnderTest]:
    """A hub that must be alive in the end, and have logged no crash and no hang."""
    with opened_hub(folder / "hub", env=ONE_ARENA) as under_test:
        yield under_test
        assert under_test.is_alive
        assert under_test.crashes == []
        assert under_test.find_turns(longer_than=MAX_TURN_S) == []


def check_rpc(answer: Answer) -> str | None:
    """The problem of an answer to an MCP message: a server error, an internal error, or no JSON-RPC."""
    if answer.status >= 500:
        return f"status {answer.status}: {answer.body[:300]!r}"
    if b"-32603" in answer.body and b"Session terminating" not in answer.body:
        return f"an internal error: {answer.body[:300]!r}"
    if answer.body[:1] not in (b"", b"{", b"[", b"d", b"e", b"i", b":", b"r"):
        return f"not JSON-RPC: {answer.body[:300]!r}"
    return None


def check_status(answer: Answer) -> str | None:
    """The problem of an answer of the HTTP API."""
    return f"status {answer.status}: {answer.body[:300]!r}" if answer.status >= 500 else None


def open_session(port: int, key: str) -> str:
    """The id of a new session of a principal."""
    sender = HttpSender(port)
    about = {"protocolVersion": V2025_11_25, "capabilities": {}, "clientInfo": {"name": "fuzz", "version": "1"}}
    body = rpc("initialize", about)
    sender.send([http_request("POST", "/mcp", session_headers(key), body, port)])
    found = re.search(rb"mcp-session-id: (\S+)", sender.heads[0], re.IGNORECASE)
    assert found, sender.answered
    session = found[1].decode()
    note = json.dumps({"jsonrpc": "2.0", "method": "notifications/initialized"}).encode()
    sender.send([http_request("POST", "/mcp", session_headers(key, session), note, port)])
    sender.close()
    return session


def session_headers(key: str, session: str = "") -> dict[str, str]:
    """The headers of a client with a session, or of one that opens it."""
    return {
        "Authorization": f"Bearer {key}",
        "Accept": "application/json, text/event-stream",
        "Content-Type": "application/json",
        **({"Mcp-Session-Id": session, "MCP-Protocol-Version": V2025_11_25} if session else {}),
    }


def start_workflow(port: int, key: str) -> str:
    """The id of an instance of a principal."""
    params = {
        "name": "workflow.start",
        "arguments": {"definitionId": "release", "input": {"service": "web"}},
        "_meta": {
            "io.modelcontextprotocol/protocolVersion": V2026_07_28,
            "io.modelcontextprotocol/clientCapabilities": {},
        },
    }
    sender = HttpSender(port)
    [answer] = sender.send(
        [
            http_request(
                "POST", "/mcp", stateless_headers(key, "tools/call", "workflow.start"), rpc("tools/call", params), port
            )
        ]
    )
    sender.close()
    workflow: str = json.loads(answer.body)["result"]["structuredContent"]["workflowId"]
    return workflow


def stateless_headers(key: str, method: str, name: str | None) -> dict[str, str]:
    """The headers of a stateless client."""
    return {
        "Authorization": f"Bearer {key}",
        "Accept": "application/json, text/event-stream",
        "Content-Type": "application/json",
        "MCP-Protocol-Version": V2026_07_28,
        "Mcp-Method": method,
        **({} if name is None else {"Mcp-Name": name}),
    }


class HttpMessages:
    """Requests to `/mcp` of both eras: the body is mutated, sometimes the headers, now and then the framing."""

    def __init__(self, port: int) -> None:
        self._port = port
        self._theirs = open_session(port, BOB)
        ids = [self._theirs, start_workflow(port, BOB), start_workflow(port, ALICE), "bob", "task_1"]
        self._sessions, self._stateless = corpus.sessions(), corpus.stateless_messages()
        self._mutator = Mutator(SEED, [*self._sessions, *self._stateless], ids)
        self._chance = self._mutator.chance
        self._session = open_session(port, ALICE)
        self._left = 300

    def __call__(self) -> bytes:
        if self._chance.random() < 0.5:
            original = self._chance.choice(self._stateless)
            message = json.loads(original)
            params = message.get("params", {})
            name = params.get("name") or params.get("uri") or params.get("taskId")
            headers = stateless_headers(ALICE, message["method"], name)
        else:
            original = self._chance.choice(self._sessions)
            # With the id of a session, `initialize` would end it.
            headers = session_headers(ALICE, "" if b'"initialize"' in original else self._session)
            self._left -= 1
            if not self._left:  # mutated messages may have ended it
                self._left, self._session = 300, open_session(self._port, ALICE)
        if self._chance.random() < 0.1:
            key = self._chance.choice(list(headers))
            headers[key] = self._chance.choice(
                ("", "x", "9" * 300, self._theirs, "Bearer x", "\xff", "a,b;q=x", "=?base64?//8=?=")
            )
        return http_request("POST", "/mcp", headers, self._mutator.mutate(original), self._port)


def test_mutated_messages_over_http_are_answered_in_time(tmp_path: Path) -> None:
    with checked_hub(tmp_path) as under_test:
        make = HttpMessages(under_test.port)
        control = http_request("POST", "/mcp", stateless_headers(ALICE, "x", None), b"{}", under_test.port)
        run = Run(lambda: HttpSender(under_test.port), lambda: under_test.memory, tmp_path / "failed", control)
        run.send(MESSAGES * 2 // 5, make, check_rpc)
        assert run.closed < run.answered / 100
        send_broken_requests(under_test, make, MESSAGES // 50)


def send_broken_requests(under_test: HubUnderTest, make: HttpMessages, count: int) -> None:
    """Mutate whole requests, with their framing; the hub may answer or close, and goes on either way."""
    mutator = Mutator(SEED, [make() for _ in range(20)])
    for _ in range(count):
        broken = mutator.mutate(make())
        with closing(HttpSender(under_test.port)) as sender, suppress(Gone):
            assert sender.send_broken(broken).status < 500, f"seed {SEED}: {broken[:500]!r}"
    with closing(HttpSender(under_test.port)) as sender:
        [answer] = sender.send([http_request("GET", "/health", {}, b"", under_test.port)])
        assert answer.status == 200


def test_mutated_requests_to_the_http_api_are_answered_in_time(tmp_path: Path) -> None:
    requests = corpus.api_requests()
    mutator = Mutator(SEED, [body for _, _, body in requests if body])
    chance = mutator.chance

    with checked_hub(tmp_path) as under_test:

        def make() -> bytes:
            method, path, body = chance.choice(requests)
            if chance.random() < 0.5:
                path = mutate_path(path, chance)
            if chance.random() < 0.1:
                method = chance.choice(("GET", "POST", "DELETE", "PUT", "PATCH", "OPTIONS", "HEAD"))
            key = ADMIN if chance.random() < 0.8 else chance.choice((ALICE, "wp_nobody", ""))
            headers = {"Authorization": f"Bearer {key}", "Content-Type": "application/json"}
            if method == "HEAD":
                method = "GET"  # a response without the body that it announces cannot be pipelined here
            return http_request(method, path, headers, mutator.mutate(body) if body else b"", under_test.port)

        headers = {"Authorization": f"Bearer {ADMIN}", "Content-Type": "application/json"}
        # Writes a row, as the slowest of these requests do.
        control = http_request("POST", "/api/v1/documents", headers, b'{"id":"a/b","skill":"# A"}', under_test.port)
        run = Run(lambda: HttpSender(under_test.port), lambda: under_test.memory, tmp_path / "failed", control)
        run.send(MESSAGES // 5, make, check_status)
        assert run.closed < run.answered / 100


def mutate_path(path: str, chance: random.Random) -> str:
    """Another path, still without spaces and line breaks: those would be another request."""
    pieces = (
        "%00",
        "%ff",
        "..",
        "//",
        "%2e%2e%2f",
        "?",
        "&limit=-1",
        "&limit=9" + "9" * 30,
        "x" * 2000,
        "%",
        "\xe9",
        "{id}",
        "=",
    )
    place = chance.randrange(1, len(path) + 1)
    kept = path[place:] if chance.random() < 0.5 else path[place + 1 :]
    return path[:place] + chance.choice(pieces) + kept


def test_mutated_lines_on_standard_streams_are_answered_in_time(tmp_path: Path) -> None:
    file = build_hub(tmp_path / "hub")
    messages = [*corpus.sessions(), *corpus.stateless_messages()]
    mutator = Mutator(SEED, messages)
    senders: list[StdioSender] = []

    def connect() -> StdioSender:
        assert not senders, f"seed {SEED}: the hub on standard streams ended"
        sender = StdioSender(file, tmp_path / "data")
        sender.send([corpus.sessions()[len(corpus.METHODS)]])
        senders.append(sender)
        return sender

    run = Run(connect, lambda: _memory_of(senders[0]), tmp_path / "failed", b"{}")
    try:
        run.send(MESSAGES // 5, lambda: mutator.mutate(mutator.chance.choice(messages)), check_rpc)
    finally:
        senders[0].close()
    assert b"Traceback" not in (tmp_path / "stdio.log").read_bytes()


def _memory_of(sender: StdioSender) -> int:
    return memory_of(sender.process.pid) if sender.process.poll() is None else 0


def test_mutated_messages_of_workers_are_answered_in_time(tmp_path: Path) -> None:
    messages = corpus.worker_messages()
    mutator = Mutator(SEED, messages)
    with checked_hub(tmp_path) as under_test:
        connect = partial(WorkerSender, under_test.worker_port)
        run = Run(connect, lambda: under_test.memory, tmp_path / "failed", b'{"type":"ping"}')
        run.send(MESSAGES // 5, lambda: mutator.mutate(mutator.chance.choice(messages)), lambda _: None)
        send_broken_frames(under_test, mutator, messages, MESSAGES // 200)


def send_broken_frames(under_test: HubUnderTest, mutator: Mutator, messages: Sequence[bytes], count: int) -> None:
    """Mutate whole frames; the hub may close the connection, and greets the next worker in any case."""
    for _ in range(count):
        sender = WorkerSender(under_test.worker_port)
        broken = mutator.mutate(
            frame(mutator.chance.choice(messages), mutator.chance.choice((0, 1, 2, 3, 8, 9, 10, 15)))
        )
        with suppress(Gone):
            sender.send_raw(broken)
        sender.close()
    sender = WorkerSender(under_test.worker_port)
    sender.send([b'{"type":"ping"}'])
    sender.close()
