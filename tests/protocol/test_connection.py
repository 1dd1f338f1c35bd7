"""A connection in memory: responses, their order, and refusals."""

import asyncio
import json
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.protocol.conftest import (
    Json,
    assorted_hub,
    asynchronous,
    connected,
    idle,
    in_session,
    initialization,
    notification,
    request,
    stateless,
    until,
)
from tests.protocol.hostile import hostile_bytes
from tests.protocol.waiting import Waiting, call
from waypost import Context, Hub, WaypostError
from waypost.wire.params import CLIENT_CAPABILITIES, PROTOCOL_VERSION
from waypost.wire.versions import LEGACY, V2026_07_28


@asynchronous
async def test_before_initialize_only_ping_is_answered() -> None:
    async with connected(assorted_hub()) as peer:
        assert await peer.result(request(1, "ping")) == {}
        error = await peer.error(request(2, "tools/list"))
        assert error == {"code": -32600, "message": "Server not initialized"}
        assert (await peer.error(request(3, "no/such/method")))["code"] == -32600


@asynchronous
async def test_both_eras_are_served_side_by_side() -> None:
    async with connected(assorted_hub()) as peer:
        assert (await peer.result(stateless(1, "tools/list")))["resultType"] == "complete"
        await peer.result(initialization())
        assert "resultType" not in await peer.result(request(2, "tools/list"))
        assert (await peer.result(stateless(3, "tools/list")))["resultType"] == "complete"
        assert await peer.result(request(4, "ping")) == {}


@asynchronous
async def test_the_envelope_is_recognised_with_an_escaped_key() -> None:
    plain = json.dumps(stateless(1, "tools/list")).encode()
    async with connected(assorted_hub()) as peer:
        peer.send(plain.replace(b"io.modelcontextprotocol/", b"io.modelcontextprotocol\\/"))
        assert "result" in await peer.response(1)


@asynchronous
async def test_text_that_looks_like_an_envelope_does_not_change_the_era() -> None:
    async with in_session(assorted_hub()) as peer:
        arguments = {"note": PROTOCOL_VERSION, PROTOCOL_VERSION: V2026_07_28}
        result = await peer.result(request(1, "tools/call", {"name": "deploy", "arguments": arguments}))
        assert "resultType" not in result


@pytest.mark.parametrize(
    ("garbage", "code"),
    [
        (b"not json", -32700),
        (b"{", -32700),
        (b"\xff\xfe", -32700),
        (b'"text"', -32600),
        (b"17", -32600),
        (b"null", -32600),
        (b"{}", -32600),
        (b'{"jsonrpc":"1.0","method":"ping"}', -32600),
        (b'{"jsonrpc":"2.0"}', -32600),
        (b'{"jsonrpc":"2.0","id":null,"method":"ping"}', -32600),
        (b"[" * 65 + b"]" * 65, -32700),
        (b'{"a":' * 65 + b"1" + b"}" * 65, -32700),
    ],
)
@asynchronous
async def test_garbage_is_refused_without_an_id_and_the_connection_stays_usable(garbage: bytes, code: int) -> None:
    async with in_session(assorted_hub()) as peer:
        peer.send(garbage)
        refusal = await peer.response(None)
        assert refusal["error"]["code"] == code
        assert await peer.result(request(1, "ping")) == {}


@pytest.mark.parametrize(
    "broken",
    [
        {"jsonrpc": "1.0", "id": 5, "method": "ping"},
        {"id": 5, "method": "ping"},
        {"jsonrpc": "2.0", "id": 5, "method": 7},
        {"jsonrpc": "2.0", "id": 5},
    ],
)
@asynchronous
async def test_an_invalid_envelope_is_refused_with_its_id(broken: Json) -> None:
    async with connected(assorted_hub()) as peer:
        peer.send(broken)
        assert (await peer.response(5))["error"]["code"] == -32600


@pytest.mark.parametrize(
    "params",
    [
        b'{"name":"\xff"}',
        b'{"_meta":{"%b":"\xff"}}' % PROTOCOL_VERSION.encode(),
        b'{"_meta":{"progressToken":"\xc3("},"name":"add"}',
    ],
)
@asynchronous
async def test_invalid_utf_8_is_refused_and_the_connection_stays_usable(params: bytes) -> None:
    async with in_session(assorted_hub()) as peer:
        peer.send(b'{"jsonrpc":"2.0","id":1,"method":"tools/call","params":%b}' % params)
        refusal = await peer.first(lambda message: "error" in message)
        assert refusal["error"]["code"] in (-32700, -32602)
        assert await peer.result(request(2, "ping")) == {}


@asynchronous
async def test_invalid_utf_8_in_a_notification_is_ignored() -> None:
    async with in_session(assorted_hub()) as peer:
        peer.send(b'{"jsonrpc":"2.0","method":"notifications/cancelled","params":{"requestId":"\xff"}}')
        assert await peer.result(request(2, "ping")) == {}


