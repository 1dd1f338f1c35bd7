import asyncio
import base64
import json
import time
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.protocol.conftest import (
    Json,
    RequestId,
    assert_on_the_wire,
    assorted_hub,
    asynchronous,
    cancelled,
    idle,
    initialization,
    notification,
    request,
    stateless,
)
from tests.protocol.hostile import hostile_bytes
from tests.transports.http.conftest import BOTH, EVENTS, Call, Headers, Web, browsing, routing
from waypost import Context, Hub
from waypost.wire.params import CLIENT_CAPABILITIES, PROTOCOL_VERSION
from waypost.wire.versions import LATEST_LEGACY, LEGACY, V2025_03_26, V2025_06_18, V2025_11_25, V2026_07_28

ADD = {"name": "add", "arguments": {"a": 1, "b": 2}}


def code(call: Call) -> int:
    value: int = call.json["error"]["code"]
    return value


def nested(depth: int) -> bytes:
    """A message that nests so deep, its own braces included."""
    inner = b"[" * (depth - 2) + b"]" * (depth - 2)
    return b'{"jsonrpc":"2.0","id":1,"method":"ping","params":{"x":%b}}' % inner


# Sessions: what each request is answered with.


@pytest.mark.parametrize("version", LEGACY)
@asynchronous
async def test_initialize_opens_a_session_whose_id_is_visible_text(version: str) -> None:
    async with browsing(assorted_hub()) as web:
        call = await web.post(initialization(version))
        assert call.status == 200
        assert call.json["result"]["protocolVersion"] == version
        assert all(0x21 <= ord(character) <= 0x7E for character in call.headers["mcp-session-id"])


@asynchronous
async def test_a_refused_initialize_opens_no_session() -> None:
    async with browsing(assorted_hub()) as web:
        call = await web.post(request(1, "initialize", {}))
        assert call.status == 200
        assert code(call) == -32602
        assert "mcp-session-id" not in call.headers
        assert len(web.hub.engine.sessions) == 0


@asynchronous
async def test_a_request_is_answered_as_json_in_200_error_or_not() -> None:
    async with browsing(assorted_hub()) as web:
        visitor = await web.session()
        good = await visitor.post(request(1, "tools/call", ADD))
        bad = await visitor.post(request(2, "no/such/method"))
        assert (good.status, good.json["result"]["content"][0]["text"]) == (200, "3")
        assert (bad.status, code(bad)) == (200, -32601)
        assert "mcp-session-id" not in good.headers or good.headers["mcp-session-id"] == visitor.id


@pytest.mark.parametrize(
    "message",
    [
        notification("notifications/initialized"),
        notification("notifications/made/up"),
        cancelled(99),
        {"jsonrpc": "2.0", "id": 99, "result": {}},
        {"jsonrpc": "2.0", "id": 99, "error": {"code": 1, "message": "x"}},
    ],
)
@asynchronous
async def test_notifications_and_responses_are_accepted_without_a_body(message: Json) -> None:
    async with browsing(assorted_hub()) as web:
        visitor = await web.session()
        call = await visitor.post(message)
        assert (call.status, call.body) == (202, b"")


@pytest.mark.parametrize(
    ("body", "expected"),
    [
        (b"", -32700),
        (b"not json", -32700),
        (b'{"jsonrpc":"2.0"', -32700),
        (b"\xff", -32700),
        (nested(65), -32700),
        (b"17", -32600),
        (b"{}", -32600),
        (b'{"jsonrpc":"2.0"}', -32600),
        (b'{"jsonrpc":"1.0","id":1,"method":"ping"}', -32600),
        (b'{"jsonrpc":"2.0","id":null,"method":"ping"}', -32600),
        (b'{"jsonrpc":"2.0","id":1.5,"method":"ping"}', -32600),
        (b'{"jsonrpc":"2.0","id":true,"method":"ping"}', -32600),
    ],
)
@pytest.mark.parametrize("version", [None, LATEST_LEGACY, V2026_07_28, "v999"])
@asynchronous
async def test_what_is_no_message_is_a_bad_request_in_every_era(
    body: bytes, expected: int, version: str | None
) -> None:
    async with browsing(assorted_hub()) as web:
        call = await web.post(body, {"mcp-protocol-version": version})
        assert call.status == 400
        assert code(call) == expected


@asynchronous
async def test_a_message_as_deep_as_allowed_is_served() -> None:
    async with browsing(assorted_hub()) as web:
        assert (await web.post(nested(64))).status == 200
        too_deep = await web.post(nested(65))
        assert "64" in too_deep.json["error"]["message"]


@asynchronous
async def test_brackets_in_text_are_not_depth() -> None:
    async with browsing(assorted_hub()) as web:
        text = '[{"\\' * 500
        arguments = {"region": text}
        wrapped = "=?base64?" + base64.b64encode(text.encode()).decode() + "?="
        call = await web.modern("tools/call", {"name": "deploy", "arguments": arguments}, {"mcp-param-region": wrapped})
        assert call.status == 200
        assert json.loads(call.json["result"]["content"][0]["text"]) == arguments


