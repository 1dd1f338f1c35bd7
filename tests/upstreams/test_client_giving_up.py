"""What a client does about answers that do not come, and about what is no answer."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from tests.upstreams.clients import ScriptedLink, opened, result, sample, silent
from tests.upstreams.conftest import ERAS
from waypost import Hub, RemoteError
from waypost.upstreams.client import Client


class Waiting:
    """A tool that waits for ever, and what became of it."""

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
        async with opened(hub, version, patience=0.3) as client:
            with pytest.raises(RemoteError, match=r"did not answer within 0\.3 s") as caught:
                await client.call_tool("wait")
            assert caught.value.code == -32001
            await waiting.stopped.wait()
            assert (await client.call_tool("add", {"a": 1, "b": 1})).structured == {"result": 2}

    asyncio.run(scenario())


@pytest.mark.parametrize("version", ERAS)
def test_a_timeout_names_the_request_it_gives_up(version: str) -> None:
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
def test_a_caller_that_gives_up_stops_the_work_at_the_server(version: str) -> None:
    hub, waiting = with_a_tool_that_waits()

    async def scenario() -> None:
        async with opened(hub, version) as client:
            call = asyncio.create_task(client.call_tool("wait"))
            await waiting.started.wait()
            call.cancel()
            await asyncio.wait({call})
            assert call.cancelled()
            async with asyncio.timeout(20):
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
def test_closing_ends_whatever_still_waits(version: str) -> None:
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


def test_what_is_not_an_answer_is_passed_over() -> None:
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
