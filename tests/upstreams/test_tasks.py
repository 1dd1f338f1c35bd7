"""A task of a server is polled at the interval of the server until it ends, and no longer than its call."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterator
from typing import Any

import pytest

from tests.protocol.conftest import asynchronous
from tests.upstreams.clients import ScriptedLink, error, result
from tests.upstreams.conftest import ERAS, until
from waypost import RemoteError
from waypost.upstreams import client
from waypost.upstreams.client import RelayClient, wait_for_task
from waypost.upstreams.transport import UpstreamUnavailable
from waypost.wire.versions import LATEST_LEGACY, V2025_06_18, V2026_07_28

Json = dict[str, Any]
EXTENSION: Json = {"io.modelcontextprotocol/tasks": {}}
DONE: Json = {"content": [{"type": "text", "text": "done"}]}
NEEDED = {"requiredCapabilities": {"extensions": EXTENSION}}


def task(status: str = "working", **more: Any) -> Json:
    """A task in the form of either era."""
    return {"taskId": "t1", "status": status, "pollIntervalMs": 20, "pollInterval": 20, **more}


class Server:
    """A server that gives the next state with every poll of its task."""

    def __init__(self, version: str, *stands: Json) -> None:
        self._stands: Iterator[Json] = iter(stands)
        self.link = ScriptedLink(self._answer)
        self.client = RelayClient(self.link, version=version)
        self.say: Callable[[str], None] | None = None
        self.ask: client.Ask | None = None

    async def wait_for_result(self) -> Json:
        """The result of its task."""
        await self.link.open(self.client.receive)
        return await wait_for_task(self.client, task(), {}, None, self.ask, self.say)

    @property
    def methods(self) -> list[str]:
        """The requested methods."""
        return [message["method"] for message in self.link.sent]

    def _answer(self, message: Json) -> list[Any]:
        match message["method"]:
            case "tasks/get":
                return [result(message, stand)] if (stand := next(self._stands, None)) else []
            case "tasks/result":
                return [result(message, DONE)]
            case _:
                return [result(message, {})]


@pytest.mark.parametrize("version", ERAS)
def test_each_status_message_of_a_task_is_reported_once(version: str) -> None:
    said: list[str] = []

    @asynchronous
    async def scenario() -> None:
        first, second = task(statusMessage="Reading."), task(statusMessage="Writing.")
        server = Server(version, first, first, second, task("completed", result=DONE))
        server.say = said.append
        assert (await server.wait_for_result())["content"] == DONE["content"]

    scenario()
    assert said == ["Reading.", "Writing."]


@pytest.mark.parametrize("version", ERAS)
def test_a_task_that_its_server_cancelled_is_an_error_with_the_reason(version: str) -> None:
    @asynchronous
    async def cancelled() -> None:
        with pytest.raises(RemoteError, match="The task was cancelled: Out of paper"):
            await Server(version, task("cancelled", statusMessage="Out of paper")).wait_for_result()

    cancelled()


@asynchronous
async def test_a_status_notification_of_a_task_ends_the_wait() -> None:
    server = Server(LATEST_LEGACY, task(pollInterval=60_000), task("completed"))
    waiting = asyncio.get_running_loop().create_task(server.wait_for_result())
    await until(lambda: server.methods == ["tasks/get"])
    note = b'{"jsonrpc":"2.0","method":"notifications/tasks/status","params":{"taskId":"%b","status":"completed"}}'
    server.client.receive(note % b"other")
    server.client.receive(note % b"t1")
    assert await waiting == DONE
    assert server.methods == ["tasks/get", "tasks/get", "tasks/result"]


@asynchronous
async def test_each_input_request_of_a_task_is_answered_once() -> None:
    asked: list[list[str]] = []

    async def ask(questions: Any) -> Json:
        asked.append(list(questions))
        return {key: {"action": "accept"} for key in questions}

    one, two = {"method": "roots/list", "params": {}}, {"method": "roots/list", "params": {}}
    both = task("input_required", inputRequests={"one": one, "two": two})
    rest = task("input_required", inputRequests={"two": two, "three": one})
    server = Server(V2026_07_28, both, both, rest, task("completed", result=DONE))
    server.ask = ask
    await server.wait_for_result()
    assert asked == [["one", "two"], ["three"]]
    assert [list(sent["params"]["inputResponses"]) for sent in server.link.sent if "update" in sent["method"]] == asked


@asynchronous
async def test_a_task_that_requests_unsupported_input_is_cancelled() -> None:
    asks = task("input_required", inputRequests={"one": {"method": "roots/list", "params": {}}})
    server = Server(V2026_07_28, asks)
    with pytest.raises(RemoteError, match="requested input that this client does not support"):
        await server.wait_for_result()
    await until(lambda: server.methods == ["tasks/get", "tasks/cancel"])
    capabilities = server.link.sent[-1]["params"]["_meta"]["io.modelcontextprotocol/clientCapabilities"]
    assert capabilities == {"extensions": EXTENSION}


@pytest.mark.parametrize(
    ("version", "wrong"),
    [*((era, wrong) for era in ERAS for wrong in ({"status": "dreaming"}, {})), (V2026_07_28, {"status": "completed"})],
)
def test_an_invalid_task_is_an_error(version: str, wrong: Json) -> None:
    @asynchronous
    async def refused() -> None:
        with pytest.raises(LookupError):
            await Server(version, {"taskId": "t1", **wrong}).wait_for_result()

    refused()


@pytest.mark.parametrize("is_back", [True, False])
def test_an_unreachable_server_is_polled_again(is_back: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(client, "_POLL_S", 0.01)

    class Flaky(ScriptedLink):
        round_trips = True  # as with HTTP
        tries = 0

        async def send(self, *given: Any) -> None:
            self.tries += 1
            if self.tries < 3 or not is_back:
                raise UpstreamUnavailable("It cannot be reached.", delivered=True)
            await super().send(*given)

    @asynchronous
    async def looked() -> None:
        link = Flaky(lambda message: [result(message, task("completed", result=DONE))])
        client = RelayClient(link, version=V2026_07_28)
        await link.open(client.receive)
        looking = wait_for_task(client, task(), {}, None, None, None)
        if is_back:
            assert (await looking)["content"] == DONE["content"]
        else:
            with pytest.raises(UpstreamUnavailable):
                await looking
        assert link.tries == 3

    looked()


def calls(version: str, answer: Callable[[Json], list[Any]], **capabilities: Any) -> tuple[ScriptedLink, RelayClient]:
    """A client that is connected to a server."""
    link = ScriptedLink(answer)
    client = RelayClient(link, version=version)
    client.server_capabilities.update(capabilities)
    return link, client


@asynchronous
async def test_a_tool_is_called_as_a_task_once_its_server_requires_it() -> None:
    def answer(message: Json) -> list[Any]:
        able = message["params"]["_meta"]["io.modelcontextprotocol/clientCapabilities"]
        if able.get("extensions") == EXTENSION:
            return [result(message, {"resultType": "task", **task()})]
        refusal = error(message, -32021, "The client does not support tasks.")
        refusal["error"]["data"] = NEEDED
        return [refusal]

    link, client = calls(V2026_07_28, answer)
    await link.open(client.receive)
    able: Json = {"io.modelcontextprotocol/clientCapabilities": {"roots": {}}}
    for _ in range(2):
        begun = await client.relay("tools/call", {"name": "pack", "arguments": {}}, meta=able)
        assert begun["taskId"] == "t1"
    sent = [one["params"]["_meta"]["io.modelcontextprotocol/clientCapabilities"] for one in link.sent]
    assert sent == [{"roots": {}}, *({"roots": {}, "extensions": EXTENSION},) * 2]


@pytest.mark.parametrize(
    ("version", "declared", "is_learned"),
    [
        (LATEST_LEGACY, {"tasks": {"requests": {"tools": {"call": {}}}}}, True),
        (LATEST_LEGACY, {"tasks": {"list": {}}}, False),
        (V2025_06_18, {"tasks": {"requests": {"tools": {"call": {}}}}}, False),
    ],
)
def test_a_session_learns_from_the_definition_that_a_tool_is_a_task(
    version: str, declared: Json, is_learned: bool
) -> None:
    def answer(message: Json) -> list[Any]:
        if message["method"] == "tools/list":
            tools = [{"name": "pack", "execution": {"taskSupport": "required"}}, {"name": "add"}, {}, 7]
            return [result(message, {"tools": tools})]
        if "task" in message["params"]:
            return [result(message, {"task": task()})]
        return [error(message, -32601, "It only runs as a task.")]

    @asynchronous
    async def learned() -> None:
        link, client = calls(version, answer, **declared)
        await link.open(client.receive)
        calling = client.relay("tools/call", {"name": "pack", "arguments": {}})
        if is_learned:
            assert (await calling)["task"]["taskId"] == "t1"
            assert link.sent[-1]["params"]["task"] == {"ttl": 3_600_000}
        else:
            with pytest.raises(RemoteError, match="only runs as a task"):
                await calling
            assert len(link.sent) == 1

    learned()
