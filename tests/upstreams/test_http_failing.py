"""The HTTP link against servers that are not a hub."""

from __future__ import annotations

import asyncio
import json

import pytest

from tests.ports import free_port
from tests.upstreams.conftest import DEADLINE, ERAS, answering, response
from tests.upstreams.http_clients import PATIENCE, opened
from waypost import RemoteError
from waypost.upstreams.client import Client
from waypost.upstreams.http import HttpTransport
from waypost.wire.versions import LATEST_LEGACY

NOT_ALLOWED = b'{"jsonrpc": "2.0", "id": null, "error": {"code": -32600, "message": "This Host is not allowed here."}}'
NO_SESSION = b'{"jsonrpc": "2.0", "id": null, "error": {"code": -32600, "message": "There is no such session."}}'


async def refusal(url: str, version: str) -> RemoteError:
    """The error of opening a server, which must fail without waiting."""
    link = HttpTransport(url)
    try:
        with pytest.raises(RemoteError) as caught:
            await Client(link, version=version, patience=PATIENCE).open()
    finally:
        await link.close()
    assert caught.value.code != -32001, "it waited for an answer that cannot come"
    return caught.value


@pytest.mark.parametrize("version", ERAS)
def test_an_unreachable_server_is_a_one_line_error(version: str) -> None:
    url = f"http://127.0.0.1:{free_port()}/mcp"

    error = asyncio.run(refusal(url, version))

    assert error.message.startswith(f"{url} cannot be reached: ")
    assert "\n" not in error.message


@pytest.mark.parametrize("version", ERAS)
@pytest.mark.parametrize("url", ["http:///mcp", "http://no host/mcp", "http://127.0.0.1:99999/mcp"])
def test_an_invalid_url_is_named_in_the_error(url: str, version: str) -> None:
    error = asyncio.run(refusal(url, version))

    assert url in error.message


@pytest.mark.parametrize("version", ERAS)
@pytest.mark.parametrize(
    ("answer", "said"),
    [
        (response(b"<html>Hello</html>", kind="text/html"), "text/html"),
        (response(b"<html>Oops</html>", status="500 Internal Server Error", kind="text/html"), "500"),
        (response(b"Bad gateway", status="502 Bad Gateway", kind="text/plain"), "502"),
        (response(b'{"detail": "Not Found"}', status="404 Not Found"), "404"),
        (response(b"not json", status="200 OK"), ""),
        (response(b'{"some": "json"}'), ""),
        (response(b"", status="202 Accepted"), ""),
        (response(b"", status="204 No Content"), ""),
        (response(b": hello\n\n", kind="text/event-stream"), ""),
        (
            response(NOT_ALLOWED, status="403 Forbidden"),
            "This Host is not allowed here",
        ),
        (b"HTTP/1.1 200 OK\r\nContent-Type: application/json\r\nContent-Length: 100\r\n\r\n{", ""),
        (b"SSH-2.0-OpenSSH_9.6\r\n\r\n", ""),
    ],
    ids=[
        "html",
        "html 500",
        "text 502",
        "json 404",
        "no json",
        "other json",
        "accepted",
        "nothing",
        "events without an answer",
        "an error without an id",
        "cut off",
        "not http",
    ],
)
def test_a_server_that_answers_something_else_is_an_error_at_once(answer: bytes, said: str, version: str) -> None:
    async def write(_body: bytes, writer: asyncio.StreamWriter) -> None:
        writer.write(answer)
        await writer.drain()

    async def scenario() -> None:
        async with asyncio.timeout(DEADLINE), answering(write) as url:
            error = await refusal(url, version)
            assert said in error.message
            assert error.message
            assert "\n" not in error.message

    asyncio.run(scenario())


def test_an_unknown_session_is_an_error_at_once() -> None:
    async def write(body: bytes, writer: asyncio.StreamWriter) -> None:
        message = json.loads(body) if body else {}
        if message.get("method") == "initialize":
            welcome = {
                "protocolVersion": LATEST_LEGACY,
                "capabilities": {},
                "serverInfo": {"name": "x", "version": "1"},
            }
            answer = response(json.dumps({"jsonrpc": "2.0", "id": message["id"], "result": welcome}).encode())
            writer.write(answer.replace(b"\r\n", b"\r\nMcp-Session-Id: abc\r\n", 1))
        else:
            writer.write(response(NO_SESSION, status="404 Not Found") if "id" in message else response(b""))
        await writer.drain()

    async def scenario() -> None:
        async with answering(write) as url, opened(url, LATEST_LEGACY) as client:
            with pytest.raises(RemoteError, match="no such session") as caught:
                await client.ping()
            assert caught.value.code != -32001

    asyncio.run(scenario())


@pytest.mark.parametrize("line_end", [b"\n", b"\r\n"])
def test_events_are_read_in_every_valid_form(line_end: bytes) -> None:
    async def write(body: bytes, writer: asyncio.StreamWriter) -> None:
        answer = {"jsonrpc": "2.0", "id": json.loads(body)["id"], "result": {"a": 1, "b": 2}}
        first, second = json.dumps(answer, indent=1).encode().split(b"\n", 1)
        lines = [b": hello", b"id: 1", b"retry: 5", b"data:", b"", b"event: message", b"data:" + first]
        lines += [b"data: " + line for line in second.split(b"\n")]
        events = line_end.join([*lines, b"", b""])
        writer.write(response(events, kind="text/event-stream"))
        await writer.drain()

    async def scenario() -> None:
        async with answering(write) as url:
            link = HttpTransport(url)
            reply = await Client(link, patience=PATIENCE).open()
            assert reply == {"a": 1, "b": 2}
            await link.close()

    asyncio.run(scenario())


def test_a_malformed_notification_among_events_does_not_fail_the_request() -> None:
    malformed = b'{"jsonrpc": "2.0", "method": "notifications/cancelled", "params": {"requestId": []}}'

    async def write(body: bytes, writer: asyncio.StreamWriter) -> None:
        answer = json.dumps({"jsonrpc": "2.0", "id": json.loads(body)["id"], "result": {"tools": []}}).encode()
        events = b"".join(b"data: %b\n\n" % message for message in (malformed, answer))
        writer.write(response(events, kind="text/event-stream"))
        await writer.drain()

    async def scenario() -> None:
        async with asyncio.timeout(DEADLINE), answering(write) as url:
            client = Client(link := HttpTransport(url), patience=PATIENCE)
            await link.open(client.receive)
            assert await client.list_tools() == []
            await client.close()

    asyncio.run(scenario())
