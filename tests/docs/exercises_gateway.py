"""The examples of the gateway, used like an agent: from home, by links."""

from __future__ import annotations

from tests.docs.exercises import names, of
from tests.docs.exercises_workflows import call
from waypost import Hub
from waypost.capabilities.capability import GATEWAY_TOOLS
from waypost.testing import TestClient


@of("gateway.yaml")
async def exercise_gateway(client: TestClient, _hub: Hub) -> None:
    assert await names(client) == sorted(GATEWAY_TOOLS)
    home = await call(client, "gateway.home")
    assert [item["id"] for item in home["items"]] == [
        "clock.zone",
        "notes.count",
        "notes.read",
        "notes.write",
        "review",
    ]
    found = await call(client, "gateway.search", query="clock")
    (result,) = found["results"]
    started = await call(client, result["item"]["links"][0]["method"], **result["item"]["links"][0]["args"])
    zone = await call(client, "workflow.submit", **started["links"][0]["args"])
    assert zone["context"]["lastResult"]["stdout"] == "UTC\n"
    assert (await call(client, "gateway.describe", id="notes.read"))["links"][0]["input_schema"]["required"] == ["name"]
    assert (await call(client, "gateway.describe", id="notes.raed"))["error"]["nearest"][0] == "notes.read"
    given = {"capability": "notes.write", "arguments": {"name": "milk", "text": "two bottles"}}
    await call(client, "workflow.start", input=given)
    await call(client, "workflow.start", input={"capability": "notes.write", "arguments": {"name": "milk"}})
    for arguments in ({"definitionId": "reviews"}, {"definitionId": "review"}):
        await call(client, "workflow.start", input={}, **arguments)
