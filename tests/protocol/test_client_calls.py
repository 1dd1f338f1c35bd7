import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import pytest
from msgspec import Raw

from tests.protocol.conftest import (
    CLIENT,
    Json,
    Peer,
    asynchronous,
    cancelled,
    connected,
    idle,
    notification,
    request,
    until,
)
from waypost import Context, Hub
from waypost.capabilities.context import Session
from waypost.capabilities.questions import Question
from waypost.errors import CapabilityNotSupported, NoAnswer, RemoteError, SchemaNotAllowed
from waypost.protocol.session import ClientCalls, LegacySession
from waypost.testing import TestClient, connect
from waypost.wire import messages
from waypost.wire.messages import Message, decode, encode
from waypost.wire.versions import LATEST_LEGACY, V2025_06_18, V2026_07_28

ROOTS = Question("roots/list", {}, {"roots": {}})
FORM = {"type": "object", "properties": {"name": {"type": "string"}}}
SAID = {"role": "assistant", "content": {"type": "text", "text": "hello"}, "model": "m"}
EVERYTHING: Json = {"elicitation": {"form": {}, "url": {}}, "sampling": {}, "roots": {}}


class Line:
    """A fake client: records the messages to it and answers them."""

    def __init__(self) -> None:
        self.calls = ClientCalls(Hub("line", version="1").engine.sessions.liveness)
        self.sent: list[Json] = []

    async def send(self, message: bytes) -> None:
        self.sent.append(decode(message))

    async def ask(self, question: Question = ROOTS, version: str = LATEST_LEGACY) -> Any:
        return await self.calls.ask(question, version, self.send)

    def answer(self, **answer: Any) -> None:
        self.calls.resolve(messages.parse(encode({"jsonrpc": "2.0", **answer})))


@asynchronous
async def test_an_answer_reaches_the_question_with_its_id() -> None:
    line = Line()
    first, second = asyncio.create_task(line.ask()), asyncio.create_task(line.ask())
    await idle()
    ids = [message["id"] for message in line.sent]
    assert len(set(ids)) == 2
    assert [message["method"] for message in line.sent] == ["roots/list"] * 2
    line.answer(id=ids[1], result={"roots": [1]})
    line.answer(id=ids[0], result={"roots": []})
    assert (await first, await second) == ({"roots": []}, {"roots": [1]})
    assert len(line.calls) == 0


@asynchronous
async def test_an_error_is_raised_with_its_code_and_data() -> None:
    line = Line()
    task = asyncio.create_task(line.ask())
    await idle()
    line.answer(id=line.sent[0]["id"], error={"code": -1, "message": "User rejected", "data": {"a": 1}})
    with pytest.raises(RemoteError, match="User rejected") as caught:
        await task
    assert (caught.value.code, caught.value.data) == (-1, {"a": 1})


@pytest.mark.parametrize("error", [{}, {"code": "x"}, {"message": None}])
def test_a_malformed_error_is_raised_as_an_error(error: Any) -> None:
    @asynchronous
    async def run() -> None:
        line = Line()
        task = asyncio.create_task(line.ask())
        await idle()
        line.answer(id=line.sent[0]["id"], error=error)
        with pytest.raises(RemoteError):
            await task

    run()


@pytest.mark.parametrize("number", [1, "hub-99", "1", "", None])
def test_answers_with_an_unknown_id_are_dropped(number: Any) -> None:
    @asynchronous
    async def run() -> None:
        line = Line()
        task = asyncio.create_task(line.ask())
        await idle()
        line.calls.resolve(Message("2.0", id=number, result=Raw(b"{}")))
        await idle()
        assert not task.done()
        line.answer(id=line.sent[0]["id"], result={"mine": 1})
        line.answer(id=line.sent[0]["id"], result={"twice": 1})
        assert await task == {"mine": 1}

    run()


@asynchronous
async def test_a_question_that_times_out_is_cancelled() -> None:
    line = Line()
    with pytest.raises(NoAnswer, match="roots/list"):
        await line.ask(Question("roots/list", {}, {}, within=0.0))
    asked, outcome = line.sent
    assert outcome["method"] == "notifications/cancelled"
    assert outcome["params"]["requestId"] == asked["id"]
    assert len(line.calls) == 0


@asynchronous
async def test_a_question_of_a_cancelled_caller_is_cancelled() -> None:
    line = Line()
    task = asyncio.create_task(line.ask())
    await idle()
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    assert [message["method"] for message in line.sent] == ["roots/list", "notifications/cancelled"]
    assert line.sent[1]["params"]["requestId"] == line.sent[0]["id"]
    assert len(line.calls) == 0


