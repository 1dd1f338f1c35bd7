"""A client in memory, a hub with one capability of each kind, and checks of every message on the wire."""

from __future__ import annotations

import asyncio
import functools
import json
from collections.abc import AsyncIterator, Callable, Coroutine
from contextlib import asynccontextmanager
from typing import Any, ParamSpec, TypeAlias

from waypost import Context, Hub
from waypost.protocol.connection import Connection
from waypost.wire.params import CLIENT_CAPABILITIES, PROTOCOL_VERSION
from waypost.wire.versions import LATEST_LEGACY, V2026_07_28

Json: TypeAlias = dict[str, Any]
RequestId: TypeAlias = int | str
P = ParamSpec("P")

DEADLINE = 120.0  # only ends a test that hangs
CLIENT = {"name": "tester", "version": "1.0"}


def asynchronous(test: Callable[P, Coroutine[Any, Any, None]]) -> Callable[P, None]:
    """A plain test that runs an async function on a loop of its own, under a deadline."""

    @functools.wraps(test)
    def run(*args: P.args, **kwargs: P.kwargs) -> None:
        async def bounded() -> None:
            async with asyncio.timeout(DEADLINE):
                await test(*args, **kwargs)

        asyncio.run(bounded())

    return run


async def until(condition: Callable[[], object], what: str = "it never happened") -> None:
    """Poll until a condition holds that no event announces."""
    try:
        async with asyncio.timeout(DEADLINE / 2):
            while not condition():  # noqa: ASYNC110
                await asyncio.sleep(0.005)
    except TimeoutError:
        raise AssertionError(what) from None


async def idle() -> None:
    """Run the loop until no task is ready."""
    for _ in range(20):
        await asyncio.sleep(0)


def request(request_id: RequestId, method: str, params: Json | None = None) -> Json:
    """A request as clients with sessions send it."""
    message: Json = {"jsonrpc": "2.0", "id": request_id, "method": method}
    return message if params is None else {**message, "params": params}


def stateless(request_id: RequestId, method: str, params: Any = None, /, **meta: Any) -> Json:
    """A request as stateless clients send it; `meta` adds to its envelope."""
    envelope = {PROTOCOL_VERSION: V2026_07_28, CLIENT_CAPABILITIES: {}, **meta}
    return request(request_id, method, {**(params or {}), "_meta": envelope})


def notification(method: str, params: Json | None = None) -> Json:
    """A one-way message."""
    message: Json = {"jsonrpc": "2.0", "method": method}
    return message if params is None else {**message, "params": params}


def cancelled(request_id: RequestId) -> Json:
    """The notification that cancels a request."""
    return notification("notifications/cancelled", {"requestId": request_id})


def initialization(version: str = LATEST_LEGACY, request_id: RequestId = "init") -> Json:
    """The request that opens a session."""
    return request(request_id, "initialize", {"protocolVersion": version, "capabilities": {}, "clientInfo": CLIENT})


def assert_on_the_wire(message: Any) -> None:
    """Check that a message of the hub is valid JSON-RPC."""
    if isinstance(message, list):
        assert message
        for part in message:
            assert_on_the_wire(part)
        return
    assert isinstance(message, dict)
    assert message["jsonrpc"] == "2.0"
    if "method" in message:
        assert isinstance(message["method"], str)
        assert not message.keys() & {"result", "error"}
    elif "error" in message:
        assert message.keys() == {"jsonrpc", "id", "error"}
        assert isinstance(message["error"]["code"], int)
        assert isinstance(message["error"]["message"], str)
    else:
        assert message.keys() == {"jsonrpc", "id", "result"}
        assert isinstance(message["result"], dict)
        assert type(message["id"]) in (int, str)