@asynchronous
async def test_an_unclosed_string_is_refused_in_no_time() -> None:
    body = b"[" * 65 + b'"' + b'\\"' * 15_000
    async with browsing(assorted_hub()) as web:
        began = time.monotonic()
        call = await web.post(body, {"mcp-protocol-version": V2026_07_28})
        assert time.monotonic() - began < 1
        assert call.status == 400


@pytest.mark.parametrize("method", ["tools/list", "no/such/method", "tools/call"])
@asynchronous
async def test_without_a_session_id_a_request_is_told_to_initialize(method: str) -> None:
    async with browsing(assorted_hub()) as web:
        call = await web.post(request(5, method))
        assert call.status == 400
        assert call.json["error"] == {"code": -32600, "message": "Server not initialized"}
        assert call.json["id"] == 5


@asynchronous
async def test_ping_needs_no_session() -> None:
    async with browsing(assorted_hub()) as web:
        call = await web.post(request(1, "ping"))
        assert (call.status, call.json["result"]) == (200, {})


@asynchronous
async def test_everything_else_needs_a_session_id() -> None:
    async with browsing(assorted_hub()) as web:
        calls = [
            await web.post(notification("notifications/initialized")),
            await web.post({"jsonrpc": "2.0", "id": 1, "result": {}}),
            await web.post([request(1, "ping")]),
            await web.open("GET", headers={"accept": EVENTS}).done(),
            await web.open("DELETE").done(),
        ]
        assert [call.status for call in calls] == [400] * 5


async def everything_of(web: Web, session_id: str) -> list[int]:
    headers: Headers = {"mcp-session-id": session_id}
    calls = [
        await web.post(request(1, "tools/list"), headers),
        await web.post(request(1, "ping"), headers),
        await web.post(notification("notifications/initialized"), headers),
        await web.post({"jsonrpc": "2.0", "id": 1, "result": {}}, headers),
        await web.open("GET", headers={**headers, "accept": EVENTS}).done(),
        await web.open("DELETE", headers=headers).done(),
    ]
    return [call.status for call in calls]


@pytest.mark.parametrize("session_id", ["unknown", "", "A" * 5000, "ünï", "../../etc/passwd"])
@asynchronous
async def test_an_unknown_session_is_not_found(session_id: str) -> None:
    async with browsing(assorted_hub()) as web:
        assert await everything_of(web, session_id) == [404] * 6


@asynchronous
async def test_a_session_of_another_hub_is_not_found() -> None:
    async with browsing(assorted_hub()) as here, browsing(assorted_hub()) as there:
        visitor = await there.session()
        assert await everything_of(here, visitor.id) == [404] * 6
        assert (await visitor.ask("ping"))["result"] == {}


@asynchronous
async def test_a_deleted_session_is_not_found_any_more_and_its_streams_end() -> None:
    async with browsing(assorted_hub()) as web:
        visitor, other = await web.session(), await web.session()
        stream = visitor.listen()
        await stream.started()
        gone = await visitor.delete()
        assert 200 <= gone.status < 300
        await stream.done()
        assert await everything_of(web, visitor.id) == [404] * 6
        assert (await other.ask("tools/list"))["result"]["tools"]


def expire(hub: Hub) -> None:
    """Let every session be idle for too long."""
    hub.engine.sessions._clock = lambda: time.monotonic() + 1801
    hub.engine.sessions.sweep()
    assert len(hub.engine.sessions) == 0
    hub.engine.sessions._clock = time.monotonic


@asynchronous
async def test_an_expired_session_comes_back_when_its_client_does() -> None:
    async with browsing(assorted_hub()) as web:
        visitor = await web.session()
        await visitor.ask("logging/setLevel", {"level": "alert"})
        expire(web.hub)
        chatter = {"name": "chatter", "arguments": {"levels": ["error", "emergency"]}}
        call = await visitor.post(request(1, "tools/call", chatter))
        assert [message["params"]["level"] for message in call.messages()[:-1]] == ["emergency"]


@asynchronous
async def test_an_expired_session_that_the_hub_refuses_is_not_found() -> None:
    hub = assorted_hub()

    @hub.on("session_expired")
    def refuse(session_id: str, session: Any) -> None:
        raise RuntimeError("too late")

    async with browsing(hub) as web:
        visitor = await web.session()
        expire(hub)
        assert await everything_of(web, visitor.id) == [404] * 6


@asynchronous
async def test_an_expired_session_that_finds_no_room_is_refused_and_nothing_breaks() -> None:
    async with browsing(assorted_hub(max_sessions=1)) as web:
        visitor = await web.session()
        expire(web.hub)
        other = await web.session()
        call = visitor.open(request(1, "tools/list"))
        await call.task
        assert call.status in (404, 503)
        assert call.json["error"]["message"]
        assert (await other.ask("ping"))["result"] == {}


