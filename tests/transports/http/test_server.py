from __future__ import annotations

import asyncio
import io
import json
import re
import signal
import socket
import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import aiohttp
import pytest

from tests.protocol.conftest import Json, asynchronous, initialization, request, stateless, until
from tests.transports.http.conftest import BOTH, EVENTS, Sse, parse_event, routing
from waypost.errors import WaypostError
from waypost.transports.http.server import listen
from waypost.wire.params import LOG_LEVEL
from waypost.wire.versions import LATEST_LEGACY

SERVED = Path(__file__).parents[1] / "served.py"
PROMPTLY = 60.0
FALLBACK = "HTTP is served without shortcuts"
way = "http"
USUAL = {"accept": BOTH, "content-type": "application/json"}


@pytest.fixture(params=["http", "plain"], autouse=True)
def both_ways(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    """Serve with uvicorn's private parts, and without them."""
    monkeypatch.setattr(sys.modules[__name__], "way", request.param)


class Remote:
    """A hub that another process serves over HTTP."""

    def __init__(self, process: asyncio.subprocess.Process, url: str, client: aiohttp.ClientSession) -> None:
        self.process = process
        self.url = url
        self.client = client

    def post(self, message: Json, **headers: str) -> Any:
        return self.client.post(self.url, data=json.dumps(message), headers={**USUAL, **headers})

    def modern(self, message: Json) -> Any:
        return self.post(message, **{key: value for key, value in routing(message).items() if value is not None})

    async def session(self) -> dict[str, str]:
        async with self.post(initialization()) as response:
            assert response.status == 200
            return {"mcp-session-id": response.headers["mcp-session-id"], "mcp-protocol-version": LATEST_LEGACY}

    def listen(self, session: dict[str, str], **headers: str) -> Any:
        return self.client.get(self.url, headers={"accept": EVENTS, **session, **headers})

    async def ended(self) -> int:
        """The exit status of a process that ends promptly."""
        async with asyncio.timeout(PROMPTLY):
            return await self.process.wait()


@asynccontextmanager
async def remote() -> AsyncIterator[Remote]:
    process = await asyncio.create_subprocess_exec(
        sys.executable, str(SERVED), way, stdin=asyncio.subprocess.DEVNULL, stderr=asyncio.subprocess.PIPE
    )
    assert process.stderr is not None
    try:
        ready = (await process.stderr.readline()).decode()
        if way == "plain":
            assert FALLBACK in ready
            ready = (await process.stderr.readline()).decode()
        found = re.search(r"http://127\.0\.0\.1:\d+/mcp", ready)
        assert found is not None, ready
        async with aiohttp.ClientSession(timeout=aiohttp.ClientTimeout(total=15)) as client:
            yield Remote(process, found[0], client)
    finally:
        if process.returncode is None:
            process.kill()
        await process.communicate()


async def next_event(response: aiohttp.ClientResponse) -> Sse:
    block = await response.content.readuntil(b"\n\n")
    return parse_event(block.decode().removesuffix("\n\n"))


async def remaining(response: aiohttp.ClientResponse) -> list[Sse]:
    blocks = (await response.content.read()).decode().split("\n\n")[:-1]
    return [parse_event(block) for block in blocks]


def call(request_id: int | str, tool: str, **arguments: Any) -> Json:
    return request(request_id, "tools/call", {"name": tool, "arguments": arguments})


def stateless_call(request_id: int | str, tool: str, **arguments: Any) -> Json:
    params = {"name": tool, "arguments": arguments}
    return stateless(request_id, "tools/call", params, **{LOG_LEVEL: "debug"})


LISTEN = stateless(7, "subscriptions/listen", {"notifications": {"toolsListChanged": True}})


@pytest.mark.parametrize("stop", [signal.SIGTERM, signal.SIGINT])
@asynchronous
async def test_a_server_asked_to_stop_ends_promptly_with_its_streams(stop: signal.Signals) -> None:
    async with remote() as hub:
        session = await hub.session()
        async with hub.listen(session) as general, hub.modern(LISTEN) as listening:
            assert general.status == listening.status == 200
            assert "acknowledged" in (await next_event(listening)).message["method"]
            hub.process.send_signal(stop)
            last = (await remaining(listening))[-1].message
            assert (last["id"], last["result"]["resultType"]) == (7, "complete")
            assert await general.content.read() == b"retry: 500\n\n"
            status = await hub.ended()
        assert status in (0, -stop, 128 + stop)


@asynchronous
async def test_a_call_of_a_session_is_answered_though_the_server_was_asked_to_stop(tmp_path: Path) -> None:
    async with remote() as hub:
        session = await hub.session()
        async with (
            hub.listen(session) as general,
            hub.post(call("r", "staged", folder=str(tmp_path)), **session) as response,
        ):
            assert (await next_event(response)).data == ""
            hub.process.terminate()
            assert await general.content.read() == b"retry: 500\n\n"
            (tmp_path / "go").touch()
            last = (await remaining(response))[-1].message
        assert (last["id"], last["result"]["content"][0]["text"]) == ("r", "done")
        assert await hub.ended() == 0


@asynchronous
async def test_a_long_call_of_a_session_gets_an_error_when_the_server_stops(tmp_path: Path) -> None:
    async with remote() as hub:
        session = await hub.session()
        pending = asyncio.ensure_future(hub.post(call("r", "watched", folder=str(tmp_path)), **session).__aenter__())
        await until((tmp_path / "began").exists)
        hub.process.terminate()
        answer = await (await pending).json()
        assert (answer["id"], answer["error"]["code"]) == ("r", -32603)
        assert await hub.ended() == 0
        assert (tmp_path / "stopped").exists()


@asynchronous
async def test_slow_tools_never_delay_a_ping() -> None:
    async with remote() as hub:
        session = await hub.session()
        slow = []
        for number in range(10):
            for message in (call(f"s{number}", "slow", seconds=300), call(f"b{number}", "block", seconds=300)):
                slow.append(asyncio.ensure_future(hub.post(message, **session).__aenter__()))
                modern = stateless_call(f"m{message['id']}", message["params"]["name"], seconds=300)
                slow.append(asyncio.ensure_future(hub.modern(modern).__aenter__()))
        for _ in range(20):
            async with hub.post(request("p", "ping"), **session) as response:
                assert (await response.json())["result"] == {}
            async with hub.modern(stateless("d", "server/discover")) as response:
                assert response.status == 200
        assert not any(task.done() for task in slow)
        for task in slow:
            task.cancel()
        await asyncio.gather(*slow, return_exceptions=True)


async def raw(url: str) -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
    host, port = url.removeprefix("http://").removesuffix("/mcp").split(":")
    return await asyncio.open_connection(host, int(port))


def on_the_wire(message: Json, headers: dict[str, str]) -> bytes:
    body = json.dumps(message).encode()
    lines = {"host": "localhost", **USUAL, **headers, "content-length": str(len(body))}
    head = "".join(f"{name}: {value}\r\n" for name, value in lines.items())
    return f"POST /mcp HTTP/1.1\r\n{head}\r\n".encode() + body


async def read_response(reader: asyncio.StreamReader) -> Json:
    head = (await reader.readuntil(b"\r\n\r\n")).decode().lower()
    found = re.search(r"content-length: (\d+)", head)
    assert found is not None, head
    message: Json = json.loads(await reader.readexactly(int(found[1])))
    return message


@asynchronous
async def test_one_connection_serves_request_after_request() -> None:
    async with remote() as hub:
        session = await hub.session()
        reader, writer = await raw(hub.url)
        for number in range(50):
            writer.write(on_the_wire(call(number, "echo", text="x"), session))
            assert (await read_response(reader))["id"] == number
        writer.close()
        await writer.wait_closed()


@asynchronous
async def test_a_connection_closed_during_its_call_delays_no_other(tmp_path: Path) -> None:
    async with remote() as hub:
        session = await hub.session()
        _, writer = await raw(hub.url)
        writer.write(on_the_wire(call("s", "watched", folder=str(tmp_path)), session))
        await until((tmp_path / "began").exists)
        writer.close()
        await writer.wait_closed()
        async with hub.post(request("p", "ping"), **session) as response:
            assert (await response.json())["result"] == {}


@asynchronous
async def test_a_client_that_disconnects_cancels_its_stateless_call(tmp_path: Path) -> None:
    async with remote() as hub:
        message = stateless_call(1, "watched", folder=str(tmp_path))
        pending = asyncio.ensure_future(hub.modern(message).__aenter__())
        await until((tmp_path / "began").exists)
        pending.cancel()
        await until((tmp_path / "stopped").exists)


@asynchronous
async def test_a_client_that_disconnects_does_not_cancel_a_call_of_its_session(tmp_path: Path) -> None:
    async with remote() as hub:
        session = await hub.session()
        async with hub.post(call("r", "staged", folder=str(tmp_path)), **session) as response:
            primed = await next_event(response)
            first = await next_event(response)
            assert first.message["params"]["data"] == "one"
            response.close()
        async with hub.post(request("p", "ping"), **session) as response:
            assert response.status == 200
        (tmp_path / "go").touch()
        await until((tmp_path / "finished").exists)
        assert primed.id is not None
        async with hub.listen(session, **{"last-event-id": primed.id}) as response:
            events = await remaining(response)
        assert events[0].message == first.message
        assert events[1].message["params"]["data"] == "two"
        assert (events[2].message["id"], len(events)) == ("r", 3)


@asynchronous
async def test_a_stream_taken_up_again_shows_its_later_events_and_then_the_answer(tmp_path: Path) -> None:
    folders = {name: tmp_path / name for name in ("mine", "other")}
    for folder in folders.values():
        folder.mkdir()
    async with remote() as hub:
        session = await hub.session()
        async with (
            hub.post(call("mine", "staged", folder=str(folders["mine"])), **session) as mine,
            hub.post(call("other", "staged", folder=str(folders["other"])), **session) as other,
        ):
            seen = [await next_event(mine), await next_event(mine)]
            assert seen[1].message["params"]["data"] == "one"
            mine.close()
            async with hub.listen(session, **{"last-event-id": str(seen[1].id)}) as again:
                assert again.status == 200
                for folder in folders.values():
                    (folder / "go").touch()
                events = await remaining(again)
            others = await remaining(other)
        assert [event.message.get("id") for event in events] == [None, "mine"]
        assert events[0].message["params"]["data"] == "two"
        assert others[-1].message["id"] == "other"
        assert len({event.id for event in seen + events + others}) == len(seen + events + others)


@asynchronous
async def test_malformed_requests_get_a_client_error() -> None:
    async with remote() as hub:
        session = await hub.session()
        for headers in (
            {"origin": "http://[::1"},
            {"host": "evil.com"},
            {"accept": "text/html"},
            {"content-type": "text/plain"},
            {"mcp-session-id": "unknown"},
        ):
            async with hub.post(request(1, "ping"), **{**session, **headers}) as response:
                assert 400 <= response.status < 500, headers
        async with hub.listen(session, **{"last-event-id": "g_" + "9" * 5000}) as response:
            assert 400 <= response.status < 500


@asynchronous
async def test_a_client_that_sends_too_large_a_body_gets_the_limit() -> None:
    async with remote() as hub:
        for _ in range(8):
            body = io.BytesIO(b"x" * (5 * 1024 * 1024))
            async with hub.client.post(hub.url, data=body, headers=USUAL) as response:
                assert response.status == 413
                assert "4194304 bytes" in (await response.json())["error"]["message"]


def test_the_error_for_a_port_in_use_is_one_sentence() -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        with pytest.raises(WaypostError) as refused:
            listen("127.0.0.1", port)
    assert refused.value.message == (
        f"Cannot listen on 127.0.0.1:{port}: Address already in use; stop what listens there, or choose another port."
    )