@asynchronous
async def test_responses_and_unknown_notifications_are_ignored() -> None:
    async with in_session(assorted_hub()) as peer:
        before = len(peer.received)
        peer.send({"jsonrpc": "2.0", "id": 99, "result": {}})
        peer.send({"jsonrpc": "2.0", "id": None, "error": {"code": 1, "message": "x"}})
        peer.send(notification("notifications/roots/list_changed"))
        peer.send(notification("notifications/made/up", {"x": 1}))
        peer.send(notification("tools/call", call("add")))
        await idle()
        assert len(peer.received) == before


@pytest.mark.parametrize("modern", [False, True])
@asynchronous
async def test_requests_are_answered_in_the_order_they_finish(modern: bool) -> None:
    waiting = Waiting()
    make = stateless if modern else request
    async with in_session(waiting.hub) as peer:
        peer.send(make(1, "tools/call", call("wait")))
        peer.send(make(2, "tools/call", call("quick")))
        await peer.response(2)
        waiting.release.set()
        await peer.response(1)
        assert [message["id"] for message in peer.responses()[1:]] == [2, 1]


@asynchronous
async def test_a_request_may_reuse_the_id_of_a_finished_one() -> None:
    async with in_session(assorted_hub()) as peer:
        for _ in range(2):
            peer.received.clear()
            assert await peer.result(request(1, "ping")) == {}


@pytest.mark.parametrize("modern", [False, True])
@asynchronous
async def test_messages_of_a_handler_after_its_answer_are_not_sent(modern: bool) -> None:
    hub = Hub("late", version="1")
    answered = asyncio.Event()
    late: list[asyncio.Task[None]] = []

    @hub.tool
    async def leave_work(ctx: Context) -> str:
        """Answer first, talk later."""

        async def talk() -> None:
            await answered.wait()
            await ctx.progress(99)
            await ctx.log("emergency", "too late")

        await ctx.progress(1)
        late.append(asyncio.create_task(talk()))
        return "done"

    params = {**call("leave_work"), "_meta": {"progressToken": "t"}}
    meta = {"progressToken": "t", "io.modelcontextprotocol/logLevel": "debug"}
    message = stateless(1, "tools/call", call("leave_work"), **meta) if modern else request(1, "tools/call", params)
    async with in_session(hub) as peer:
        await peer.result(message)
        answered.set()
        await asyncio.gather(*late)
        await idle()
        assert [params["progress"] for params in peer.notifications("notifications/progress")] == [1]
        assert peer.notifications("notifications/message") == []


async def asked(ctx: Context, answers: list[Any]) -> str:
    try:
        answers.append((await ctx.elicit("Well?", {"type": "object", "properties": {"a": {"type": "string"}}})).action)
    except WaypostError as error:
        answers.append(type(error).__name__)
    return "asked"


@pytest.mark.parametrize(
    "answer",
    [
        b'"result":{}',
        b'"result":7',
        b'"result":null',
        b'"result":[]',
        b'"result":{"action":"dance"}',
        b'"result":{"action":"accept","content":7}',
        b'"result":{"action":"accept","content":{"a":1e999}}',
        b'"error":{}',
        b'"error":7',
        b'"error":{"code":"x","message":7}',
        b'"error":{"code":1e999,"message":"x"}',
        b'"error":{"code":null}',
    ],
)
@asynchronous
async def test_a_malformed_answer_of_a_client_fails_only_the_question(answer: bytes) -> None:
    hub = Hub("asking", version="1")
    answers: list[Any] = []

    @hub.tool
    async def ask(ctx: Context) -> str:
        """Ask."""
        return await asked(ctx, answers)

    async with connected(hub) as peer:
        opening = initialization()
        opening["params"]["capabilities"] = {"elicitation": {}}
        await peer.result(opening)
        peer.send(request(1, "tools/call", call("ask")))
        question = await peer.first(lambda message: message.get("method") == "elicitation/create")
        peer.send(b'{"jsonrpc":"2.0","id":%b,%b}' % (json.dumps(question["id"]).encode(), answer))
        assert "result" in await peer.response(1)
        assert "result" in await peer.ask(request(2, "ping"))
        assert len(answers) == 1
        assert answers[0] not in ("accept", "decline", "cancel")


@pytest.mark.parametrize(
    ("answer", "outcome"),
    [
        (b'"result":{"action":"decline"},"error":null', "decline"),
        (b'"result":null,"error":{"code":-1,"message":"no"}', "an error: no"),
        (b'"error":{"code":-1}', "an error: error -1 without a message"),
        (b'"error":"no"', "an error: error 0 without a message"),
        (b'"error":null', "an error: error 0 without a message"),
    ],
)
@asynchronous
async def test_an_answer_of_a_client_may_have_null_where_it_says_nothing(answer: bytes, outcome: str) -> None:
    hub = Hub("asking", version="1")

    @hub.tool
    async def ask(ctx: Context) -> str:
        """Ask."""
        return (await ctx.elicit("Well?", {"type": "object", "properties": {"a": {"type": "string"}}})).action

    async with connected(hub) as peer:
        opening = initialization()
        opening["params"]["capabilities"] = {"elicitation": {}}
        await peer.result(opening)
        peer.send(request(1, "tools/call", call("ask")))
        question = await peer.first(lambda message: message.get("method") == "elicitation/create")
        peer.send(b'{"jsonrpc":"2.0","id":%b,%b}' % (json.dumps(question["id"]).encode(), answer))
        text = (await peer.response(1))["result"]["content"][0]["text"]
        assert text == outcome or text == f"The client answered elicitation/create with {outcome}"


