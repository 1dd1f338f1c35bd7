"""The ports of examples of other projects do what the originals do."""

from __future__ import annotations

from tests.docs.exercises import names, of
from tests.docs.exercises_workflows import ADA, call, engine, follow, start
from waypost import Hub
from waypost.testing import TestClient


@of("coming_from/fastmcp.py")
async def exercise_fastmcp(client: TestClient, _hub: Hub) -> None:
    assert await names(client) == ["reserve", "search"]
    assert (await client.call_tool("search", {"title": "DU"})).text == '["dune"]'
    assert (await client.call_tool("reserve", {"titles": ["dune"]})).text == "Reserved dune."
    refused = await client.call_tool("reserve", {"titles": ["emma"]})
    assert refused.is_error and refused.text == "emma is not available."
    assert (await client.read_resource("book://dune")).text == '{"copies":2}'
    assert "sad" in (await client.get_prompt("recommend", {"mood": "sad"})).text


@of("coming_from/contextforge.yaml")
async def exercise_contextforge(client: TestClient, _hub: Hub) -> None:
    home = await call(client, "gateway.home")
    assert {item["id"] for item in home["items"]} == {"disk.free", "weather.forecast"}
    assert [entry["connection"] for entry in home["pending"]] == ["clock"]
    used = await call(client, "workflow.start", input={"capability": "disk.free", "arguments": {}})
    assert "Filesystem" in used["context"]["lastResult"]["stdout"]


@of("coming_from/temporal.yaml")
async def exercise_temporal(client: TestClient, hub: Hub) -> None:
    given = {"from": "checking", "to": "savings", "amount": 30, "reference": "r1"}
    waiting = await follow(client, await start(client, "transfer", **given), "approve")
    assert waiting["status"] == "waiting_for_approval"
    await engine(hub).approvals.approve(waiting["approval"]["id"], ADA, "cli")
    ended = await call(client, "workflow.get", workflowId=waiting["workflowId"])
    assert (ended["state"], ended["status"]) == ("done", "succeeded")
    balance = await client.call_tool("bank.withdraw", {"account": "savings", "amount": 1, "key": "x"})
    assert balance.text == "29"


@of("coming_from/flowgate.yaml")
async def exercise_flowgate(client: TestClient, _hub: Hub) -> None:
    used = await call(client, "workflow.start", input={"capability": "repo_status", "arguments": {}})
    assert used["context"]["lastResult"]["stdout"] == "clean"
    begun = await start(client, "feature")
    built = await follow(client, begun, "plan", arguments={"plan": "small steps"})
    assert (await follow(client, built, "finish"))["state"] == "done"


@of("coming_from/anubis.py")
async def exercise_anubis(client: TestClient, _hub: Hub) -> None:
    assert (await client.call_tool("calculator", {"operation": "add", "a": 1, "b": 2})).text == "3.0"
    refused = await client.call_tool("calculator", {"operation": "divide", "a": 1, "b": 0})
    assert refused.is_error and refused.text == "Cannot divide by zero."


@of("upstream-time.yaml")
async def exercise_upstream_time(client: TestClient, _hub: Hub) -> None:
    assert "gateway.search" in await names(client)