@asynchronous
async def test_deleting_a_session_stops_its_calls() -> None:
    hub = Hub("hub", version="1")
    entered, stopped = asyncio.Event(), asyncio.Event()

    @hub.tool
    async def wait() -> str:
        """Wait."""
        entered.set()
        try:
            await asyncio.Event().wait()
        finally:
            stopped.set()
        return "never"

    async with browsing(hub) as web:
        visitor = await web.session()
        call = visitor.open(request(1, "tools/call", {"name": "wait"}))
        await entered.wait()
        await visitor.delete()
        await stopped.wait()
        await call.done()
        assert [message for message in call.messages() if "id" in message] == []


@asynchronous
async def test_the_session_limit_is_not_the_clients_mistake() -> None:
    async with browsing(assorted_hub(max_sessions=1)) as web:
        await web.session()
        call = web.open_post(initialization(request_id="mine"))
        await call.task
        assert call.status == 503
        assert call.json["id"] == "mine"
        assert "1 sessions" in call.json["error"]["message"]
        assert "mcp-session-id" not in call.headers


@asynchronous
async def test_sessions_do_not_see_each_other() -> None:
    hub = assorted_hub()

    @hub.tool
    async def remember(word: str, ctx: Context) -> str:
        """Remember a word."""
        before = ctx.session.assigns.get("word", "")
        await ctx.session.put("word", word)
        return str(before)

    async with browsing(hub) as web:
        first, second = await web.session(), await web.session()
        said = []
        for visitor, word in ((first, "a"), (second, "b"), (first, "c"), (second, "d")):
            answer = await visitor.ask("tools/call", {"name": "remember", "arguments": {"word": word}})
            said.append(answer["result"]["content"][0]["text"])
        assert said == ["", "", "a", "b"]


@pytest.mark.parametrize(
    ("verb", "headers", "status"),
    [
        ("POST", {"accept": "application/json"}, 406),
        ("POST", {"accept": EVENTS}, 406),
        ("POST", {"accept": "*/*"}, 200),
        ("POST", {"accept": None}, 200),
        ("POST", {"content-type": "text/plain"}, 415),
        ("POST", {"content-type": None}, 415),
        ("GET", {"accept": "application/json"}, 406),
        ("GET", {"accept": None}, 406),
    ],
)
@asynchronous
async def test_the_form_of_a_request_is_checked(verb: str, headers: Headers, status: int) -> None:
    async with browsing(assorted_hub()) as web:
        visitor = await web.session()
        body = json.dumps(request(1, "ping")).encode() if verb == "POST" else b""
        call = await web.open(verb, body, {**visitor.headers, **headers}).done()
        assert call.status == status
        if status >= 400:
            assert code(call) == -32600


@pytest.mark.parametrize("verb", ["PUT", "PATCH", "HEAD", "OPTIONS", "TRACE", "BREW"])
@asynchronous
async def test_other_verbs_are_not_allowed(verb: str) -> None:
    async with browsing(assorted_hub()) as web:
        call = await web.open(verb).done()
        assert call.status == 405
        assert call.headers["allow"] == "GET, POST, DELETE"


@pytest.mark.parametrize("verb", ["GET", "DELETE"])
@pytest.mark.parametrize("version", [V2026_07_28, "v999"])
@asynchronous
async def test_stateless_clients_may_only_post(verb: str, version: str) -> None:
    async with browsing(assorted_hub()) as web:
        visitor = await web.session()
        headers = {**visitor.headers, "mcp-protocol-version": version, "accept": BOTH}
        call = await web.open(verb, headers=headers).done()
        assert call.status == 405
        assert call.headers["allow"] == "POST"
        assert (await visitor.ask("ping"))["result"] == {}


@asynchronous
async def test_a_body_over_the_limit_is_refused_with_the_limit() -> None:
    async with browsing(assorted_hub(max_body=1000)) as web:
        padding = " " * 1001
        announced = await web.open("POST", padding.encode(), {"content-length": "1001"}).done()
        streamed = await web.open("POST", [b" " * 400] * 4).done()
        unannounced = await web.open("POST", padding.encode()).done()
        fits = await web.post(json.dumps(request(1, "ping")).ljust(1000).encode())
        assert fits.status == 200
        for call in (announced, streamed, unannounced):
            assert call.status == 413
            assert "1000 bytes" in call.json["error"]["message"]


@asynchronous
async def test_a_body_in_pieces_is_put_together() -> None:
    body = json.dumps(request(1, "ping")).encode()
    async with browsing(assorted_hub()) as web:
        call = await web.open("POST", [body[:7], b"", body[7:20], body[20:]]).done()
        assert call.json["result"] == {}


@asynchronous
async def test_a_client_that_leaves_while_sending_costs_nothing() -> None:
    async with browsing(assorted_hub()) as web:
        call = web.open("POST", [])
        await call.disconnect()
        assert (call.status, call.body) == (0, b"")


