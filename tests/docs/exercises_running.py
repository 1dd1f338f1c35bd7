"""The examples of running a hub: serving, changing, asking, tasks, hooks, authentication and configuration."""

from __future__ import annotations

import asyncio
import json
import os
import sys
from pathlib import Path
from typing import Any

from tests.docs.exercises import names, of, refusal
from tests.docs.pages import EXAMPLES, blocks
from tests.transports.http.conftest import Web
from waypost import Hub
from waypost.protocol.tasks import TASKS_EXTENSION
from waypost.testing import TestClient, connect
from waypost.upstreams.jsonrpc import Answerer
from waypost.wire.versions import V2025_11_25, V2026_07_28, is_modern


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


@of("table_component.py")
async def exercise_table_component(client: TestClient, _hub: Hub) -> None:
    assert await names(client) == ["orders.add", "orders.list"]
    assert (await client.call_tool("orders.add", {"title": "tea"})).text == "Added tea."
    assert json.loads((await client.call_tool("orders.list")).text) == ["tea"]


@of("hooks.py")
async def exercise_hooks(client: TestClient, hub: Hub) -> None:
    modern = is_modern(client.version)
    assert (await client.call_tool("whoami")).text == ("An unknown client." if modern else "You are waypost.")
    assert (await client.call_tool("whoami")).text.endswith(".")
    assert sys.modules["waypost_file_hooks"].calls == ["whoami", "whoami"]
    if not modern:
        (session,) = hub.engine.sessions
        assert await hub.call(session.id, "greeting") == "You are waypost."


@of("tasks.py")
async def exercise_tasks(client: TestClient, hub: Hub) -> None:
    example = sys.modules["waypost_file_tasks"]
    assert (await client.call_tool("pack", {"files": 1})).text == "Packed 1 files."
    if is_modern(client.version):
        await exercise_stateless_tasks(client, hub)
    elif client.version == V2025_11_25:
        await exercise_session_tasks(client, hub)
    else:
        assert (await client.call_tool("remove", {"name": "old.zip"})).is_error
        assert (await refusal(client.request("tasks/list")))[0] == -32601
    assert [await example.packed(files) for files in (1, 40)] == ["Packed 1 files.", "Packed 40 files."]


async def exercise_stateless_tasks(client: TestClient, hub: Hub) -> None:
    removed = sys.modules["waypost_file_tasks"].removed
    assert (await refusal(client.call_tool("remove", {"name": "old.zip"})))[0] == -32021
    assert (await client.call_tool("pack", {"files": 40})).text == "Packed 40 files."
    capabilities: dict[str, Any] = {"extensions": {TASKS_EXTENSION: {}}, "elicitation": {}}
    async with connect(hub, client.version, capabilities=capabilities) as able:
        for sure, said in ((False, "old.zip stays."), (True, "old.zip is gone.")):
            created = await able.call_tool("remove", {"name": "old.zip"})
            task_id = created["taskId"]
            async with able.listen(taskIds=[task_id]):
                task = await able.request("tasks/get", {"taskId": task_id})
                if task["status"] == "working":
                    await able.assert_notification("tasks", taskId=task_id, status="input_required")
                    task = await able.request("tasks/get", {"taskId": task_id})
                ((key, asked),) = task["inputRequests"].items()
                assert asked["params"]["message"] == "Remove old.zip?"
                answers = {key: {"action": "accept", "content": {"sure": sure}}}
                await able.request("tasks/update", {"taskId": task_id, "inputResponses": answers})
                ended = await able.assert_notification("tasks", taskId=task_id, status="completed")
            assert ended["params"]["result"]["content"][0]["text"] == said
    assert removed == ["old.zip"]


