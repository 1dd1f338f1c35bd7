"""Stateless requests: the order of checks, and which status an error has."""

import asyncio
import json
from typing import Any

import pytest

from tests.protocol.conftest import Json, assorted_hub, asynchronous, cancelled, request, stateless
from tests.transports.http.conftest import ADD, BOTH, Headers, browsing, code, routing
from waypost import Context, Hub
from waypost.wire.params import CLIENT_CAPABILITIES, PROTOCOL_VERSION
from waypost.wire.versions import V2025_11_25, V2026_07_28

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
        pytest.param(request("r", "ping"), {"mcp-protocol-version": "1999-01-01"}, 400, -32022, id="unknown era"),
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
        assert call.json["error"]["message"] == f"The header {name} is given more than once."


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


@pytest.mark.parametrize("version", [V2026_07_28, V2025_11_25])
@asynchronous
async def test_a_repeated_version_is_named_as_such_also_without_an_envelope(version: str) -> None:
    pairs = [("host", "localhost"), ("content-type", "application/json"), ("mcp-method", "tools/list")]
    pairs += [("mcp-protocol-version", version)] * 2
    async with browsing(assorted_hub()) as web:
        call = await web.open("POST", json.dumps(request("r", "tools/list", {})).encode(), pairs).done()
        assert (call.status, code(call), call.json["id"]) == (400, -32020, "r")
        assert call.json["error"]["message"] == "The header mcp-protocol-version is given more than once."


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
async def test_an_internal_error_has_no_details_and_status_200() -> None:
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