@pytest.mark.parametrize(
    ("method", "params", "older"),
    [
        ("elicitation/create", {"mode": "form", "message": "?"}, {"message": "?"}),
        ("sampling/createMessage", {"messages": [{"content": [1, 2]}]}, {"messages": [{"content": 1}, {"content": 2}]}),
    ],
)
@asynchronous
async def test_questions_to_older_clients_use_the_fields_of_their_version(
    method: str, params: Json, older: Json
) -> None:
    question = Question(method, params, {})
    for version, expected in ((V2025_06_18, older), (LATEST_LEGACY, params)):
        line = Line()
        task = asyncio.create_task(line.ask(question, version))
        await idle()
        line.answer(id=line.sent[0]["id"], result={})
        await task
        assert line.sent[0]["params"] == expected


def asking_hub() -> Hub:
    hub = Hub("asking", version="1")

    @hub.tool
    async def where(ctx: Context) -> str:
        """Ask for the roots."""
        return " ".join(root.uri for root in await ctx.roots())

    @hub.tool
    async def hurry(ctx: Context) -> str:
        """Ask without patience."""
        return str(await ctx.roots(within=0.0))

    @hub.tool(timeout=0.01)
    async def patient(ctx: Context) -> str:
        """Ask for longer than the tool may work."""
        return str(len(await ctx.roots()))

    return hub


@asynccontextmanager
async def able(hub: Hub) -> AsyncIterator[Peer]:
    """A client with a session that declares every capability."""
    async with connected(hub) as peer:
        given = {"protocolVersion": LATEST_LEGACY, "capabilities": EVERYTHING, "clientInfo": CLIENT}
        await peer.result(request("init", "initialize", given))
        peer.send(notification("notifications/initialized"))
        yield peer


async def asked(peer: Peer) -> Json:
    """The first request of the hub."""
    message: Json = await peer.first(lambda message: "method" in message and "id" in message)
    return message


@asynchronous
async def test_the_answer_of_another_session_is_ignored() -> None:
    hub = asking_hub()
    async with able(hub) as ada, able(hub) as eve:
        ada.send(request(1, "tools/call", {"name": "where"}))
        question = await asked(ada)
        eve.send({"jsonrpc": "2.0", "id": question["id"], "result": {"roots": [{"uri": "file:///eve"}]}})
        await idle()
        assert not [message for message in ada.received if message.get("id") == 1]
        ada.send({"jsonrpc": "2.0", "id": question["id"], "result": {"roots": [{"uri": "file:///ada"}]}})
        assert (await ada.response(1))["result"]["content"][0]["text"] == "file:///ada"
        assert not eve.notifications("roots/list")


@asynchronous
async def test_a_call_whose_question_is_not_answered_fails() -> None:
    async with able(asking_hub()) as peer:
        result = await peer.result(request(1, "tools/call", {"name": "hurry"}))
        assert result["isError"]
        assert "did not answer" in result["content"][0]["text"]
        assert (await peer.hears("notifications/cancelled"))[0]["requestId"] == (await asked(peer))["id"]


@asynchronous
async def test_a_cancelled_call_cancels_its_question() -> None:
    async with able(asking_hub()) as peer:
        peer.send(request(1, "tools/call", {"name": "where"}))
        question = await asked(peer)
        peer.send(cancelled(1))
        assert (await peer.hears("notifications/cancelled"))[0]["requestId"] == question["id"]
        await idle()
        assert not [message for message in peer.received if message.get("id") == 1]


@asynchronous
async def test_an_error_of_the_client_fails_only_the_call() -> None:
    async with able(asking_hub()) as peer:
        peer.send(request(1, "tools/call", {"name": "where"}))
        question = await asked(peer)
        peer.send({"jsonrpc": "2.0", "id": question["id"], "error": {"code": -1, "message": "User rejected"}})
        result = (await peer.response(1))["result"]
        assert result["isError"]
        assert "User rejected" in result["content"][0]["text"]
        assert await peer.result(request(2, "ping")) == {}


@asynchronous
async def test_the_timeout_of_a_tool_is_paused_while_the_client_answers() -> None:
    async with able(asking_hub()) as peer:
        peer.send(request(1, "tools/call", {"name": "patient"}))
        question = await asked(peer)
        passed = asyncio.Event()
        asyncio.get_running_loop().call_later(0.05, passed.set)
        await passed.wait()
        peer.send({"jsonrpc": "2.0", "id": question["id"], "result": {"roots": []}})
        assert (await peer.response(1))["result"]["content"][0]["text"] == "0"


@asynccontextmanager
async def listening(hub: Hub, **answers: Any) -> AsyncIterator[tuple[TestClient, LegacySession]]:
    try:
        async with connect(hub, LATEST_LEGACY, **answers) as client:
            (session,) = hub.engine.sessions
            yield client, session
    finally:
        await hub.stop()


