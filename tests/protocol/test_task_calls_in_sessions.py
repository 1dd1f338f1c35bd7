"""Calls of sessions as tasks, and versions without tasks."""

import asyncio

import pytest

from tests.protocol.busy import QUICKLY, WITHOUT_TASKS, accepted, busy_hub, reached, refusal, served
from tests.protocol.conftest import Json, asynchronous, idle
from waypost import Hub
from waypost.protocol.tasks import RELATED_TASK
from waypost.testing import connect
from waypost.wire.versions import V2025_11_25


@asynchronous
async def test_a_session_gets_a_task_when_it_requests_one() -> None:
    hub, work = busy_hub()
    async with served(hub, V2025_11_25) as client:
        created = await client.request("tools/call", {"name": "wait", "task": {"ttl": 5000}})
        task = created["task"]
        assert (task["status"], task["ttl"], set(created) - {"_meta"}) == ("working", 5000, {"task"})
        assert "ttlMs" not in task
        work.gate.set()
        assert (await reached(client, task["taskId"], "completed"))["taskId"] == task["taskId"]


@asynchronous
async def test_a_slow_call_of_a_session_without_a_task_request_is_not_a_task() -> None:
    hub, work = busy_hub()
    async with served(hub, V2025_11_25) as client:
        asyncio.get_running_loop().call_later(3 * QUICKLY, work.gate.set)
        assert (await client.call_tool("wait")).text == "through"


@asynchronous
async def test_a_session_must_request_a_required_task_and_must_not_request_a_forbidden_one() -> None:
    hub, _ = busy_hub()
    async with served(hub, V2025_11_25) as client:
        error = await refusal(client.call_tool("job"))
        assert (error.code, str(error)) == (-32601, "Tool job only runs as a task; call it with params.task.")
        error = await refusal(client.request("tools/call", {"name": "plain", "task": {}}))
        assert (error.code, str(error)) == (
            -32601,
            "Tool plain does not run as a task; call it without params.task.",
        )
        error = await refusal(client.request("tools/call", {"name": "nothing", "task": {}}))
        assert error.code == -32602
        error = await refusal(client.request("tools/call", {"name": "job", "task": {"ttl": "long"}}))
        assert (error.code, str(error)) == (
            -32602,
            "Invalid params.task: Expected `int | null`, got `str` - at `$.ttl`.",
        )
        assert (await client.request("tools/call", {"name": "plain", "task": None})).text == "plain"


@asynchronous
async def test_a_hub_without_task_tools_ignores_a_task_request() -> None:
    hub = Hub("plain", version="1")

    @hub.tool
    async def plain() -> str:
        """Never be a task."""
        return "plain"

    async with served(hub, V2025_11_25) as client:
        assert (await client.request("tools/call", {"name": "plain", "task": {"ttl": 5}})).text == "plain"
        assert (await refusal(client.request("tasks/list"))).code == -32601


@pytest.mark.parametrize("version", WITHOUT_TASKS)
def test_versions_without_tasks_make_plain_calls(version: str) -> None:
    async def run() -> None:
        hub, _ = busy_hub()
        async with served(hub, version) as client:
            assert (await client.call_tool("job")).text == "done"
            assert (await client.request("tools/call", {"name": "quick", "task": {}})).text == "quick"
            assert "execution" not in str(await client.list_tools())

    asyncio.run(run())


@asynchronous
async def test_only_the_version_with_task_support_lists_it() -> None:
    hub, _ = busy_hub()
    async with served(hub, V2025_11_25) as client:
        listed = {tool["name"]: tool.get("execution") for tool in await client.list_tools()}
    assert listed["wait"] == {"taskSupport": "optional"}
    assert listed["job"] == {"taskSupport": "required"}
    assert listed["plain"] in (None, {"taskSupport": "forbidden"})
    async with served(hub) as client:
        assert not any("execution" in tool for tool in await client.list_tools())


@asynchronous
async def test_a_task_of_a_session_asks_with_requests_that_name_it() -> None:
    asked: list[Json] = []

    def answer(params: Json) -> Json:
        asked.append(params)
        return accepted(name=params["message"])

    hub, _ = busy_hub()
    async with served(hub, V2025_11_25, elicitation=answer) as client:
        task_id = (await client.request("tools/call", {"name": "pair", "task": {}}))["task"]["taskId"]
        result = await client.request("tasks/result", {"taskId": task_id})
        assert result.text == "{'name': 'A?'} {'name': 'B?'}"
    assert [params["_meta"] for params in asked] == 2 * [{RELATED_TASK: {"taskId": task_id}}]


@asynchronous
async def test_a_session_gets_status_notifications_of_its_task() -> None:
    hub, work = busy_hub()
    async with served(hub, V2025_11_25) as client:
        task_id = (await client.request("tools/call", {"name": "wait", "task": {}}))["task"]["taskId"]
        work.gate.set()
        note = await client.assert_notification("tasks/status", taskId=task_id, status="completed")
        assert {"createdAt", "lastUpdatedAt", "ttl", "pollInterval"} <= set(note["params"])
        await client.request("tools/call", {"name": "broken", "task": {}})
        await client.assert_notification("tasks/status", status="failed")
        await idle()
        assert not hub.engine.tasks._watchers


@asynchronous
async def test_other_sessions_get_no_status_notifications_of_a_task() -> None:
    hub, work = busy_hub()
    async with served(hub, V2025_11_25) as client, connect(hub, V2025_11_25) as other:
        await client.request("tools/call", {"name": "wait", "task": {}})
        work.gate.set()
        await client.assert_notification("tasks/status", status="completed")
        await other.refute_notification("tasks/status")
