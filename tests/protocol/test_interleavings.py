"""Whatever a client does, in whatever order: when it is gone, nothing that it started is left."""

from __future__ import annotations

import asyncio
import itertools
import logging
from collections import Counter
from collections.abc import Callable, Iterator
from typing import Any, Final, Protocol, TypeAlias

import pytest
from hypothesis import HealthCheck, example, given, settings
from hypothesis import strategies as st

from tests.protocol.conftest import (
    CLIENT,
    Json,
    Peer,
    asynchronous,
    cancelled,
    idle,
    notification,
    request,
    stateless,
    until,
)
from tests.transports.http.conftest import Call, Visitor, Web
from waypost import Context, Hub, Session, ToolError
from waypost.execution.ticker import ticker
from waypost.protocol.session import LegacySession
from waypost.wire.params import CLIENT_CAPABILITIES
from waypost.wire.versions import V2025_06_18, V2025_11_25, V2026_07_28, is_modern

Step: TypeAlias = tuple[str, Any]

CAPABLE: Final[Json] = {"elicitation": {}, "roots": {}}
FORM: Final[Json] = {"name": {"type": "string"}}
ANSWERS: Final[dict[str, Json]] = {
    "right": {"result": {"action": "accept", "content": {"name": "Ada"}}},
    "declined": {"result": {"action": "decline"}},
    "wrong": {"result": {"action": "accept", "content": {"name": 7}}},
    "absurd": {"result": {}},
    "error": {"error": {"code": -1, "message": "no"}},
}
TOOLS: Final = ("quick", "slow", "failing", "asking", "asking_twice", "chatty", "threaded", "stubborn", "missing")

NUMBERS: Final = st.integers(min_value=0, max_value=5)
STEPS: Final[st.SearchStrategy[Step]] = st.one_of(
    st.tuples(st.just("call"), st.sampled_from(TOOLS)),
    st.tuples(st.just("call"), st.sampled_from(TOOLS)),
    st.tuples(st.just("call"), st.sampled_from(["asking", "asking_twice"])),
    st.tuples(st.just("cancel"), NUMBERS),
    st.tuples(st.just("cancel unknown"), st.sampled_from(["nobody", 10**9, "hub-1"])),
    st.tuples(st.just("answer"), st.tuples(NUMBERS, st.sampled_from(sorted(ANSWERS)))),
    st.tuples(st.just("answer"), st.tuples(NUMBERS, st.sampled_from(sorted(ANSWERS)))),
    st.tuples(st.just("answer unknown"), st.sampled_from(["hub-0", "hub-99", 7])),
    st.tuples(st.just("notify"), st.sampled_from(["notifications/roots/list_changed", "notifications/made/up"])),
    st.tuples(st.just("listen"), st.none()),
    st.tuples(st.just("leave"), NUMBERS),
    st.tuples(st.just("change"), st.none()),
    st.tuples(st.just("release"), st.none()),
    st.tuples(st.just("wait"), NUMBERS),
)
PLAYS: Final = st.lists(STEPS, max_size=14)


@pytest.fixture(autouse=True)
def quiet() -> Iterator[None]:
    """Tools that crash are logged, which is not what is looked at here."""
    logging.disable(logging.ERROR)
    yield
    logging.disable(logging.NOTSET)


class Stage:
    """A hub with a tool of every kind, and everything of it that must be empty when nobody is there."""

    def __init__(self) -> None:
        self.hub = hub = Hub("stage", version="1")
        self.gate = asyncio.Event()
        self.sessions: set[LegacySession] = set()
        self._numbers = itertools.count()

        @hub.on("init")
        async def remember(_info: Any, session: Session) -> None:
            assert isinstance(session, LegacySession)
            self.sessions.add(session)

        @hub.on("notification")
        async def hear(_method: str, _params: Json, _ctx: Context) -> None:
            await asyncio.sleep(0)

        @hub.tool
        async def quick() -> str:
            return "quick"

        @hub.tool
        async def slow() -> str:
            await self.gate.wait()
            return "slow"

        @hub.tool
        async def failing() -> None:
            raise ToolError("failed")

        @hub.tool
        async def asking(ctx: Context) -> str:
            return (await ctx.elicit("Who?", FORM)).action

        @hub.tool
        async def asking_twice(ctx: Context) -> str:
            async with asyncio.TaskGroup() as group:
                one = group.create_task(ctx.elicit("Who?", FORM, key="a"))
                other = group.create_task(ctx.elicit("Who else?", FORM, key="b"))
            return f"{one.result().action} {other.result().action}"

        @hub.tool
        async def chatty(ctx: Context) -> str:
            await ctx.log("warning", "before")
            await ctx.session.send_log("warning", "aside")
            await self.gate.wait()
            await ctx.log("warning", "after")
            return "said"

        @hub.tool
        def threaded() -> str:
            return "threaded"

        @hub.tool
        async def stubborn() -> str:
            try:
                await self.gate.wait()
            except asyncio.CancelledError:
                await asyncio.sleep(0)
            return "stayed"

    def change(self) -> None:
        """Change the list of tools, which everybody is told."""
        hub = self.hub

        async def more() -> None: ...

        hub.tool(more, name=f"more_{next(self._numbers)}")

    def left_over(self) -> Json:
        """What there is of anything that should be gone."""
        engine, loop = self.hub.engine, asyncio.get_running_loop()
        counts = {
            "sessions": len(engine.sessions),
            "subscriptions": len(engine.broadcast),
            "watchers of tasks": len(engine.tasks._watchers),
            "background": len(engine._background),
            "deadlines": len(ticker(loop)._waiting),
            "running": sum(len(session.running) for session in self.sessions),
            "questions": sum(len(session.calls) for session in self.sessions),
            "readers": sum(stream.has_reader for session in self.sessions for stream in session._streams.values()),
            "open streams": sum(not stream.closed for session in self.sessions for stream in session._streams.values()),
        }
        return {name: count for name, count in counts.items() if count}

    async def ends_clean(self, before: set[asyncio.Task[Any]]) -> None:
        """Everything is gone, and the last task with the hub itself."""
        await settled(lambda: not self.left_over() and asyncio.all_tasks() == before)
        assert self.left_over() == {}
        assert asyncio.all_tasks() - before == set()
        await self.hub.stop()
        await idle()
        assert asyncio.all_tasks() == {asyncio.current_task()}


