"""The methods of stateless clients only: discover and listen."""

import asyncio
from typing import Any

import pytest

from tests.protocol.conftest import Json, Peer, assorted_hub, asynchronous, cancelled, connected, idle, stateless, until
from waypost.protocol import modern
from waypost.protocol.exchange import Exchange
from waypost.wire import messages
from waypost.wire.params import SERVER_INFO, SUBSCRIPTION_ID
from waypost.wire.versions import ALL, V2026_07_28

ACKNOWLEDGED = "notifications/subscriptions/acknowledged"


@asynchronous
async def test_discover_returns_versions_capabilities_and_server_info() -> None:
    hub = assorted_hub()
    async with connected(hub) as peer:
        result = await peer.result(stateless(1, "server/discover"))
    assert result["supportedVersions"] == list(ALL)
    assert result["capabilities"] == hub.engine.profile.capabilities()
    assert result["instructions"] == "Ask nicely."
    assert result["_meta"][SERVER_INFO] == {"name": "assorted", "version": "1.2.3"}
    assert "serverInfo" not in result


@pytest.mark.parametrize(
    "method",
    [
        "initialize",
        "ping",
        "logging/setLevel",
        "resources/subscribe",
        "resources/unsubscribe",
        "tasks/list",
        "sampling/createMessage",
        "no/such/method",
    ],
)
@asynchronous
async def test_methods_of_the_older_era_do_not_exist(method: str) -> None:
    async with connected(assorted_hub()) as peer:
        error = await peer.error(stateless(1, method, {"uri": "docs://readme", "level": "info"}))
        assert error["code"] == -32601
        assert len(peer.hub.engine.sessions) == 0


async def listen(peer: Peer, request_id: int | str, wants: Json) -> Json:
    heard = len(peer.notifications(ACKNOWLEDGED))
    peer.send(stateless(request_id, "subscriptions/listen", {"notifications": wants}))
    return (await peer.hears(ACKNOWLEDGED, heard + 1))[-1]


EVERYTHING = {
    "toolsListChanged": True,
    "promptsListChanged": True,
    "resourcesListChanged": True,
    "resourceSubscriptions": ["docs://readme"],
}


@pytest.mark.parametrize(
    ("capabilities", "honoured"),
    [
        (None, EVERYTHING),
        ({"tools": {}, "prompts": {}, "resources": {}}, {}),
        ({"tools": {"listChanged": True}}, {"toolsListChanged": True}),
        ({"prompts": {"listChanged": True}, "tools": {"listChanged": False}}, {"promptsListChanged": True}),
        ({"resources": {"subscribe": True}}, {"resourceSubscriptions": ["docs://readme"]}),
        ({"resources": {"listChanged": True}}, {"resourcesListChanged": True}),
    ],
)
@asynchronous
async def test_a_listen_stream_is_acknowledged_with_what_the_server_declares(capabilities: Any, honoured: Json) -> None:
    hub = assorted_hub(capabilities=capabilities)
    async with connected(hub) as peer:
        acknowledged = await listen(peer, "l", EVERYTHING)
        assert acknowledged["notifications"] == honoured
        await hub.notify_changed("tools")
        await hub.notify_changed("prompts")
        await hub.notify_changed("resources")
        await hub.notify_resource_updated("docs://readme")
        await idle()
        assert len(peer.received) == 1 + len(honoured)


@pytest.mark.parametrize(
    "params",
    [
        {},
        {"notifications": None},
        {"notifications": []},
        {"notifications": {"toolsListChanged": "yes"}},
        {"notifications": {"resourceSubscriptions": "docs://readme"}},
        {"notifications": {"resourceSubscriptions": [7]}},
    ],
)
@asynchronous
async def test_an_invalid_listen_request_is_refused(params: Json) -> None:
    async with connected(assorted_hub()) as peer:
        assert (await peer.error(stateless(1, "subscriptions/listen", params)))["code"] == -32602
        assert peer.notifications(ACKNOWLEDGED) == []


@asynchronous
async def test_unknown_kinds_of_notifications_are_ignored() -> None:
    async with connected(assorted_hub()) as peer:
        acknowledged = await listen(peer, 1, {"toolsListChanged": True, "moonPhaseChanged": True})
        assert acknowledged["notifications"] == {"toolsListChanged": True}


@asynchronous
async def test_the_acknowledgement_is_sent_before_notifications() -> None:
    hub = assorted_hub()
    async with connected(hub) as peer:
        peer.send(stateless(1, "subscriptions/listen", {"notifications": {"toolsListChanged": True}}))
        await until(lambda: len(hub.engine.broadcast))
        await hub.notify_changed("tools")
        await peer.hears("notifications/tools/list_changed")
        assert [message["method"] for message in peer.received] == [ACKNOWLEDGED, "notifications/tools/list_changed"]


@asynchronous
async def test_cancelling_ends_only_the_named_stream() -> None:
    hub = assorted_hub()
    async with connected(hub) as peer:
        for request_id in (1, "1", 2):
            await listen(peer, request_id, {"toolsListChanged": True})
        peer.send(cancelled(1))
        await until(lambda: len(hub.engine.broadcast) == 2)
        await hub.notify_changed("tools")
        expected = await peer.hears("notifications/tools/list_changed", 2)
        await idle()
        assert sorted(str(params["_meta"][SUBSCRIPTION_ID]) for params in expected) == ["1", "2"]
        assert len(peer.notifications("notifications/tools/list_changed")) == 2
        assert peer.responses() == []


@asynchronous
async def test_a_listen_stream_that_falls_behind_is_ended() -> None:
    hub = assorted_hub()

    class Stuck:
        def __init__(self) -> None:
            self.taken = 0
            self.go_on = asyncio.Event()

        async def send(self, message: bytes) -> None:
            self.taken += 1
            if self.taken == 2:
                await self.go_on.wait()

        async def close_early(self) -> None:
            raise AssertionError("nobody asked for that")

    await hub.start()
    outlet = Stuck()
    message = messages.parse(
        messages.encode(stateless(1, "subscriptions/listen", {"notifications": {"toolsListChanged": True}}))
    )
    exchange = Exchange(1, V2026_07_28, outlet)
    task = asyncio.create_task(modern.answer(hub.engine, message, exchange))
    await until(lambda: outlet.taken)
    for _ in range(3000):
        await hub.notify_changed("tools")
        if outlet.taken < 2:
            await asyncio.sleep(0)
    outlet.go_on.set()
    outcome = await task
    assert outcome is not None
    assert outcome.code == 0
    assert outlet.taken < 3000
    assert len(hub.engine.broadcast) == 0
    await hub.stop()
