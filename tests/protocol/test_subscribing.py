"""Subscribing to resources that the caller may not see, or that are not there."""

from __future__ import annotations

import pytest

from tests.contract.conftest import asynchronous
from waypost import Hub, RemoteError
from waypost.policy.rules import Rule
from waypost.testing import connect
from waypost.wire.versions import V2025_11_25

OPEN, SCOPED, HIDDEN, NOWHERE = "docs://open", "docs://scoped", "docs://hidden", "docs://nowhere"


def shelf() -> Hub:
    """A hub with resources of which not everybody sees every one."""
    rule = Rule(name="hidden", type="mcp_restriction", config={"tool_pattern": HIDDEN}, hide=True)
    hub = Hub("shelf", "1", policies=[rule])
    hub.resource(OPEN, name="open", subscribable=True)(lambda: "x")
    hub.resource(HIDDEN, name="hidden", subscribable=True)(lambda: "x")
    hub.resource(SCOPED, name="scoped", subscribable=True, scopes=["read"])(lambda: "x")
    return hub


@asynchronous
async def test_what_a_token_does_not_reach_is_refused_and_what_is_not_there_may_come() -> None:
    hub = shelf()
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
async def test_a_listener_is_told_of_what_it_may_see() -> None:
    hub = shelf()
    wanted = [HIDDEN, SCOPED, NOWHERE, OPEN]
    async with connect(hub) as client, client.listen(resourceSubscriptions=wanted) as honoured:
        assert honoured == {"resourceSubscriptions": wanted}
        for uri in wanted:
            await hub.notify_resource_updated(uri)
        for uri in (NOWHERE, OPEN):
            await client.assert_notification("resources/updated", uri=uri)
        await client.refute_notification("resources/updated")
    await hub.stop()
