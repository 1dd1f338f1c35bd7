"""Subscribing to resources that the caller may not see, or that do not exist."""

from __future__ import annotations

import pytest

from tests.contract.conftest import asynchronous
from waypost import Hub, RemoteError
from waypost.policy.rules import Rule
from waypost.testing import connect
from waypost.wire.versions import V2025_11_25

OPEN, SCOPED, HIDDEN, NOWHERE = "docs://open", "docs://scoped", "docs://hidden", "docs://nowhere"


def restricted_hub() -> Hub:
    """A hub with an open, a hidden and a scoped resource."""
    rule = Rule(name="hidden", type="mcp_restriction", config={"tool_pattern": HIDDEN}, hide=True)
    hub = Hub("shelf", "1", policies=[rule])
    hub.resource(OPEN, name="open", subscribable=True)(lambda: "x")
    hub.resource(HIDDEN, name="hidden", subscribable=True)(lambda: "x")
    hub.resource(SCOPED, name="scoped", subscribable=True, scopes=["read"])(lambda: "x")
    return hub


@asynchronous
async def test_subscribing_to_a_scoped_resource_is_refused_and_to_an_unknown_one_allowed() -> None:
    hub = restricted_hub()
    async with connect(hub, V2025_11_25) as client:
        with pytest.raises(RemoteError) as caught:
            await client.subscribe(SCOPED)
        assert (caught.value.code, caught.value.data) == (-32000, {"required": ["read"], "granted": []})
        for uri in (NOWHERE, OPEN, HIDDEN):
            await client.subscribe(uri)
        for uri in (HIDDEN, SCOPED, NOWHERE, OPEN):
            await hub.notify_resource_updated(uri)
        for uri in (NOWHERE, OPEN):
            await client.assert_notification("resources/updated", uri=uri)
        await client.refute_notification("resources/updated")
        hub.guard.policy.replace([])
        await hub.notify_resource_updated(HIDDEN)
        await client.assert_notification("resources/updated", uri=HIDDEN)
    await hub.stop()


@asynchronous
async def test_a_listen_stream_gets_updates_only_of_resources_it_may_see() -> None:
    hub = restricted_hub()
    wanted = [HIDDEN, SCOPED, NOWHERE, OPEN]
    async with connect(hub) as client, client.listen(resourceSubscriptions=wanted) as honoured:
        assert honoured == {"resourceSubscriptions": wanted}
        for uri in wanted:
            await hub.notify_resource_updated(uri)
        for uri in (NOWHERE, OPEN):
            await client.assert_notification("resources/updated", uri=uri)
        await client.refute_notification("resources/updated")
    await hub.stop()


@asynchronous
async def test_the_subscriptions_of_a_session_are_bounded_in_bytes() -> None:
    hub = Hub("shelf", "1", max_subscription_bytes=8_192)
    hub.resource(OPEN, name="open", subscribable=True)(lambda: "x")
    long = [f"docs://{number}-{'x' * 2_000}" for number in range(5)]
    async with connect(hub, V2025_11_25) as client:
        for uri in long[:3]:
            await client.subscribe(uri)
        await client.subscribe(long[0])
        with pytest.raises(RemoteError, match=r"maxSubscriptionBytes") as caught:
            await client.subscribe(long[3])
        assert caught.value.code == -32602
        await client.request("resources/unsubscribe", {"uri": long[0]})
        await client.subscribe(long[4])


@asynchronous
async def test_a_listen_stream_has_the_subscription_limit_of_a_session() -> None:
    hub = Hub("shelf", "1", max_subscription_bytes=8_192)
    hub.resource(OPEN, name="open", subscribable=True)(lambda: "x")
    uris = [f"docs://{number}" for number in range(1_000)]
    async with connect(hub) as client:
        for wanted in ({"resourceSubscriptions": uris}, {"taskIds": uris}):
            with pytest.raises(RemoteError, match=r"maxSubscriptionBytes"):
                await client.request("subscriptions/listen", {"notifications": wanted})
        with pytest.raises(RemoteError, match=r"10000 resources and tasks"):
            await client.request("subscriptions/listen", {"notifications": {"taskIds": ["x"] * 10_001}})