async def exercise_session_tasks(client: TestClient, hub: Hub) -> None:
    call: dict[str, Any] = {"name": "remove", "arguments": {"name": "old.zip"}}
    assert (await refusal(client.request("tools/call", call)))[0] == -32601
    asked: list[dict[str, Any]] = []

    def agree(params: dict[str, Any]) -> dict[str, Any]:
        asked.append(params)
        return {"action": "accept", "content": {"sure": True}}

    async with connect(hub, client.version, elicitation=agree) as able:
        task = (await able.request("tools/call", {**call, "task": {"ttl": 60_000}}))["task"]
        assert (task["status"], task["ttl"]) == ("working", 60_000)
        assert (await able.request("tasks/result", {"taskId": task["taskId"]})).text == "old.zip is gone."
        await able.assert_notification("tasks/status", taskId=task["taskId"], status="completed")
        assert [one["taskId"] for one in (await able.request("tasks/list"))["tasks"]] == [task["taskId"]]
        late = await refusal(able.request("tasks/cancel", {"taskId": task["taskId"]}))
        assert late[0] == -32602
    assert [params["message"] for params in asked] == ["Remove old.zip?"]


@of("store.py")
async def exercise_store(client: TestClient, hub: Hub) -> None:
    file = Path(os.environ["WAYPOST_DATA"]) / "archive.db"
    assert not await asyncio.to_thread(file.exists)
    if not is_modern(client.version):
        return
    async with connect(hub, client.version, capabilities={"extensions": {TASKS_EXTENSION: {}}}) as able:
        task_id = (await able.call_tool("pack", {"folder": "old"}))["taskId"]
        async with able.listen(taskIds=[task_id]):
            if (await able.request("tasks/get", {"taskId": task_id}))["status"] == "working":
                await able.assert_notification("tasks", taskId=task_id, status="completed")
    kept = await hub.store.tasks.load(task_id)
    assert kept is not None and kept.result is not None
    assert kept.result["content"][0]["text"] == "old is packed."
    assert await asyncio.to_thread(file.exists)


@of("store.yaml")
async def exercise_store_yaml(client: TestClient, hub: Hub) -> None:
    assert client.server_info.name == "archive"
    assert (await hub.health())["db"] == "ok"
    assert await asyncio.to_thread((Path(os.environ["WAYPOST_DATA"]) / "waypost.db").exists)


@of("asking.py")
async def exercise_asking(client: TestClient, hub: Hub) -> None:
    unable = "The client does not support elicitation.form."
    if is_modern(client.version):
        needs: dict[str, Any] = {"requiredCapabilities": {"elicitation": {"form": {}}}}
        assert await refusal(client.call_tool("order", {"item": "cup"})) == (-32021, unable, needs)
    else:
        refused = await client.call_tool("order", {"item": "cup"})
        assert (refused.is_error, refused.text) == (True, unable)
    orders = sys.modules["waypost_file_asking"].orders
    for action, said in (
        ("accept", "Ordered 3 cups."),
        ("decline", "Nothing ordered."),
        ("cancel", "Nothing ordered."),
    ):
        orders.clear()
        asked: list[dict[str, Any]] = []
        async with connect(hub, client.version, elicitation=answering(action, asked)) as able:
            assert (await able.call_tool("order", {"item": "cup"})).text == said
        assert [question["message"] for question in asked] == ["How many cups?"]
        assert orders == ["cup"]
    async with connect(
        hub, client.version, sampling=summary, roots=lambda _: {"roots": [{"uri": "file:///a"}]}
    ) as able:
        assert (await able.call_tool("summarize", {"text": "a long story"})).text == "In short: a long story"
        assert (await able.call_tool("places")).text == '["file:///a"]'


def answering(action: str, asked: list[dict[str, Any]]) -> Answerer:
    """A user who answers every form like this, and records the questions."""

    def answer(params: dict[str, Any]) -> dict[str, Any]:
        asked.append(params)
        return {"action": action, "content": {"amount": 3}} if action == "accept" else {"action": action}

    return answer


def summary(params: dict[str, Any]) -> dict[str, Any]:
    """A model that repeats its input."""
    assert params["systemPrompt"] == "Sum up in one sentence."
    said = params["messages"][0]["content"]["text"]
    return {"role": "assistant", "model": "none", "content": {"type": "text", "text": f"In short: {said}"}}


@of("authentication.py")
async def exercise_authentication(client: TestClient, hub: Hub) -> None:
    assert await names(client) == ["whoami"]
    assert (await client.call_tool("whoami")).text == "anonymous"
    refused = await refusal(client.call_tool("write", {"text": "Hello"}))
    assert refused == (-32000, "insufficient_scope", {"required": ["notes:write"], "granted": []})
    web = Web(hub)
    assert (await web.modern("tools/list")).status == 401
    key = {"authorization": "Bearer wp_example-only-make-your-own"}
    sys.modules["waypost_file_authentication"].notes.clear()
    written = await web.modern("tools/call", {"name": "write", "arguments": {"text": "Hello"}}, key)
    assert written.json["result"]["content"][0]["text"] == "Written."
    assert sys.modules["waypost_file_authentication"].notes == ["ci: Hello"]


