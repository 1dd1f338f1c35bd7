import asyncio
from typing import Any

import pytest

from tests.protocol.conftest import (
    CLIENT,
    Json,
    assorted_hub,
    asynchronous,
    connected,
    idle,
    in_session,
    initialization,
    notification,
    request,
)
from waypost import Context, Hub
from waypost.wire.params import LOG_LEVELS
from waypost.wire.versions import LATEST_LEGACY, LEGACY, V2024_11_05, V2025_06_18, V2025_11_25, V2026_07_28


@pytest.mark.parametrize(
    ("requested", "agreed"),
    [
        *((version, version) for version in LEGACY),
        (V2026_07_28, LATEST_LEGACY),
        ("2023-01-01", LATEST_LEGACY),
        ("2099-01-01", LATEST_LEGACY),
        ("", LATEST_LEGACY),
        ("v999", LATEST_LEGACY),
    ],
)
@asynchronous
async def test_an_unknown_version_is_answered_with_the_newest_session_version(requested: str, agreed: str) -> None:
    async with connected(assorted_hub()) as peer:
        assert (await peer.result(initialization(requested)))["protocolVersion"] == agreed


@asynchronous
async def test_the_initialize_result_has_server_info_and_instructions() -> None:
    hub = Hub("hub", version="1.2", title="The hub", description="Does things", instructions="Ask nicely.")
    async with connected(hub) as peer:
        welcome = await peer.result(initialization())
        assert welcome == {
            "protocolVersion": V2025_11_25,
            "capabilities": hub.engine.profile.capabilities(),
            "serverInfo": {"name": "hub", "version": "1.2", "title": "The hub", "description": "Does things"},
            "instructions": "Ask nicely.",
        }


@pytest.mark.parametrize(
    ("version", "known"),
    [
        (V2024_11_05, {"name", "version"}),
        ("2025-03-26", {"name", "version"}),
        (V2025_06_18, {"name", "version", "title"}),
        (V2025_11_25, {"name", "version", "title", "description", "websiteUrl", "icons"}),
    ],
)
@asynchronous
async def test_older_clients_get_only_the_server_info_fields_of_their_version(version: str, known: set[str]) -> None:
    hub = Hub(
        "hub", version="1", title="T", description="D", website_url="https://example.com", icons=[{"src": "x.png"}]
    )
    async with connected(hub) as peer:
        assert (await peer.result(initialization(version)))["serverInfo"].keys() == known


@pytest.mark.parametrize("version", LEGACY)
@asynchronous
async def test_completions_are_declared_from_the_version_that_supports_them(version: str) -> None:
    async with connected(assorted_hub()) as peer:
        capabilities = (await peer.result(initialization(version)))["capabilities"]
        assert ("completions" in capabilities) == (version != V2024_11_05)


@pytest.mark.parametrize("missing", ["protocolVersion", "capabilities", "clientInfo"])
@asynchronous
async def test_an_incomplete_initialize_opens_no_session(missing: str) -> None:
    message = initialization()
    del message["params"][missing]
    async with connected(assorted_hub()) as peer:
        assert (await peer.error(message))["code"] == -32602
        assert len(peer.hub.engine.sessions) == 0
        assert (await peer.error(request(1, "tools/list")))["message"] == "Server not initialized"


@asynchronous
async def test_the_session_limit_refuses_with_its_number() -> None:
    hub = assorted_hub(max_sessions=2)
    async with in_session(hub), in_session(hub), connected(hub) as third:
        error = await third.error(initialization())
        assert error["code"] == -32000
        assert "2 sessions" in error["message"]


@asynchronous
async def test_a_handler_can_read_its_session_and_client() -> None:
    hub = Hub("hub", version="1")
    seen: list[Any] = []

    @hub.tool
    async def look(ctx: Context) -> str:
        """Look around."""
        assert ctx.client_info is not None
        seen.append((ctx.request_id, ctx.client_info.name, ctx.session.id, dict(ctx.session.assigns)))
        await ctx.session.put("count", len(seen))
        return "seen"

    async with in_session(hub) as first, in_session(hub) as second:
        call: Json = {"name": "look", "arguments": {}}
        await first.result(request("a", "tools/call", call))
        await first.result(request("b", "tools/call", call))
        await second.result(request("c", "tools/call", call))
    assert [(request_id, name, assigns) for request_id, name, _, assigns in seen] == [
        ("a", CLIENT["name"], {}),
        ("b", CLIENT["name"], {"count": 1}),
        ("c", CLIENT["name"], {}),
    ]
    assert seen[0][2] == seen[1][2] != seen[2][2]


@asynchronous
async def test_the_default_log_level_of_a_session_is_info() -> None:
    async with in_session(assorted_hub()) as peer:
        await peer.result(request(1, "tools/call", {"name": "chatter", "arguments": {"levels": LOG_LEVELS}}))
        assert tuple(params["level"] for params in peer.notifications("notifications/message")) == LOG_LEVELS[1:]


@pytest.mark.parametrize("level", LOG_LEVELS)
@asynchronous
async def test_the_log_level_of_a_session_does_not_affect_other_sessions(level: str) -> None:
    hub = assorted_hub()
    message = request(2, "tools/call", {"name": "chatter", "arguments": {"levels": LOG_LEVELS}})
    async with in_session(hub) as peer, in_session(hub) as other:
        assert await peer.result(request(1, "logging/setLevel", {"level": level})) == {}
        await peer.result(message)
        await other.result(message)
        heard = tuple(params["level"] for params in peer.notifications("notifications/message"))
        assert heard == LOG_LEVELS[LOG_LEVELS.index(level) :]
        assert len(other.notifications("notifications/message")) == len(LOG_LEVELS) - 1


