"""The example of exposed capabilities, as an agent uses it."""

from __future__ import annotations

from tests.docs.exercises import of
from tests.docs.exercises_workflows import call, follow
from waypost import Hub
from waypost.testing import TestClient


@of("proxy.yaml")
async def exercise_proxy(client: TestClient, hub: Hub) -> None:
    tools = {tool["name"]: tool for tool in await client.list_tools()}
    assert {"text.count", "preview", "publish", "shop.listPets", "shop.addPet", "shop.get_pets_petId"} <= tools.keys()
    assert "shop.removePet" not in tools
    counted = await call(client, "text.count", text="one two")
    assert counted["stdout"].strip() == "2"
    assert tools["text.count"]["inputSchema"]["examples"] == [{"text": "one two"}]
    assert (await call(client, "preview"))["stdout"] == "published public\n"
    refused = await client.call_tool("publish", {})
    assert refused.text == 'publish is not allowed now: The caller lacks the role "editor".'
    begun = await call(client, "workflow.start", definitionId="proxy_default", input={"capability": "text.count"})
    after = await follow(client, begun, "text.count", arguments={"text": "one two three"})
    assert after["context"]["lastResult"]["stdout"].strip() == "3"
