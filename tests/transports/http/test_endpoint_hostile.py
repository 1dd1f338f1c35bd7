"""Any request gets a JSON-RPC response and never a server error."""

from typing import Any

from hypothesis import given, settings
from hypothesis import strategies as st

from tests.protocol.conftest import (
    assert_on_the_wire,
    assorted_hub,
    asynchronous,
    idle,
    initialization,
    notification,
    request,
    stateless,
)
from tests.protocol.hostile import hostile_bytes
from tests.transports.http.conftest import ADD, BOTH, EVENTS, browsing
from waypost.wire.versions import LATEST_LEGACY, LEGACY, V2025_03_26, V2025_06_18, V2026_07_28

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
def test_any_request_gets_a_json_rpc_response_and_never_a_server_error(
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
