"""A client over plain HTTP that depends on nothing but answers, so that the hub behind it can be replaced."""

from __future__ import annotations

import asyncio
import json
import time
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from itertools import count
from typing import Any, Final, TypeVar

import aiohttp

from waypost.protocol.tasks import TASKS_EXTENSION
from waypost.wire.params import CLIENT_CAPABILITIES, PROTOCOL_VERSION
from waypost.wire.versions import V2025_11_25, V2026_07_28

T = TypeVar("T")
Json = dict[str, Any]

PATIENCE: Final = 60.0
_ABLE: Final[Json] = {"elicitation": {"form": {}}, "extensions": {TASKS_EXTENSION: {}}}
_NAMED: Final = {"tools/call": "name", "tasks/get": "taskId", "tasks/update": "taskId", "tasks/cancel": "taskId"}


class Refused(Exception):
    """The hub answered with an error."""

    def __init__(self, status: int, error: Any) -> None:
        super().__init__(f"{status}: {error}")
        self.status = status
        self.error = error


class Visitor:
    """A client of the hub at a given URL, with or without a session."""

    def __init__(self, http: aiohttp.ClientSession) -> None:
        self.session = ""
        self._http = http
        self._numbers = count(1)

    async def initialize(self, url: str, capabilities: Json | None = None) -> str:
        """Open a session and return its id."""
        self.session = ""
        about = {"capabilities": capabilities or {}, "clientInfo": {"name": "visitor", "version": "1"}}
        given = {"protocolVersion": V2025_11_25, **about}
        async with self._post(url, self._request("initialize", given), {}) as response:
            assert response.status == 200
            self.session = response.headers["Mcp-Session-Id"]
        note = {"jsonrpc": "2.0", "method": "notifications/initialized"}
        async with self._post(url, note, self._headers()) as response:
            assert response.status == 202
        return self.session

    async def in_session(self, url: str, method: str, params: Json | None = None) -> Json:
        """The result of a request within the session."""
        async with self._post(url, self._request(method, params or {}), self._headers()) as response:
            return await _result(response)

    async def call(self, url: str, tool: str, **arguments: Any) -> str:
        """The text of a tool's result within the session."""
        result = await self.in_session(url, "tools/call", {"name": tool, "arguments": arguments})
        text: str = result["content"][0]["text"]
        return text

    async def recall(self, url: str) -> Json:
        """The values stored with the session."""
        kept: Json = json.loads(await self.call(url, "recall"))
        return kept

    async def leave(self, url: str) -> int:
        """End the session; the status."""
        async with self._http.delete(url, headers=self._headers()) as response:
            return response.status

    async def stateless(self, url: str, method: str, params: Json) -> Json:
        """The result of a request without a session."""
        meta = {PROTOCOL_VERSION: V2026_07_28, CLIENT_CAPABILITIES: _ABLE}
        headers = {
            "MCP-Protocol-Version": V2026_07_28,
            "Mcp-Method": method,
            **({"Mcp-Name": params[_NAMED[method]]} if method in _NAMED else {}),
        }
        async with self._post(url, self._request(method, {**params, "_meta": meta}), headers) as response:
            return await _result(response)

    async def start_task(self, url: str, tool: str, **arguments: Any) -> str:
        """The id of a task that was started without a session."""
        created = await self.stateless(url, "tools/call", {"name": tool, "arguments": arguments})
        assert created["resultType"] == "task"
        task_id: str = created["taskId"]
        return task_id

    async def task(self, url: str, task_id: str) -> Json:
        """The state of a task."""
        return await self.stateless(url, "tasks/get", {"taskId": task_id})

    async def task_is(self, url: str, task_id: str, status: str) -> Json:
        """Wait until a task has a status, and return its state."""

        async def look() -> Json | None:
            task = await self.task(url, task_id)
            return task if task["status"] == status else None

        return await eventually(look, f"the task is not {status}")

    async def answer(self, url: str, question: Json, result: Json) -> int:
        """Answer a question within the session; the status."""
        response = {"jsonrpc": "2.0", "id": question["id"], "result": result}
        async with self._post(url, response, self._headers()) as answered:
            status: int = answered.status
            return status

    @asynccontextmanager
    async def calling(self, url: str, tool: str) -> AsyncIterator[AsyncIterator[tuple[str, Json]]]:
        """The stream of a call within the session: ids and messages."""
        async with self.asking(url, "tools/call", {"name": tool, "arguments": {}}) as events:
            yield events

    @asynccontextmanager
    async def asking(self, url: str, method: str, params: Json) -> AsyncIterator[AsyncIterator[tuple[str, Json]]]:
        """The stream of a request within the session: ids and messages."""
        asked = self._request(method, params)
        async with self._post(url, asked, self._headers()) as response:
            yield _events(response)

    @asynccontextmanager
    async def stream(self, url: str, last: str | None = None) -> AsyncIterator[AsyncIterator[tuple[str, Json]]]:
        """The session's general stream: ids and messages, after the last one seen."""
        headers = {**self._headers(), "Accept": "text/event-stream"}
        if last is not None:
            headers["Last-Event-ID"] = last
        async with self._http.get(url, headers=headers) as response:
            if response.status != 200:
                raise Refused(response.status, await response.text())
            yield _events(response)

    def _post(self, url: str, message: Json, headers: dict[str, str]) -> Any:
        accept = {"Accept": "application/json, text/event-stream", "Content-Type": "application/json"}
        return self._http.post(url, data=json.dumps(message), headers={**accept, **headers})

    def _request(self, method: str, params: Json) -> Json:
        return {"jsonrpc": "2.0", "id": next(self._numbers), "method": method, "params": params}

    def _headers(self) -> dict[str, str]:
        return {"Mcp-Session-Id": self.session, "MCP-Protocol-Version": V2025_11_25}


@asynccontextmanager
async def visiting(patience: float = PATIENCE, key: str = "") -> AsyncIterator[Visitor]:
    """A visitor whose connections are closed when the block ends; each request has a timeout and a key."""
    # A hub that was killed leaves dead connections behind, which a client must not send on.
    connector = aiohttp.TCPConnector(force_close=True, limit=0)
    headers = {"Authorization": f"Bearer {key}"} if key else None
    timeout = aiohttp.ClientTimeout(patience)
    async with aiohttp.ClientSession(connector=connector, timeout=timeout, headers=headers) as http:
        yield Visitor(http)


async def eventually(look: Callable[[], Awaitable[T | None]], otherwise: str) -> T:
    """Poll until `look` returns something, and return that."""
    until = time.monotonic() + PATIENCE
    while (seen := await look()) is None:
        assert time.monotonic() < until, otherwise
        await asyncio.sleep(0.05)
    return seen


async def _result(response: aiohttp.ClientResponse) -> Json:
    if response.content_type == "text/event-stream":
        async for _, message in _events(response):
            if "result" in message or "error" in message:
                break
    else:
        message = await response.json()
    if "error" in message:
        raise Refused(response.status, message["error"])
    result: Json = message["result"]
    return result


async def _events(response: aiohttp.ClientResponse) -> AsyncIterator[tuple[str, Json]]:
    found: dict[str, str] = {}
    async for line in response.content:
        name, _, value = line.decode().rstrip("\r\n").partition(": ")
        if name:
            found[name] = value
        elif found:
            if found.get("data"):
                yield found.get("id", ""), json.loads(found["data"])
            found = {}
