"""Stateless requests: their envelopes, checks and responses."""

from typing import Any

import pytest

from tests.protocol.conftest import CLIENT, Json, assorted_hub, asynchronous, connected, request, stateless
from waypost import Context, Hub
from waypost.errors import HeaderMismatch, InvalidParams, MethodNotFound, ProtocolError, UnsupportedVersion
from waypost.protocol import modern
from waypost.protocol.methods import MODERN
from waypost.wire import messages
from waypost.wire.params import CLIENT_CAPABILITIES, CLIENT_INFO, LOG_LEVEL, LOG_LEVELS, PROTOCOL_VERSION, SERVER_INFO
from waypost.wire.versions import LEGACY, V2026_07_28

CACHEABLE: list[tuple[str, Json]] = [
    ("server/discover", {}),
    ("tools/list", {}),
    ("prompts/list", {}),
    ("resources/list", {}),
    ("resources/templates/list", {}),
    ("resources/read", {"uri": "docs://readme"}),
]
NOT_CACHEABLE: list[tuple[str, Json]] = [
    ("tools/call", {"name": "add", "arguments": {"a": 1, "b": 2}}),
    ("tools/call", {"name": "add", "arguments": {}}),
    ("prompts/get", {"name": "greet", "arguments": {"name": "Ada"}}),
    (
        "completion/complete",
        {"ref": {"type": "ref/prompt", "name": "greet"}, "argument": {"name": "name", "value": ""}},
    ),
]


@pytest.mark.parametrize(("method", "params"), CACHEABLE)
@asynchronous
async def test_cacheable_results_have_a_ttl_and_a_scope(method: str, params: Json) -> None:
    async with connected(assorted_hub()) as peer:
        result = await peer.result(stateless(1, method, params))
    assert result["resultType"] == "complete"
    assert type(result["ttlMs"]) is int
    assert result["ttlMs"] >= 0
    assert result["cacheScope"] in ("public", "private")
    assert result["_meta"][SERVER_INFO]["name"] == "assorted"


@pytest.mark.parametrize(("method", "params"), NOT_CACHEABLE)
@asynchronous
async def test_other_results_have_no_cache_fields(method: str, params: Json) -> None:
    async with connected(assorted_hub()) as peer:
        result = await peer.result(stateless(1, method, params))
    assert result["resultType"] == "complete"
    assert not result.keys() & {"ttlMs", "cacheScope"}
    assert result["_meta"][SERVER_INFO]["name"] == "assorted"


@asynchronous
async def test_all_pages_of_a_list_have_the_same_cache_scope() -> None:
    async with connected(assorted_hub(page_size=1)) as peer:
        first = await peer.result(stateless(1, "tools/list"))
        second = await peer.result(stateless(2, "tools/list", {"cursor": first["nextCursor"]}))
    assert first["cacheScope"] == second["cacheScope"]


@pytest.mark.parametrize("version", [*LEGACY, "v999", "", "2099-01-01"])
@asynchronous
async def test_the_error_for_an_unsupported_version_names_the_supported_ones(version: str) -> None:
    async with connected(assorted_hub()) as peer:
        error = await peer.error(stateless(1, "tools/list", **{PROTOCOL_VERSION: version}))
        discovered = await peer.result(stateless(2, "server/discover"))
    assert error["code"] == -32022
    assert error["data"]["requested"] == version
    assert set(error["data"]["supported"]) <= set(discovered["supportedVersions"])


@pytest.mark.parametrize(
    "meta",
    [
        {PROTOCOL_VERSION: V2026_07_28},
        {PROTOCOL_VERSION: 7, CLIENT_CAPABILITIES: {}},
        {PROTOCOL_VERSION: V2026_07_28, CLIENT_CAPABILITIES: []},
        {PROTOCOL_VERSION: V2026_07_28, CLIENT_CAPABILITIES: None},
        {PROTOCOL_VERSION: V2026_07_28, CLIENT_CAPABILITIES: {}, LOG_LEVEL: "loud"},
        {PROTOCOL_VERSION: V2026_07_28, CLIENT_CAPABILITIES: {}, LOG_LEVEL: 3},
        {PROTOCOL_VERSION: V2026_07_28, CLIENT_CAPABILITIES: {}, "progressToken": 1.5},
    ],
)
@asynchronous
async def test_an_incomplete_or_ill_typed_envelope_is_refused(meta: Json) -> None:
    async with connected(assorted_hub()) as peer:
        assert (await peer.error(request(1, "tools/list", {"_meta": meta})))["code"] == -32602


@asynchronous
async def test_client_info_is_optional_and_passed_to_the_handler() -> None:
    hub = Hub("hub", version="1")
    seen: list[Any] = []

    @hub.tool
    async def look(ctx: Context) -> str:
        """Look around."""
        seen.append(None if ctx.client_info is None else ctx.client_info.name)
        await ctx.session.put("kept", True)
        seen.append(dict(ctx.session.assigns))
        return "seen"

    async with connected(hub) as peer:
        await peer.result(stateless(1, "tools/call", {"name": "look"}))
        await peer.result(stateless(2, "tools/call", {"name": "look"}, **{CLIENT_INFO: CLIENT}))
    assert seen == [None, {"kept": True}, CLIENT["name"], {"kept": True}]


