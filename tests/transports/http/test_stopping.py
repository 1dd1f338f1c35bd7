"""Requests that run when the process is asked to stop are finished or answered with an error."""

from __future__ import annotations

import asyncio
import json
import re
import signal
import sys
from collections.abc import AsyncIterator, MutableMapping
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import aiohttp
import pytest

from tests.protocol.conftest import Json, asynchronous, idle, request, stateless, until
from tests.transports.http.conftest import BOTH, browsing, parse_event, routing
from waypost import Hub
from waypost.transports.http.app import OperatorAnswer, OperatorRequest
from waypost.wire.versions import LEGACY, V2025_03_26

SERVED = Path(__file__).parents[1] / "served.py"
PATIENCE = 60.0
IMPATIENT = f"""
import runpy, sys, logging
from waypost.transports.http import server
server._GRACE_S = 0.2
logging.basicConfig(level=logging.INFO, format="%(levelname)s %(message)s")
sys.argv = [{str(SERVED)!r}, *sys.argv[1:]]
runpy.run_path({str(SERVED)!r}, run_name="__main__")
"""


way = "http"


@pytest.fixture(params=["http", "plain"], autouse=True)
def both_ways(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    """Serve with uvicorn's private parts, and without them."""
    monkeypatch.setattr(sys.modules[__name__], "way", request.param)


class Stopping:
    """A hub in another process that is about to stop."""

    def __init__(self, process: asyncio.subprocess.Process, url: str, client: aiohttp.ClientSession) -> None:
        self.process = process
        self.url = url
        self.client = client

    def call(self, message: Json) -> asyncio.Task[tuple[int, str, str]]:
        """Send a message; the task returns the status, the content type and the body."""
        return asyncio.create_task(self._call(message))

    async def _call(self, message: Json) -> tuple[int, str, str]:
        known = {name: value for name, value in routing(message).items() if value is not None}
        headers = {"accept": BOTH, "content-type": "application/json", **known}
        async with self.client.post(self.url, data=json.dumps(message), headers=headers) as response:
            return response.status, response.content_type, await response.text()

    async def end(self, stop: signal.Signals = signal.SIGTERM) -> list[str]:
        """Ask it to stop, wait, and return the lines it logged."""
        self.process.send_signal(stop)
        async with asyncio.timeout(PATIENCE):
            _, said = await self.process.communicate()
        assert self.process.returncode == 0
        return said.decode().splitlines()


@asynccontextmanager
async def impatient() -> AsyncIterator[Stopping]:
    """A hub that gives requests little time when it stops."""
    process = await asyncio.create_subprocess_exec(
        *(sys.executable, "-c", IMPATIENT, way), stdin=asyncio.subprocess.DEVNULL, stderr=asyncio.subprocess.PIPE
    )
    assert process.stderr is not None
    try:
        if way == "plain":
            assert b"HTTP is served without shortcuts" in await process.stderr.readline()
        found = re.search(r"http://127\.0\.0\.1:\d+/mcp", (await process.stderr.readline()).decode())
        assert found is not None
        async with aiohttp.ClientSession(timeout=aiohttp.ClientTimeout(total=PATIENCE)) as client:
            yield Stopping(process, found[0], client)
    finally:
        if process.returncode is None:
            process.kill()
            await process.communicate()


def call(tool: str, meta: dict[str, Any] | None = None, **arguments: Any) -> Json:
    return stateless(7, "tools/call", {"name": tool, "arguments": arguments}, **(meta or {}))


async def hammer(hub: Stopping, answered: list[int], lost: list[BaseException]) -> None:
    """Send one request after another on one connection until the hub refuses them."""
    message = call("echo", text="x")
    known = {name: value for name, value in routing(message).items() if value is not None}
    headers = {"accept": BOTH, "content-type": "application/json", **known}
    one = aiohttp.TCPConnector(limit=1)
    async with aiohttp.ClientSession(connector=one, timeout=aiohttp.ClientTimeout(total=PATIENCE)) as client:
        while True:
            try:
                async with client.post(hub.url, data=json.dumps(message), headers=headers) as response:
                    await response.read()
                    answered.append(response.status)
            except aiohttp.ClientConnectorError:
                return  # nothing was sent: the hub does not listen any more
            except (aiohttp.ClientError, OSError) as error:
                lost.append(error)
                return


@asynchronous
async def test_every_request_that_was_sent_before_the_hub_stopped_is_answered() -> None:
    async with impatient() as hub:
        answered: list[int] = []
        lost: list[BaseException] = []
        clients = [asyncio.create_task(hammer(hub, answered, lost)) for _ in range(16)]
        await until(lambda: len(answered) > 500)

        await hub.end()
        await asyncio.gather(*clients)

        assert lost == []
        assert set(answered) == {200}


@pytest.mark.parametrize("stop", [signal.SIGTERM, signal.SIGINT])
@asynchronous
async def test_a_call_that_takes_too_long_gets_an_error_when_the_hub_stops(
    stop: signal.Signals, tmp_path: Path
) -> None:
    async with impatient() as hub:
        pending = hub.call(call("watched", folder=str(tmp_path)))
        await until((tmp_path / "began").exists)
        said = await hub.end(stop)

        status, kind, body = await pending
        assert (status, kind) == (503, "application/json")
        assert json.loads(body) == {
            "jsonrpc": "2.0",
            "id": 7,
            "error": {"code": -32603, "message": "The hub is stopping."},
        }
        assert said == ["INFO the hub is stopping; requests cancelled after 0.2 s: 1"]
        assert (tmp_path / "stopped").exists()


@asynchronous
async def test_a_call_with_an_open_stream_is_answered_on_it(tmp_path: Path) -> None:
    async with impatient() as hub:
        message = call("staged", {"io.modelcontextprotocol/logLevel": "debug"}, folder=str(tmp_path))
        pending = hub.call(message)
        await until((tmp_path / "began").exists)
        await hub.end()

        status, kind, body = await pending
        assert (status, kind) == (200, "text/event-stream")
        last = parse_event(body.removesuffix("\n\n").rpartition("\n\n")[2]).message
        assert (last["id"], last["error"]["message"]) == (7, "The hub is stopping.")


@asynchronous
async def test_an_operator_request_is_answered_when_the_hub_stops(monkeypatch: pytest.MonkeyPatch) -> None:
    began = asyncio.Event()
    sent: list[MutableMapping[str, Any]] = []

    async def operate(request: OperatorRequest) -> OperatorAnswer:
        began.set()
        return await asyncio.Future[OperatorAnswer]()

    async def receive() -> MutableMapping[str, Any]:
        return {"type": "http.request", "body": b""}

    async def send(event: MutableMapping[str, Any]) -> None:
        sent.append(event)

    scope = {"type": "http", "method": "GET", "path": "/api/openapi.json", "headers": [(b"host", b"localhost")]}
    hub = Hub("busy", version="1")
    monkeypatch.setattr(hub.runtime, "operate", operate)
    serving = asyncio.create_task(hub.asgi()(scope, receive, send))
    await began.wait()
    serving.cancel()
    await serving

    assert sent[0]["status"] == 503
    assert json.loads(sent[1]["body"]) == {"error": "The hub is stopping."}


def waiting() -> tuple[Hub, asyncio.Event]:
    """A hub with a tool that waits for ever, and an event that says that it began."""
    hub, began = Hub("waiting", version="1"), asyncio.Event()

    @hub.tool
    async def wait() -> str:
        """Wait for ever."""
        began.set()
        return await asyncio.Future[str]()

    return hub, began


WAIT = request(1, "tools/call", {"name": "wait", "arguments": {}})
STOPS = {"jsonrpc": "2.0", "id": 1, "error": {"code": -32603, "message": "The hub is stopping."}}


@pytest.mark.parametrize("version", LEGACY)
@asynchronous
async def test_a_call_of_a_session_is_answered_with_503_when_the_hub_stops(version: str) -> None:
    hub, began = waiting()
    async with browsing(hub) as web:
        call = (await web.session(version)).open(WAIT)
        await began.wait()
        call.task.cancel()
        await call.task

    assert (call.status, call.json) == (503, STOPS)


@asynchronous
async def test_unfinished_requests_of_a_batch_get_an_error_when_the_hub_stops() -> None:
    hub, began = waiting()
    async with browsing(hub) as web:
        call = (await web.session(V2025_03_26)).open([WAIT, request(2, "ping")])
        await began.wait()
        await idle()
        call.task.cancel()
        await call.task

    assert (call.status, call.json) == (503, [STOPS, {"jsonrpc": "2.0", "id": 2, "result": {}}])