@of("authentication.yaml")
async def exercise_configured_authentication(_client: TestClient, hub: Hub) -> None:
    assert hub.auth is not None
    assert [(key.id, key.expires is not None) for key in hub.auth.keys] == [("ci", True)]
    refused = await Web(hub).modern("tools/list")
    assert 'scope="notes:read"' in refused.headers["www-authenticate"]
    assert hub.auth.oauth is not None
    assert hub.auth.oauth.grants.roles_claim == "realm_access.roles"


@of("authentication_oauth.py")
async def exercise_oauth(client: TestClient, hub: Hub) -> None:
    assert await names(client) == []
    web = Web(hub)
    refused = await web.modern("tools/list", headers={"host": "hub.example.com"})
    described = "https://hub.example.com/.well-known/oauth-protected-resource/mcp"
    challenge = f'Bearer resource_metadata="{described}", scope="notes:read notes:write"'
    assert (refused.status, refused.headers["www-authenticate"]) == (401, challenge)
    document = next(json.loads(block.text) for block in blocks("json") if "authorization_servers" in block.text)
    for path in ("/.well-known/oauth-protected-resource/mcp", "/.well-known/oauth-protected-resource"):
        found = await web.open("GET", path=path).done()
        assert (found.status, json.loads(found.body)) == (200, document)


@of("authentication_introspection.py")
async def exercise_introspection(client: TestClient, hub: Hub) -> None:
    assert (await client.call_tool("whoami")).text == "anonymous"
    refused = await Web(hub).modern("tools/list")
    assert (refused.status, json.loads(refused.body)) == (401, {"error": "Missing Authorization header"})


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


@of("telemetry.py")
async def exercise_telemetry(client: TestClient, _hub: Hub) -> None:
    assert (await client.call_tool("ship", {"order": "A7"})).text == "Order A7 is on its way."
    if is_modern(client.version):
        (shown,) = (json.loads(block.text) for block in blocks("json") if block.page.name == "telemetry.md")
        spans = await spans_of_a_call(shown)
        parents = {span["name"]: span["parent_id"] for span in spans.values()}
        inside = {name: spans[parent]["name"] for name, parent in parents.items() if parent in spans}
        assert inside == {"pack": "run ship", "run ship": "tools/call ship"}
        assert parents["tools/call ship"] == "0x" + shown["_meta"]["traceparent"].split("-")[2]
        (request,) = (span for span in spans.values() if span["name"] == "tools/call ship")
        assert request["attributes"]["orders.client"] == "shop"


async def spans_of_a_call(params: dict[str, Any]) -> dict[str, dict[str, Any]]:
    """The spans of a call, by id; the example runs in its own process, because its SDK would trace every test."""
    envelope = {
        "io.modelcontextprotocol/protocolVersion": V2026_07_28,
        "io.modelcontextprotocol/clientCapabilities": {},
        "io.modelcontextprotocol/clientInfo": {"name": "shop", "version": "1"},
    }
    given = {**params, "_meta": {**params["_meta"], **envelope}}
    message = json.dumps({"jsonrpc": "2.0", "id": 1, "method": "tools/call", "params": given}).encode()
    pipe = asyncio.subprocess.PIPE
    process = await asyncio.create_subprocess_exec(
        sys.executable, EXAMPLES / "telemetry.py", stdin=pipe, stdout=pipe, stderr=pipe
    )
    assert process.stdin is not None and process.stdout is not None
    process.stdin.write(message + b"\n")
    assert b"A7 is on its way" in await process.stdout.readline()
    _, stderr = await process.communicate(b"")
    text, spans = stderr.decode(), {}
    while (start := text.find("{")) >= 0:
        span, end = json.JSONDecoder().raw_decode(text, start)
        spans[span["context"]["span_id"]] = span
        text = text[end:]
    return spans