async def settled(condition: Callable[[], bool]) -> None:
    """Wait for a condition, but not for long: the assertions that follow say what is missing."""
    for _ in range(500):
        if condition():
            return
        await asyncio.sleep(0.002)


def called(number: int, tool: str, version: str, **more: Any) -> Json:
    """A call; the number is the id."""
    given = {"name": tool, "arguments": {}, **more}
    if is_modern(version):
        return stateless(number, "tools/call", given, **{CLIENT_CAPABILITIES: CAPABLE})
    return request(number, "tools/call", given)


def opening(version: str) -> Json:
    """The request that opens a session of a client that can be asked."""
    return request("init", "initialize", {"protocolVersion": version, "capabilities": CAPABLE, "clientInfo": CLIENT})


def responses(received: list[Json]) -> Counter[Any]:
    """How often each id was answered; what HTTP refuses has none."""
    return Counter(message["id"] for message in received if "method" not in message and message["id"] is not None)


class Way(Protocol):
    """How a client reaches the hub."""

    version: str

    def received(self) -> list[Json]: ...
    def send(self, message: Json) -> None: ...
    def leave(self, number: int) -> None: ...


class Client:
    """Plays the steps over one way, and remembers what it may refer to."""

    def __init__(self, stage: Stage, way: Way) -> None:
        self.stage = stage
        self.way = way
        self.ids: list[int] = []
        self.calls: dict[int, str] = {}

    async def play(self, steps: list[Step]) -> None:
        for action, what in steps:
            if action == "answer":
                await idle()  # else there is hardly ever a question yet
            getattr(self, action.replace(" ", "_"))(what)
            if action == "wait":
                for _ in range(what):
                    await asyncio.sleep(0)

    def wait(self, _turns: int) -> None:
        """Nothing to send."""

    def call(self, tool: str, **more: Any) -> None:
        number = self._next_id()
        self.calls[number] = tool
        self.way.send(called(number, tool, self.way.version, **more))

    def cancel(self, number: int) -> None:
        if self.ids:
            self.way.send(cancelled(self.ids[-1 - number % len(self.ids)]))

    def cancel_unknown(self, request_id: int | str) -> None:
        self.way.send(cancelled(request_id))

    def answer(self, chosen: tuple[int, str]) -> None:
        """Answer any question so far, whether somebody still waits or it was answered before."""
        number, kind = chosen
        if is_modern(self.way.version):
            self._answer_round(number, kind)
            return
        asked = [message["id"] for message in self.way.received() if message.get("method") == "elicitation/create"]
        if asked:
            self.way.send({"jsonrpc": "2.0", "id": asked[-1 - number % len(asked)], **ANSWERS[kind]})

    def answer_unknown(self, request_id: int | str) -> None:
        if not is_modern(self.way.version):
            self.way.send({"jsonrpc": "2.0", "id": request_id, **ANSWERS["right"]})

    def notify(self, method: str) -> None:
        self.way.send(notification(method))

    def listen(self, _: None) -> None:
        if is_modern(self.way.version):
            wanted = {"notifications": {"toolsListChanged": True}}
            self.way.send(stateless(self._next_id(), "subscriptions/listen", wanted))

    def leave(self, number: int) -> None:
        self.way.leave(number)

    def change(self, _: None) -> None:
        self.stage.change()

    def release(self, _: None) -> None:
        self.stage.gate.set()
        self.stage.gate.clear()

    def _answer_round(self, number: int, kind: str) -> None:
        asked = [
            (message["id"], message["result"])
            for message in self.way.received()
            if message.get("result", {}).get("resultType") == "input_required"
        ]
        if asked:
            request_id, result = asked[-1 - number % len(asked)]
            told = {key: ANSWERS[kind].get("result", {}) for key in result["inputRequests"]}
            state = result["requestState"] if kind != "absurd" else "forged"
            self.call(self.calls[request_id], inputResponses=told, requestState=state)

    def _next_id(self) -> int:
        self.ids.append(len(self.ids))
        return self.ids[-1]

    def answered_once(self) -> None:
        """No request is answered twice, and none that was not sent."""
        answered = responses(self.way.received())
        assert set(answered) <= {"init", *self.ids}
        assert all(times == 1 for times in answered.values()), answered


