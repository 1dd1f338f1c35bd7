"""The example of the page about operations."""

from __future__ import annotations

from tests.docs.exercises import names, of, refusal
from waypost import Hub
from waypost.testing import TestClient


@of("operating.py")
async def exercise_operating(client: TestClient, hub: Hub) -> None:
    assert await names(client) == ["count", "discard", "ship"]
    assert (await client.call_tool("count", {"item": "cup"})).text == "3"
    denied = await refusal(client.call_tool("ship", {"item": "cup"}))
    assert denied[:2] == (-32000, "permission 'ship' is not granted to anonymous")
    blocked = await refusal(client.call_tool("discard", {"item": "cup"}))
    assert blocked[:2] == (-32000, "MCP restriction: tool 'discard' blocked by pattern 'discard'")
    assert hub.guard.audit is not None
    await hub.guard.audit.written()
    assert [entry.capability for entry in await hub.store.audit.latest(3)] == ["discard", "ship", "count"]
