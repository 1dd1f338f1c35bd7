from typing import Any

import pytest

from tests.protocol.conftest import asynchronous, connected, idle, in_session, initialization, request, stateless
from waypost import Context, Hub
from waypost.wire.params import LOG_LEVEL
from waypost.wire.versions import ALL


def plain_hub(**options: Any) -> Hub:
    return Hub("plain", version="1", **options)


def test_an_empty_hub_declares_tools_and_logging_only() -> None:
    assert plain_hub().engine.profile.capabilities() == {"logging": {}, "tools": {"listChanged": True}}


def test_declared_capabilities_follow_the_registry() -> None:
    hub = plain_hub()

    @hub.prompt
    def greet(name: str) -> str:
        return name

    assert hub.engine.profile.capabilities() == {
        "logging": {},
        "tools": {"listChanged": True},
        "prompts": {"listChanged": True},
        "completions": {},
    }

    @hub.resource("a://x")
    def fixed() -> str:
        return "x"

    assert hub.engine.profile.capabilities()["resources"] == {"listChanged": True}
    assert not hub.engine.profile.offers_subscriptions

    @hub.resource("a://y", subscribable=True)
    def living() -> str:
        return "y"

    assert hub.engine.profile.capabilities()["resources"] == {"listChanged": True, "subscribe": True}
    assert hub.engine.profile.offers_subscriptions


def test_configured_capabilities_are_declared_unchanged() -> None:
    given: dict[str, Any] = {"tools": {}, "resources": {"subscribe": True}}
    engine = plain_hub(capabilities=given).engine
    assert engine.profile.capabilities() == given
    assert engine.profile.offers("tools")
    assert not engine.profile.offers("prompts")
    assert not engine.profile.offers_list_changed("tools")
    assert engine.profile.offers_subscriptions


@pytest.mark.parametrize(
    ("method", "params"),
    [
        ("prompts/list", {}),
        ("prompts/get", {"name": "x"}),
        ("resources/list", {}),
        ("resources/templates/list", {}),
        ("resources/read", {"uri": "a://x"}),
        ("completion/complete", {"ref": {"type": "ref/prompt", "name": "x"}, "argument": {"name": "a", "value": ""}}),
    ],
)
@asynchronous
async def test_methods_of_a_capability_that_is_not_offered_do_not_exist(method: str, params: dict[str, Any]) -> None:
    async with in_session(plain_hub()) as peer:
        assert (await peer.error(request(1, method, params)))["code"] == -32601
        assert (await peer.error(stateless(2, method, params)))["code"] == -32601


@pytest.mark.parametrize("method", ["tools/list", "logging/setLevel"])
@asynchronous
async def test_methods_of_a_capability_that_is_not_configured_do_not_exist(method: str) -> None:
    async with in_session(plain_hub(capabilities={"prompts": {}})) as peer:
        assert (await peer.error(request(1, method, {"level": "info"})))["code"] == -32601


@pytest.mark.parametrize("capabilities", [{"tools": {}}, {"tools": {}, "logging": {}}])
@asynchronous
async def test_log_messages_go_out_only_where_logging_is_declared(capabilities: dict[str, Any]) -> None:
    hub = plain_hub(capabilities=capabilities)

    @hub.tool
    async def chat(ctx: Context) -> str:
        await ctx.log("error", "in the call")
        await ctx.session.send_log("error", "beside it")
        return "done"

    async with in_session(hub) as peer:
        await peer.result(request(1, "tools/call", {"name": "chat"}))
        await peer.result(stateless(2, "tools/call", {"name": "chat"}, **{LOG_LEVEL: "debug"}))
        assert len(peer.notifications("notifications/message")) == (4 if "logging" in capabilities else 0)


@asynchronous
async def test_discover_and_initialize_declare_the_same() -> None:
    hub = plain_hub(instructions="Ask nicely.")
    async with connected(hub) as peer:
        discovered = await peer.result(stateless(1, "server/discover"))
        welcome = await peer.result(initialization())
    assert discovered["capabilities"] == welcome["capabilities"]
    assert discovered["instructions"] == welcome["instructions"] == "Ask nicely."
    assert discovered["supportedVersions"] == list(ALL)


@asynchronous
async def test_a_hub_that_was_started_twice_sends_one_notification_per_change() -> None:
    hub = plain_hub()
    async with in_session(hub) as peer:
        await hub.start()
        hub.tool(name="late")(lambda: "x")
        await idle()
        assert len(peer.notifications("notifications/tools/list_changed")) == 1


@asynchronous
async def test_a_stopped_hub_has_no_sessions_and_sends_no_notifications() -> None:
    hub = plain_hub()
    async with in_session(hub) as peer:
        await hub.stop()
        assert len(hub.engine.sessions) == 0
        hub.tool(name="late")(lambda: "x")
        await idle()
        assert peer.notifications("notifications/tools/list_changed") == []
