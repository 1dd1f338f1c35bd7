"""Timeouts and cancellations of a client, and messages that are not answers."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from tests.upstreams.clients import ScriptedLink, opened, result, sample, silent
from tests.upstreams.conftest import DEADLINE, ERAS
from waypost import Hub, RemoteError
from waypost.upstreams.client import Client


class Waiting:
    """A tool that waits forever, with events for its start and end."""

    def __init__(self) -> None:
        self.started = asyncio.Event()
        self.stopped = asyncio.Event()

    async def __call__(self) -> str:
        self.started.set()
        try:
            await asyncio.Event().wait()
        finally:
            self.stopped.set()
        return "never"


def with_a_tool_that_waits() -> tuple[Hub, Waiting]:
    hub = sample()
    waiting = Waiting()
    hub.tool(waiting.__call__, name="wait")
    return hub, waiting


@pytest.mark.parametrize("version", ERAS)
def test_an_answer_that_takes_too_long_is_cancelled_at_the_server(version: str) -> None:
    hub, waiting = with_a_tool_that_waits()

    async def scenario() -> None:
        async with opened(hub, version) as client:
            patience, client._timeout = client._timeout, 0.3  # for this call alone: the others have to succeed
            with pytest.raises(RemoteError, match=r"did not answer within 0\.3 s") as caught:
                await client.call_tool("wait")
            client._timeout = patience
            assert caught.value.code == -32001
            await waiting.stopped.wait()
            assert (await client.call_tool("add", {"a": 1, "b": 1})).structured == {"result": 2}

    asyncio.run(scenario())


@pytest.mark.parametrize("version", ERAS)
def test_a_timeout_cancels_the_request_by_its_id(version: str) -> None:
    async def scenario() -> None:
        link = ScriptedLink(silent)
        client = Client(link, version=version, patience=0.02)
        with pytest.raises(RemoteError):
            await client.open()
        request, cancelled = link.sent
        assert cancelled["method"] == "notifications/cancelled"
        assert cancelled["params"] == {"requestId": request["id"], "reason": "timeout"}

    asyncio.run(scenario())


@pytest.mark.parametrize("version", ERAS)
def test_a_cancelled_call_is_cancelled_at_the_server(version: str) -> None:
    hub, waiting = with_a_tool_that_waits()

    async def scenario() -> None:
        async with opened(hub, version) as client:
            call = asyncio.create_task(client.call_tool("wait"))
            await waiting.started.wait()
            call.cancel()
            await asyncio.wait({call})
            assert call.cancelled()
            async with asyncio.timeout(60):
                await waiting.stopped.wait()

    asyncio.run(scenario())


@pytest.mark.parametrize("version", ERAS)
def test_a_request_can_be_cancelled_by_its_id(version: str) -> None:
    hub, waiting = with_a_tool_that_waits()

    async def scenario() -> None:
        async with opened(hub, version) as client:
            answer = client.send_request("mine", "tools/call", {"name": "wait", "arguments": {}})
            await waiting.started.wait()
            await client.cancel("mine", "changed my mind")
            await waiting.stopped.wait()
            assert answer.cancelled()

    asyncio.run(scenario())


@pytest.mark.parametrize("version", ERAS)
def test_closing_ends_pending_calls(version: str) -> None:
    hub, waiting = with_a_tool_that_waits()

    async def scenario() -> None:
        async with opened(hub, version) as client:
            call = asyncio.create_task(client.call_tool("wait"))
            await waiting.started.wait()
            await client.close()
            done, _ = await asyncio.wait({call})
            assert done == {call}
            assert call.cancelled() or isinstance(call.exception(), RemoteError)

    asyncio.run(scenario())


def test_a_link_that_breaks_fails_the_request() -> None:
    class Broken(ScriptedLink):
        async def send(self, data: bytes, version: str, method: str | None, name: str | None, *more: Any) -> None:
            raise RemoteError("The line is dead.", -32000)

    async def scenario() -> None:
        with pytest.raises(RemoteError, match="The line is dead"):
            await Client(Broken(silent)).open()

    asyncio.run(scenario())


def test_messages_that_are_not_answers_are_ignored() -> None:
    def answer(message: dict[str, Any]) -> list[Any]:
        return [
            b"",
            b"not json",
            b"[]",
            b'{"jsonrpc": "1.0"}',
            {"jsonrpc": "2.0", "id": "somebody else's", "result": {}},
            {"jsonrpc": "2.0", "id": None, "error": {"code": -32600, "message": "whose?"}},
            result(message, {"tools": []}),
            result(message, {"tools": ["twice"]}),
        ]

    async def scenario() -> None:
        client = Client(link := ScriptedLink(answer))
        await link.open(client.receive)
        assert await client.list_tools() == []

    asyncio.run(scenario())


MALFORMED_NOTIFICATIONS = [
    b'{"jsonrpc": "2.0", "method": "notifications/cancelled", "params": {"requestId": ["a", "list"]}}',
    b'{"jsonrpc": "2.0", "method": "notifications/cancelled", "params": ["a", "list"]}',
    b'{"jsonrpc": "2.0", "method": "notifications/message", "params": "text"}',
    b'{"jsonrpc": "2.0", "method": "notifications/progress", "params": {"progress": 1e999}}',
]


@pytest.mark.parametrize("malformed", MALFORMED_NOTIFICATIONS)
def test_a_malformed_notification_is_ignored(malformed: bytes) -> None:
    heard: list[Any] = []

    async def scenario() -> None:
        client = Client(link := ScriptedLink(lambda message: [malformed, result(message, {"tools": []})]))
        client.listen_to(heard.append)
        await link.open(client.receive)
        assert await client.list_tools() == []

    asyncio.run(scenario())
    assert [note for note in heard if not isinstance(note.params, dict)] == []


def _nested(levels: int) -> str:
    return "[" * levels + "]" * levels


@pytest.mark.parametrize(
    ("members", "reason"),
    [
        (f'"result": {{"content": [], "structuredContent": {{"a": {_nested(70)}}}}}', "nested deeper than 64 levels"),
        ('"results": {}', 'neither "method" nor "result" nor "error"'),
    ],
)
def test_a_response_that_cannot_be_read_is_an_error_at_once(members: str, reason: str) -> None:
    def answer(message: dict[str, Any]) -> list[Any]:
        number = message["id"]
        request = b'{"jsonrpc": "2.0", "id": %d, "method": "ping", "params": %b}' % (number, _nested(70).encode())
        return [request, f'{{"jsonrpc": "2.0", "id": {number}, {members}}}'.encode()]

    async def scenario() -> None:
        client = Client(link := ScriptedLink(answer))
        await link.open(client.receive)
        with pytest.raises(RemoteError, match=f"The server's response cannot be read: .*{reason}"):
            await client.call_tool("add")

    asyncio.run(scenario())


def test_half_of_a_surrogate_pair_is_replaced_in_a_response() -> None:
    def answer(message: dict[str, Any]) -> list[Any]:
        text = rb'{"content": [{"type": "text", "text": "cut \ud83d"}]}'
        return [b'{"jsonrpc": "2.0", "id": %d, "result": %b}' % (message["id"], text)]

    async def scenario() -> str:
        client = Client(link := ScriptedLink(answer))
        await link.open(client.receive)
        return (await client.call_tool("add")).text

    assert asyncio.run(scenario()) == "cut \ufffd"


def test_null_stands_for_no_parameters() -> None:
    heard: list[Any] = []

    async def scenario() -> None:
        client = Client(ScriptedLink(silent))
        client.listen_to(heard.append)
        client.receive(b'{"jsonrpc": "2.0", "method": "notifications/tools/list_changed", "params": null}')

    asyncio.run(scenario())
    assert heard == [{"method": "notifications/tools/list_changed", "params": {}}]


def test_null_stands_for_no_error() -> None:
    async def scenario() -> None:
        client = Client(link := ScriptedLink(lambda message: [{**result(message, {"tools": []}), "error": None}]))
        await link.open(client.receive)
        assert await client.list_tools() == []

    asyncio.run(scenario())


@pytest.mark.parametrize(
    ("error", "code", "text"),
    [({"code": -7}, -7, "error -7 without a message"), ({"code": "x", "message": ""}, 0, "error 0")],
)
def test_an_error_without_a_message_has_one(error: dict[str, Any], code: int, text: str) -> None:
    async def scenario() -> None:
        client = Client(link := ScriptedLink(lambda message: [{"jsonrpc": "2.0", "id": message["id"], "error": error}]))
        await link.open(client.receive)
        with pytest.raises(RemoteError, match=text) as caught:
            await client.list_tools()
        assert caught.value.code == code

    asyncio.run(scenario())


def test_a_result_that_cannot_be_decoded_is_an_error_at_once() -> None:
    def answer(message: dict[str, Any]) -> list[Any]:
        return [b'{"jsonrpc": "2.0", "id": %d, "result": {"tools": [], "ttl": 1e999}}' % message["id"]]

    async def scenario() -> None:
        client = Client(link := ScriptedLink(answer))
        await link.open(client.receive)
        with pytest.raises(RemoteError, match="not MCP"):
            async with asyncio.timeout(DEADLINE):
                await client.list_tools()

    asyncio.run(scenario())
