"""The examples of running a hub: serving, changing, asking, hooks, authentication and configuration."""

from __future__ import annotations

import sys
from typing import Any

from tests.docs.exercises import names, of, refusal
from waypost import Hub
from waypost.testing import TestClient
from waypost.wire.versions import is_modern


@of("serving.yaml")
async def exercise_serving(client: TestClient, hub: Hub) -> None:
    assert (client.server_info.name, client.server_info.version) == ("team", "1.2.0")
    assert "notes.write" in await names(client)


@of("embedding.py")
async def exercise_embedding(client: TestClient, _hub: Hub) -> None:
    assert (await client.call_tool("greet", {"name": "Ada"})).text == "Hello, Ada."


@of("changing.py")
async def exercise_changing(client: TestClient, _hub: Hub) -> None:
    if is_modern(client.version):
        async with client.listen(toolsListChanged=True):
            await change_twice(client)
    else:
        await change_twice(client)


async def change_twice(client: TestClient) -> None:
    await client.call_tool("learn", {"word": "hi"})
    await client.assert_notification("tools/list_changed")
    assert (await client.call_tool("say_hi")).text == "hi"
    await client.call_tool("forget", {"word": "hi"})
    await client.assert_notification("tools/list_changed")
    await client.refute_notification("tools/list_changed")
    assert await names(client) == ["forget", "learn"]


@of("hooks.py")
async def exercise_hooks(client: TestClient, hub: Hub) -> None:
    modern = is_modern(client.version)
    assert (await client.call_tool("whoami")).text == ("Somebody." if modern else "You are waypost.")
    assert (await client.call_tool("whoami")).text.endswith(".")
    assert sys.modules["waypost_file_hooks"].calls == ["whoami", "whoami"]
    if not modern:
        (session,) = hub.engine.sessions
        assert await hub.call(session.id, "greeting") == "You are waypost."


@of("asking.py")
async def exercise_asking(client: TestClient, _hub: Hub) -> None:
    needs: dict[str, Any] = {"requiredCapabilities": {"elicitation": {"form": {}}}}
    unable = "The client does not support elicitation.form."
    if not is_modern(client.version):
        refused = await client.call_tool("order", {"item": "cup"})
        assert (refused.is_error, refused.text) == (True, unable)
        return
    assert await refusal(client.call_tool("order", {"item": "cup"})) == (-32021, unable, needs)
    client.capabilities = {"elicitation": {}}
    sys.modules["waypost_file_asking"].orders.clear()
    asked = await client.call_tool("order", {"item": "cup"})
    ((key, question),) = asked["inputRequests"].items()
    assert question["params"]["message"] == "How many cups?"
    again = {
        "name": "order",
        "arguments": {"item": "cup"},
        "requestState": asked["requestState"],
        "inputResponses": {key: {"action": "accept", "content": {"amount": 3}}},
    }
    assert (await client.request("tools/call", again)).text == "Ordered 3 cups."
    assert sys.modules["waypost_file_asking"].orders == ["cup"]


@of("configuration/waypost.yaml")
async def exercise_configuration(client: TestClient, _hub: Hub) -> None:
    assert await names(client) == ["hello"]
    assert (await client.call_tool("hello", {"name": "Ada"})).text == "Hello, Ada."
    assert (await client.call_tool("uptime")).text == "Long enough."
    assert [prompt.name for prompt in await client.list_prompts()] == ["send-email"]


@of("configuration/includes.yaml")
async def exercise_includes(client: TestClient, _hub: Hub) -> None:
    assert client.server_info.name == "included"
    assert await names(client) == ["hello"]
    assert (await client.get_prompt("stand-up")).text == "Sum up what the team did today."