# Batches.


@asynchronous
async def test_a_batch_is_answered_as_one_array_in_its_version() -> None:
    async with browsing(assorted_hub()) as web:
        visitor = await web.session(V2025_03_26)
        call = await visitor.post(
            [request(1, "ping"), notification("notifications/initialized"), request("b", "tools/call", ADD)]
        )
        assert call.status == 200
        assert {answer["id"] for answer in call.json} == {1, "b"}


@asynchronous
async def test_a_batch_without_requests_is_accepted() -> None:
    async with browsing(assorted_hub()) as web:
        visitor = await web.session(V2025_03_26)
        call = await visitor.post(
            [notification("notifications/initialized"), {"jsonrpc": "2.0", "id": 1, "result": {}}]
        )
        assert (call.status, call.body) == (202, b"")


@pytest.mark.parametrize("version", [version for version in LEGACY if version != V2025_03_26])
@asynchronous
async def test_other_versions_refuse_batches(version: str) -> None:
    async with browsing(assorted_hub()) as web:
        visitor = await web.session(version)
        call = await visitor.post([request(1, "ping")])
        assert (call.status, code(call)) == (400, -32600)


@pytest.mark.parametrize(("body", "expected"), [(b"[]", -32600), (b"[1]", -32600), (b"[{},", -32700)])
@asynchronous
async def test_a_malformed_batch_is_a_bad_request(body: bytes, expected: int) -> None:
    async with browsing(assorted_hub()) as web:
        visitor = await web.session(V2025_03_26)
        call = await visitor.post(body)
        assert (call.status, code(call)) == (400, expected)


@asynchronous
async def test_what_a_batch_logs_comes_before_its_answers() -> None:
    async with browsing(assorted_hub()) as web:
        visitor = await web.session(V2025_03_26)
        chatter = {"name": "chatter", "arguments": {"levels": ["error"]}}
        call = await visitor.post([request(1, "tools/call", chatter), request(2, "ping")])
        first, last = [json.loads(event.data or "") for event in call.events()]
        assert first["method"] == "notifications/message"
        assert {answer["id"] for answer in last} == {1, 2}


# Which era a request belongs to.


@pytest.mark.parametrize("version", [*LEGACY, None])
@asynchronous
async def test_a_session_may_name_any_version_it_could_have_agreed_to_or_none(version: str | None) -> None:
    async with browsing(assorted_hub()) as web:
        visitor = await web.session()
        call = await visitor.post(request(1, "tools/list"), {"mcp-protocol-version": version})
        assert call.status == 200
        assert "resultType" not in call.json["result"]


@pytest.mark.parametrize("version", ["1999-01-01", "v999", "", "2026-07-29"])
@asynchronous
async def test_an_unknown_version_in_a_session_is_a_bad_request(version: str) -> None:
    async with browsing(assorted_hub()) as web:
        visitor = await web.session()
        call = await visitor.post(request(1, "tools/list"), {"mcp-protocol-version": version})
        assert call.status == 400


@asynchronous
async def test_an_unknown_version_that_header_and_body_agree_on_is_told_the_known_ones() -> None:
    async with browsing(assorted_hub()) as web:
        call = await web.open_modern(stateless(1, "tools/list", **{PROTOCOL_VERSION: "v999"})).done()
        discovered = (await web.modern("server/discover")).json["result"]["supportedVersions"]
        assert (call.status, code(call)) == (400, -32022)
        assert call.json["error"]["data"] == {"supported": discovered, "requested": "v999"}


@asynchronous
async def test_an_envelope_without_the_header_is_a_mismatch() -> None:
    async with browsing(assorted_hub()) as web:
        call = await web.open_modern(stateless(1, "tools/list"), {"mcp-protocol-version": None}).done()
        assert (call.status, code(call), call.json["id"]) == (400, -32020, 1)


@asynchronous
async def test_an_envelope_under_the_header_of_an_older_version_is_refused() -> None:
    async with browsing(assorted_hub()) as web:
        call = await web.open_modern(stateless(1, "tools/list"), {"mcp-protocol-version": V2025_11_25}).done()
        assert call.status == 400


@pytest.mark.parametrize(
    "method", ["initialize", "ping", "logging/setLevel", "resources/subscribe", "resources/unsubscribe", "no/such"]
)
@asynchronous
async def test_what_the_newer_era_removed_is_not_found(method: str) -> None:
    params = {
        **initialization()["params"],
        "level": "info",
        "uri": "docs://readme",
    }
    async with browsing(assorted_hub()) as web:
        call = await web.modern(method, params, request_id="r")
        assert (call.status, code(call), call.json["id"]) == (404, -32601, "r")
        assert "mcp-session-id" not in call.headers
        assert len(web.hub.engine.sessions) == 0


