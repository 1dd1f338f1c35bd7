"""The client: both eras over memory, and over links that misbehave."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from typing import Any

import pytest

from tests.upstreams.conftest import DEADLINE, until
from waypost import Context, Hub, RemoteError, ToolError
from waypost.transports.memory import MemoryLink
from waypost.upstreams.client import Client, connected
from waypost.upstreams.replies import Reply
from waypost.version import __version__
from waypost.wire.params import CLIENT_CAPABILITIES, CLIENT_INFO, LOG_LEVEL, PROTOCOL_VERSION
from waypost.wire.versions import ALL, LATEST_LEGACY, V2026_07_28

ERAS = [LATEST_LEGACY, V2026_07_28]


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


def sample(**options: Any) -> Hub:
    hub = Hub("sample", version="3.2.1", instructions="Ask nicely.", **options)

    @hub.tool
    async def add(a: int, b: int) -> int:
        """Add two numbers."""
        return a + b

    @hub.tool
    async def refuse() -> str:
        """Fail."""
        raise ToolError("Not today.")

    @hub.tool
    async def chatter(ctx: Context) -> str:
        """Log at two levels."""
        await ctx.log("debug", "quiet")
        await ctx.log("error", "loud")
        return "said"

    @hub.resource("docs://readme", subscribable=True)
    async def readme() -> str:
        return "# Hello"

    @hub.resource("notes://{number}")
    async def note(number: str) -> str:
        return f"note {number}"

    @hub.prompt
    def greet(name: str) -> str:
        """Compose a greeting."""
        return f"Greet {name}."

    return hub


@asynccontextmanager
async def opened(hub: Hub, version: str, **options: Any) -> AsyncIterator[Client]:
    """A client of a started hub, in memory."""
    async with asyncio.timeout(DEADLINE):
        await hub.start()
        client = Client(MemoryLink(hub.engine), version=version, **options)
        await client.open()
        try:
            yield client
        finally:
            await client.close()
            await hub.stop()


class ScriptedLink:
    """A link to a server that answers as `answer` says, with any number of messages."""

    round_trips = False

    def __init__(self, answer: Callable[[dict[str, Any]], list[Any]]) -> None:
        self.sent: list[dict[str, Any]] = []
        self.closed = False
        self._answer = answer
        self._receive: Callable[[bytes], None] = lambda _: None

    async def open(self, receive: Callable[[bytes], None]) -> None:
        self._receive = receive

    async def send(self, data: bytes, version: str, method: str | None, name: str | None, *more: Any) -> None:
        message = json.loads(data)
        self.sent.append(message)
        for reply in self._answer(message):
            self._receive(reply if isinstance(reply, bytes) else json.dumps(reply).encode())

    async def close(self) -> None:
        self.closed = True


def result(message: dict[str, Any], value: dict[str, Any]) -> dict[str, Any]:
    return {"jsonrpc": "2.0", "id": message["id"], "result": value}


def error(message: dict[str, Any], code: int, text: str) -> dict[str, Any]:
    return {"jsonrpc": "2.0", "id": message["id"], "error": {"code": code, "message": text}}


def silent(_message: dict[str, Any]) -> list[Any]:
    return []


# Opening


@pytest.mark.parametrize("version", ALL)
def test_opening_tells_what_the_server_is(version: str) -> None:
    async def scenario() -> None:
        async with opened(sample(), version) as client:
            assert (client.server_info.name, client.server_info.version) == ("sample", "3.2.1")
            assert client.version == version

    asyncio.run(scenario())


def test_a_session_takes_the_version_the_server_offers() -> None:
    async def scenario() -> None:
        async with opened(sample(), "2023-01-01") as client:
            assert client.version == LATEST_LEGACY
            await client.ping()

    asyncio.run(scenario())


@pytest.mark.parametrize("version", ERAS)
def test_a_client_introduces_itself_with_its_capabilities(version: str) -> None:
    def answer(message: dict[str, Any]) -> list[Any]:
        if "id" not in message:
            return []
        return [result(message, {"protocolVersion": LATEST_LEGACY, "serverInfo": {"name": "x", "version": "1"}})]

    async def scenario() -> None:
        link = ScriptedLink(answer)
        client = Client(link, version=version, capabilities={"roots": {}}, name="probe", log_level="error")
        await client.open()
        params = link.sent[0]["params"]
        info = {"name": "probe", "version": __version__}
        if version == V2026_07_28:
            assert params["_meta"] == {
                PROTOCOL_VERSION: version,
                CLIENT_CAPABILITIES: {"roots": {}},
                CLIENT_INFO: info,
                LOG_LEVEL: "error",
            }
        else:
            assert params == {"protocolVersion": version, "capabilities": {"roots": {}}, "clientInfo": info}
            assert link.sent[1]["method"] == "notifications/initialized"

    asyncio.run(scenario())


def test_without_a_version_the_newest_that_both_know_is_spoken() -> None:
    async def scenario() -> None:
        hub = sample()
        await hub.start()
        client = await connected(MemoryLink(hub.engine))
        assert client.version == V2026_07_28
        await client.close()

    asyncio.run(scenario())


def test_a_server_of_the_older_era_is_spoken_to_in_a_session() -> None:
    def answer(message: dict[str, Any]) -> list[Any]:
        if message["method"] == "server/discover":
            return [error(message, -32601, "Method not found")]
        if message["method"] == "initialize":
            return [result(message, {"protocolVersion": "2025-06-18", "serverInfo": {"name": "old", "version": "1"}})]
        return []

    async def scenario() -> None:
        client = await connected(ScriptedLink(answer))
        assert (client.version, client.server_info.name) == ("2025-06-18", "old")

    asyncio.run(scenario())


def test_a_version_that_was_asked_for_is_not_given_up() -> None:
    async def scenario() -> None:
        link = ScriptedLink(lambda message: [error(message, -32601, "Method not found")])
        with pytest.raises(RemoteError, match="Method not found"):
            await connected(link, version=V2026_07_28)
        assert [message["method"] for message in link.sent] == ["server/discover"]

    asyncio.run(scenario())


def test_a_server_that_cannot_be_opened_leaves_no_link_behind() -> None:
    async def scenario() -> None:
        link = ScriptedLink(lambda message: [error(message, -32603, "Internal error")])
        with pytest.raises(RemoteError, match="Internal error"):
            await connected(link)
        assert link.closed

    asyncio.run(scenario())


# Asking


@pytest.mark.parametrize("version", ERAS)
def test_everything_a_hub_offers_can_be_used(version: str) -> None:
    async def scenario() -> None:
        async with opened(sample(), version) as client:
            assert (await client.call_tool("add", {"a": 1, "b": 2})).structured == {"result": 3}
            assert [row.uri for row in await client.list_resources()] == ["docs://readme"]
            assert [row.uri_template for row in await client.list_resource_templates()] == ["notes://{number}"]
            assert [row.name for row in await client.list_prompts()] == ["greet"]
            assert (await client.read_resource("notes://7")).text == "note 7"
            assert (await client.get_prompt("greet", {"name": "Ada"})).text == "Greet Ada."
            assert await client.complete({"type": "ref/prompt", "name": "greet"}, "name", "A") == []

    asyncio.run(scenario())


@pytest.mark.parametrize("version", ERAS)
@pytest.mark.parametrize("page_size", [1, 2, 3, 100])
def test_lists_are_read_page_after_page(page_size: int, version: str) -> None:
    hub = Hub("pages", version="1", page_size=page_size)

    def same() -> str:
        return "same"

    for number in range(5):
        hub.tool(same, name=f"tool_{number}") if number == 0 else hub.add(same, name=f"tool_{number}")

    async def scenario() -> None:
        async with opened(hub, version) as client:
            assert [row.name for row in await client.list_tools()] == [f"tool_{number}" for number in range(5)]

    asyncio.run(scenario())


@pytest.mark.parametrize("version", ERAS)
def test_answers_find_their_requests_whatever_the_order(version: str) -> None:
    async def scenario() -> None:
        async with opened(sample(), version) as client:
            sums = await asyncio.gather(*(client.call_tool("add", {"a": n, "b": n}) for n in range(20)))
            assert [reply.structured.result for reply in sums] == [n * 2 for n in range(20)]

    asyncio.run(scenario())


@pytest.mark.parametrize("version", ERAS)
def test_a_tool_that_fails_is_an_answer(version: str) -> None:
    async def scenario() -> None:
        async with opened(sample(), version) as client:
            reply = await client.call_tool("refuse")
            assert (reply.is_error, reply.text) == (True, "Not today.")

    asyncio.run(scenario())


@pytest.mark.parametrize(("version", "code"), [(LATEST_LEGACY, -32002), (V2026_07_28, -32602)])
def test_an_error_is_raised_with_its_code_and_data(version: str, code: int) -> None:
    async def scenario() -> None:
        async with opened(sample(), version) as client:
            with pytest.raises(RemoteError, match="Resource not found: docs://gone") as caught:
                await client.read_resource("docs://gone")
            assert caught.value.code == code
            assert caught.value.data == {"uri": "docs://gone"}

    asyncio.run(scenario())


@pytest.mark.parametrize("version", ERAS)
def test_log_messages_come_from_the_chosen_level_on(version: str) -> None:
    async def scenario() -> None:
        async with opened(sample(), version) as client:
            heard: list[Reply] = []
            client.listen_to(heard.append)
            await client.set_log_level("warning")
            await client.call_tool("chatter")
            assert [note.params.data for note in heard] == ["loud"]

    asyncio.run(scenario())


# Giving up


@pytest.mark.parametrize("version", ERAS)
def test_an_answer_that_takes_too_long_is_cancelled_at_the_server(version: str) -> None:
    hub = sample()
    waiting = Waiting()
    hub.tool(waiting.__call__, name="wait")

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
    hub = sample()
    waiting = Waiting()
    hub.tool(waiting.__call__, name="wait")

    async def scenario() -> None:
        async with opened(hub, version) as client:
            call = asyncio.create_task(client.call_tool("wait"))
            await waiting.started.wait()
            call.cancel()
            await asyncio.wait({call})
            assert call.cancelled()
            async with asyncio.timeout(2):
                await waiting.stopped.wait()

    asyncio.run(scenario())


@pytest.mark.parametrize("version", ERAS)
def test_a_request_can_be_cancelled_by_its_id(version: str) -> None:
    hub = sample()
    waiting = Waiting()
    hub.tool(waiting.__call__, name="wait")

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
    hub = sample()
    waiting = Waiting()
    hub.tool(waiting.__call__, name="wait")

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
        await link.open(client._receive)
        assert await client.list_tools() == []

    asyncio.run(scenario())


# Listening


def test_a_stream_of_changes_gives_the_part_the_server_honours() -> None:
    hub = Hub("no prompts", version="1")

    async def scenario() -> None:
        async with opened(hub, V2026_07_28) as client:
            heard: list[Reply] = []
            client.listen_to(heard.append)
            async with client.listen(toolsListChanged=True, promptsListChanged=True) as honoured:
                assert honoured == {"toolsListChanged": True}
                await hub.notify_changed("prompts")
                await hub.notify_changed("tools")
                await until(lambda: len(heard) == 2)
            assert [note.method for note in heard] == [
                "notifications/subscriptions/acknowledged",
                "notifications/tools/list_changed",
            ]

    asyncio.run(scenario())


def test_resource_updates_come_on_the_stream_that_asked_for_them() -> None:
    hub = sample()

    async def scenario() -> None:
        async with opened(hub, V2026_07_28) as client:
            heard: list[Reply] = []
            async with client.listen(resourceSubscriptions=["docs://readme"]):
                client.listen_to(heard.append)
                await hub.notify_resource_updated("docs://other")
                await hub.notify_resource_updated("docs://readme")
                await until(lambda: heard)
            assert [note.params.uri for note in heard] == ["docs://readme"]

    asyncio.run(scenario())


def test_leaving_a_stream_ends_it_at_the_server() -> None:
    hub = sample()

    async def scenario() -> None:
        async with opened(hub, V2026_07_28) as client:
            async with client.listen(toolsListChanged=True), client.listen(promptsListChanged=True):
                assert len(hub.engine.broadcast) == 2
            await until(lambda: len(hub.engine.broadcast) == 0)

    asyncio.run(scenario())


def test_a_session_cannot_listen_but_subscribes() -> None:
    hub = sample()

    async def scenario() -> None:
        async with opened(hub, LATEST_LEGACY) as client:
            with pytest.raises(RemoteError, match="subscriptions/listen"):
                async with client.listen(toolsListChanged=True):
                    pytest.fail("there is nothing to listen to")
            heard: list[Reply] = []
            client.listen_to(heard.append)
            await client.subscribe("docs://readme")
            await hub.notify_resource_updated("docs://readme")
            await client.unsubscribe("docs://readme")
            await hub.notify_resource_updated("docs://readme")
            await client.ping()
            assert [note.params.uri for note in heard] == ["docs://readme"]

    asyncio.run(scenario())


def test_a_server_that_never_acknowledges_a_stream_is_a_remote_error() -> None:
    async def scenario() -> None:
        link = ScriptedLink(silent)
        client = Client(link, patience=0.02)
        await link.open(client._receive)
        with pytest.raises(RemoteError, match=r"did not .* within 0\.02 s"):
            async with client.listen(toolsListChanged=True):
                pytest.fail("nobody acknowledged it")

    asyncio.run(scenario())