@pytest.mark.parametrize("task", [{}, {"task": {}}], ids=["a call", "a task"])
@asynchronous
async def test_a_changed_log_level_applies_to_running_calls(task: Json) -> None:
    hub, gate = Hub("talkative", version="1"), asyncio.Event()

    @hub.tool(task="optional")
    async def report(ctx: Context) -> str:
        """Talk, wait, and talk on."""
        await ctx.log("info", "before")
        await gate.wait()
        await ctx.log("info", "after")
        await ctx.log("error", "the end")
        return "said"

    async with in_session(hub) as peer:
        peer.send(request(1, "tools/call", {"name": "report", "arguments": {}, **task}))
        await peer.hears("notifications/message")
        await peer.result(request(2, "logging/setLevel", {"level": "error"}))
        gate.set()
        heard = await peer.hears("notifications/message", times=2)
        assert [params["data"] for params in heard] == ["before", "the end"]


@pytest.mark.parametrize("params", [{"level": "loud"}, {"level": ""}, {"level": 3}, {}, None])
@asynchronous
async def test_an_invalid_log_level_is_refused(params: Json | None) -> None:
    async with in_session(assorted_hub()) as peer:
        assert (await peer.error(request(1, "logging/setLevel", params)))["code"] == -32602


@pytest.mark.parametrize("token", [7, "7"])
@asynchronous
async def test_progress_is_sent_before_the_response_with_its_token(token: int | str) -> None:
    async with in_session(assorted_hub()) as peer:
        arguments = {"values": [0, 50, 50, 100]}
        params = {"name": "count", "arguments": arguments, "_meta": {"progressToken": token}}
        peer.received.clear()
        await peer.result(request(1, "tools/call", params))
        assert [message.get("method") for message in peer.received] == ["notifications/progress"] * 3 + [None]
        assert peer.notifications("notifications/progress") == [
            {"progressToken": token, "progress": value, "total": 100, "message": "going"} for value in (0, 50, 100)
        ]


@pytest.mark.parametrize("method", ["no/such/method", "server/discover", "subscriptions/listen", "tasks/nothing", ""])
@asynchronous
async def test_unknown_methods_and_those_of_the_other_era_do_not_exist_in_a_session(method: str) -> None:
    async with in_session(assorted_hub()) as peer:
        assert (await peer.error(request(1, method, {})))["code"] == -32601


@pytest.mark.parametrize(
    ("method", "params"),
    [
        ("tools/call", None),
        ("tools/call", {}),
        ("tools/call", {"name": 7}),
        ("tools/call", {"name": "add", "arguments": []}),
        ("tools/list", {"cursor": 7}),
        ("resources/read", {"uri": None}),
        ("prompts/get", {"name": "greet", "arguments": "x"}),
        ("tools/list", {"_meta": 7}),
        ("tools/list", {"_meta": {"progressToken": 1.5}}),
    ],
)
@asynchronous
async def test_invalid_parameters_are_refused(method: str, params: Json | None) -> None:
    async with in_session(assorted_hub()) as peer:
        assert (await peer.error(request(1, method, params)))["code"] == -32602


@pytest.mark.parametrize("params", [[], "text", 7, None])
@asynchronous
async def test_parameters_that_are_not_an_object_are_refused(params: Any) -> None:
    async with in_session(assorted_hub()) as peer:
        error = await peer.error({"jsonrpc": "2.0", "id": 1, "method": "tools/list", "params": params})
        assert error["code"] == -32602


@asynchronous
async def test_subscribing_requires_the_subscribe_capability() -> None:
    hub = Hub("hub", version="1")

    @hub.resource("a://x")
    def fixed() -> str:
        return "x"

    async with in_session(hub) as peer:
        for method in ("resources/subscribe", "resources/unsubscribe"):
            assert (await peer.error(request(method, method, {"uri": "a://x"})))["code"] == -32601


@asynchronous
async def test_a_hub_without_session_versions_names_its_supported_versions() -> None:
    hub = assorted_hub()
    hub.engine.profile.legacy_versions = ()
    async with connected(hub) as peer:
        error = await peer.error(initialization())
        assert error["code"] == -32601
        assert V2026_07_28 in error["message"]


@asynchronous
async def test_messages_pushed_by_a_handler_reach_its_own_session_only() -> None:
    hub = Hub("hub", version="1")

    @hub.tool
    async def push(ctx: Context) -> str:
        """Push."""
        await ctx.session.notify_changed("tools")
        await ctx.session.send_log("error", "mine")
        await ctx.session.send_log("debug", "unwanted")
        await ctx.session.send_resource_updated("a://unsubscribed")
        return "pushed"

    async with in_session(hub) as mine, in_session(hub) as other:
        await mine.result(request(1, "tools/call", {"name": "push", "arguments": {}}))
        await idle()
        assert len(mine.notifications("notifications/tools/list_changed")) == 1
        assert mine.notifications("notifications/message") == [{"level": "error", "data": "mine"}]
        assert mine.notifications("notifications/resources/updated") == []
        assert [message for message in other.received if "method" in message] == []


@asynchronous
async def test_requests_are_served_without_the_initialized_notification() -> None:
    async with connected(assorted_hub()) as peer:
        await peer.result(initialization())
        assert await peer.result(request(1, "ping")) == {}
        peer.send(notification("notifications/initialized"))
        assert "tools" in await peer.result(request(2, "tools/list"))