@asynchronous
async def test_stateless_requests_ignore_sessions_and_never_mention_them() -> None:
    async with browsing(assorted_hub()) as web:
        visitor = await web.session()
        for session_id in (visitor.id, "unknown"):
            headers = {"mcp-session-id": session_id, "last-event-id": "g_1"}
            call = await web.modern("tools/list", headers=headers)
            assert call.status == 200
            assert "mcp-session-id" not in call.headers


# Stateless requests: the order of checks, and which status an error has.


def mismatched(message: Json, **headers: str | None) -> tuple[Json, Headers]:
    return message, {name.replace("_", "-"): value for name, value in headers.items()}


CALL = stateless("r", "tools/call", ADD)
UNKNOWN_VERSION = stateless("r", "tools/call", ADD, **{PROTOCOL_VERSION: "v999"})
AGREED = {"mcp-protocol-version": "v999"}


def without(key: str) -> Json:
    message = stateless("r", "tools/call", ADD)
    del message["params"]["_meta"][key]
    return message


@pytest.mark.parametrize(
    ("message", "headers", "status", "expected"),
    [
        pytest.param(CALL, {"host": "evil.com", "accept": "x"}, 403, -32600, id="host first"),
        pytest.param(CALL, {"origin": "null", "accept": "x"}, 403, -32600, id="origin first"),
        pytest.param(CALL, {"accept": "application/json", "mcp-method": "x"}, 406, -32600, id="accept"),
        pytest.param(without(PROTOCOL_VERSION), {"mcp-method": "x"}, 400, -32602, id="no version in the envelope"),
        pytest.param(without(CLIENT_CAPABILITIES), {"mcp-method": "x"}, 400, -32602, id="no capabilities"),
        pytest.param(request("r", "tools/call", ADD), {"mcp-name": "x"}, 400, -32602, id="no envelope"),
        pytest.param(request("r", "tools/list"), {}, 400, -32602, id="no params"),
        pytest.param(CALL, {"mcp-protocol-version": "v999"}, 400, -32020, id="version header differs"),
        pytest.param(UNKNOWN_VERSION, {"mcp-protocol-version": V2026_07_28}, 400, -32020, id="version body differs"),
        pytest.param(CALL, {"mcp-method": None}, 400, -32020, id="no method header"),
        pytest.param(CALL, {"mcp-method": "tools/list"}, 400, -32020, id="method header differs"),
        pytest.param(CALL, {"mcp-method": "Tools/Call"}, 400, -32020, id="method header in other case"),
        pytest.param(CALL, {"mcp-name": None}, 400, -32020, id="no name header"),
        pytest.param(CALL, {"mcp-name": "deploy"}, 400, -32020, id="name header differs"),
        pytest.param(CALL, {"mcp-name": "=?base64?YWRk?"}, 400, -32020, id="name header with half a marker"),
        pytest.param(CALL, {"mcp-name": "=?base64?YWR?="}, 400, -32020, id="name header with bad padding"),
        pytest.param(UNKNOWN_VERSION, {**AGREED, "mcp-method": "x"}, 400, -32020, id="method before version"),
        pytest.param(UNKNOWN_VERSION, {**AGREED, "mcp-name": "x"}, 400, -32020, id="name before version"),
        pytest.param(UNKNOWN_VERSION, AGREED, 400, -32022, id="version unsupported"),
        pytest.param(stateless("r", "no/such"), {"mcp-method": "x"}, 400, -32020, id="headers before existence"),
        pytest.param(stateless("r", "no/such"), {}, 404, -32601, id="unknown method"),
        pytest.param(stateless("r", "tools/call", {"arguments": {}}), {}, 400, -32602, id="bad params"),
        pytest.param(stateless("r", "tools/call", {"name": "nobody"}), {}, 400, -32602, id="unknown tool"),
        pytest.param(stateless("r", "prompts/get", {"name": "nobody"}), {}, 400, -32602, id="unknown prompt"),
        pytest.param(stateless("r", "resources/read", {"uri": "a://x"}), {}, 400, -32602, id="unknown resource"),
        pytest.param(stateless("r", "tools/list", {"cursor": "bad"}), {}, 400, -32602, id="bad cursor"),
        pytest.param(
            stateless("r", "tools/list", **{"io.modelcontextprotocol/logLevel": "loud"}),
            {},
            400,
            -32602,
            id="bad level",
        ),
        pytest.param(CALL, {}, 200, 0, id="nothing wrong"),
        pytest.param(CALL, {"mcp-name": "  add ", "mcp-method": "\ttools/call"}, 200, 0, id="space around values"),
        pytest.param(CALL, {"mcp-name": "=?base64?YWRk?="}, 200, 0, id="name in base64"),
    ],
)
@asynchronous
async def test_a_stateless_request_is_checked_in_order(
    message: Json, headers: Headers, status: int, expected: int
) -> None:
    usual = routing(CALL) | {"mcp-method": message["method"]}
    if message["method"] != "tools/call":
        given = message.get("params", {})
        usual["mcp-name"] = given.get("name") or given.get("uri")
    elif "name" in message["params"]:
        usual["mcp-name"] = message["params"]["name"]
    async with browsing(assorted_hub()) as web:
        call = await web.post(message, {**usual, **headers})
        assert call.status == status
        if expected:
            assert code(call) == expected
        assert call.json["id"] == (None if status in (403, 406) else "r")
        assert not call.is_stream