class Line:
    """A connection in memory."""

    def __init__(self, stage: Stage, version: str) -> None:
        self.version = version
        self.peer = Peer(stage.hub)
        if not is_modern(version):
            self.peer.send(opening(version))
            self.peer.send(notification("notifications/initialized"))

    def received(self) -> list[Json]:
        return self.peer.received

    def send(self, message: Json) -> None:
        self.peer.send(message)

    def leave(self, _number: int) -> None:
        """There is one connection for everything: leaving it is the end of the play."""


class Requests:
    """HTTP requests to the app, of a session or without."""

    def __init__(self, web: Web, version: str, visitor: Visitor | None) -> None:
        self.version = version
        self.web = web
        self.visitor = visitor

    def received(self) -> list[Json]:
        return [message for call in self.web.calls if call.complete or call.is_stream for message in call.messages()]

    def send(self, message: Json) -> None:
        if self.visitor is not None:
            self.visitor.open(message)
        elif "id" in message:
            self.web.open_modern(message)
        else:
            self.web.open_post(message, {"mcp-protocol-version": self.version})

    def leave(self, number: int) -> None:
        """Disconnect, or connect to the general stream again."""
        live = [call for call in self.web.calls if not call.task.done()]
        if live:
            live[number % len(live)].leave()
        if self.visitor is not None:
            self.visitor.listen()


PLAYED: Final = settings(max_examples=60, deadline=None, suppress_health_check=[HealthCheck.too_slow])


@pytest.mark.parametrize("version", [V2025_06_18, V2025_11_25, V2026_07_28])
@PLAYED
@given(steps=PLAYS)
@example(steps=[("call", "slow")])
@example(steps=[("call", "asking"), ("cancel", 0)])
@example(steps=[("call", "asking_twice"), ("wait", 5), ("answer", (0, "right"))])
@example(steps=[("listen", None), ("change", None)])
def test_a_connection_that_closes_leaves_nothing(version: str, steps: list[Step]) -> None:
    @asynchronous
    async def scenario() -> None:
        stage = Stage()
        await stage.hub.start()
        before = asyncio.all_tasks()
        line = Line(stage, version)
        client = Client(stage, line)
        await client.play(steps)
        assert await line.peer.connection.close()
        await idle()
        client.answered_once()
        connection = line.peer.connection
        assert (connection._tasks, connection._modern) == (set(), {})
        await stage.ends_clean(before)

    scenario()


@pytest.mark.parametrize("version", [V2025_06_18, V2025_11_25, V2026_07_28])
@PLAYED
@given(steps=PLAYS)
def test_a_client_that_gives_up_on_everything_leaves_an_idle_connection(version: str, steps: list[Step]) -> None:
    @asynchronous
    async def scenario() -> None:
        stage = Stage()
        await stage.hub.start()
        before = asyncio.all_tasks()
        line = Line(stage, version)
        client = Client(stage, line)
        await client.play(steps)
        await idle()
        for number in client.ids:
            line.send(cancelled(number))
        connection = line.peer.connection
        await settled(lambda: asyncio.all_tasks() == before)
        await idle()
        assert asyncio.all_tasks() - before == set()
        assert (connection._tasks, connection._modern) == (set(), {})
        assert [(session.running, len(session.calls)) for session in stage.sessions] in ([], [({}, 0)])
        client.answered_once()
        await connection.close()
        await stage.ends_clean(before)

    scenario()


@pytest.mark.parametrize("version", [V2025_06_18, V2025_11_25, V2026_07_28])
@PLAYED
@given(steps=PLAYS)
@example(steps=[("call", "slow"), ("leave", 0)])
@example(steps=[("leave", 0), ("change", None), ("leave", 1), ("leave", 0)])
def test_clients_over_http_that_leave_and_end_their_session_leave_nothing(version: str, steps: list[Step]) -> None:
    @asynchronous
    async def scenario() -> None:
        stage = Stage()
        web = Web(stage.hub)
        await stage.hub.start()
        before = asyncio.all_tasks()
        visitor = None if is_modern(version) else await visit(web, version)
        client = Client(stage, Requests(web, version, visitor))
        await client.play(steps)
        calls: list[Call] = list(web.calls)
        if visitor is not None:
            assert (await visitor.delete()).status == 204
        for call in calls:
            call.leave()
        await until(lambda: all(call.task.done() for call in calls), "a request never ended")
        for call in calls:
            call.task.result()
            assert call.status < 500
        client.answered_once()
        await stage.ends_clean(before)

    scenario()


async def visit(web: Web, version: str) -> Visitor:
    """Open a session over HTTP."""
    opened = await web.post(opening(version))
    visitor = Visitor(web, opened.headers["mcp-session-id"], version)
    await visitor.post(notification("notifications/initialized"))
    return visitor