class Peer:
    """The client's end of a connection in memory."""

    def __init__(self, hub: Hub) -> None:
        self.hub = hub
        self.received: list[Any] = []
        self.connection = Connection(hub.engine, self._take)
        self._news = asyncio.Event()

    def _take(self, data: bytes) -> None:
        assert b"\n" not in data
        message = json.loads(data)
        assert_on_the_wire(message)
        self.received.append(message)
        self._news.set()

    def send(self, message: Json | list[Json] | bytes) -> None:
        """Send a message to the hub."""
        self.connection.receive(message if isinstance(message, bytes) else json.dumps(message).encode())

    async def first(self, matches: Callable[[Any], bool]) -> Any:
        """Wait for the first message that matches."""
        while True:
            for message in self.received:
                if matches(message):
                    return message
            self._news.clear()
            await self._news.wait()

    async def response(self, request_id: RequestId | None) -> Json:
        """The response to a request, in the type its id has."""

        def answers(message: Any) -> bool:
            if not isinstance(message, dict) or "id" not in message:
                return False
            return message["id"] == request_id and type(message["id"]) is type(request_id)

        response: Json = await self.first(answers)
        return response

    async def ask(self, message: Json) -> Json:
        """Send a request and wait for its response."""
        self.send(message)
        return await self.response(message["id"])

    async def result(self, message: Json) -> Json:
        """Send a request and wait for its result."""
        response = await self.ask(message)
        assert "result" in response, response
        result: Json = response["result"]
        return result

    async def error(self, message: Json) -> Json:
        """Send a request and wait for its error."""
        response = await self.ask(message)
        assert "error" in response, response
        error: Json = response["error"]
        return error

    def notifications(self, method: str) -> list[Json]:
        """The parameters of every notification with that method, in order."""
        return [message.get("params", {}) for message in self.received if self._is(message, method)]

    async def hears(self, method: str, times: int = 1) -> list[Json]:
        """Wait until a notification was received this many times, and return the parameters."""
        while len(self.notifications(method)) < times:
            self._news.clear()
            await self._news.wait()
        return self.notifications(method)

    @staticmethod
    def _is(message: Any, method: str) -> bool:
        return isinstance(message, dict) and message.get("method") == method

    def responses(self) -> list[Any]:
        """All received messages except notifications."""
        return [message for message in self.received if not (isinstance(message, dict) and "method" in message)]


@asynccontextmanager
async def connected(hub: Hub) -> AsyncIterator[Peer]:
    """A client connected to a started hub."""
    await hub.start()
    peer = Peer(hub)
    try:
        yield peer
    finally:
        await peer.connection.close()
        await hub.stop()


@asynccontextmanager
async def in_session(hub: Hub, version: str = LATEST_LEGACY) -> AsyncIterator[Peer]:
    """A client that has initialised."""
    async with connected(hub) as peer:
        await peer.result(initialization(version))
        peer.send(notification("notifications/initialized"))
        yield peer


REGION_SCHEMA: Json = {
    "type": "object",
    "properties": {
        "region": {"type": "string", "x-mcp-header": "Region"},
        "size": {"type": "integer", "x-mcp-header": "Size"},
        "dry": {"type": "boolean", "x-mcp-header": "Dry"},
        "place": {"type": "object", "properties": {"city": {"type": "string", "x-mcp-header": "City"}}},
    },
}


def assorted_hub(**options: Any) -> Hub:
    """A hub with one capability of each kind."""
    hub = Hub("assorted", version="1.2.3", instructions="Ask nicely.", **options)

    @hub.tool
    async def add(a: int, b: int) -> int:
        """Add two numbers."""
        return a + b

    @hub.tool(name="chatter", input_schema={"type": "object"})
    async def chatter(args: Json, ctx: Context) -> str:
        """Log at each level given."""
        for level in args.get("levels", ()):
            await ctx.log(level, f"at {level}")
        return "said"

    @hub.tool(name="count", input_schema={"type": "object"})
    async def count(args: Json, ctx: Context) -> str:
        """Report each value given as progress."""
        for value in args.get("values", ()):
            await ctx.progress(value, 100, "going")
        return "counted"

    @hub.tool(name="deploy", input_schema=REGION_SCHEMA)
    def deploy(args: Json) -> str:
        """Deploy somewhere."""
        return json.dumps(args, sort_keys=True)

    @hub.tool(hidden=True)
    async def secret() -> str:
        """Not listed."""
        return "found me"

    @hub.resource("docs://readme", subscribable=True)
    async def readme() -> str:
        """How to use this."""
        return "# Hello"

    @hub.resource("notes://{number}")
    async def note(number: str) -> str:
        """A note."""
        return f"note {number}"

    @hub.prompt
    def greet(name: str) -> str:
        """Compose a greeting."""
        return f"Greet {name}."

    return hub