@pytest.mark.parametrize("name", ["mcp-protocol-version", "mcp-method", "mcp-name", "mcp-param-region"])
@pytest.mark.parametrize("second", ["same", "other"])
@asynchronous
async def test_a_routing_header_given_twice_is_a_mismatch(name: str, second: str) -> None:
    message = stateless("r", "tools/call", {"name": "deploy", "arguments": {"region": "eu"}})
    headers = {"host": "localhost", "accept": BOTH, "content-type": "application/json", "mcp-param-region": "eu"}
    headers |= {key: value for key, value in routing(message).items() if value is not None}
    doubled = [*headers.items(), (name, headers[name] if second == "same" else "other")]
    async with browsing(assorted_hub()) as web:
        call = await web.open("POST", json.dumps(message).encode(), doubled).done()
        assert (call.status, code(call), call.json["id"]) == (400, -32020, "r")


@asynchronous
async def test_two_headers_do_not_add_up_to_one_argument() -> None:
    message = stateless("r", "tools/call", {"name": "deploy", "arguments": {"region": "eu, us"}})
    headers = {"host": "localhost", "accept": BOTH, "content-type": "application/json"}
    headers |= {key: value for key, value in routing(message).items() if value is not None}
    doubled = [*headers.items(), ("mcp-param-region", "eu"), ("mcp-param-region", "us")]
    async with browsing(assorted_hub()) as web:
        call = await web.open("POST", json.dumps(message).encode(), doubled).done()
        assert (call.status, code(call)) == (400, -32020)


@asynchronous
async def test_a_missing_envelope_is_found_before_a_repeated_header() -> None:
    message = request("r", "tools/list", {})
    pairs = [("host", "localhost"), ("content-type", "application/json"), ("mcp-protocol-version", V2026_07_28)]
    pairs += [("mcp-method", "tools/list")] * 2
    async with browsing(assorted_hub()) as web:
        call = await web.open("POST", json.dumps(message).encode(), pairs).done()
        assert (call.status, code(call)) == (400, -32602)


@pytest.mark.parametrize(
    ("arguments", "headers", "status"),
    [
        ({"region": "eu"}, {"mcp-param-region": "eu"}, 200),
        ({"region": "eu"}, {"Mcp-Param-Region": "=?base64?ZXU=?="}, 200),
        ({"region": "eu"}, {}, 400),
        ({}, {"mcp-param-region": "eu"}, 400),
        ({"region": "eu"}, {"mcp-param-region": "us"}, 400),
        ({"size": 42}, {"mcp-param-size": "42.0"}, 200),
        ({"dry": True}, {"mcp-param-dry": "true"}, 200),
        ({"dry": True}, {"mcp-param-dry": "TRUE"}, 400),
        ({"place": {"city": "Bern"}}, {"mcp-param-city": "Bern"}, 200),
        ({"place": {"city": "Bern"}}, {}, 400),
        ({}, {"mcp-param-unknown": "x"}, 200),
    ],
)
@asynchronous
async def test_parameter_headers_agree_with_the_arguments(arguments: Json, headers: Headers, status: int) -> None:
    async with browsing(assorted_hub()) as web:
        call = await web.modern("tools/call", {"name": "deploy", "arguments": arguments}, headers)
        assert call.status == status
        if status == 400:
            assert code(call) == -32020


@asynchronous
async def test_sessions_need_no_parameter_headers() -> None:
    async with browsing(assorted_hub()) as web:
        visitor = await web.session()
        answer = await visitor.ask("tools/call", {"name": "deploy", "arguments": {"region": "eu"}})
        assert answer["result"]["content"][0]["text"] == '{"region": "eu"}'


@pytest.mark.parametrize("body", [[CALL], [], {"jsonrpc": "2.0", "id": 1, "result": {}}])
@asynchronous
async def test_only_one_request_or_notification_may_be_posted(body: Any) -> None:
    async with browsing(assorted_hub()) as web:
        call = await web.post(body, routing(CALL))
        assert (call.status, code(call)) == (400, -32600)


@asynchronous
async def test_a_posted_cancellation_cancels_nothing() -> None:
    hub = Hub("hub", version="1")
    entered, release = asyncio.Event(), asyncio.Event()

    @hub.tool
    async def wait() -> str:
        """Wait."""
        entered.set()
        await release.wait()
        return "waited"

    async with browsing(hub) as web:
        call = web.open_modern(stateless(1, "tools/call", {"name": "wait"}))
        await entered.wait()
        posted = await web.post(cancelled(1), {"mcp-protocol-version": V2026_07_28})
        assert (posted.status, posted.body) == (202, b"")
        release.set()
        assert "result" in (await call.done()).messages()[-1]


