"""One key uses as much as it can: others still get sessions, tasks, threads and streams."""

from __future__ import annotations

import asyncio
import threading
from copy import deepcopy
from typing import Any

import pytest

from tests.protocol.conftest import Json, asynchronous, initialization, request, stateless, until
from tests.transports.http.conftest import EVENTS, Call, Web, browsing
from tests.transports.http.guarded import KEYS, READER, WRITER, bearer, sign_in, text_of
from waypost import Hub
from waypost.identity import Authentication
from waypost.protocol.tasks import TASKS_EXTENSION
from waypost.wire.params import CLIENT_CAPABILITIES

pytestmark = pytest.mark.usefixtures("no_stalls")


def hub(**options: Any) -> Hub:
    return Hub("shared", version="1", auth=Authentication(KEYS), **options)


async def statuses(web: Web, credential: str, count: int) -> list[int]:
    """The statuses of attempts to open a session."""
    found = []
    for _ in range(count):
        call = web.open_post(initialization(), bearer(credential))
        await call.task
        found.append(call.status)
    return found


@asynchronous
async def test_sessions_of_one_key_make_room_for_those_of_another() -> None:
    async with browsing(hub(max_sessions=50)) as web:
        greedy = await statuses(web, READER, 60)
        assert (greedy.count(200), greedy.count(503)) == (50, 10)
        kept = await sign_in(web, WRITER)
        assert await statuses(web, WRITER, 24) == [200] * 24
        assert await statuses(web, READER, 2) == [503] * 2  # it has its half
        assert await statuses(web, WRITER, 2) == [503] * 2
        assert "result" in await kept.ask("ping")
        assert len(web.hub.engine.sessions) == 50


@asynchronous
async def test_a_session_that_made_room_comes_back_when_there_is_some_again() -> None:
    async with browsing(hub(max_sessions=2)) as web:
        first = await sign_in(web, READER)
        await sign_in(web, READER)
        other = await sign_in(web, WRITER)
        refused = await first.open(request(1, "ping")).started()
        assert refused.status == 503
        await other.delete()
        assert "result" in await first.ask("ping")


def task_call() -> Json:
    capabilities: Json = {"extensions": {TASKS_EXTENSION: {}}}
    return stateless(1, "tools/call", {"name": "wait", "arguments": {}}, **{CLIENT_CAPABILITIES: capabilities})


@asynchronous
async def test_tasks_of_one_key_leave_some_for_another() -> None:
    crowded = hub(max_tasks=20)

    @crowded.tool(task="required")
    async def wait() -> str:
        await asyncio.Event().wait()
        return "never"

    async def start(web: Web, credential: str) -> str:
        call = await web.open_modern(task_call(), bearer(credential)).done()
        answer = call.messages()[-1]
        return str(answer["result"]["resultType"] if "result" in answer else answer["error"]["message"])

    async with browsing(crowded) as web:
        greedy = [await start(web, READER) for _ in range(20)]
        assert greedy[:18] == ["task"] * 18
        assert greedy[18:] == ["18 tasks are running already (maxTasks); try again later."] * 2
        assert await start(web, WRITER) == "task"


@asynchronous
async def test_synchronous_calls_of_one_key_leave_a_thread_for_another() -> None:
    crowded, go, begun = hub(max_threads=10), threading.Event(), []

    @crowded.tool
    def block() -> str:
        begun.append(1)
        go.wait(60)
        return "done"

    @crowded.tool
    def quick() -> str:
        return "quick"

    def call(web: Web, tool: str, credential: str) -> Call:
        return web.open_modern(stateless(1, "tools/call", {"name": tool, "arguments": {}}), bearer(credential))

    async with browsing(crowded) as web:
        greedy = [call(web, "block", READER) for _ in range(64)]
        await until(lambda: len(begun) == 9)
        try:
            for _ in range(20):
                assert text_of(await call(web, "quick", WRITER).done()) == "quick"
            assert len(begun) == 9
        finally:
            go.set()
        assert [text_of(await one.done()) for one in greedy] == ["done"] * 64


@asynchronous
async def test_streams_of_one_key_leave_some_for_another() -> None:
    listen = stateless(7, "subscriptions/listen", {"notifications": {"toolsListChanged": True}})
    crowded = hub(max_streams=20)
    crowded.tool(lambda: "x", name="x")
    async with browsing(crowded) as web:
        for _ in range(18):
            assert (await web.open_modern(listen, bearer(READER)).started()).is_stream
        refused = await web.open_modern(listen, bearer(READER)).done()
        assert refused.json["error"]["message"] == "18 streams are open already (maxStreams); try again later."
        assert (await web.open_modern(listen, bearer(WRITER)).started()).is_stream
        greedy, other = await sign_in(web, READER), await sign_in(web, WRITER)
        general = await greedy.listen().started()
        assert general.status == 503
        assert b"maxStreams" in general.body
        assert (await other.listen().started()).headers["content-type"] == EVENTS


@pytest.mark.parametrize("credential", [READER, WRITER])
@asynchronous
async def test_a_key_alone_has_all_sessions(credential: str) -> None:
    async with browsing(hub(max_sessions=30)) as web:
        assert await statuses(web, credential, 30) == [200] * 30


@pytest.mark.parametrize("part", ["clientInfo", "capabilities"])
@asynchronous
async def test_the_client_info_and_capabilities_of_a_session_are_bounded(part: str) -> None:
    async with browsing(hub()) as web:
        for size, is_taken in ((1_000, True), (100_000, False)):
            message = deepcopy(initialization())  # it shares its parts with other tests
            message["params"][part]["title" if part == "clientInfo" else "experimental"] = (
                "x" * size if part == "clientInfo" else {"x": "x" * size}
            )
            answer = (await web.post(message, bearer(READER))).json
            assert ("result" in answer) == is_taken
        assert "(maxClientBytes)" in answer["error"]["message"]
        assert len(web.hub.engine.sessions) == 1


@asynchronous
async def test_subscriptions_of_one_key_leave_some_for_another() -> None:
    crowded = hub(max_total_subscription_bytes=100_000)
    crowded.resource("docs://a", name="a", subscribable=True)(lambda: "x")

    def listen(web: Web, credential: str) -> Call:
        wanted = {"resourceSubscriptions": ["docs://" + "x" * 4_000]}
        return web.open_modern(stateless(7, "subscriptions/listen", {"notifications": wanted}), bearer(credential))

    async with browsing(crowded) as web:
        streams = [listen(web, READER) for _ in range(23)]
        for one in streams:
            assert (await one.started()).is_stream
        refused = await listen(web, READER).done()
        assert "(maxTotalSubscriptionBytes); try again later." in refused.json["error"]["message"]
        other = await sign_in(web, WRITER)
        assert "result" in await other.ask("resources/subscribe", {"uri": "docs://a"})
        assert (await listen(web, WRITER).started()).is_stream