@asynchronous
async def test_hooks_get_the_answers_to_questions_sent_by_a_session() -> None:
    hub = asking_hub()
    heard: list[Any] = []

    @hub.on("elicitation")
    async def on_elicitation(response: Json, request_id: str, session: Session) -> None:
        heard.append(("elicitation", response, request_id, session.id))

    @hub.on("sampling")
    async def on_sampling(response: Json, request_id: str, session: Session) -> None:
        heard.append(("sampling", response, request_id, session.id))

    @hub.on("roots")
    def on_roots(roots: list[Json], request_id: str, session: Session) -> None:
        heard.append(("roots", roots, request_id, session.id))

    accepted = {"action": "accept", "content": {"name": "Ada"}}
    roots = [{"uri": "file:///w"}]
    answers: Json = {
        "elicitation": lambda params: accepted,
        "sampling": lambda params: SAID,
        "roots": lambda params: {"roots": roots},
    }
    async with listening(hub, **answers) as (_, session):
        first = await session.send_elicitation("Who?", FORM)
        await until(lambda: len(heard) == 1)
        second = await session.send_sampling("Hi", max_tokens=5, temperature=0.5)
        await until(lambda: len(heard) == 2)
        third = await session.send_roots()
        await until(lambda: len(heard) == 3)
        assert heard == [
            ("elicitation", accepted, first, session.id),
            ("sampling", SAID, second, session.id),
            ("roots", roots, third, session.id),
        ]
        assert len({first, second, third}) == 3


@asynchronous
async def test_a_hook_gets_no_content_of_a_declined_elicitation() -> None:
    hub = asking_hub()
    heard: list[Any] = []
    hub.on("elicitation")(lambda response, *_: heard.append(response))

    async with listening(hub, elicitation=lambda _: {"action": "decline", "content": {"name": 1}}) as (_, session):
        await session.send_elicitation("Who?", FORM)
        await until(lambda: heard == [{"action": "decline"}])


BAD_ANSWERS: list[tuple[str, tuple[Any, ...], Any]] = [
    ("elicitation", ("Who?", FORM), {"action": "accept", "content": {"name": 1}}),
    ("elicitation", ("Who?", FORM), []),
    ("sampling", ("Hi",), 5),
    ("roots", (), []),
    ("roots", (), 5),
    ("roots", (), {"roots": 5}),
]


@pytest.mark.parametrize(("kind", "args", "outcome"), BAD_ANSWERS)
def test_an_answer_that_does_not_match_is_logged_and_not_passed_to_hooks(
    kind: str, args: tuple[Any, ...], outcome: Any
) -> None:
    @asynchronous
    async def run() -> None:
        hub = asking_hub()
        heard: list[Any] = []
        hub.on(kind)(lambda *given: heard.append(given))
        answers: Json = {kind: lambda _: outcome}
        async with listening(hub, **answers) as (client, session):
            await getattr(session, f"send_{kind}")(*args)
            await client.assert_notification("message", level="warning")
            assert heard == []

    run()


@asynchronous
async def test_an_unanswered_question_of_a_session_times_out() -> None:
    hub = asking_hub()
    async with able(hub) as peer:
        (session,) = hub.engine.sessions
        number = await session.send_roots(timeout=0.0)
        assert (await peer.hears("notifications/cancelled"))[0]["requestId"] == number
        assert (await peer.hears("notifications/message"))[0]["level"] == "warning"


@asynchronous
async def test_an_ended_session_has_no_open_questions() -> None:
    hub = asking_hub()
    async with able(hub) as peer:
        (session,) = hub.engine.sessions
        await session.send_roots()
        await asked(peer)
        assert len(session.calls) == 1
    assert len(session.calls) == 0


@asynchronous
async def test_a_question_that_the_client_does_not_support_is_not_sent() -> None:
    hub = asking_hub()
    async with listening(hub) as (client, session):
        for send in (session.send_roots(), session.send_sampling("Hi"), session.send_elicitation("Who?", FORM)):
            with pytest.raises(CapabilityNotSupported):
                await send
        with pytest.raises(SchemaNotAllowed):
            await session.send_elicitation("Who?", {"type": "string"})
        await client.ping()
        assert client.notifications == []


@asynchronous
async def test_a_stateless_client_cannot_be_asked_outside_of_its_request() -> None:
    hub = asking_hub()

    @hub.tool
    async def send(ctx: Context) -> str:
        """Try to ask beside the request."""
        return await ctx.session.send_roots()

    async with connect(hub, V2026_07_28, roots=lambda params: {"roots": []}) as client:
        answer = await client.call_tool("send")
        assert answer.is_error
        assert answer.text == "A stateless client cannot be asked outside of a request; use await ctx.roots() in it."
    async with connect(hub, V2026_07_28) as client:
        with pytest.raises(RemoteError) as caught:
            await client.call_tool("send")
        assert caught.value.code == -32021
    await hub.stop()


@asynchronous
async def test_a_url_elicitation_in_a_session_has_an_elicitation_id() -> None:
    line = Line()
    page = {"mode": "url", "message": "Sign in", "url": "https://example.com"}
    asking = asyncio.create_task(line.ask(Question("elicitation/create", page, {"elicitation": {"url": {}}})))
    await until(lambda: bool(line.sent))
    params = line.sent[0]["params"]
    assert params.pop("elicitationId")
    assert params == page
    line.answer(id=line.sent[0]["id"], result={"action": "accept"})
    assert await asking == {"action": "accept"}