@asynchronous
async def test_an_internal_error_is_told_without_details_and_is_no_server_error() -> None:
    hub = assorted_hub()

    @hub.on("list_tools")
    def crash(cursor: str | None, ctx: Context) -> list[Any]:
        raise RuntimeError("password=hunter2")

    async with browsing(hub) as web:
        call = await web.modern("tools/list")
        assert (call.status, code(call)) == (200, -32603)
        assert b"hunter2" not in call.body


@asynchronous
async def test_a_failing_tool_is_a_result() -> None:
    async with browsing(assorted_hub()) as web:
        call = await web.modern("tools/call", {"name": "add", "arguments": {}})
        assert call.status == 200
        assert call.json["result"]["isError"] is True


# Listen streams.


def listening(web: Web, request_id: RequestId = 7, **wants: Any) -> Call:
    return web.open_modern(stateless(request_id, "subscriptions/listen", {"notifications": wants}))


@asynchronous
async def test_a_listen_stream_is_acknowledged_first_and_tags_what_follows() -> None:
    hub = assorted_hub()
    async with browsing(hub) as web:
        call = listening(web, 7, toolsListChanged=True, resourceSubscriptions=["docs://readme"])
        first = await call.event()
        assert call.headers["content-type"] == EVENTS
        assert call.headers["cache-control"] == "no-cache, no-transform"
        assert call.headers["x-accel-buffering"] == "no"
        assert first.message["method"] == "notifications/subscriptions/acknowledged"
        await hub.notify_changed("tools")
        await hub.notify_changed("prompts")
        await hub.notify_resource_updated("docs://readme")
        seen = [first, await call.event(), await call.event()]
        assert [event.message["params"]["_meta"] for event in seen] == [
            {"io.modelcontextprotocol/subscriptionId": 7}
        ] * 3
        assert [event.message["method"] for event in seen[1:]] == [
            "notifications/tools/list_changed",
            "notifications/resources/updated",
        ]
        assert all(event.id is None and event.retry is None for event in seen)


@asynchronous
async def test_several_listen_streams_live_side_by_side_and_end_on_their_own() -> None:
    hub = assorted_hub()
    async with browsing(hub) as web:
        first, second = listening(web, 7, toolsListChanged=True), listening(web, "7", toolsListChanged=True)
        await first.event()
        await second.event()
        assert len(hub.engine.broadcast) == 2
        await first.disconnect()
        assert len(hub.engine.broadcast) == 1
        await hub.notify_changed("tools")
        assert (await second.event()).message["params"]["_meta"] == {"io.modelcontextprotocol/subscriptionId": "7"}


@asynchronous
async def test_a_listen_stream_needs_a_client_that_accepts_events() -> None:
    message = stateless(1, "subscriptions/listen", {"notifications": {}})
    async with browsing(assorted_hub()) as web:
        call = await web.open_modern(message, {"accept": "application/json"}).done()
        assert call.status == 406


# The session's own stream, and coming back to any.


@asynchronous
async def test_what_belongs_to_no_request_comes_on_the_sessions_stream() -> None:
    hub = assorted_hub()
    async with browsing(hub) as web:
        visitor, other = await web.session(), await web.session()
        await visitor.ask("resources/subscribe", {"uri": "docs://readme"})
        stream, others = visitor.listen(), other.listen()
        await stream.started()
        await others.started()
        await hub.notify_resource_updated("docs://readme")
        await hub.notify_changed("tools")
        told = [await stream.event(), await stream.event()]
        assert [event.message["method"] for event in told] == [
            "notifications/resources/updated",
            "notifications/tools/list_changed",
        ]
        assert all(event.event == "message" and event.id for event in told)
        assert (await others.event()).message["method"] == "notifications/tools/list_changed"


@asynchronous
async def test_what_happened_before_the_stream_was_opened_is_told_then() -> None:
    hub = assorted_hub()
    async with browsing(hub) as web:
        visitor = await web.session()
        await hub.notify_changed("tools")
        assert (await visitor.listen().event()).message["method"] == "notifications/tools/list_changed"


@asynchronous
async def test_a_second_stream_of_a_session_is_a_conflict_until_the_first_is_gone() -> None:
    async with browsing(assorted_hub()) as web:
        visitor = await web.session()
        first = await visitor.listen().started()
        assert (await visitor.listen().done()).status == 409
        await first.disconnect()
        assert (await visitor.listen().started()).status == 200


@asynchronous
async def test_a_stream_taken_up_again_replays_only_what_came_after() -> None:
    hub = assorted_hub()
    async with browsing(hub) as web:
        visitor = await web.session()
        first = visitor.listen()
        for kind in ("tools", "prompts", "resources"):
            await hub.notify_changed(kind)
        seen = [await first.event() for _ in range(3)]
        await first.disconnect()
        await hub.notify_changed("tools")
        again = visitor.listen(seen[0].id)
        told = [await again.event() for _ in range(3)]
        assert [event.message["method"].split("/")[1] for event in told] == ["prompts", "resources", "tools"]
        assert [event.id for event in told[:2]] == [event.id for event in seen[1:]]