@asynchronous
async def test_a_client_may_write_null_for_each_field_that_it_leaves_out() -> None:
    heard: list[Any] = []
    hub = Hub("lenient", version="1")

    @hub.tool(input_schema={"type": "object"})
    async def echo(args: Json) -> Json:
        """Echo."""
        return args

    @hub.on("notification")
    async def note(method: str, params: Any, ctx: Context) -> None:
        heard.append((method, params))

    async with connected(hub) as peer:
        opening = initialization()
        opening["params"] |= {"_meta": None, "capabilities": {"roots": None, "elicitation": None}}
        opening["params"]["clientInfo"] |= {"title": None, "icons": None}
        await peer.result(opening)
        peer.send({"jsonrpc": "2.0", "method": "notifications/initialized", "params": None})
        assert await peer.result({"jsonrpc": "2.0", "id": 1, "method": "ping", "params": {"_meta": None}}) == {}
        params = {"name": "echo", "arguments": {"a": None}, "task": None, "_meta": {"progressToken": None}}
        assert (await peer.result(request(2, "tools/call", params)))["structuredContent"] == {"a": None}
        assert heard == [("notifications/initialized", {})]


@asynchronous
async def test_a_second_initialize_replaces_the_session() -> None:
    waiting = Waiting()
    async with in_session(waiting.hub) as peer:
        [first] = waiting.hub.engine.sessions
        peer.send(request(1, "tools/call", call("wait")))
        await until(lambda: waiting.entered)
        await peer.result(initialization(request_id="again"))
        [second] = waiting.hub.engine.sessions
        assert second is not first
        await until(lambda: waiting.stopped)
        assert await peer.result(request(2, "ping")) == {}


@asynchronous
async def test_closing_stops_running_calls_and_removes_the_session() -> None:
    waiting = Waiting()
    async with in_session(waiting.hub) as peer:
        peer.send(request(1, "tools/call", call("wait")))
        peer.send(stateless(2, "tools/call", call("wait")))
        peer.send(stateless(3, "subscriptions/listen", {"notifications": {"toolsListChanged": True}}))
        await until(lambda: waiting.entered == 2 and len(waiting.hub.engine.broadcast) == 1)
        before = len(peer.responses())
        await peer.connection.close()
        assert waiting.stopped == 2
        assert len(waiting.hub.engine.sessions) == 0
        assert len(waiting.hub.engine.broadcast) == 0
        assert len(peer.responses()) == before


@asynchronous
async def test_many_requests_at_once_are_all_answered() -> None:
    async with in_session(assorted_hub()) as peer:
        for number in range(500):
            peer.send(request(number, "tools/call", {"name": "add", "arguments": {"a": number, "b": 1}}))
        await until(lambda: len(peer.responses()) == 501)
        sums = {message["id"]: message["result"]["content"][0]["text"] for message in peer.responses()[1:]}
        assert sums == {number: str(number + 1) for number in range(500)}


MESSAGES: list[Any] = [
    initialization(),
    request(1, "ping"),
    request("a", "tools/call", {"name": "add", "arguments": {"a": 1, "b": 2}}),
    request(2, "tools/list", {"cursor": "x"}),
    request(3, "resources/read", {"uri": "docs://readme"}),
    request(4, "logging/setLevel", {"level": "debug"}),
    request(5, "completion/complete", {"ref": {"type": "ref/prompt", "name": "greet"}, "argument": {"name": "name"}}),
    stateless(6, "tools/call", {"name": "deploy", "arguments": {"region": "eu"}}, progressToken="p"),
    stateless(7, "subscriptions/listen", {"notifications": {"toolsListChanged": True}}),
    stateless(8, "server/discover", **{CLIENT_CAPABILITIES: {"sampling": {}}}),
    notification("notifications/cancelled", {"requestId": 7}),
    [request(9, "ping"), notification("notifications/initialized")],
]


@settings(max_examples=150, deadline=None)
@given(st.lists(hostile_bytes(MESSAGES), max_size=6), st.sampled_from([None, *LEGACY]))
def test_the_hub_sends_only_json_rpc_for_any_input_and_the_connection_stays_usable(
    lines: list[bytes], version: str | None
) -> None:
    @asynchronous
    async def scenario() -> None:
        async with connected(assorted_hub()) as peer:
            if version is not None:
                await peer.result(initialization(version))
            for line in lines:
                peer.send(line)
            await idle()
            assert "result" in await peer.ask(stateless("last", "tools/list"))

    scenario()