@pytest.mark.parametrize("level", [None, *LOG_LEVELS])
@asynchronous
async def test_a_request_gets_log_messages_only_at_its_log_level(level: str | None) -> None:
    meta = {} if level is None else {LOG_LEVEL: level}
    async with connected(assorted_hub()) as peer:
        arguments = {"levels": LOG_LEVELS}
        await peer.result(stateless(1, "tools/call", {"name": "chatter", "arguments": arguments}, **meta))
        heard = tuple(params["level"] for params in peer.notifications("notifications/message"))
        assert heard == (() if level is None else LOG_LEVELS[LOG_LEVELS.index(level) :])


@asynchronous
async def test_a_log_level_does_not_outlive_its_request() -> None:
    message = {"name": "chatter", "arguments": {"levels": ["error"]}}
    async with connected(assorted_hub()) as peer:
        await peer.result(stateless(1, "tools/call", message, **{LOG_LEVEL: "debug"}))
        await peer.result(stateless(2, "tools/call", message))
        assert len(peer.notifications("notifications/message")) == 1


@pytest.mark.parametrize("token", [7, "7"])
@asynchronous
async def test_progress_is_sent_only_for_requests_with_a_token(token: int | str) -> None:
    params = {"name": "count", "arguments": {"values": [1, 1, 2]}}
    async with connected(assorted_hub()) as peer:
        await peer.result(stateless(1, "tools/call", params, progressToken=token))
        await peer.result(stateless(2, "tools/call", params))
        answer = peer.notifications("notifications/progress")
        assert [(params["progressToken"], params["progress"]) for params in answer] == [(token, 1), (token, 2)]
        assert all(type(params["progressToken"]) is type(token) for params in answer)


def headers(
    version: str = V2026_07_28, method: str = "tools/call", name: str = "deploy", **params: str
) -> dict[bytes, bytes]:
    values = {b"mcp-protocol-version": version, b"mcp-method": method, b"mcp-name": name}
    values |= {b"mcp-param-" + key.encode(): value for key, value in params.items()}
    return {key: value.encode() for key, value in values.items() if value}


def deploying(arguments: Any = None, **changed: Any) -> Json:
    return stateless(1, "tools/call", {"name": "deploy", "arguments": arguments or {"region": "eu"}}, **changed)


NO_META = request(1, "tools/call", {"name": "deploy", "arguments": {"region": "eu"}})


@pytest.mark.parametrize(
    ("message", "given", "error"),
    [
        pytest.param(NO_META, headers(""), InvalidParams, id="envelope before a missing version header"),
        pytest.param(NO_META, headers(), InvalidParams, id="envelope before everything else"),
        pytest.param(deploying(**{PROTOCOL_VERSION: "v999"}), headers(), HeaderMismatch, id="agreement before support"),
        pytest.param(
            deploying(**{PROTOCOL_VERSION: "v999"}), headers("v999"), UnsupportedVersion, id="support when they agree"
        ),
        pytest.param(
            deploying(**{PROTOCOL_VERSION: "v999"}), headers("v999", "x"), HeaderMismatch, id="method before support"
        ),
        pytest.param(
            deploying(**{PROTOCOL_VERSION: "v999"}), headers("v999", name="x"), HeaderMismatch, id="name before support"
        ),
        pytest.param(
            deploying(**{PROTOCOL_VERSION: "v999"}),
            headers("v999", region="us"),
            UnsupportedVersion,
            id="support before parameters",
        ),
        pytest.param(deploying(), headers(region="us"), HeaderMismatch, id="parameters"),
        pytest.param(
            stateless(1, "ping"),
            headers(method="pong", name=""),
            HeaderMismatch,
            id="method header before its existence",
        ),
        pytest.param(stateless(1, "ping"), headers(method="ping", name=""), MethodNotFound, id="existence"),
        pytest.param(
            stateless(1, "tools/call", {"name": "deploy", "arguments": 7}),
            headers(name="x"),
            HeaderMismatch,
            id="name before the other params",
        ),
        pytest.param(
            stateless(1, "tools/call", {"name": "deploy", "arguments": 7}), headers(), InvalidParams, id="params last"
        ),
        pytest.param(
            stateless(1, "tools/list", {"cursor": 7}),
            headers(method="tools/list", name=""),
            InvalidParams,
            id="params of a list",
        ),
    ],
)
def test_checks_come_in_the_order_of_the_protocol(
    message: Json, given: dict[bytes, bytes], error: type[ProtocolError]
) -> None:
    hub = assorted_hub()
    with pytest.raises(ProtocolError) as refused:
        modern.admit(hub.engine, messages.parse(messages.encode(message)), given)
    assert type(refused.value) is error


def test_a_request_that_agrees_with_its_headers_is_admitted() -> None:
    parsed = messages.parse(messages.encode(deploying()))
    method, given = modern.admit(assorted_hub().engine, parsed, headers(region="eu"))
    assert method is MODERN["tools/call"]
    assert given.arguments == {"region": "eu"}


@pytest.mark.parametrize(
    ("message", "expected"),
    [
        (stateless(1, "tools/list"), True),
        (request(1, "tools/list", {"_meta": {PROTOCOL_VERSION: "v999"}}), True),
        (request(1, "tools/list", {"_meta": {CLIENT_CAPABILITIES: {}}}), False),
        (request(1, "tools/list", {"_meta": {"progressToken": 1}}), False),
        (request(1, "tools/list", {PROTOCOL_VERSION: V2026_07_28}), False),
        (request(1, "tools/list", {"note": PROTOCOL_VERSION}), False),
        (request(1, "tools/list", {}), False),
        (request(1, "tools/list"), False),
    ],
)
def test_the_envelope_decides_the_era(message: Json, expected: bool) -> None:
    assert modern.is_modern_request(messages.parse(messages.encode(message))) is expected