@asynchronous
async def test_taking_up_a_stream_never_shows_another() -> None:
    hub = assorted_hub()
    chatter = {"name": "chatter", "arguments": {"levels": ["error", "alert"]}}
    async with browsing(hub) as web:
        visitor, other = await web.session(), await web.session()
        call = await visitor.post(request("mine", "tools/call", chatter))
        second = await visitor.post(request("later", "tools/call", chatter))
        await other.post(request("foreign", "tools/call", chatter))
        await hub.notify_changed("tools")
        primed = call.events()[0]
        again = await visitor.listen(primed.id).done()
        assert again.messages() == call.messages()
        assert again.messages()[-1]["id"] == "mine"
        ids = [event.id for event in call.events() + second.events()]
        assert len(set(ids)) == len(ids)


@pytest.mark.parametrize(
    "event_id", ["", "x", "g", "g_", "g_x", "s99_0", "_1", "g_-1", "g_1.5", "g_²", "g_99", "g_" + "9" * 5000]
)
@asynchronous
async def test_an_event_id_that_was_never_given_is_a_bad_request(event_id: str) -> None:
    async with browsing(assorted_hub()) as web:
        visitor = await web.session()
        call = visitor.listen(event_id)
        await call.started()
        assert call.status == 400
        await call.done()


@asynchronous
async def test_a_session_whose_reader_fell_behind_can_open_its_stream_again() -> None:
    hub = assorted_hub()
    async with browsing(hub) as web:
        visitor = await web.session()
        session = hub.engine.sessions.get(visitor.id)
        assert session is not None
        reader = session.general.follow(0)
        await hub.notify_changed("tools")
        assert await anext(reader) is not None
        for _ in range(3000):
            await hub.notify_changed("tools")
        assert [event async for event in reader] == []
        again = visitor.listen()
        await again.started()
        await hub.notify_changed("prompts")
        await again.until(lambda: b"prompts/list_changed" in again.body)


# Whatever is sent, the answer is JSON-RPC and the fault is the sender's.


MESSAGES: list[Any] = [
    initialization(),
    request(1, "ping"),
    request(2, "tools/call", ADD),
    request(3, "tools/call", {"name": "count", "arguments": {"values": [1]}, "_meta": {"progressToken": 1}}),
    stateless(4, "tools/call", ADD),
    stateless(5, "tools/call", {"name": "deploy", "arguments": {"region": "eu"}}),
    stateless(6, "subscriptions/listen", {"notifications": {"toolsListChanged": True}}),
    stateless(7, "server/discover"),
    notification("notifications/initialized"),
    [request(8, "ping"), request(9, "tools/list")],
]
VALUES = st.one_of(
    st.sampled_from(["", "add", "tools/call", "tools/list", "=?base64?!?=", "=?base64?YWRk?=", "\xff", "g_0", "s1_0"]),
    st.text(st.characters(min_codepoint=32, max_codepoint=255), max_size=12),
)
HEADERS = st.fixed_dictionaries(
    {},
    optional={
        "mcp-protocol-version": st.one_of(st.sampled_from([*LEGACY, V2026_07_28]), VALUES),
        "mcp-method": VALUES,
        "mcp-name": VALUES,
        "mcp-param-region": VALUES,
        "mcp-session-id": st.one_of(st.just("mine"), VALUES),
        "last-event-id": VALUES,
        "accept": st.one_of(st.sampled_from([BOTH, EVENTS, "*/*"]), VALUES),
        "content-type": st.one_of(st.just("application/json"), VALUES),
        "origin": st.one_of(st.sampled_from(["http://localhost", "null", "http://["]), VALUES),
    },
)
VERBS = st.sampled_from(["POST", "POST", "POST", "POST", "GET", "DELETE", "PUT"])


@settings(max_examples=200, deadline=None)
@given(hostile_bytes(MESSAGES), HEADERS, VERBS, st.sampled_from([V2025_03_26, V2025_06_18, LATEST_LEGACY]))
def test_whatever_is_sent_the_answer_is_json_rpc_and_never_a_server_error(
    body: bytes, headers: dict[str, str], verb: str, version: str
) -> None:
    @asynchronous
    async def scenario() -> None:
        async with browsing(assorted_hub()) as web:
            visitor = await web.session(version)
            if headers.get("mcp-session-id") == "mine":
                headers["mcp-session-id"] = visitor.id
            call = web.open(verb, body, headers)
            await call.until(lambda: call.complete or (call.is_stream and bool(call.body or verb == "GET")))
            await idle()
            assert 200 <= call.status < 500
            for message in call.messages():
                assert_on_the_wire(message)
            assert call.status != 202 or not call.body

    scenario()
