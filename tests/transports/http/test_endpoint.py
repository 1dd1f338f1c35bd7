"""The response to each request, and the era it belongs to."""

import asyncio
import base64
import gzip
import json
import time
from typing import Any

import pytest

from tests.protocol.conftest import (
    Json,
    assorted_hub,
    asynchronous,
    cancelled,
    initialization,
    notification,
    request,
    stateless,
)
from tests.transports.http.conftest import ADD, BOTH, EVENTS, Call, Headers, browsing, code
from waypost import Hub
from waypost.wire.params import PROTOCOL_VERSION
from waypost.wire.versions import LATEST_LEGACY, LEGACY, V2025_03_26, V2025_11_25, V2026_07_28


def nested(depth: int) -> bytes:
    """A message of a nesting depth, its own braces included."""
    inner = b"[" * (depth - 2) + b"]" * (depth - 2)
    return b'{"jsonrpc":"2.0","id":1,"method":"ping","params":{"x":%b}}' % inner


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
async def test_a_body_that_is_not_a_message_is_400_in_every_era(
    body: bytes, expected: int, version: str | None
) -> None:
    async with browsing(assorted_hub()) as web:
        call = await web.post(body, {"mcp-protocol-version": version})
        assert call.status == 400
        assert code(call) == expected


@pytest.mark.parametrize("version", [None, LATEST_LEGACY, V2026_07_28])
@pytest.mark.parametrize("batch", [False, True])
@asynchronous
async def test_a_compressed_body_is_refused_for_its_coding(version: str | None, batch: bool) -> None:
    async with browsing(assorted_hub()) as web:
        # Begins like a batch, for which bodies are looked at before they are parsed.
        body = b"[\x1f\x8b" if batch else gzip.compress(json.dumps(request(1, "ping")).encode())
        call = await web.post(body, {"mcp-protocol-version": version, "content-encoding": "gzip"})
        assert (call.status, call.headers["accept-encoding"]) == (415, "identity")
        assert call.json["error"]["message"] == "Content-Encoding gzip is not supported; send the body as it is."
        call = await web.post(b"no JSON", {"mcp-protocol-version": version, "content-encoding": "Identity"})
        assert (call.status, code(call)) == (400, -32700)


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
        began = time.thread_time()
        call = await web.post(body, {"mcp-protocol-version": V2026_07_28})
        assert time.thread_time() - began < 1
        assert call.status == 400


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


@pytest.mark.parametrize(("body", "expected"), [(b"[]", -32600), (b"[1,", -32700), (b"[{},", -32700)])
@asynchronous
async def test_a_malformed_batch_is_a_bad_request(body: bytes, expected: int) -> None:
    async with browsing(assorted_hub()) as web:
        visitor = await web.session(V2025_03_26)
        call = await visitor.post(body)
        assert (call.status, code(call)) == (400, expected)


@asynchronous
async def test_an_invalid_message_of_a_batch_is_refused_and_the_rest_is_answered() -> None:
    async with browsing(assorted_hub()) as web:
        visitor = await web.session(V2025_03_26)
        call = await visitor.post(b'[1, {"jsonrpc": "2.0", "id": 7, "method": "ping"}, {"id": 8}]')
        assert call.status == 200
        answers = {answer["id"]: answer.get("error", {}).get("code") for answer in call.json}
        assert answers == {None: -32600, 7: None, 8: -32600}


@asynchronous
async def test_half_a_surrogate_pair_in_a_batch_is_refused_by_its_id_and_the_rest_is_answered() -> None:
    async with browsing(assorted_hub()) as web:
        visitor = await web.session(V2025_03_26)
        torn = b'{"jsonrpc": "2.0", "id": 8, "method": "ping", "params": {"a": "\\ud800"}}'
        call = await visitor.post(b'[%b, {"jsonrpc": "2.0", "id": 7, "method": "ping"}]' % torn)
        assert call.status == 200
        assert {answer["id"]: answer.get("error", {}).get("code") for answer in call.json} == {7: None, 8: -32600}


@pytest.mark.parametrize("version", [V2025_03_26, None])
@asynchronous
async def test_json_that_is_nested_deeper_than_the_setting_is_refused(version: str | None) -> None:
    hub = Hub("shallow", version="1", json_depth=10)

    @hub.tool
    async def echo(value: Any = None) -> str:
        """Say how much came."""
        return "ok"

    def calling(depth: int) -> Json:
        value: Any = 1
        for _ in range(depth):
            value = [value]
        return {"name": "echo", "arguments": {"value": value}}

    async with browsing(hub) as web:
        if version is None:
            good, bad = [await web.modern("tools/call", calling(depth)) for depth in (6, 8)]
        else:
            visitor = await web.session(version)
            good, bad = [await visitor.post(request(1, "tools/call", calling(depth))) for depth in (7, 8)]
            batch = await visitor.post([request(1, "tools/call", calling(8))])
            assert (batch.status, code(batch)) == (400, -32700)
        assert (good.status, bad.status) == (200, 400)
        assert bad.json["error"] == {"code": -32700, "message": "JSON is nested deeper than 10 levels (jsonDepth)."}


@asynchronous
async def test_log_messages_of_a_batch_come_before_its_responses() -> None:
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
async def test_the_error_for_an_unknown_version_lists_the_supported_ones() -> None:
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
async def test_an_envelope_under_the_header_of_an_older_version_is_a_mismatch() -> None:
    async with browsing(assorted_hub()) as web:
        call = await web.open_modern(stateless(1, "tools/list"), {"mcp-protocol-version": V2025_11_25}).done()
        assert (call.status, code(call), call.json["id"]) == (400, -32020, 1)
        assert call.json["error"]["message"] == "The header mcp-protocol-version does not match the body."


@pytest.mark.parametrize(
    "method", ["initialize", "ping", "logging/setLevel", "resources/subscribe", "resources/unsubscribe", "no/such"]
)
@asynchronous
async def test_methods_removed_in_the_stateless_era_are_not_found(method: str) -> None:
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


@pytest.mark.parametrize("is_modern", [False, True])
@asynchronous
async def test_large_requests_are_bounded_in_bytes_until_they_are_answered(is_modern: bool) -> None:
    hub = Hub("hub", version="1.0.0", max_request_bytes=100_000)
    running: list[str] = []
    released = asyncio.Event()

    @hub.tool
    async def hold(text: str) -> int:
        running.append(text)
        await released.wait()
        return len(text)

    def call(size: int) -> Json:
        return {"name": "hold", "arguments": {"text": "x" * size}}

    async with browsing(hub) as web:
        visitor = await web.session()

        def ask(number: int, size: int) -> Call:
            if is_modern:
                return web.open_modern(stateless(number, "tools/call", call(size)))
            return visitor.open(request(number, "tools/call", call(size)))

        held = [ask(1, 60_000), ask(2, 60_000)]
        await held[1].until(lambda: len(running) == 2)
        refused = ask(3, 60_000)
        await refused.task
        assert (refused.status, code(refused), refused.json["id"]) == (503, -32000, 3)
        assert "bytes of large requests are in work (maxRequestBytes)" in refused.json["error"]["message"]
        assert refused.headers["retry-after"] == "1"
        small = ask(4, 10)
        await small.until(lambda: len(running) == 3)
        released.set()
        assert [(await one.done()).status for one in (*held, small)] == [200, 200, 200]
        assert (await ask(5, 60_000).done()).status == 200
