"""A browser of our own: drives the ASGI app in process, keeps its rules, and reads streams as they come."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator, Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass
from typing import Any

import pytest

from tests.protocol.conftest import (
    Json,
    RequestId,
    assert_on_the_wire,
    initialization,
    notification,
    request,
    stateless,
)
from waypost import Hub
from waypost.loops import Stall
from waypost.runtime.core import Launch
from waypost.runtime.runtime import Runtime
from waypost.runtime.server import build_app
from waypost.transports.http.app import DeferredApp, HttpApp
from waypost.wire.params import PROTOCOL_VERSION
from waypost.wire.versions import LATEST_LEGACY

MAX_STALL_S = 0.5
"""Above the 100 ms of a hub, because clients and attackers run on its loop here, many of them in one turn."""
NAMED = {"tools/call": "name", "prompts/get": "name", "resources/read": "uri"}
HOST = "127.0.0.1:8420"
BOTH = "application/json, text/event-stream"
EVENTS = "text/event-stream"
ADD = {"name": "add", "arguments": {"a": 1, "b": 2}}

Headers = Mapping[str, str | None]


@dataclass
class Sse:
    """One event of a stream."""

    id: str | None = None
    event: str | None = None
    data: str | None = None
    retry: str | None = None
    comment: str | None = None

    @property
    def message(self) -> Json:
        assert self.data
        message: Json = json.loads(self.data)
        assert_on_the_wire(message)
        return message


def parse_event(block: str) -> Sse:
    found: dict[str, str] = {}
    for line in block.split("\n"):
        name, _, value = line.partition(":")
        found[name or "comment"] = value.removeprefix(" ")
    return Sse(**found)


class Call:
    """One HTTP request in flight."""

    def __init__(self, app: HttpApp | DeferredApp, scope: Json, body: Iterable[bytes]) -> None:
        self.status = 0
        self.headers: dict[str, str] = {}
        self.raw_headers: list[tuple[str, str]] = []
        """All headers, also those that are given more than once."""
        self.body = b""
        self.complete = False
        self._parts = list(body)
        self._sent = 0
        self._read = 0
        self.more = asyncio.Event()
        """Cleared while the rest of the body is still to come."""
        self.more.set()
        self._news = asyncio.Event()
        self._gone = asyncio.Event()
        self.task = asyncio.create_task(self._run(app, scope))

    async def _run(self, app: HttpApp | DeferredApp, scope: Json) -> None:
        try:
            await app(scope, self._receive, self._send)
        finally:
            self._news.set()

    async def _receive(self) -> Json:
        if self._sent < len(self._parts) and not self._gone.is_set():
            if self._sent:
                await self.more.wait()
            self._sent += 1
            more = self._sent < len(self._parts)
            return {"type": "http.request", "body": self._parts[self._sent - 1], "more_body": more}
        await self._gone.wait()
        return {"type": "http.disconnect"}

    async def _send(self, event: Mapping[str, Any]) -> None:
        if self._gone.is_set() and not self.complete:
            return
        if event["type"] == "http.response.start":
            assert not self.status, "a response was started twice"
            self.status = event["status"]
            for name, value in event["headers"]:
                assert name == name.lower()
                self.headers[name.decode()] = value.decode()
                self.raw_headers.append((name.decode(), value.decode()))
        else:
            assert self.status, "a body came before its response"
            assert not self.complete, "a body came after its response"
            self.body += event.get("body", b"")
            if not event.get("more_body"):
                self.complete = True
                self._gone.set()
        self._news.set()

    async def until(self, condition: Callable[[], bool]) -> None:
        """Wait until `condition` holds."""
        while not condition():
            if self.task.done():
                await self.task
                assert condition(), "the request ended without it"
                return
            self._news.clear()
            await self._news.wait()

    async def started(self) -> Call:
        """Wait for the status and the headers."""
        await self.until(lambda: self.status > 0)
        return self

    async def done(self) -> Call:
        """Wait for the whole response."""
        await self.task
        if not self._gone.is_set() or self.complete:
            assert self.complete, "the request ended without a whole response"
            assert self.status < 500, self.body
        return self

    async def disconnect(self) -> None:
        """Close the connection and wait until the app noticed."""
        self._gone.set()
        await self.task

    def leave(self) -> None:
        """Close the connection."""
        self._gone.set()

    @property
    def json(self) -> Any:
        """The body, which is one JSON-RPC message or batch."""
        assert self.headers["content-type"] == "application/json"
        assert int(self.headers["content-length"]) == len(self.body)
        message = json.loads(self.body)
        assert_on_the_wire(message)
        return message

    @property
    def is_stream(self) -> bool:
        return self.headers.get("content-type") == EVENTS

    def _blocks(self) -> list[str]:
        return self.body.decode().split("\n\n")[:-1]

    async def event(self) -> Sse:
        """The next event."""
        await self.until(lambda: len(self._blocks()) > self._read)
        assert self.is_stream
        self._read += 1
        return parse_event(self._blocks()[self._read - 1])

    def events(self) -> list[Sse]:
        """All events so far."""
        return [parse_event(block) for block in self._blocks()]

    def messages(self) -> list[Json]:
        """All messages so far, of a JSON body or of a stream."""
        if not self.is_stream:
            return [self.json] if self.body else []
        return [event.message for event in self.events() if event.data]


class Web:
    """A client of one hub."""

    def __init__(self, hub: Hub) -> None:
        self.hub = hub
        self.app = build_app(hub.launch(Launch(serves_http=True)))
        self.calls: list[Call] = []

    def open(
        self,
        verb: str = "POST",
        body: bytes | Iterable[bytes] = b"",
        headers: Headers | Sequence[tuple[str, str]] | None = None,
        path: str = "/mcp",
    ) -> Call:
        """Send a request; headers as pairs are sent as they are, a mapping changes the usual ones."""
        if headers is None or isinstance(headers, Mapping):
            usual: dict[str, str | None] = {"host": HOST, "accept": BOTH, "content-type": "application/json"}
            usual |= {name.lower(): value for name, value in (headers or {}).items()}
            pairs = [(name, value) for name, value in usual.items() if value is not None]
        else:
            pairs = list(headers)
        scope = {
            "type": "http",
            "asgi": {"version": "3.0"},
            "http_version": "1.1",
            "method": verb,
            "scheme": "http",
            "path": path,
            "raw_path": path.encode(),
            "query_string": b"",
            "headers": [(name.lower().encode("latin-1"), value.encode("latin-1")) for name, value in pairs],
            "client": ("127.0.0.1", 50000),
            "server": ("127.0.0.1", 8420),
        }
        call = Call(self.app, scope, [body] if isinstance(body, bytes) else body)
        self.calls.append(call)
        return call

    async def post(self, message: Json | list[Json] | bytes, headers: Headers | None = None) -> Call:
        """Post a message and wait for the whole answer."""
        return await self.open_post(message, headers).done()

    def open_post(self, message: Json | list[Json] | bytes, headers: Headers | None = None) -> Call:
        """Post a message."""
        body = message if isinstance(message, bytes) else json.dumps(message).encode()
        return self.open("POST", body, headers or {})

    def open_modern(self, message: Json, headers: Headers | None = None) -> Call:
        """Post a stateless request with the headers it needs."""
        return self.open_post(message, {**routing(message), **(headers or {})})

    async def modern(
        self, method: str, params: Json | None = None, headers: Headers | None = None, request_id: RequestId = 1
    ) -> Call:
        """Post a stateless request and wait for the whole answer."""
        return await self.open_modern(stateless(request_id, method, params), headers).done()

    async def session(self, version: str = LATEST_LEGACY) -> Visitor:
        """Open a session."""
        call = await self.post(initialization(version))
        assert call.status == 200, call.body
        visitor = Visitor(self, call.headers["mcp-session-id"], version)
        assert (await visitor.post(notification("notifications/initialized"))).status == 202
        return visitor


class Visitor:
    """A client with a session."""

    def __init__(self, web: Web, session_id: str, version: str) -> None:
        self.web = web
        self.id = session_id
        self.headers = {"mcp-session-id": session_id, "mcp-protocol-version": version}

    def open(self, message: Json | list[Json] | bytes, headers: Headers | None = None) -> Call:
        return self.web.open_post(message, {**self.headers, **(headers or {})})

    async def post(self, message: Json | list[Json] | bytes, headers: Headers | None = None) -> Call:
        return await self.open(message, headers).done()

    async def ask(self, method: str, params: Json | None = None, request_id: RequestId = 1) -> Json:
        """The last message of the answer to a request."""
        return (await self.post(request(request_id, method, params))).messages()[-1]

    def listen(self, last_event_id: str | None = None, headers: Headers | None = None) -> Call:
        """Open the session's stream, or take another up again."""
        given = {**self.headers, "accept": EVENTS, "content-type": None, "last-event-id": last_event_id}
        return self.web.open("GET", headers={**given, **(headers or {})})

    async def delete(self) -> Call:
        return await self.web.open("DELETE", headers=self.headers).done()


def routing(message: Json) -> dict[str, str | None]:
    """The headers that repeat parts of a stateless request."""
    params = message["params"]
    named = NAMED.get(message["method"])
    return {
        "mcp-protocol-version": params["_meta"][PROTOCOL_VERSION],
        "mcp-method": message["method"],
        "mcp-name": None if named is None else params.get(named),
    }


def code(call: Call) -> int:
    """The code of the error that a request is answered with."""
    value: int = call.json["error"]["code"]
    return value


@asynccontextmanager
async def browsing(hub: Hub) -> AsyncIterator[Web]:
    """A client of a hub; the hub is stopped when the block ends."""
    web = Web(hub)
    try:
        yield web
    finally:
        await hub.stop()
        for call in web.calls:
            call.leave()
        await asyncio.gather(*(call.task for call in web.calls))


@pytest.fixture
def no_stalls(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Fail if a hub held its event loop for long, measured in CPU time, so that other load does not count."""
    stalls: list[Stall] = []
    monkeypatch.setattr(Runtime, "_report_stall", lambda _, stall: stalls.append(stall))
    yield
    assert [stall for stall in stalls if stall.cpu_seconds > MAX_STALL_S] == []
